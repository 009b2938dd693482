"""Every figure that a job exports: its name, its kind and what it says."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from airflow_mirror.jobs.metrics.measures import Measure, Spread

PREFIX = "airflow_mirror_"
GAUGE, COUNTER, SUMMARY = "gauge", "counter", "summary"


class Figure(NamedTuple):
    """A figure of the job, or of one of its topics. Names follow Prometheus: base units, ``_total`` for counters."""

    name: str
    kind: str
    text: str


class Total(NamedTuple):
    """The value of a summary: how many there were, and their sum."""

    number: float
    sum: float


class Measured(NamedTuple):
    """A figure of each listed partition, and of each topic.

    :param of_topic: how a topic's is made of its partitions'.
    :param read: None: unknown, and there is no series then.
    """

    name: str
    kind: str
    text: str
    of_topic: str
    read: Callable[[Measure], float | Total | None]

    @property
    def for_partitions(self) -> Figure:
        """The figure with a series for each partition."""
        return Figure(PREFIX + self.name, self.kind, f"{self.text}.")

    @property
    def for_topics(self) -> Figure:
        """The figure with a series for each topic: another name, so that no sum counts anything twice."""
        return Figure(f"{PREFIX}topic_{self.name}", self.kind, f"{self.text}: {self.of_topic} of the topic's partitions.")


JOB = Figure(f"{PREFIX}job_info", GAUGE, "1; the label kind says what the job does.")
RUNNING = Figure(f"{PREFIX}job_running", GAUGE, "1 while the job runs, 0 once it has ended; a killed one says 1.")
UPDATED = Figure(f"{PREFIX}updated_timestamp_seconds", GAUGE, "When the job last told its figures.")
EPOCH = Figure(f"{PREFIX}writer_epoch", GAUGE, "Producer epoch of the writer lease: it grows with each job.")
PARTITIONS = Figure(f"{PREFIX}partitions", GAUGE, "Partitions in each state.")
UNKNOWN = Figure(f"{PREFIX}partitions_unknown", GAUGE, "Partitions whose lag is unknown, and in no sum.")
LEFT_OUT = Figure(f"{PREFIX}partitions_left_out", GAUGE, "Partitions without series of their own.")
HELD = Figure(f"{PREFIX}fetched_bytes", GAUGE, "Fetched bytes of the task that holds most; it may hold 48 MiB.")
HOLD = Figure(f"{PREFIX}hold_intact", GAUGE, "1 if the target topic's settings were on hold at the last look, else 0.")
RESTORED = Figure(f"{PREFIX}hold_restored_total", COUNTER, "Settings of the target topic that the job had to set back.")
_MOVE = "From the reading of a group's positions on the source to the target's answer that they are committed there"
_LAST = "in the last half to whole minute in which groups moved"
GROUPS = Figure(f"{PREFIX}group_latency_seconds", SUMMARY, f"{_MOVE}.")
GROUPS_MIN = Figure(f"{PREFIX}group_latency_min_seconds", GAUGE, f"{_MOVE}, least {_LAST}.")
GROUPS_MAX = Figure(f"{PREFIX}group_latency_max_seconds", GAUGE, f"{_MOVE}, most {_LAST}.")


def _delays(name: str, text: str, field: str) -> tuple[Measured, ...]:
    """Return the figures of a delay: all batches together, and the extremes of the last ones."""

    read: Callable[[Measure], Spread | None] = attrgetter(field)

    def total(m: Measure) -> Total | None:
        return None if (spread := read(m)) is None else Total(spread.batches, spread.sum_s)

    def least(m: Measure) -> float | None:
        return None if (spread := read(m)) is None else spread.min_s

    def most(m: Measure) -> float | None:
        return None if (spread := read(m)) is None else spread.max_s

    recent = "in the last half to whole minute"
    return (
        Measured(f"{name}_seconds", SUMMARY, text, "sum", total),
        Measured(f"{name}_min_seconds", GAUGE, f"{text}, least {recent}", "smallest", least),
        Measured(f"{name}_max_seconds", GAUGE, f"{text}, most {recent}", "largest", most),
    )


MEASURED = (
    Measured("lag_records", GAUGE, "Offsets still to copy", "sum", lambda m: m.lag_records),
    Measured("held_records", GAUGE, "Offsets behind an open transaction, not in the lag", "sum", lambda m: m.held),
    Measured("lag_bytes", GAUGE, "Estimated bytes still to copy", "sum", lambda m: m.lag_bytes),
    Measured(
        "lag_seconds", GAUGE, "How old the oldest record is at most that the target lacks", "largest", lambda m: m.lag_s
    ),
    Measured(
        "retention_headroom_records",
        GAUGE,
        "Offsets between the source's log start and the next one to copy",
        "smallest",
        lambda m: m.headroom_records,
    ),
    Measured(
        "retention_headroom_seconds",
        GAUGE,
        "Time at least until the source deletes the next record to copy",
        "smallest",
        lambda m: m.headroom_s,
    ),
    Measured("stopped", GAUGE, "Partitions whose copy has stopped with an error", "sum", lambda m: m.stopped),
    Measured("records_total", COUNTER, "Records that this job has copied", "sum", lambda m: m.records),
    Measured("bytes_total", COUNTER, "Bytes of batches that this job has sent", "sum", lambda m: m.bytes),
    *_delays("replication_latency", "From the timestamp of a batch's newest record to the target's answer", "latency"),
    *_delays("record_age", "From the timestamp of a batch's newest record to its arrival from the source", "age"),
)
