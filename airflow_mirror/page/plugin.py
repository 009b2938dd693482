"""What Airflow is told of the page. Task processes load it too: FastAPI is imported by the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

from airflow_mirror.example_dags.timetable import BackfillTimetable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = "mirrors"


class _Later:
    """The page's application, made when it is asked first."""

    def __init__(self) -> None:
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            from airflow_mirror.page.app import make_app
            from airflow_mirror.page.looks import Looks

            self._app = make_app(Looks())
        await self._app(scope, receive, send)


def _shown(name: str, destination: str, **more: object) -> dict[str, Any]:
    """Return one place. Addresses are relative: Airflow resolves them against its own, which may lie below a path."""
    icons = {"icon": f"{PREFIX}/icon.svg", "icon_dark_mode": f"{PREFIX}/icon_dark.svg"}
    return {"name": name, "destination": destination, "bundle_url": f"{PREFIX}/page.js", **icons, **more}


class MirrorPlugin(AirflowPlugin):
    """An entry in the navigation, a tab of runs and tasks, a strip at Home, and what these ask; and a timetable."""

    name = "airflow_mirror"
    timetables = [BackfillTimetable]
    fastapi_apps = [{"app": _Later(), "url_prefix": f"/{PREFIX}", "name": "airflow_mirror"}]
    react_apps = [
        _shown("Mirrors", "nav", url_route="mirrors", nav_top_level=True),
        _shown("Mirror", "dag_run", url_route="mirror-of-run"),
        _shown("Mirror", "task_instance", url_route="mirror-of-task"),
        _shown("MirrorsAtHome", "dashboard", url_route="mirrors-at-home"),
    ]
