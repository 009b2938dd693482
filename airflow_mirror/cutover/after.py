"""How things stand minutes after a target was opened: is the old source silent, and do the groups go on?

Only reads, from the report that the target keeps and from both clusters, and remembers nothing: whoever asks next, on
whichever worker, sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.decided_fence import intent_of
from airflow_mirror.cutover.decision import OPENED, fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.platform import Platform, require_source
from airflow_mirror.cutover.quiet import changed_between
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import InputError, MirrorError, SourceNotSilent
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NO_MEMBERS
from airflow_mirror.wording import count, some


@dataclass(frozen=True, kw_only=True)
class GroupAfter:
    """One group of the cutover.

    :param state: Kafka's, on the target. :param committed: whether a position of it is another one than the cutover set.
    :param lag: offsets that it has not read, in the cutover's topics.
    """

    group: str
    state: str
    committed: bool
    lag: int

    @property
    def goes_on(self) -> bool:
        """Whether it has read since the opening."""
        return self.committed and self.state not in NO_MEMBERS

    def __str__(self) -> str:
        said = "has committed since" if self.committed else "has not committed yet"
        return f"group {self.group!r} is {self.state}, {said}, lag {self.lag}"


@dataclass(frozen=True, kw_only=True)
class After:
    """What was seen.

    :param seconds: since the target was opened.
    :param moved: offsets by which partitions of the old source have moved that took records since.
    :param fence: ``up``, ``gone``, ``open`` (on purpose) or ``callable`` (nobody can look).
    :param copied_by: the mirror that writes to the old source; "": none does.
    """

    mirror: str
    seconds: float
    moved: dict[TopicPartition, int]
    fence: str
    copied_by: str
    groups: list[GroupAfter]

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        if self.copied_by:
            silent = f"mirror {self.copied_by!r} writes to the old source"
        elif self.moved:
            silent = f"the old source was written to: {some(f'{tp} by {n}' for tp, n in sorted(self.moved.items()))}"
        else:
            silent = "the old source is silent"
        going = sum(group.goes_on for group in self.groups)
        fence = "a function's, which was not asked" if self.fence == "callable" else self.fence
        head = f"{self.seconds:.0f} s after the opening: {silent}; its fence is {fence}"
        rest = [f"{group}" for group in self.groups if not group.goes_on]
        return [head, f"{going} of {count(len(self.groups), 'group')} read on", *rest]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {**asdict(self), "moved": {str(tp): n for tp, n in self.moved.items()}}

    def raise_if_wrong(self) -> None:
        """Return unless somebody writes to an old source that should be shut.

        :raises SourceNotSilent: names where, or says that the fence is gone.
        """
        if self.fence == "gone" or (self.fence != "open" and self.moved and not self.copied_by):
            raise SourceNotSilent(self.mirror, {str(tp): n for tp, n in self.moved.items()}, self.fence != "gone")


def look_after(on: Platform, report: CutoverReport | None, now: float) -> After:
    """Look at both clusters behind a finished cutover.

    :param now: seconds since the epoch.
    :raises InputError: it has not finished. :raises TryAgain: a cluster does not answer.
    """
    if report is None or (opened := report.opened_at) is None:
        raise InputError(
            "this DAG run has no finished cutover to look after",
            "no report of it says that the target was opened",
            "Run CutoverOperator upstream.",
        )
    cut, source = report.cut, on.source.admin
    # The ends before the decision: who closes the fence on purpose behind this look, and is written to then, is no leak.
    there = source.wire.log_ends(cut)
    # By what is decided now: a rollback, or a person, may have closed it since the report was written.
    state = fence_state(on.target.ledger.values(), report.mirror)
    intent = None if state is None or state.id != report.id else intent_of(on.target, report.mirror, state)
    return After(
        mirror=report.mirror, seconds=max(0.0, now - opened),
        moved=_written(source, cut, there),
        fence="open" if intent is None or state is None or state.phase != OPENED else _fence(state.kind, intent, source),
        copied_by="" if intent is None else intent.copied_by, groups=_groups(report, on.target.admin),
    )  # fmt: skip


def told_gone(on: Platform, mirror: str, log: Callable[..., object]) -> list[str]:
    """Return the fence that a mirror keeps behind its open target, for people, if its rules are not there.

    :param log: takes, as loggers do, why it could not be looked for: a source that does not list its rules, say.
    """
    try:
        state = fence_state(on.target.ledger.values(), mirror)
        if state is None or state.phase != OPENED or state.kind != AclFence.kind:
            return []
        require_source(on.source.admin, on.target.plan(mirror, state.plan, state.revision))
        intent = intent_of(on.target, mirror, state)
        # Pending: it waits for other mirrors' fences, and its rules are to come.
        if intent.pending or _fence(state.kind, intent, on.source.admin) != "gone":
            return []
        # Closed, or swapped, between the two looks: what is missing was taken away on purpose.
        there = fence_state(on.target.ledger.values(), mirror)
        return told_gone(on, mirror, log) if there != state else [f"the fence of cutover {state.run}"]
    except MirrorError as e:
        log("whether the fence of mirror %r stands at its source was not looked for: %s", mirror, e)
        return []


def _written(
    source: ClusterAdmin, cut: Mapping[TopicPartition, int], there: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return by how much the ends of partitions have moved that took records since, or lost some."""
    moved = {tp: end for tp, end in cut.items() if there[tp] != end}
    starts = source.wire.log_starts(moved)
    # What retention has taken by now, nobody can tell from a write.
    kept = {tp: end for tp, end in moved.items() if starts[tp] <= end}
    changed = changed_between(source.wire, kept, there)
    return {tp: there[tp] - end for tp, end in moved.items() if tp in changed or tp not in kept}


def _fence(kind: str, intent: Intent, source: ClusterAdmin) -> str:
    if kind != AclFence.kind:
        return "callable"
    # Behind the decision: a fence that somebody closes between these two looks is told as gone, and the next look finds
    # `closing`. The other way round one that is removed in between would be told as up.
    return "up" if AclFence(source).is_up(intent) else "gone"


def _groups(report: CutoverReport, target: ClusterAdmin) -> list[GroupAfter]:
    names = [group.group for group in report.groups]
    states, positions = target.group_states(names), target.groups_offsets(names)
    # Behind the positions: a group that reads on in between is told as further behind than it is, never as level.
    ends = target.wire.log_ends({tp for group in report.groups for tp in group.on_target})
    found = list[GroupAfter]()
    for group in report.groups:
        now = positions.get(group.group, {})
        lag = sum(max(0, ends[tp] - (now[tp].offset if tp in now else given)) for tp, given in group.on_target.items())
        found.append(GroupAfter(group=group.group, state=states[group.group], committed=group.has_moved(now), lag=lag))
    return found
