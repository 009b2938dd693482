"""Links of tasks in Airflow's UI, to files below ``[mirror] home``: served by the page, or at ``[mirror] files_url``.

Airflow asks a link's class in the worker, when the task has ended, and the UI reads the answer from an XCom. So a task
pushes its links itself as soon as it knows them: the page of a cutover is looked at most while it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from airflow_mirror.hooks.home import url_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey


class _FileLink(BaseOperatorLink):
    """A link to one file, in a directory that is known once the task runs."""

    file: str = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return what the task has pushed; "" if it never came so far."""
        shown: dict[str, str] = getattr(operator, "shown_links", {})
        return shown.get(self.xcom_key, "")


class ReportLink(_FileLink):
    """To the page of a cutover."""

    name = "Report"
    file = "report.html"


class DrillLink(_FileLink):
    """To the page of a drill, with the trend of the last ones."""

    name = "Drill"
    file = "drill.html"


class NightLink(_FileLink):
    """To the plan for the night."""

    name = "Plan for the night"


class JobLogLink(_FileLink):
    """To the log of a job."""

    name = "Job log"
    file = "log.txt"


class LiveStateLink(_FileLink):
    """To what a job says of itself every two seconds."""

    name = "Live state"
    file = "status.json"


def show_links(operator: Any, context: Context, directory: Path | str) -> None:
    """Let the UI show an operator's links to files in a directory. Nothing if these are served nowhere."""
    for link in operator.operator_extra_links:
        if isinstance(link, _FileLink):
            _show(operator, context, link, Path(directory) / link.file)


def show_file(operator: Any, context: Context, file: Path) -> None:
    """Let the UI show the one link of an operator whose file has a name of its own. Nothing if it is served nowhere."""
    (link,) = operator.operator_extra_links
    _show(operator, context, link, file)


def _show(operator: Any, context: Context, link: _FileLink, file: Path) -> None:
    if url := url_of(file):
        operator.shown_links[link.xcom_key] = url
        context["ti"].xcom_push(key=link.xcom_key, value=url)
