"""What looks at targets and at mirrors: one reader of each, in threads, while somebody asks."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from contextlib import ExitStack
from functools import partial
from typing import Any

from airflow.models.connection import Connection
from airflow.sdk import conf
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_mirror.console.status import View
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import reports_of, text_in
from airflow_mirror.errors import InputError, LedgerMissing, MirrorError, UnknownConnection
from airflow_mirror.hooks.health import facts_of
from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.jobs.health.judging import Facts, Limits, judge
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import REPORT
from airflow_mirror.mirror import Mirror
from airflow_mirror.page.course import Courses, Seen
from airflow_mirror.page.rows import findings_of, night_of, plan_of, row_of, topics_of
from airflow_mirror.page.single import Single, Threads
from airflow_mirror.plan import Plan, ledger_store
from airflow_mirror.plan.findings import worst_first

log = logging.getLogger(__name__)

FRESH_S = 3.0  # of a target
CLOSELY_FRESH_S = 10.0  # of one mirror: both clusters are asked, for some ten seconds
_CONNECTIONS_FRESH_S = 15.0
_FORGOTTEN_S = 300.0  # nobody asked for so long: its connections are closed
_ANSWER_S = 5.0  # a cluster that takes longer is away: somebody sits in front of the page
_THREADS = 8, 4  # for targets, and for mirrors: nobody's closer look keeps the list waiting


class _Look:
    """Keeps connections between two looks. Belongs to one thread at a time."""

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._open = ExitStack()
        self._config: Any = None

    def close(self) -> None:
        """Close the connections; the next look opens them again."""
        self._open.close()
        self._config = None

    def _admin(self, conn_id: str, role: str) -> ClusterAdmin:
        return self._open.enter_context(ClusterAdmin(MirrorKafkaHook(conn_id, role).config(), _ANSWER_S))

    def _changed(self) -> bool:
        """Return whether the target's settings are others than those that are used; they are from now on."""
        before, self._config = self._config, MirrorKafkaHook(self.conn_id, "target").config()
        if before == self._config:
            return False
        self._open.close()
        return True

    def _told(self, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what a look has found, or why nothing was: one target must not take the others' place on the page."""
        try:
            return look()
        except MirrorError as e:
            self.close()
            return {"error": str(e)}
        except Exception:
            self.close()
            log.exception("connection %s could not be looked at", self.conn_id)
            return {"error": "it could not be looked at: the API server's log says why"}


class TargetLook(_Look):
    """What the ledger of one target says: ``mirrors``, ``newer``, or ``error`` with the mirrors as they were before."""

    def __init__(self, courses: Courses, conn_id: str) -> None:
        super().__init__(conn_id)
        self._courses = courses
        self._view: View | None = None
        self._mirrors: list[dict[str, Any]] = []
        self._plans: dict[str, tuple[str, Mirror | None]] = {}  # by mirror

    def __call__(self) -> dict[str, Any]:
        """Look."""
        return {"target_id": self.conn_id, "mirrors": self._mirrors, "error": None, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        if self._changed() or self._view is None:
            self._target = self._admin(self.conn_id, "target")
            self._view = View(self._target)
        try:
            rows = self._view.rows()
        except LedgerMissing:
            rows = []  # a source, or a cluster that no mirror writes to
        self._mirrors = [row_of(self.conn_id, self._view, row, self._planned) for row in rows]
        now = time.time()
        self._courses.see(self._mirrors, now)
        return {"mirrors": self._mirrors, "newer": sorted(self._view.newer), "at": now}

    def _planned(self, mirror: str, plan_hash: str) -> Mirror | None:
        if self._plans.get(mirror, ("",))[0] != plan_hash:
            try:
                found = ledger_store.fetch_rule(plan_hash, mirror, self._target).mirror
            except InputError:  # not kept, or not readable: the list does without
                found = None
            self._plans[mirror] = plan_hash, found
        return self._plans[mirror][1]


class MirrorLook(_Look):
    """What both clusters say of one mirror, and what its target keeps of it."""

    def __init__(self, conn_id: str, mirror: str) -> None:
        super().__init__(conn_id)
        self.mirror = mirror
        self._plan: Plan | None = None

    def __call__(self) -> dict[str, Any]:
        """Look."""
        return {"error": None, "plan": None, "topics": [], "checks": [], "night": None, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        if self._changed():
            self._target = self._admin(self.conn_id, "target")
            self._ledger, self._reports = Ledger(self._target), reports_of(self._target, self.mirror)
            self._source: ClusterAdmin | None = None
        values = self._ledger.values()
        last = ledger_store.last_hash(values, self.mirror)
        if last is None:
            return {"at": time.time()}
        if self._plan is None or self._plan.revision != ledger_store.revision(values, self.mirror, last):
            self._plan = ledger_store.fetch(last, self.mirror, self._target, self._ledger)
        facts, why = self._facts(self._plan)
        reports = reports_in(self._reports.read(), self.mirror)
        return {
            "plan": plan_of(self._plan), "topics": topics_of(self._plan, facts), "night": night_of(reports),
            "checks": findings_of(worst_first(judge(facts, Limits())) if facts else []), "unknown": why,
            "runs": sorted(reports, key=lambda run: -reports[run].updated)[:50], "at": time.time(),
        }  # fmt: skip

    def _facts(self, plan: Plan) -> tuple[Facts | None, str | None]:
        """Return what both clusters say; or why nobody knows: the ledger names the source as whoever planned does."""
        try:
            if self._source is None:
                self._source = self._admin(plan.mirror.source, "source")
        except UnknownConnection:
            return None, f"this Airflow has no connection {plan.mirror.source!r}: the source was not asked"
        if self._source.cluster_id() != plan.source_cluster_id:
            return None, f"connection {plan.mirror.source!r} leads to another cluster here: the source was not asked"
        return facts_of(plan.mirror, plan, self._source, self._target, Limits(), log.info), None


class Looks:
    """All looks of this process."""

    def __init__(self) -> None:
        self._targets, self._mirrors = (Threads(most) for most in _THREADS)
        self._ids = Single(target_ids, _CONNECTIONS_FRESH_S, self._targets)
        self._looks: dict[tuple[str, ...], tuple[_Look, Single[dict[str, Any]]]] = {}
        self._courses = defaultdict[str, Courses](Courses)  # outlive the looks, which close their connections

    def targets(self, wait_s: float) -> list[dict[str, Any]]:
        """Return what each target said last; ``looking``: nothing yet, and ``wait_s`` are over."""
        ids = self._ids.get(wait_s) or []
        singles = [
            self._single(partial(TargetLook, self._courses[one]), FRESH_S, self._targets, one) for one in ids
        ]  # fmt: skip
        wait([one.begin() for one in singles], wait_s)
        self.forget()
        looking: dict[str, Any] = {"mirrors": [], "error": None, "looking": True}
        return [one.last or {"target_id": id_, **looking} for id_, one in zip(ids, singles, strict=True)]

    def mirror(self, conn_id: str, name: str, wait_s: float) -> dict[str, Any] | None:
        """Return what was found of a mirror last; None: nothing yet."""
        return self._single(MirrorLook, CLOSELY_FRESH_S, self._mirrors, conn_id, name).get(wait_s)

    def course(self, conn_id: str, mirror: str) -> list[Seen]:
        """Return what was seen of a mirror's figures for some hours; see :mod:`.course`."""
        return self._courses[conn_id].of(mirror)

    def report(self, conn_id: str, mirror: str, run: str) -> CutoverReport | None:
        """Return the last report of a cutover from its target; None: there is none."""
        with ClusterAdmin(MirrorKafkaHook(conn_id, "target").config()) as target:
            return reports_in(reports_of(target, mirror).read(), mirror).get(run)

    def _single(self, kind: Callable[..., Any], fresh_s: float, threads: Threads, *key: str) -> Single[dict[str, Any]]:
        if key not in self._looks:
            look = kind(*key)
            self._looks.setdefault(key, (look, Single(look, fresh_s, threads)))
        return self._looks[key][1]

    def forget(self, asked_s_ago: float = _FORGOTTEN_S) -> None:
        """Close the connections of what nobody has asked for since."""
        for key, (look, single) in list(self._looks.items()):
            if time.monotonic() - single.asked >= asked_s_ago and single.rests:
                self._looks.pop(key, None)
                look.close()


def target_ids() -> list[str]:
    """Return the ids of the connections that may lead to targets: ``[mirror] targets``, or all of type ``kafka``."""
    named = str(conf.get("mirror", "targets", fallback="") or "").replace(",", " ").split()
    if named:
        return named
    with create_session() as session:
        return sorted(session.scalars(select(Connection.conn_id).where(Connection.conn_type == "kafka")))


def reports_in(values: Mapping[str, bytes], mirror: str) -> dict[str, CutoverReport]:
    """Return the last report of each cutover of a mirror, by run; what can't be read is left out."""
    found = dict[str, CutoverReport]()
    for run in REPORT.under(values, mirror):
        try:
            found[run] = CutoverReport.from_json(text_in(values, mirror, run) or "", f"report {run}")
        except InputError as e:
            log.info("%s", e)
    return found
