"""Where a plan's groups stand on the source, and where that lies on the target. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import Translated, Where
from airflow_mirror.errors import MirrorError, NoOffsetMap
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.sync.following.deciding import NOT_COPIED, Standing
from airflow_mirror.sync.group_translation import Translate
from airflow_mirror.sync.passes import PassReport, Sides, log_offsets, ours, same
from airflow_mirror.wire import requests

_NO_GROUP = "the source lists no group: if there are any, DESCRIBE on groups is missing there, and Kafka does not say so"
_CAUSE = "positions of topics that are partitioned by key have no counterpart"

Positions = Mapping[str, Mapping[TopicPartition, "GroupPosition"]]


class Seen(NamedTuple):
    """What the source says of groups.

    :param here: the selected groups' positions in the plan's topics.
    :param unread: groups of which these say nothing. :param listed: all of which it says that they exist.
    """

    here: dict[str, dict[TopicPartition, GroupPosition]]
    unread: frozenset[str]
    listed: frozenset[str]


class Reading:
    """Reads both clusters for one plan, in one pass. The maps of its topics are those of ``sides``.

    :ivar plan: whose groups these are.
    """

    def __init__(self, sides: Sides, plan: Plan) -> None:
        self.plan, self._mirror, self._sides = plan, plan.mirror, sides
        self._source, self._target = sides.source, sides.target

    def topics(self, report: PassReport) -> dict[str, TopicPlan]:
        """Return the topics whose groups follow, by source topic."""
        if self._mirror.partitioning == "by_key":
            report.left_out += [f"{t.source_topic}: {_CAUSE}" for t in self.plan.topics]
            return {}
        return {t.source_topic: t for t in ours(self._sides, self.plan, report)}

    def still_same(self, topics: Mapping[str, TopicPlan], report: PassReport) -> dict[str, TopicPlan]:
        """Return the topics that are the ones of the plan. Asked after their positions: those of others mean nothing."""
        wire = self._source.wire
        gone = wire.refresh_present(topics)  # the tail goes on without them, and so do groups
        ids = {name: wire.topic_id(name) for name in topics if name not in gone}
        return {t.source_topic: t for t in same(topics.values(), ids, report)}

    def positions(self, report: PassReport) -> Seen:
        """Return where the source's groups stand."""
        topics = {t.source_topic for t in self.plan.topics}
        listed = frozenset(g.group_id for g in self._source.groups())
        if not listed:
            report.left_out.append(_NO_GROUP)
        selected = sorted(g for g in listed if self._mirror.selects_group(g))
        # The last committed position of an exactly-once group is never too far, and the next pass moves on: one of its
        # threads has a transaction open at nearly any time, and would hold back all positions of the group.
        found, errors = self._source.groups_offsets_apart(selected, stable=False)
        report.failed += failures(errors)
        in_topics = {g: {tp: p for tp, p in its.items() if tp.topic in topics} for g, its in found.items()}
        here = {group: its for group, its in in_topics.items() if its}
        return Seen(here, listed.difference(selected).union(errors), listed)

    def standings(
        self, topics: Mapping[str, TopicPlan], here: Positions
    ) -> Callable[[Positions], dict[str, dict[TopicPartition, Standing]]]:
        """Return what tells, by the groups' positions on the target, where they stand in these topics.

        It does so by group and target partition, for the groups that it is given. Those positions are read behind this,
        which reads logs where a map is not complete.
        """
        self._target.wire.refresh(t.target_topic for t in topics.values())
        offsets: dict[TopicPartition, set[int]] = {}
        for its in here.values():
            for tp, position in _of(its, topics):
                offsets.setdefault(tp, set()).add(position.offset)
        routes = {tp: TopicPartition(topics[tp.topic].target_topic, tp.partition) for tp in offsets}
        source_starts, no_source = log_offsets(self._source.wire, "log start", offsets, requests.EARLIEST)
        starts, no_start = log_offsets(self._target.wire, "log start", routes.values(), requests.EARLIEST)
        ends, no_end = log_offsets(self._target.wire, "last stable offset", routes.values(), committed=True)
        made: dict[TopicPartition, Callable[[GroupPosition, GroupPosition | None], Standing]] = {}
        for tp, read in offsets.items():
            to = routes[tp]
            if error := no_source.get(tp) or no_start.get(to) or no_end.get(to):
                made[tp] = _unknown(str(error))
                continue
            start = source_starts[tp]
            try:
                to_target = _same_offset if topics[tp.topic].mode == "identical" else self._sides.maps.to_target
                made[tp] = _at(_places(tp, read | {start}, to_target), start, starts[to], ends[to])
            except NoOffsetMap:
                made[tp] = _unknown()
            except MirrorError as e:
                made[tp] = _unknown(str(e))
        return lambda there: {
            group: {routes[tp]: made[tp](position, its.get(routes[tp])) for tp, position in _of(here[group], topics)}
            for group, its in there.items()
        }


def _same_offset(tp: TopicPartition, offset: int) -> Translated:
    return Translated(offset, Where.RECORD)


def _places(tp: TopicPartition, offsets: Iterable[int], to_target: Translate) -> dict[int, Translated]:
    """Return where offsets of one source partition lie on the target.

    In rising order: what lies beyond the map makes it read both logs, and everything after it lies beyond, too.
    """
    found: dict[int, Translated] = {}
    last: Translated | None = None
    for offset in sorted(set(offsets)):
        if last is None or last.where is not Where.BEYOND:
            last = to_target(tp, offset)
        found[offset] = last
    return found


def failures(errors: Mapping[str, MirrorError]) -> list[str]:
    """Return a line for each group that could not be asked for."""
    return [f"{group}: {error}" for group, error in errors.items()]


def _of(
    positions: Mapping[TopicPartition, GroupPosition], topics: Collection[str]
) -> Iterable[tuple[TopicPartition, GroupPosition]]:
    return ((tp, position) for tp, position in positions.items() if tp.topic in topics)


def _at(
    found: Mapping[int, Translated], source_start: int, start: int, end: int
) -> Callable[[GroupPosition, GroupPosition | None], Standing]:
    return lambda position, there: Standing(
        position=position,
        found=found[position.offset],
        rest=found[max(position.offset, source_start)],
        there=there,
        start=start,
        end=end,
    )


def _unknown(cause: str = NOT_COPIED) -> Callable[[GroupPosition, GroupPosition | None], Standing]:
    return lambda position, there: Standing(position=position, found=None, rest=None, there=there, cause=cause)
