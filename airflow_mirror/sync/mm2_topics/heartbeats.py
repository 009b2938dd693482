"""Heartbeats: one record a second says that the flow is alive.

``heartbeats`` says that this job is at work, and holds the mirror's lease. ``<source alias>.heartbeats`` is what
MirrorMaker 2 makes of the source's own topic: by its name clients find the clusters upstream and the number of hops.
Nothing is written on the source here, so it gets a record each time that the source has answered: it stands still when
the source is gone.

Where the source is the target of other mirrors, it has such topics for the clusters before it, and its ledger says
which. This flow's alias before their names makes the next hop, as in a chain of MirrorMaker 2s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from airflow_mirror.common.policy import HEARTBEATS
from airflow_mirror.errors import (
    LeaseLost,
    LeaseUnconfirmed,
    LedgerLost,
    LedgerNewer,
    MirrorError,
    MissingRight,
    TryAgain,
)
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.mm2_topics import marked
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.mm2_topics.formats import Heartbeat
from airflow_mirror.sync.mm2_topics.log import TraceLog
from airflow_mirror.sync.mm2_topics.topics import make_ready
from airflow_mirror.sync.passes import Pass, PassReport, Sides, listed
from airflow_mirror.sync.write_permit import Stopped

_UPSTREAM_EVERY_S = 300.0  # how often it is looked for clusters before the source
_SILENT_S = 10.0  # a source that does not answer holds up the other heartbeats: it is left in peace for this long


@dataclass(kw_only=True)
class HeartbeatReport(PassReport):
    """One heartbeat.

    :param topics: that got it. :param seen: whether the source has answered.
    :param failed: what was not written, and why.
    """

    head = "written to {topics:topic}{silence}"
    topics: int = 0
    seen: bool = True
    failed: list[str] = listed("failed", "heartbeats are not written: {line}")

    @property
    def silence(self) -> str:
        """What its line says of a source that does not answer."""
        return "" if self.seen else "; the source does not answer"


class Heart(Pass[HeartbeatReport]):
    """Writes heartbeats.

    :param clock: a monotonic time, in seconds.
    """

    report = HeartbeatReport
    asks_first = False  # each write asks

    def __init__(self, sides: Sides, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(sides)
        self._clock = clock
        self._logs: dict[str, TraceLog] = {}
        self._further: list[str] = []
        self._look_at = self._ask_at = float("-inf")
        self._failed: list[str] = []

    def make(self, plan: Plan, now_ms: int, report: HeartbeatReport) -> None:
        """Write one heartbeat, which says ``now_ms``.

        :raises TracesUnfit: a topic is not as it must be. :raises MirrorError: nothing could be written.
        """
        mirror = plan.mirror
        own, of_source = mirror.trace_topics_of("heartbeats")
        if own not in self._logs:
            self._logs |= make_ready(plan, (own, of_source), self._target, self._ledger, self._right)
        one = Heartbeat(mirror.source_alias or mirror.source, mirror.target_alias or mirror.target, now_ms)
        self._write([own], one, report)
        report.seen = self._source_answers(plan)
        if report.seen:
            self._write([of_source, *self._further], one, report)
        report.failed += self._failed

    def _write(self, topics: Iterable[str], one: Heartbeat, report: HeartbeatReport) -> None:
        with self._granted():
            for topic in topics:
                self._logs[topic].write([(one.key, one.value)], one.at_ms, self._right.check)
                report.topics += 1

    def _source_answers(self, plan: Plan) -> bool:
        now = self._clock()
        if now < self._ask_at:
            return False
        due = now >= self._look_at
        try:
            self._source.cluster_id()
            if due:
                traces = self._traces_of_source()
        except MirrorError:
            self._ask_at = self._clock() + _SILENT_S
            return False
        if due:
            self._look_at = now + self._make_further(plan, traces)
        return True

    def _traces_of_source(self) -> Collection[str]:
        """Return the source's traces, as far as its ledger can be read."""
        try:
            found = marked(Ledger(self._source).peek())
        except (LedgerLost, LedgerNewer, MissingRight) as e:
            self._further, self._failed = [], [f"clusters before the source are not known: {e}"]
            return ()
        self._further, self._failed = [], []
        return found

    def _make_further(self, plan: Plan, traces: Iterable[str]) -> float:
        """Make topics ready for the clusters before the source, as far as that is possible.

        Return after how many seconds to look again.

        :param traces: of the source.
        """
        after_s = _UPSTREAM_EVERY_S
        for topic in further(plan.mirror, traces):
            try:
                if topic not in self._logs:
                    self._logs |= make_ready(plan, [topic], self._target, self._ledger, self._right)
                self._further.append(topic)
            except (Stopped, LeaseLost, LeaseUnconfirmed):
                raise
            except MirrorError as e:  # the target's: the source has answered
                self._failed.append(f"{topic}: {e}")
                if isinstance(e, TryAgain):
                    after_s = _SILENT_S
        return after_s


def further(mirror: Mirror, traces: Iterable[str]) -> list[str]:
    """Return the topics on the target that stand for clusters before the source.

    :param traces: on the source. Those that have come from the target, or through the source already, are a ring.
    """
    alias, separator = mirror.source_alias or mirror.source, mirror.separator
    ring = {alias, mirror.target_alias or mirror.target}
    ends = (name for name in traces if name.endswith(f"{separator}{HEARTBEATS}"))
    ways = ((name, name.removesuffix(f"{separator}{HEARTBEATS}").split(separator)) for name in ends)
    return sorted(f"{alias}{separator}{name}" for name, way in ways if not ring.intersection(way))
