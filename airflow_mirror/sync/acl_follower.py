"""Access rules follow while a tail runs: those of readers, as a task in front of the cutover writes them.

The rules, the order of writing and what a crash leaves are those of :mod:`airflow_mirror.sync.acls`. Those of writers
come at the cutover: who writes to a target topic earlier stops its copy.

While a fence of the mirror stands at the source no rule follows. Some of its rules look like the site's own until the
others are there, which come and go in requests of their own: what lets everybody read a topic that had no rule would be
the first rule of the target's topic, and close it to writers. Nor while rules on its topics may be those of another
mirror's fence; one of other topics may stand for weeks, and stops nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

from airflow_mirror.errors import NoAuthorizer, RulesOfAnotherFence
from airflow_mirror.ledger.records import FENCE
from airflow_mirror.plan.direction import generation
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import kept_topics, opened_beside
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.acls import AclOptions, AclReport, OfFence, sync_acls
from airflow_mirror.sync.passes import Pass, PassReport, listed, ours

log = logging.getLogger(__name__)

_LOGGED = 200  # lines of a pass
_OVER = ("lifted", "closed")  # phases of a fence (cutover.decision) of which nothing is left at the source


class _FenceStands(Exception):  # noqa: N818  # it is none: the pass is left out
    pass


@dataclass(kw_only=True)
class AclFollowReport(PassReport):
    """One pass over all rules; see :class:`.acls.AclDiff`.

    :param rules: that follow. :param drift: those of the target that are gone on the source, and stay;
        ``stays``: those of these that only a person may remove.
    :param left_out: topics and rules.
    """

    head = "{rules:rule} kept level"
    rules: int = 0
    granted: list[str] = listed()
    removed: list[str] = listed()
    lost: list[str] = listed(said="access is lost: {line}", most=3)
    later: list[str] = listed()
    drift: list[str] = listed("not on the source")
    stays: list[str] = listed("not on the source, and never removed")
    notes: list[str] = listed("note")

    def add(self, found: AclReport) -> None:
        """Take in what was found and done."""
        texts, diff = found.to_dict(), found.diff
        self.rules = len(diff.kept) + len(diff.granted)
        self.granted, self.removed, self.lost, self.later = (texts[k] for k in ("granted", "removed", "lost", "later"))
        self.drift, self.notes = [] if found.removed else texts["drift"], texts["notes"]
        self.left_out += [f"{one.rule}: {one.reason}" for one in diff.left_out]
        self.stays = [f"{one.rule}: {one.reason}" for one in diff.stays]


class AclFollower(Pass[AclFollowReport]):
    """Keeps the rights of readers on a plan's target topics as they are on the source.

    Its state holds what is left for writers, if the source has an authorizer. The Mirror says whether rules are removed.
    """

    report = AclFollowReport

    def make(self, plan: Plan, now_ms: int, report: AclFollowReport) -> None:
        """Make one pass. A target without an authorizer gets no rules, and that is no failure: it may get one.

        :raises MirrorError: as :func:`airflow_mirror.sync.acls.sync_acls` and :func:`.active_topics`.
        """
        values = self._ledger.values()
        kept, beside = partial(kept_topics, values, plan), opened_beside(values, plan)
        # Before the rules are read: where the direction is turned meanwhile they are of the round before.
        turned = generation(values, plan.mirror.name)
        plan = replace(plan, topics=tuple(ours(self._sides, plan, report)))
        try:
            acls = sync_acls(
                plan, self._source, self._target,
                AclOptions(
                    remove=plan.mirror.remove_acls, own=plan.mirror.own_principals, beside_production=bool(beside)
                ),
                granted=self._granted, fence=self._no_fence, kept=kept,
            )  # fmt: skip
        except _FenceStands:
            report.notes = ["no rules follow while a fence of the mirror stands at the source"]
            return
        except RulesOfAnotherFence as e:
            report.notes = [f"no rules follow while fences of others stand on its topics: {', '.join(e.fences)}"]
            return
        except NoAuthorizer:
            report.notes = ["no rules follow: the target has no authorizer"]
            return
        report.add(acls)
        if acls.is_enforced:  # who has lost its authorizer has taken no right back: what was noted stays
            self._note(acls, turned)
        self._log(acls)

    def _no_fence(self) -> OfFence:
        """Return what is decided about the mirror's fence. :raises _FenceStands: it may have rules at the source."""
        name = self._sides.mirror.name
        there = FENCE.get(self._sides.ledger.values(), name)
        if there is None:
            return OfFence()
        if there["phase"] not in _OVER:
            raise _FenceStands
        return OfFence(decided=f"{there['id']} {there['phase']}")

    def _note(self, acls: AclReport, turned: int) -> None:
        if to_note := seen_acls.changed(self._sides.mirror.name, self._state.read(), acls.diff.later, turned):
            with self._granted() as permit:
                self._state.write(to_note, permit)

    def _log(self, acls: AclReport) -> None:
        lines = acls.lines() if acls.changes else []
        for line in lines[:_LOGGED]:
            log.info("%s", line)
        if len(lines) > _LOGGED:
            log.info("and %d more", len(lines) - _LOGGED)
