"""One pass over checkpoints and offset-syncs: read both clusters and what stands in the topics, append what is news.

Nothing is remembered between two passes but what is read from the topics again. So a pass that dies anywhere is
continued by the next one, in whatever process: what was appended stands there, and the rest is news again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import IDENTICAL
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.sync.following.deciding import Standing
from airflow_mirror.sync.following.reading import Reading
from airflow_mirror.sync.mm2_topics.deciding import Log, checkpoint_of, is_news, syncs_of
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, OffsetSync, read_checkpoint, read_offset_sync
from airflow_mirror.sync.mm2_topics.log import TraceLog
from airflow_mirror.sync.mm2_topics.topics import make_ready
from airflow_mirror.sync.passes import Pass, PassReport, Sides, listed, log_offsets
from airflow_mirror.wire import requests

Standings = Mapping[str, Mapping[TopicPartition, Standing]]
KINDS = ("checkpoints", "offset-syncs")


@dataclass(kw_only=True)
class TraceReport(PassReport):
    """One pass. A position without a checkpoint stands in one of the lists, with its cause.

    :param checkpoints: positions of groups that have one. :param written: those of them that this pass wrote.
    :param syncs: offset-syncs that it wrote.
    :param left_out: topics and positions without a place on the target.
    """

    head, level = "{checkpoints:checkpoint} kept level", "checkpoints"
    checkpoints: int = 0
    written: int = 0
    syncs: int = 0
    failed: list[str] = listed("failed", "no checkpoint of {line}")


class TraceFollower(Pass[TraceReport]):
    """Keeps checkpoints and offset-syncs on the target as the groups and logs are."""

    report = TraceReport

    def __init__(self, sides: Sides) -> None:
        super().__init__(sides)
        self._logs: dict[str, TraceLog] = {}

    def make(self, plan: Plan, now_ms: int, report: TraceReport) -> None:
        """See :class:`.Pass`. ``now_ms`` is for the records' timestamps alone.

        :raises TracesUnfit: a topic is not as it must be.
        """
        names = {kind: self._mirror.trace_topics_of(kind)[0] for kind in KINDS if kind in self._mirror.traces}
        if not self._logs:
            ready = make_ready(plan, names.values(), self._target, self._ledger, self._right)
            self._logs = {kind: ready[name] for kind, name in names.items()}
        reading = Reading(self._sides, plan)
        if topics := reading.topics(report):
            self._follow(reading, topics, now_ms, report)

    def _follow(self, reading: Reading, topics: Mapping[str, TopicPlan], now_ms: int, report: TraceReport) -> None:
        here = reading.positions(report).here
        topics = reading.still_same(topics, report)
        standings = reading.standings(topics, here)({group: {} for group in here})
        if log := self._logs.get("checkpoints"):
            checkpoints = self._checkpoints(log.read(), standings, report)
            self._write(log, checkpoints, now_ms)
            report.written = len(checkpoints)
        if log := self._logs.get("offset-syncs"):
            syncs = self._syncs(log.read(), topics, standings, report)
            self._write(log, syncs, now_ms)
            report.syncs = len(syncs)

    def _write(self, log: TraceLog, traces: Sequence[Checkpoint | OffsetSync], now_ms: int) -> None:
        if traces:
            with self._granted():
                log.write(((one.key, one.value) for one in traces), now_ms, self._right.check)

    def _checkpoints(self, stored: Mapping[bytes, bytes], standings: Standings, report: TraceReport) -> list[Checkpoint]:
        """Return the checkpoints that are news."""
        changed: list[tuple[Checkpoint, Checkpoint | None, Standing]] = []
        for group, its in standings.items():
            for tp, standing in its.items():
                one, why = checkpoint_of(group, tp, standing)
                if one is None:
                    report.left_out.append(f"{group} at {tp}: {why}")
                    continue
                report.checkpoints += 1
                value = stored.get(one.key)
                before = None if value is None else read_checkpoint(one.key, value)
                if one != before:
                    changed.append((one, before, standing))
        back = {one.tp for one, before, _ in changed if before is not None and one.downstream < before.downstream}
        ends = self._target.wire.log_ends(back) if back else {}
        return [one for one, before, standing in changed if is_news(one, before, standing, ends.get(one.tp))]

    def _syncs(
        self, stored: Mapping[bytes, bytes], topics: Mapping[str, TopicPlan], standings: Standings, report: TraceReport
    ) -> list[OffsetSync]:
        """Return the offset-syncs that are news."""
        logs = self._kept(topics, report) | self._mapped(topics)
        ends, no_end = log_offsets(self._source.wire, "high watermark", logs)
        report.failed += [f"{tp}: {error}" for tp, error in no_end.items()]
        before = {one.tp: one for key, value in stored.items() if (one := read_offset_sync(key, value)) is not None}
        news = []
        for tp in sorted(ends):
            there = TopicPartition(topics[tp.topic].target_topic, tp.partition)
            groups = [its[there] for its in standings.values() if there in its]
            news += syncs_of(tp, logs[tp], groups, before.get(tp), ends[tp])
        return news

    def _kept(self, topics: Mapping[str, TopicPlan], report: TraceReport) -> dict[TopicPartition, Log]:
        """Return what both sides hold of partitions with identical offsets, as far as the target's leaders answer."""
        routes = {
            TopicPartition(t.target_topic, p): TopicPartition(name, p)
            for name, t in topics.items()
            if t.mode == IDENTICAL
            for p in range(min(self._source.wire.partitions(name), self._target.wire.partitions(t.target_topic)))
        }
        starts, no_start = log_offsets(self._target.wire, "log start", routes, requests.EARLIEST)
        ends, no_end = log_offsets(self._target.wire, "last stable offset", routes, committed=True)
        report.failed += [f"{tp}: {error}" for tp, error in {**no_start, **no_end}.items()]
        found = {tp: (starts[tp], ends[tp] - 1) for tp in starts.keys() & ends.keys()}
        return {routes[tp]: Log((start, start), (last, last)) for tp, (start, last) in found.items() if last >= start}

    def _mapped(self, topics: Collection[str]) -> dict[TopicPartition, Log]:
        """Return the same of partitions with an offset map that has records."""
        found = {}
        for tp, one in self._sides.maps.of(topics).items():
            if (last := one.last) is not None:
                source, target, _ = (side[0] for side in one.columns)
                more = last.count - 1
                found[tp] = Log((source, target), (last.source + more, last.target + more))
        return found
