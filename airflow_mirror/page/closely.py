"""Closer looks at one mirror: what both clusters say of it, its drills, and its clients."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import reports_of, text_in
from airflow_mirror.errors import InputError, MirrorError, UnknownConnection
from airflow_mirror.extras.clients.commits import Commits
from airflow_mirror.extras.clients.inventory import WATCH_S, look, opened_at
from airflow_mirror.extras.drill.store import Drills
from airflow_mirror.hooks.health import facts_of
from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.jobs.health.judging import Limits, judge_seen
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import DRILL, REPORT
from airflow_mirror.ledger.state import state_of
from airflow_mirror.page.look import ANSWER_S, Look
from airflow_mirror.page.rows import (
    MOST,
    clients_in,
    drills_in,
    findings_of,
    group_of,
    night_of,
    plan_of,
    positions_as_planned,
    topics_of,
)
from airflow_mirror.plan import Plan, ledger_store
from airflow_mirror.plan.findings import worst_first

log = logging.getLogger(__name__)

_AT_A_TIME = 20  # groups whose positions are in memory: each may have one in 10,000 partitions


class _PlannedLook(Look):
    """A look at both clusters of a mirror, by its last plan."""

    def __init__(self, conn_id: str, mirror: str) -> None:
        super().__init__(conn_id)
        self.mirror = mirror
        self._plan: Plan | None = None
        self._source: ClusterAdmin | None = None
        self._source_as: tuple[str, ClientConfig] | None = None  # connection id, and settings, of what is open

    def close(self) -> None:
        """Close the connections to both clusters; the next look opens them again."""
        self._close_source()
        super().close()

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None

    def _last_plan(self) -> Plan | None:
        """Return the mirror's last plan, as it is amended by now; None: it has none."""
        if self._changed():
            self._target = self._admin(self.conn_id, "target")
            self._ledger, self._reports = Ledger(self._target), reports_of(self._target, self.mirror)
            self._drills = state_of(self._target, DRILL.below())
        values = self._ledger.values()
        last = ledger_store.last_hash(values, self.mirror)
        if last is None:
            return None
        if self._plan is None or self._plan.revision != ledger_store.revision(values, self.mirror, last):
            self._plan = ledger_store.fetch(last, self.mirror, self._target, self._ledger)
        return self._plan

    def _source_of(self, plan: Plan) -> ClusterAdmin | str:
        """Return a plan's source; or why it is not asked: the ledger names the source as whoever planned does.

        One that is gone takes nothing of what the target says with it: that is what a failover is decided by.
        """
        conn_id = plan.mirror.source
        try:
            source = self._source_by(conn_id)
            if source.cluster_id() == plan.source_cluster_id:
                return source
            why = f"connection {conn_id!r} leads to another cluster here: the source was not asked"
        except UnknownConnection:
            why = f"this Airflow has no connection {conn_id!r}: the source was not asked"
        except MirrorError as e:
            why = str(e)
        self._close_source()
        return why

    def _source_by(self, conn_id: str) -> ClusterAdmin:
        """Return what asks the source by a connection's settings as they are now: it is the plan's, or was corrected."""
        wanted = conn_id, MirrorKafkaHook(conn_id, "source").config()
        if self._source is None or self._source_as != wanted:
            self._close_source()
            self._source, self._source_as = ClusterAdmin(wanted[1], ANSWER_S), wanted
        return self._source


