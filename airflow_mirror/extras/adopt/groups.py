"""The groups of a target that another tool filled: where they stand, where they would have to, and who sets them then."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap, Translated, Where
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import TryAgain
from airflow_mirror.extras.adopt.examine import Adoption, require_stopped
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, recently
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.standing import still_ours
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.deciding import Standing, goal_of
from airflow_mirror.sync.following.follower import FollowReport, GroupFollower
from airflow_mirror.sync.following.notes import Note
from airflow_mirror.sync.group_translation import GroupMove, Translate
from airflow_mirror.sync.groups import GroupReport, between, compare_groups, read_positions
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.passes import Sides
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wording import listed

_NOT_YET = Translated(0, Where.BEYOND)  # the target has nothing of the partition: the mirror has to copy it first


def through(maps: Mapping[TopicPartition, OffsetMap]) -> Translate:
    """Return what translates a position of a source partition by the map that was made of what is there.

    Who has read everything goes on behind everything, also behind what was sent again.
    """

    def translate(tp: TopicPartition, offset: int) -> Translated:
        one = maps.get(tp)
        if one is None:
            return _NOT_YET
        found = one.to_target(offset)
        at_end = found.offset == one.target_end and found.where in (Where.END, Where.HOLE)
        return found._replace(offset=one.target_log_end) if at_end else found

    return translate


def compare(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, topics: Collection[TopicPlan], translate: Translate, *,
    allow_rewind: bool = False,
) -> GroupReport:  # fmt: skip
    """Return where the mirror's groups stand on the target, and where they would have to. Nothing is set.

    A group that is further than its place stays where it is, unless it may be rewound: it may have read on the target.
    """
    positions = read_positions(source, mirror, [t.source_topic for t in topics])
    found = between(positions, topics, source, target, translate, strict=False)
    return compare_groups(target, found, allow_rewind)


class _Heir(GroupFollower):
    """Lets groups follow, and takes what stands on the target for the mirror's own: another tool has set it.

    Not below members, and not what is further than its place: that may have been read there.
    """

    def __init__(self, sides: Sides, *, allow_rewind: bool) -> None:
        super().__init__(sides)
        self._allow_rewind = allow_rewind

    def known(self, note: Note | None, its: Mapping[TopicPartition, Standing], now_ms: int) -> Note:
        """See :class:`.GroupFollower`."""
        old = note or Note(now_ms)
        taken = {tp: (notes.mark(one.there),) for tp, one in its.items() if one.there is not None and self._may_take(one)}
        return replace(old, ours={**old.ours, **taken})

    def _may_take(self, one: Standing) -> bool:
        goal, _ = goal_of(one)
        assert one.there is not None
        return goal is not None and (self._allow_rewind or one.there.offset <= goal.offset)


class _Right(WritePermit):
    """The lease, and besides what else must be so while groups are set."""

    def __init__(self, token: Callable[[], LeaseToken], permit: Permit) -> None:
        super().__init__(token)
        self._permit = permit

    def check(self) -> None:
        """See :class:`.WritePermit`."""
        self._permit()
        super().check()


def take_over(
    found: Adoption, source: ClusterAdmin, target: ClusterAdmin, maps: OffsetMaps, token: LeaseToken, *,
    allow_rewind: bool = False,
) -> FollowReport:  # fmt: skip
    """Let groups follow once, as a tail does, and what stands on the target be the mirror's: the tail's passes go on.

    Safe to repeat. What is noted before a commit is the mirror's after a crash, and its tail sets the rest.

    :param maps: of the plan, as they are stored. :param token: the mirror's writer lease: notes have one writer.
    :raises InputError: the topics are no more the mirror's to set, or MirrorMaker 2 may have come back.
    :raises LeaseLost: a job of the mirror was started. :raises TryAgain: some could not be set; others are.
    """
    ledger, name = Ledger(target), found.plan.mirror.name
    ours = still_ours(ledger, found.plan, target)
    # It sets groups as well, and would go on with what these have not read.
    stopped = recently(lambda: require_stopped(found.again(True), "Of groups nothing more was changed"))

    def permit() -> None:
        ours()
        stopped()

    plan = replace(found.plan, topics=(*found.topics, *found.done))  # others may not be there yet
    sides = Sides(
        plan=lambda: plan, mirror=plan.mirror, source=source, target=target, ledger=ledger,
        state=state_of(target, notes.prefix(name)), right=_Right(lambda: token, permit), maps=maps,
        take_in=lambda _: None, gone=dict, moved=lambda *_: None,
    )  # fmt: skip
    report = _Heir(sides, allow_rewind=allow_rewind).follow(int(time.time() * 1000))
    if report.failed:
        raise TryAgain(
            f"{len(report.failed)} group(s) could not be set; the topics are the mirror's", "",
            f"Do the same again. Or start the tail, which sets them:\n{listed(report.failed)}\n",
        )  # fmt: skip
    return report


def lines(report: GroupReport, maps: Mapping[TopicPartition, OffsetMap], *, follow: bool) -> Iterator[str]:
    """Yield a line for each position that is not where it would have to be, for people.

    :param follow: groups do; else none is set.
    """
    if not follow and any(move.action != "same" for move in report.moves):
        yield "none is set, and none will follow: sync_groups is off (sync.group.offsets.enabled of MirrorMaker's file)"
    for move in report.moves:
        if move.action != "same":
            who = f"group {move.group!r} at {move.target}"
            members = "; it has members, and stays as it is" if move.group in report.active else ""
            yield f"{who}: {_difference(move, maps, follow)}{members}"
    yield from (f"later: {problem}" for problem in report.problems)


def again(moves: Iterable[GroupMove]) -> int:
    """Return how many records groups would read again if they stayed where they stand on the target."""
    return sum(max(0, move.target_offset - move.before) for move in moves if move.before is not None)


def _difference(move: GroupMove, maps: Mapping[TopicPartition, OffsetMap], follow: bool) -> str:
    exact = f"exact is {move.target_offset} (source {move.source_offset}, {move.found})"
    if move.before is None:
        return f"stands nowhere; {exact}"
    if move.before <= move.target_offset:
        return f"stands at {move.before}, and would read {move.target_offset - move.before} again; {exact}"
    one = maps.get(move.source)
    end = "" if one is None else f"[{move.source_offset}, {one.to_source(move.before).offset})"
    what = "is set back" if move.action == "rewind" else "stays: --allow-rewind sets it back" if follow else "stays"
    return (
        f"stands at {move.before}, {move.before - move.target_offset} beyond; {exact}. Unless it has read on the target, "
        f"source offsets {end} are lost to it; it {what}"
    )
