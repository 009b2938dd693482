"""What the page asks: JSON for who may see it, its own script, reports. Every route is for users; none changes a thing.

Names of topics, groups and hosts are whatever somebody chose: they leave here as JSON, or in pages that may run nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, JSONResponse

from airflow_mirror.cutover.html import RELOADS, render
from airflow_mirror.cutover.report import HTML_NAME
from airflow_mirror.errors import MirrorError
from airflow_mirror.hooks.home import home
from airflow_mirror.page import files, first_plans
from airflow_mirror.page.actions import actions_of
from airflow_mirror.page.approvals import Approval, by_mirror, waiting
from airflow_mirror.page.course import charts
from airflow_mirror.page.looks import Looks
from airflow_mirror.page.rights import Rights
from airflow_mirror.page.rows import PHASES

WAIT_S = 2.0  # for a target that answers for the first time
# When to ask again for what is not known yet: for programs, and for whoever opened a link.
_AGAIN = {"Retry-After": "3", "Refresh": "3"}
_OWN = dict.fromkeys(("page.js", "parts.js", "drawings.js"), "text/javascript")
_OWN |= dict.fromkeys(("icon.svg", "icon_dark.svg"), "image/svg+xml")
# Nothing that is served here runs, loads or frames anything; the script is run by Airflow's page, under its own rules.
_CSP = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _rights(user: Annotated[BaseUser, Depends(get_user)]) -> Rights:
    return Rights(user)


Allowed = Annotated[Rights, Depends(_rights)]


def make_app(looks: Looks, wait_s: float = WAIT_S) -> FastAPI:
    """Return the application. :param wait_s: how long a route waits for what nobody has seen yet."""
    # For every route, those to come too: a plugin's are open to everybody by default.
    app = FastAPI(title="Mirrors", dependencies=[Depends(get_user)], docs_url=None, redoc_url=None, openapi_url=None)
    page = _Page(looks, wait_s)
    app.get("/list")(page.every)
    app.get("/one")(page.one)
    app.get("/clients")(page.clients)
    app.get("/group")(page.group)
    app.get("/files/{mirror}/{path:path}")(page.file)
    app.get("/{name}")(_own)
    app.exception_handler(MirrorError)(lambda _, error: JSONResponse({"detail": str(error)}, 503))

    @app.middleware("http")
    async def with_headers(request: Request, call_next: Any) -> Response:
        answer: Response = await call_next(request)
        answer.headers.update(_HEADERS)
        return answer

    return app


class _Page:
    """The routes that show something of a mirror."""

    def __init__(self, looks: Looks, wait_s: float) -> None:
        self._looks, self._wait_s = looks, wait_s

    def every(self, rights: Allowed) -> dict[str, Any]:
        """Return the targets and the mirrors that a user may see; a target that he sees no mirror of is not there."""
        looked = self._looks.targets(self._wait_s)
        plans = first_plans.unknown_to(looked, first_plans.refused(), rights.sees)
        return self._every(rights, looked) | {"first_plans": [one.to_dict() for one in plans]}

    def _every(self, rights: Rights, looked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        mirrors = [(one, row) for one in looked for row in one["mirrors"] if rights.sees(row["dag"])]
        rows = [row | {"error": one["error"], "at": one.get("at")} for one, row in mirrors]
        waits = by_mirror(waiting(row["dag"] for row in rows), rows, rights.sees_approvals)
        with_mirrors = {row["target_id"] for row in rows}
        shown = (one for one in looked if one["target_id"] in with_mirrors or (one["error"] and rights.reads_all))
        return {
            "targets": [_target(one, rights) for one in shown],
            "mirrors": [_told(row, rights, waits.get((row["target_id"], row["mirror"]), [])) for row in rows],
            "looking": any(one.get("looking") for one in looked), "phases": PHASES, "now": time.time(),
        }  # fmt: skip

    def one(self, rights: Allowed, target: str, mirror: str) -> dict[str, Any]:
        """Return one mirror. One that does not exist, and one that a user may not see, are the same to him."""
        looked, rows = self._looked(rights, target, mirror)
        closely = self._looks.mirror(target, mirror, self._wait_s)
        if closely is not None:  # a drill has a mirror of its own, which is another DAG's
            seen = {name: its for name, its in closely["drills"].items() if name in rows or rights.reads_all}
            closely = {**closely, "drills": seen}
        may = _may(rights.sees, looked, mirror)
        return {
            "row": rows[mirror], "phases": PHASES, "now": time.time(), "closely": closely,
            "files": files.reports_of(home(), mirror) if may else [], "files_unknown": not may and not _all_heard(looked),
            "course": [asdict(chart) for chart in charts(self._looks.course(target, mirror))],
        }  # fmt: skip

    def _looked(
        self, rights: Rights, target: str, mirror: str
    ) -> tuple[Sequence[Mapping[str, Any]], dict[str, dict[str, Any]]]:
        """Return what targets say, and the mirrors of one of them that a user sees, by name; among them ``mirror``."""
        looked = self._looks.targets(self._wait_s)
        rows = {row["mirror"]: row for row in self._every(rights, looked)["mirrors"] if row["target_id"] == target}
        if mirror not in rows:
            raise _not_there(looked, "no such mirror")
        return looked, rows

    def clients(self, rights: Allowed, target: str, mirror: str) -> dict[str, Any]:
        """Return who reads and writes a mirror's topics: asked for this, and not by a look at the mirror."""
        self._looked(rights, target, mirror)
        return self._looks.clients(target, mirror, self._wait_s) or {"looking": True}

    def group(self, rights: Allowed, target: str, mirror: str, group: str) -> dict[str, Any]:
        """Return the committed offsets of one of a mirror's groups: one look at all of them, whoever asks for which."""
        self._looked(rights, target, mirror)
        found = self._looks.groups(target, mirror, self._wait_s)
        return {"looking": True} if found is None else {**found, "groups": None, "group": found["groups"].get(group)}

    def file(self, rights: Allowed, mirror: str, path: str) -> Response:
        """Return a file of a mirror; a cutover's report from its target where this host lacks the file."""
        looked = self._looks.targets(self._wait_s)
        if not _may(rights.sees_logs if path.endswith("log.txt") else rights.sees, looked, mirror):
            raise _not_there(looked, "no such file")
        if (there := files.served(home(), f"{mirror}/{path}")) is not None:
            return FileResponse(there, headers=_reloads(files.head_of(there)), media_type=files.TYPES[there.suffix])
        directory, _, rest = path.partition("/")
        run, _, name = rest.partition("/")
        targets = [one["target_id"] for one in looked if any(row["mirror"] == mirror for row in one["mirrors"])]
        if (directory, name) == ("runs", HTML_NAME) and (text := self._report(targets, mirror, run)) is not None:
            return Response(text, headers=_reloads(text), media_type="text/html")
        raise HTTPException(404, "this host has no such file: it lies on the disk of the worker that wrote it")

    def _report(self, targets: Sequence[str], mirror: str, run: str) -> bytes | None:
        """Return the page of a cutover from the first target that has it; None: all have said that they have it not."""
        said = [self._looks.reports(target, mirror, self._wait_s) for target in targets]
        for one in said:
            if one is not None and (report := one["reports"].get(run)) is not None:
                return render(report).encode()
        for one in said:
            if one is None or one["error"]:  # who follows a night in a tab must not have to reload it
                raise HTTPException(503, "its target is still being asked" if one is None else one["error"], _AGAIN)
        return None


