"""Merging: make one batch of many tiny ones while there is a backlog.

A broker takes one batch for each partition in a request. A backlog of single-record batches would therefore be copied at
one record per partition and round trip. Records keep offsets, timestamps and order; only batch borders change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_mirror.copy.batches import tiers
from airflow_mirror.copy.batches.tiers import Corrupt, Send
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.records import Record

_MERGED_BYTES = 1 << 18  # more gains nothing: the round trip is paid for long before


def merged(steps: Iterable[Send | Corrupt], below: int, max_bytes: int, *, dense: bool) -> Iterator[Send | Corrupt]:
    """Yield ``steps`` with neighbours smaller than ``below`` bytes made one; errors and larger batches stay in order.

    :param max_bytes: the target's ``max.message.bytes``.
    :param dense: only neighbours without a hole between them (identical offsets).
    """
    limit = min(_MERGED_BYTES, max_bytes)
    records: list[Record] = []
    first: Send | None = None
    size = count = 0
    for step in steps:
        fits = isinstance(step, Send) and step.size < below and size + step.size <= limit
        if first is not None and not (fits and isinstance(step, Send) and _follows(step, first, records, dense=dense)):
            yield from _one(first, records, count, max_bytes, dense=dense)
            first, records, size, count = None, [], 0, 0
        if not (isinstance(step, Send) and step.size < below):
            yield step
            continue
        first = first or step
        records += wire_records.decode(step.raw) if step.raw is not None else step.records
        size += step.size
        count += max(1, step.merged)
    if first is not None:
        yield from _one(first, records, count, max_bytes, dense=dense)


def _follows(step: Send, first: Send, records: list[Record], *, dense: bool) -> bool:
    return _codec(step) == _codec(first) and (not dense or step.base_offset == records[-1].offset + 1)


def _one(first: Send, records: list[Record], count: int, max_bytes: int, *, dense: bool) -> Iterator[Send]:
    if count == 1:
        yield first
    else:
        yield from tiers.cut(records, _codec(first), max_bytes, dense=dense, merged=count)


def _codec(send: Send) -> int:
    return send.raw.header.codec if send.raw is not None and send.raw.header is not None else send.codec
