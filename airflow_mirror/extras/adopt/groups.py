"""The groups of a target that another tool filled: where they stand, and where they would have to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap, Translated, Where
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.sync.group_translation import GroupMove, Translate
from airflow_mirror.sync.groups import GroupReport, between, commit_groups, read_positions

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


def correct(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, topics: Collection[TopicPlan], translate: Translate,
    permit: Permit, *, allow_rewind: bool = False, commit: bool = False,
) -> GroupReport:  # fmt: skip
    """Return where the mirror's groups would have to stand on the target; set those that nobody is in, on request.

    A group that is further than its place stays where it is, unless it may be rewound: it may have read on the target.

    :param permit: of each commit.
    :raises NotKept: a position reads back differently.
    """
    positions = read_positions(source, mirror, [t.source_topic for t in topics])
    found = between(positions, topics, source, target, translate, strict=False)
    return commit_groups(target, found, permit, allow_rewind, dry_run=not commit, leave=True)


def lines(report: GroupReport, maps: Mapping[TopicPartition, OffsetMap]) -> Iterator[str]:
    """Yield a line for each position that is not where it would have to be, for people."""
    for move in report.moves:
        if move.action != "same":
            who = f"group {move.group!r} at {move.target}"
            members = "; it has members, and stays as it is" if move.group in report.active else ""
            yield f"{who}: {_difference(move, maps)}{members}"
    yield from (f"later: {problem}" for problem in report.problems)


def again(moves: Iterable[GroupMove]) -> int:
    """Return how many records groups would read again if they stayed where they stand on the target."""
    return sum(max(0, move.target_offset - move.before) for move in moves if move.before is not None)


def _difference(move: GroupMove, maps: Mapping[TopicPartition, OffsetMap]) -> str:
    exact = f"exact is {move.target_offset} (source {move.source_offset}, {move.found})"
    if move.before is None:
        return f"stands nowhere; {exact}"
    if move.before <= move.target_offset:
        return f"stands at {move.before}, and would read {move.target_offset - move.before} again; {exact}"
    one = maps.get(move.source)
    end = "" if one is None else f"[{move.source_offset}, {one.to_source(move.before).offset})"
    what = "is set back" if move.action == "rewind" else "stays: --allow-rewind sets it back"
    return (
        f"stands at {move.before}, {move.before - move.target_offset} beyond; {exact}. Unless it has read on the target, "
        f"source offsets {end} are lost to it; it {what}"
    )
