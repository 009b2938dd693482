"""The results of a comparison, as values that are passed as JSON: from Spark tasks to the driver, and into reports.

Records may be confidential and reports are kept for years, so a difference holds lengths and digests, never payload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import xxhash

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InvalidField
from airflow_mirror.wire.records import Record

LEVELS = ("offsets", "batches", "records")
KINDS = ("missing", "extra", "key", "value", "headers", "timestamp", "offset", "end", "corrupt", "map")

Evidence = dict[str, int | str | None]


def check_level(level: str) -> str:
    """Return ``level``, or raise :class:`InvalidField` that names the known levels."""
    if level not in LEVELS:
        raise InvalidField("level", level, "no such level of comparison", f"Use one of {', '.join(LEVELS)}.")
    return level


class LogBounds(NamedTuple):
    """A log's start, its stable end (no open transaction) and its end (exclusive).

    For a source that is compared with read_uncommitted, open transactions are stable too, up to the high watermark.
    """

    start: int
    stable: int
    end: int


@dataclass(frozen=True, kw_only=True)
class BothSides:
    """One partition, with its names on both sides."""

    source_topic: str
    target_topic: str
    partition: int

    @property
    def source(self) -> TopicPartition:
        """The partition on the source."""
        return TopicPartition(self.source_topic, self.partition)

    @property
    def target(self) -> TopicPartition:
        """The partition on the target."""
        return TopicPartition(self.target_topic, self.partition)


@dataclass(frozen=True, kw_only=True)
class PartitionPair(BothSides):
    """One partition to compare.

    :param begin_offset: first offset that the target has to hold, where the source still does; None: ``start_offset``.
        What was compared earlier, and is not again, has to be there all the same.
    :param start_offset: first offset to compare; None starts where both logs hold records.
    :param end_offset: offset to stop at, exclusive; None goes to the end and requires that both ends are equal.
    :param mapped: its offsets are mapped; both bounds are the source's.
    :param held: the target's retention is off, so its log must start where the copy began.
    :param cleaned_on: the sides, ``source`` and ``target``, on which a log cleaner may have taken records.
    """

    begin_offset: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    mapped: bool = False
    held: bool = False
    cleaned_on: Collection[str] = ()

    @property
    def begin(self) -> int:
        """The first offset that the target has to hold, where the source still does."""
        return (self.start_offset if self.begin_offset is None else self.begin_offset) or 0


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first place at which two partitions differ.

    :param offset: the source's offset, or the target's for an ``extra`` record.
    :param kind: one of :data:`KINDS`. ``offset``: the same record has another offset; ``end``: one log is longer;
        ``corrupt``: a batch can't be read (broken checksum or compression); ``map``: the logs contradict the stored
        offset map.
    :param source: digests and lengths of the source's record; None without a record.
    :param target: digests and lengths of the target's record; None without a record.
    :param target_offset: with mapped offsets, the target's offset; ``offset`` is then always the source's.
    """

    offset: int
    kind: str
    source: Evidence | None = None
    target: Evidence | None = None
    target_offset: int | None = None

    def __str__(self) -> str:
        where = f"offset {self.offset}"
        if self.target_offset is not None:
            where = f"source offset {self.offset}, target offset {self.target_offset}"
        return f"{self.kind} at {where} (source {_text(self.source)}, target {_text(self.target)})"


@dataclass(frozen=True, kw_only=True)
class PartitionComparison(BothSides):
    """Verdict on one partition.

    :param start_offset: first offset compared; the source's if offsets are mapped. Where the target's retention took more
        meanwhile: the first that was compared and is there still.
    :param end_offset: end of the compared range, exclusive.
    :param records: records found equal before the first difference, or all of them; 0 at level ``offsets``.
    :param bytes: stored bytes of the source's batches that were read.
    :param equal: no difference in [start_offset, end_offset), nor at the end unless an end was requested.
    :param first_difference: the lowest place that differs.
    :param offsets_equal: both logs have the same start, stable end and end. Reported separately from ``equal``, because
        retention moves log starts on each side independently.
    :param source_log: bounds of the source's log when its comparison began; its start as retention has moved it since.
    :param target_log: likewise, of the target's log.
    :param fillers: records of the target that fill holes (tombstones of the reserved key); not differences.
    :param expired: records of one side that the other side's retention deleted during the comparison; not differences.
    :param cleaned: records that only one side of a compacted topic has; not differences if it is equal.
    :param unseen: offsets in front that were asked for and that the target has no more, because its retention took them,
        before or during the comparison: not proven.
    """

    start_offset: int
    end_offset: int
    records: int
    bytes: int
    equal: bool
    first_difference: Difference | None
    offsets_equal: bool
    source_log: LogBounds
    target_log: LogBounds
    fillers: int = 0
    expired: int = 0
    cleaned: int = 0
    unseen: int = 0

    def __str__(self) -> str:
        name = str(self.source)
        if self.target != self.source:
            name += f" -> {self.target}"
        verdict = f"{self.records} records equal" if self.equal else str(self.first_difference)
        if self.fillers:
            verdict += f"; {self.fillers} fillers on the target passed over"
        if self.expired:
            verdict += f"; {self.expired} records taken by retention meanwhile"
        if self.cleaned:
            verdict += f"; {self.cleaned} records taken by one side's log cleaner"
        if self.unseen:
            verdict += (
                f"; {self.unseen} offsets before that are not compared: the target's retention is on, and took them"
            )
        return f"{name} [{self.start_offset}, {self.end_offset}): {verdict}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; ``from_dict`` is its inverse."""
        return {**asdict(self), "source_log": list(self.source_log), "target_log": list(self.target_log)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PartitionComparison:
        """Build from ``to_dict``'s result."""
        found = values["first_difference"]
        bounds = {side: LogBounds(*values[side]) for side in ("source_log", "target_log")}
        return cls(**{**values, **bounds, "first_difference": Difference(**found) if found else None})


def differences(comparisons: Iterable[PartitionComparison]) -> list[str]:
    """Return one line for each partition that differs, for :class:`VerificationFailed`."""
    return [str(c) for c in comparisons if not c.equal]


def untouched(found: PartitionComparison, expected: Mapping[TopicPartition, int]) -> str:
    """Return a line if nothing of a partition was compared although there is something, otherwise an empty string.

    :param expected: offset up to which the target should hold what the source has, by source partition.
    """
    if found.start_offset < found.end_offset:
        return ""
    end = min(expected.get(found.source, 0), found.source_log.stable)
    if end <= found.start_offset:
        return ""
    return f"{found.source}: the source holds offsets {found.start_offset} to {end - 1}, the target none of them yet"


def evidence(record: Record | None) -> Evidence | None:
    """Describe a record by lengths and digests."""
    if record is None:
        return None
    headers = b"".join(_framed(name) + _framed(value) for name, value in record.headers)
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _digest(record.key),
        "value": _digest(record.value),
        "headers": f"{len(record.headers)} headers, {_digest(headers)}",
    }


def _digest(content: bytes | None) -> str:
    return "null" if content is None else f"{len(content)} bytes, xxh3 {xxhash.xxh3_128_hexdigest(content)[:16]}"


def _framed(content: bytes | None) -> bytes:
    """Prefix the length, so that (b"a", b"bc") and (b"ab", b"c") differ, and so do null and empty."""
    return b"\xff" * 8 if content is None else len(content).to_bytes(8, "big") + content


def _text(found: Evidence | None) -> str:
    return "nothing" if found is None else ", ".join(f"{k} {v}" for k, v in found.items())
