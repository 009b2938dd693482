"""Access rules follow while a tail runs: those of readers, as a task in front of the cutover writes them.

The rules, the order of writing and what a crash leaves are those of :mod:`airflow_mirror.sync.acls`. Those of writers
come at the cutover: who writes to a target topic earlier stops its copy.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from airflow_mirror.errors import NoAuthorizer
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.ledger.state import State
from airflow_mirror.plan.life import active_topics, not_active
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.acls import AclReport, sync_acls
from airflow_mirror.sync.brief import LONGEST, brief, told
from airflow_mirror.sync.right import Right

log = logging.getLogger(__name__)

_LOGGED = 200  # lines of a pass


@dataclass(frozen=True, kw_only=True)
class AclFollowReport:
    """One pass over all rules.

    :param acls: what it found and did.
    :param left_out: topics whose rules don't follow.
    :param took_s: seconds.
    """

    acls: AclReport
    left_out: list[str]
    took_s: float

    def __str__(self) -> str:
        """One line that stays the same while nothing happens."""
        found = self.acls.diff
        others = (
            ([str(rule) for rule in found.drift] if not self.acls.removed else [], "not on the source"),
            ([f"{one.rule}: {one.reason}" for one in found.left_out], "rules left out"),
            (self.left_out, "topics left out"),
            (self.acls.notes, "notes"),
        )
        return told(f"{len(found.kept) + len(found.granted)} rules follow", others)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values. Of each list: how long it is, and its first lines."""
        found = self.acls.to_dict()
        values = {name: found[name] for name in ("granted", "removed", "lost", "later", "drift", "notes")}
        rules = [f"{one['rule']}: {one['reason']}" for one in found["left_out"]]
        lists = {**values, "left_out": self.left_out + rules}
        said = [f"access is lost: {line}"[:LONGEST] for line in found["lost"][:3]]
        return {"said": said, "rules": len(found["kept"]) + len(found["granted"]), **brief(lists), "took_s": self.took_s}


class NothingFollows:
    """A pass over a target without an authorizer: it has no rules, and everybody may do everything."""

    def __str__(self) -> str:
        """One line that stays the same."""
        return "no rules follow: the target has no authorizer"

    def to_dict(self) -> dict[str, Any]:
        """Return the values of a report that found nothing."""
        return {"said": [], "rules": 0, **brief({"notes": [str(self)]}), "took_s": 0.0}


class AclFollower:
    """Keeps the rights of readers on a plan's target topics as they are on the source. For one thread.

    :param plan: returns the plan; its topics may become more. Its Mirror says whether rules are removed.
    :param source: connections that the caller closes; ``target`` likewise.
    :param state: holds what is left for writers.
    :param ledger: says which topics are in production.
    """

    def __init__(
        self, plan: Callable[[], Plan], source: ClusterAdmin, target: ClusterAdmin, state: State, ledger: Decisions,
        right: Right,
    ) -> None:  # fmt: skip
        self._plan, self._source, self._target = plan, source, target
        self._state, self._ledger, self._right = state, ledger, right

    def follow(self, now_ms: int) -> AclFollowReport | NothingFollows:
        """Make one pass. A target without an authorizer gets no rules, and that is no failure: it may get one.

        :raises MirrorError: as :func:`airflow_mirror.sync.acls.sync_acls`.
        """
        try:
            return self._follow()
        except NoAuthorizer:
            return NothingFollows()

    def _follow(self) -> AclFollowReport:
        begun, plan = time.monotonic(), self._plan()
        self._right.confirm(self._target.wire)
        active = active_topics(self._ledger, plan, self._target)
        topics = tuple(t for t in plan.topics if t.target_topic in active)
        acls = sync_acls(
            replace(plan, topics=topics), self._source, self._target, remove=plan.mirror.remove_acls,
            own=plan.mirror.own_principals, granted=lambda: self._right.granted(self._target.wire),
        )  # fmt: skip
        if to_note := seen_acls.changed(plan.mirror.name, self._state.read(), acls.diff.later):
            with self._right.granted(self._target.wire):
                self._state.write(to_note)
        lines = acls.lines() if acls.changes else []
        for line in lines[:_LOGGED]:
            log.info("%s", line)
        if len(lines) > _LOGGED:
            log.info("and %d more", len(lines) - _LOGGED)
        left_out = [f"{t.source_topic}: {not_active(t)}" for t in plan.topics if t.target_topic not in active]
        return AclFollowReport(acls=acls, left_out=left_out, took_s=round(time.monotonic() - begun, 3))