class MirrorLook(_PlannedLook):
    """What both clusters say of one mirror, and what its target keeps of it.

    ``checked``: both were looked at, so that no finding means that nothing is wrong; ``error`` or ``unknown`` says why
    they were not.
    """

    def __call__(self) -> dict[str, Any]:
        """Look."""
        nothing: dict[str, Any] = {"plan": None, "topics": [], "checks": [], "night": None, "drills": {}, "runs": []}
        return {"error": None, "unknown": None, "checked": False, **nothing, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        plan = self._last_plan()
        reports = reports_in(self._reports.read(), self.mirror)
        runs = sorted(reports, key=lambda run: -reports[run].updated)[:50]
        kept = {"night": night_of(reports), "runs": runs, "at": time.time()}
        if plan is None:
            return {"unknown": "it has no plan: nobody knows what to look at", **kept}
        source, facts = self._source_of(plan), None
        if isinstance(source, ClusterAdmin):
            facts = facts_of(plan.mirror, plan, source, self._target, Limits(), log.info)
        return {
            **kept, "plan": plan_of(plan), "topics": topics_of(plan, facts), "checked": facts is not None,
            "checks": findings_of(worst_first(judge_seen(facts, Limits())) if facts else []),
            "unknown": None if facts else source, "drills": self._drilled(plan), "at": time.time(),
        }  # fmt: skip

    def _drilled(self, plan: Plan) -> dict[str, Any]:
        """Return what drills have found, by the drill's own mirror: of this one, or between its clusters."""
        found = {}
        for name in DRILL.under(self._drills.read()):
            every = Drills(self._drills, name).all()
            ours = [one for one in every if name == self.mirror or one.source_id == plan.source_cluster_id]
            if ours:
                found[name] = drills_in(ours)
        return found


class ClientsLook(_PlannedLook):
    """Who reads and writes a mirror's topics, and who of them has come to its target."""

    def __init__(self, conn_id: str, mirror: str) -> None:
        super().__init__(conn_id, mirror)
        self._commits = Commits()

    def __call__(self) -> dict[str, Any]:
        """Look."""
        return {"error": None, "unknown": None, "clients": None, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        plan = self._last_plan()
        if plan is None:
            return {"unknown": "it has no plan: nobody knows which topics are meant"}
        source = self._source_of(plan)
        if not isinstance(source, ClusterAdmin):
            return {"unknown": source}
        reports = reports_in(self._reports.read(), self.mirror).values()
        last = max(reports, key=opened_at, default=None)
        return {"clients": clients_in(look(plan, source, self._target, last, self._commits, WATCH_S))}


class GroupsLook(_PlannedLook):
    """Where a mirror's groups stand, on both clusters: their committed offsets."""

    def __call__(self) -> dict[str, Any]:
        """Look."""
        return {"error": None, "unknown": None, "groups": {}, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        plan = self._last_plan()
        if plan is None:
            return {"unknown": "it has no plan: nobody knows which groups are meant"}
        groups, source = plan.groups[:MOST], self._source_of(plan)
        if not isinstance(source, ClusterAdmin):
            planned = {group: group_of(plan, positions_as_planned(plan, group), {}, {}) for group in groups}
            return {"unknown": f"{source.removesuffix('.')}; these are the positions at planning", "groups": planned}
        there = source.topics([t.source_topic for t in plan.topics])
        ends = source.offsets([TopicPartition(n, p) for n, one in there.items() for p in range(one.partitions)], "latest")
        found = dict[str, dict[str, Any]]()
        for some in (groups[n : n + _AT_A_TIME] for n in range(0, len(groups), _AT_A_TIME)):
            (here, hidden), (on_target, hidden_there) = (one.groups_offsets_apart(some) for one in (source, self._target))
            for group in some:
                found[group] = group_of(plan, here.get(group, {}), on_target.get(group, {}), ends)
                sides = {"source": hidden.get(group), "target": hidden_there.get(group)}
                found[group]["unseen"] = [f"not known on the {side}: {why}" for side, why in sides.items() if why]
        return {"groups": found, "at": time.time()}


class ReportsLook(Look):
    """The reports of a mirror's cutovers as its target has them: ``reports``, by run, or ``error``."""

    def __init__(self, conn_id: str, mirror: str) -> None:
        super().__init__(conn_id)
        self.mirror = mirror

    def __call__(self) -> dict[str, Any]:
        """Look."""
        return {"error": None, "reports": {}, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        if self._changed():
            self._reports = reports_of(self._admin(self.conn_id, "target"), self.mirror)
        return {"reports": reports_in(self._reports.read(), self.mirror)}


def reports_in(values: Mapping[str, bytes], mirror: str) -> dict[str, CutoverReport]:
    """Return the last report of each cutover of a mirror, by run; what can't be read is left out."""
    found = dict[str, CutoverReport]()
    for run in REPORT.under(values, mirror):
        try:
            found[run] = CutoverReport.from_json(text_in(values, mirror, run) or "", f"report {run}")
        except InputError as e:
            log.info("%s", e)
    return found
