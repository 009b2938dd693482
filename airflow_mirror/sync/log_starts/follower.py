"""One pass: look at both clusters, note what was seen, delete what the notes allow.

Nothing is remembered between two passes but the sights in the target's state, and a sight is true whenever it was
written. So a pass that dies anywhere is repeated by the next one, in whatever process. DeleteRecords only ever raises a
log start: sent twice, it changes nothing.

Kafka deletes by a topic's name, not by its id. The ids of both topics are read in the same pass, after the offsets, and
the lease is looked at right before the bytes of each request leave. What is left is a process that freezes between that
and the system call, and a target topic that is deleted and created again meanwhile (ADR 22).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.offsets.reader import MapReader
from airflow_mirror.copy.opening.journal import LOOK_BACK, last_data_batch
from airflow_mirror.errors import BrokerError, InputError, MirrorError, MissingRight, TryAgain
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.plan import growing
from airflow_mirror.plan.configs import Rules, may_compact
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.target_configs import read_own_configs
from airflow_mirror.sync.log_starts import compacting, deciding, observations
from airflow_mirror.sync.log_starts import mapped as mapping
from airflow_mirror.sync.log_starts.deciding import Standing
from airflow_mirror.sync.log_starts.mapped import NO_MAP
from airflow_mirror.sync.log_starts.observations import FOREVER, Retention, Seen, Sight
from airflow_mirror.sync.log_starts.report import StartsReport
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.sync.passes import Pass, Sides, log_offsets, ours, same
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED

log = logging.getLogger(__name__)
T = TypeVar("T")

_CUT_S = 600.0  # log.retention.check.interval.ms is five minutes
_AT_ONCE = 200  # partitions between two confirmations of the lease
_NEWER = "a newer version of airflow-mirror wrote what was seen of its log starts: install that version"

Offsets = dict[TopicPartition, int]
Configs = Mapping[str, Mapping[str, "ConfigEntry"]]


class StartFollower(Pass[StartsReport]):
    """Lets the log starts of a plan's target topics follow the source's. Its state holds the sights.

    :param maps: the mirror's; only read.
    :param clock: monotonic, in seconds: a broker needs real time to cut a log.
    """

    report = StartsReport

    def __init__(self, sides: Sides, maps: MapReader | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(sides)
        self._name, self._delay_ms = sides.mirror.name, int(sides.mirror.log_start_delay_s * 1000)
        self._maps = maps or MapReader(sides.mirror.name)
        self._last: StartsReport | None = None  # of the last pass, for people
        self._looked_ms = 0
        self._clock = clock
        self._there_since: dict[TopicPartition, tuple[int, float]] = {}  # the target's log start, and since when
        self._ends: Offsets = {}  # of the source's logs in the last pass, by target partition
        # Where log starts of mapped partitions lie, by the source's and the target topic's id: a map may be large.
        self._places: dict[TopicPartition, tuple[tuple[int, str], int | str]] = {}

    def follow(self, now_ms: int) -> StartsReport:
        """Make one pass, if the last one was long enough ago; otherwise return its report. Errors as of :class:`Pass`."""
        if self._last is not None and 0 <= now_ms - self._looked_ms < deciding.step_ms(self._delay_ms):
            return self._last
        report = super().follow(now_ms)
        # What failed is tried again with the next pass.
        self._last, self._looked_ms = None if report.failed else report, now_ms
        return report

    def make(self, plan: Plan, now_ms: int, report: StartsReport) -> None:
        """See :class:`.Pass`."""
        if topics := self._topics(plan, report):
            self._follow(topics, Rules.of(plan.mirror), now_ms, report)

    def _topics(self, plan: Plan, report: StartsReport) -> dict[str, TopicPlan]:
        """Return the topics whose log starts follow, by their name on the target."""
        follow = []
        for t in plan.topics:
            if cause := growing.not_followed(plan.mirror, t):
                report.left_out.append(f"{t.source_topic}: {cause}")
            else:
                follow.append(t)
        plan = replace(plan, topics=tuple(follow))
        found = ours(self._sides, plan, report) if plan.topics else []
        report.not_compacted += [f"{t.source_topic}: {cause}" for t in found if (cause := growing.not_compacted(t))]
        return {t.target_topic: t for t in found}

    def _follow(self, topics: dict[str, TopicPlan], rules: Rules, now_ms: int, report: StartsReport) -> None:
        standings = self._standings(topics, report)
        ids = self._ids(topics, report)
        stored = {key: observations.load(key, value) for key, value in self._state.read().items()}
        newer = {observations.topic_of(key) for key, sight in stored.items() if sight is None}
        for name in newer & ids.keys():
            report.left_out.append(f"{topics[name].source_topic}: {_NEWER}")
            del ids[name]
        standings = {tp: one for tp, one in standings.items() if tp.topic in ids}
        topics = {name: topics[name] for name in ids}
        configs = self._source.topic_configs([t.source_topic for t in topics.values()])
        retention = self._retention(topics, configs, rules, report)
        known, stale = self._known(stored, ids)
        due = {name for name in ids if deciding.is_due(known[name], now_ms, self._delay_ms)}
        segment_bytes = {name: deciding.segment_bytes(configs[t.source_topic]) for name, t in topics.items()}
        for tp, one in standings.items():
            if self._there_since.get(tp, (None, 0.0))[0] != one.there_start:
                self._there_since[tp] = one.there_start, self._clock()
        wanted = {tp: one for tp, one in standings.items() if tp.topic in due}
        seen = _by_topic(self._see(wanted, retention, segment_bytes, now_ms, report))
        by_topic = _by_topic(standings)
        changed: dict[str, bytes | None] = dict.fromkeys(stale)
        goals: Offsets = {}
        for name in ids:
            count = deciding.counting(known[name], retention[name], now_ms, self._delay_ms)
            if name in due:
                number = known[name][-1].number + 1 if known[name] else 1
                its = {tp.partition: one for tp, one in seen.get(name, {}).items()}
                sight = Sight(number=number, at_ms=now_ms, ids=ids[name], retention=retention[name], seen=its)
                over = [one.number for one in known[name] if count and one.number < count[-1].number]
                changed |= {observations.key(self._name, name, one): None for one in over}
                changed[observations.key(self._name, name, number)] = observations.dump(sight)
                known[name].append(sight)
            goals |= self._decide(by_topic.get(name, {}), topics[name], known[name], count, report)
        goals = self._with_journal(goals, standings, report)
        with self._right.writing:
            if changed:
                self._right.confirm(self._target.wire)
                self._state.write(changed, self._right.check)
            refused = self._delete(goals, report)
        refused |= self._compact(topics, configs, standings, report)
        report.topics = len(ids.keys() - refused)

    def _standings(self, topics: Mapping[str, TopicPlan], report: StartsReport) -> dict[TopicPartition, Standing]:
        """Return where both logs begin and end, by target partition."""
        here = self._source.topics([t.source_topic for t in topics.values()])
        there = self._target.topics(topics)
        self._source.wire.refresh(here)
        self._target.wire.refresh(there)
        on_source = {
            TopicPartition(name, p): TopicPartition(t.source_topic, p)
            for name, t in topics.items()
            if name in there and t.source_topic in here
            for p in range(min(here[t.source_topic].partitions, there[name].partitions))
        }
        asked = []
        for admin, tps in ((self._target, on_source.keys()), (self._source, set(on_source.values()))):
            for what, timestamp in (("log start", requests.EARLIEST), ("high watermark", requests.LATEST)):
                asked.append(_offsets(admin.wire, what, tps, timestamp, report))
        there_starts, there_ends, starts, ends = asked
        found = {
            to: Standing(start=starts[tp], end=ends[tp], there_start=there_starts[to], there_end=there_ends[to])
            for to, tp in on_source.items()
            if to in there_starts and to in there_ends and tp in starts and tp in ends
        }
        kept = {to: one for to, one in found.items() if topics[to.topic].mode == "identical"}
        return kept | self._in_its_offsets(
            {to: (on_source[to], one) for to, one in found.items() if to not in kept}, report
        )

    def _in_its_offsets(
        self, mapped: Mapping[TopicPartition, tuple[TopicPartition, Standing]], report: StartsReport
    ) -> dict[TopicPartition, Standing]:
        """Return where partitions with maps stand in the target's offsets; the others are reported."""
        found = {}
        for to, (tp, one) in mapped.items():
            try:
                goal = self._place(to, tp, one) if one.start else 0
            except MirrorError as e:
                report.failed.append(f"{to}: {e}")
                continue
            if isinstance(goal, str):
                report.left_alone.append(f"{tp}: {goal}")
            else:
                found[to] = mapping.at(one, goal)
        return found

    def _place(self, to: TopicPartition, tp: TopicPartition, one: Standing) -> int | str:
        """Return where a source's log start lies on the target, or why that is not followed."""
        asked = one.start, self._target.wire.topic_id(to.topic)
        before = self._places.get(to)
        if before is not None and before[0] == asked:
            return before[1]
        offsets = self._maps.load(self._target.wire, mapped_range(tp.topic, to.topic, tp.partition))
        if offsets is None:
            return NO_MAP
        found = mapping.place(offsets, one.start, one.there_start)
        if one.start <= offsets.source_end:  # else the copy, or what is stored of its map, is behind
            self._places[to] = asked, found
        return found

    def _ids(self, topics: Mapping[str, TopicPlan], report: StartsReport) -> dict[str, tuple[str, str]]:
        """Return the ids of both topics, by target topic. Read after the offsets: those of other topics mean nothing."""
        here = self._source.topics([t.source_topic for t in topics.values()])
        there = self._target.topics(topics)
        kept = same(topics.values(), {name: info.topic_id for name, info in here.items()}, report)
        return {
            t.target_topic: (t.source_topic_id, there[t.target_topic].topic_id) for t in kept if t.target_topic in there
        }

    def _retention(
        self, topics: Mapping[str, TopicPlan], configs: Configs, rules: Rules, report: StartsReport
    ) -> dict[str, Retention]:
        """Return how long the records of each topic stay, by both sides.

        :param configs: of the source's topics.
        """
        own = read_own_configs(self._target)
        found = {}
        for name, t in topics.items():
            entries = configs[t.source_topic]
            here = deciding.retention_of({key: entry.value for key, entry in entries.items()})
            there = deciding.target_values(t, entries, own, rules)
            found[name] = here.longest(deciding.retention_of(there))
            if found[name] != here:
                report.longer.append(f"{name}: the target's own retention is longer: {there}")
        return found

    def _known(
        self, stored: Mapping[str, Sight | None], ids: Mapping[str, tuple[str, str]]
    ) -> tuple[dict[str, list[Sight]], list[str]]:
        """Return the sights of each topic, ascending, and the keys of those of other topics that had its name."""
        found: dict[str, list[Sight]] = {name: [] for name in ids}
        stale = []
        for key, sight in stored.items():
            topic = observations.topic_of(key)
            if sight is not None and topic in ids:
                if sight.ids == ids[topic]:
                    found[topic].append(sight)
                else:
                    stale.append(key)
        return {name: sorted(some, key=lambda one: one.number) for name, some in found.items()}, stale

    def _see(
        self, standings: Mapping[TopicPartition, Standing], retention: Mapping[str, Retention],
        segment_bytes: Mapping[str, int], now_ms: int, report: StartsReport,
    ) -> dict[TopicPartition, Seen]:  # fmt: skip
        """Return what is noted now: the source's log starts, and up to where retention explains them.

        :param segment_bytes: see :meth:`_sizes`.
        """
        cut = {tp: one for tp, one in standings.items() if one.start > 0}
        asked = [tp for tp, one in cut.items() if one.start > one.there_start]
        times: dict[int, list[TopicPartition]] = {}
        for tp in asked:
            since_ms = deciding.young_from_ms(retention[tp.topic], now_ms)
            if since_ms is not None:
                times.setdefault(since_ms, []).append(tp)
        young: Offsets = {}
        for since_ms, tps in times.items():
            young |= _offsets(self._target.wire, f"offset for time {since_ms}", tps, since_ms, report)
        # A broker cuts what was deleted minutes later: until then its size says nothing about what is left.
        cut_by_now = [tp for tp in asked if self._clock() - self._there_since[tp][1] >= _CUT_S]
        limited = [tp for tp in cut_by_now if retention[tp.topic].bytes < FOREVER]
        sizes = self._sizes(limited, segment_bytes, report)
        found = {}
        for tp, one in cut.items():
            size, segment = sizes.get(tp, (None, FOREVER))
            beyond = deciding.beyond_size(one, retention[tp.topic].bytes, size, segment)
            found[tp] = deciding.explained(one, young.get(tp), beyond)
        return found

    def _sizes(
        self, tps: Collection[TopicPartition], segment_bytes: Mapping[str, int], report: StartsReport
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the size of each log on the target, and how much of it may lie before its log start.

        :param segment_bytes: of the source's topics, by target topic.
        """
        if not tps:
            return {}
        try:
            sizes, there = self._target.wire.log_sizes(tps), self._target.topic_configs({tp.topic for tp in tps})
            # The target's segments are larger where its cluster sets a minimum, or the source's were made smaller since.
            larger = {name: max(segment_bytes[name], deciding.segment_bytes(its)) for name, its in there.items()}
            return {tp: (size, larger[tp.topic]) for tp, size in sizes.items()}
        except (MissingRight, TryAgain) as e:
            # A broker that lists no logs (BrokerError) will not at the next pass either.
            told = report.left_alone if isinstance(e, (MissingRight, BrokerError)) else report.failed
            told.append(f"what retention.bytes explains of {len(tps)} partitions, as {min(tps)}, is not known: {e}")
            return {}

    def _decide(
        self, standings: Mapping[TopicPartition, Standing], t: TopicPlan, known: Sequence[Sight],
        count: Collection[Sight], report: StartsReport,
    ) -> Offsets:  # fmt: skip
        goals, identical = {}, t.mode == "identical"
        for tp, now in standings.items():
            decision = deciding.decide(now, tp.partition, known, count)
            here = TopicPartition(t.source_topic, tp.partition)
            if decision.left:
                report.left_alone.append(f"{here}: {decision.left}")
            if decision.kept is not None:
                first, end = decision.kept
                what = "offsets" if identical else "what has the target's offsets"
                report.kept.append(
                    f"{here}: the source has lost {what} {first} to {end - 1}, and retention does not explain it; the "
                    "target keeps them"
                )
            if decision.goal is not None:
                goals[tp] = decision.goal
        return goals

    def _with_journal(
        self, goals: Mapping[TopicPartition, int], standings: Mapping[TopicPartition, Standing], report: StartsReport
    ) -> Offsets:
        """Return the goals as far as the last batch of records stays: by it the copy finds where to go on."""
        found = {}
        for tp, goal in goals.items():
            now = standings[tp]
            if goal > now.there_end - LOOK_BACK:  # what lies before it nobody reads to find the place
                try:
                    last = last_data_batch(
                        self._target.wire, tp, now.there_start, now.there_end, READ_COMMITTED, tombstones.is_filler
                    )  # fmt: skip
                except MirrorError as e:
                    report.failed.append(f"{tp}: {e}")
                    continue
                goal = min(goal, last.first_offset if last is not None else now.there_start)
            if goal > now.there_start:
                found[tp] = goal
        return found

    def _delete(self, goals: Offsets, report: StartsReport) -> set[str]:
        """Delete records; return the topics of which some were not."""
        wire, tps, refused = self._target.wire, sorted(goals), set[str]()
        for at in range(0, len(tps), _AT_ONCE):
            some = {tp: goals[tp] for tp in tps[at : at + _AT_ONCE]}
            self._right.confirm(wire)
            delete = partial(
                requests.delete_records, offsets=some, timeout_ms=wire.write_timeout_ms, check=self._right.check
            )
            done, errors = wire.ask_each("DeleteRecords", some, delete, "Delete")
            report.moved += len(done)
            report.failed += [f"{tp}: {error}" for tp, error in errors.items()]
            refused |= {tp.topic for tp in errors}
            for tp in done:
                self._there_since[tp] = some[tp], self._clock()
                log.info("%s: records below %d deleted, as at the source", tp, some[tp])
        return refused

    def _compact(
        self, topics: Mapping[str, TopicPlan], configs: Configs, standings: Mapping[TopicPartition, Standing],
        report: StartsReport,
    ) -> set[str]:  # fmt: skip
        """Let topics be compacted again whose backlog has arrived, and none that the source does not compact.

        Return those that the target refuses.
        """
        refused = set()
        before, self._ends = self._ends, {tp: one.end for tp, one in standings.items()}
        some, by_topic = {name: t for name, t in topics.items() if may_compact(t)}, _by_topic(standings)
        for name, entries in self._target.topic_configs(some).items():
            source_topic = some[name].source_topic
            level = compacting.is_level(self._source.wire.partitions(source_topic), by_topic.get(name, {}), before)
            here, there = (one[compacting.POLICY].value or "" for one in (configs[source_topic], entries))
            if (wanted := compacting.policy(some[name], level, here, there)) is None:
                continue
            try:
                with self._granted() as permit:
                    self._target.alter_topic_configs(name, permit, {compacting.POLICY: wanted})
            except (InputError, BrokerError) as e:  # the others need not wait for it
                report.failed.append(f"{name}: {e}")
                refused.add(name)
                continue
            report.compacted.append(f"{name}: {compacting.POLICY}: {there} -> {wanted}")
            log.info("%s", report.compacted[-1])
        return refused


def _by_topic(found: Mapping[TopicPartition, T]) -> dict[str, dict[TopicPartition, T]]:
    by_topic: dict[str, dict[TopicPartition, T]] = {}
    for tp, one in found.items():
        by_topic.setdefault(tp.topic, {})[tp] = one
    return by_topic


def _offsets(
    wire: WireCluster, what: str, tps: Collection[TopicPartition], timestamp: int, report: StartsReport
) -> Offsets:
    """Return offsets of those partitions whose leaders answer; the others have failed."""
    found, errors = log_offsets(wire, what, tps, timestamp)
    report.failed += [f"{tp}: {error}" for tp, error in errors.items()]
    return found