def _may(sees: Callable[[str | None], bool], looked: Sequence[Mapping[str, Any]], mirror: str) -> bool:
    """Return whether a user sees every mirror of a name, planned ones too: they share a directory. Of a name without
    any: all that is.

    A target that was never heard may have one, which is as good as a mirror that notes no DAG. If it stays away, so do
    these files: nothing else says whose they are. Who reads every DAG sees them, and `[mirror] targets` leaves it out.
    """
    dags = {row["dag"] for one in looked for row in one["mirrors"] if row["mirror"] == mirror}
    dags |= {one["planned"][mirror] for one in looked if mirror in one["planned"]}
    if not dags or not _all_heard(looked):
        dags.add(None)
    return all(sees(dag) for dag in dags)


def _all_heard(looked: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether each target has said once which mirrors it has; what it said then stays, should it fall silent."""
    return all(one.get("at") for one in looked)


def _not_there(looked: Sequence[Mapping[str, Any]], what: str) -> HTTPException:
    """Return the error for what a user does not see: the same for all that there is, and is not.

    Whose a mirror is only its target says. One that was never heard may be the one to say that it is this user's.
    """
    if _all_heard(looked):
        return HTTPException(404, what)
    return HTTPException(503, "a target is still being asked, or does not answer: not known yet whose this is", _AGAIN)


def _reloads(page: bytes) -> dict[str, str]:
    """Return the header for a page that says in its head that it is to be read again.

    In a sandbox a browser does not hear the page itself (HTML, "shared declarative refresh steps"): only its server.
    """
    found = RELOADS.search(page[: files.HEAD_BYTES])  # no name comes before it, and each is escaped
    return {} if found is None else {"Refresh": found[1].decode()}


def _target(one: Mapping[str, Any], rights: Rights) -> dict[str, Any]:
    """Return what is told of a target. Keys that a newer version wrote have names in them, of whatever mirror."""
    newer = one.get("newer") or []
    told = {key: one.get(key) for key in ("target_id", "error", "at")}
    return told | {"newer": newer if rights.reads_all else [], "newer_count": len(newer)}


def _told(row: dict[str, Any], rights: Rights, waits: list[Approval]) -> dict[str, Any]:
    """Return a mirror with what is for this user alone: what he may do, and what he may answer."""
    own = {"actions": actions_of(row, rights.starts), "approvals": [one.to_dict() for one in waits]}
    return row | own | {"needs_person": row["needs_person"] or bool(waits)}


def _own(name: str) -> Response:
    if name not in _OWN:
        raise HTTPException(404, "no such file")
    return Response((resources.files(__package__) / name).read_bytes(), media_type=_OWN[name])
