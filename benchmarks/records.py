"""Makes the batches that the cases are about. The same seed gives the same batches in every process."""

from __future__ import annotations

import random
from collections.abc import Iterator

from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.records import Record
from benchmarks.cases import CODECS, Case

BASE_MS = 1_700_000_000_000
_KEY_BYTES = 12
# Half of each value is this text, the other half is noise: both lz4 and zstd make about half of it.
_TEXT = b'{"event":"page_view","tenant":"europe-west","client":{"kind":"browser","language":"de-DE"},"path":"/shop/item"}'


def ring(case: Case) -> list[memoryview]:
    """Return the batches that a partition's log repeats; without a producer id, ready to be sent as they are."""
    rng = random.Random(case.name)
    return [_encode(case, _values(case, rng, number * case.per_batch)) for number in range(case.ring_batches)]


def keyed(case: Case, partition: int, batches: int) -> Iterator[memoryview]:
    """Yield a partition's batches for the log cleaner: each key occurs about twice, anywhere in the log.

    The last batch is a single record a day later: it makes the broker roll the segment, so that all others get cleaned.
    """
    rng = random.Random(f"{case.name} {partition}")
    keys = max(1, batches * case.per_batch // 2)
    for number in range(batches):
        records = _values(case, rng, number * case.per_batch)
        named = [r._replace(key=b"%0*d" % (_KEY_BYTES, rng.randrange(keys))) for r in records]
        yield _encode(case, named)
    yield _encode(case, [Record(0, BASE_MS + 86_400_000, b"the last", b"", [])])


def _values(case: Case, rng: random.Random, first: int) -> list[Record]:
    size = case.record_bytes - _KEY_BYTES
    text = (_TEXT * (size // 2 // len(_TEXT) + 1))[: size - size // 2]
    noise = rng.randbytes(size // 2 * case.per_batch)
    half = size // 2
    return [
        Record(i, BASE_MS + first + i, b"%0*d" % (_KEY_BYTES, first + i), text + noise[i * half : (i + 1) * half], [])
        for i in range(case.per_batch)
    ]


def _encode(case: Case, records: list[Record]) -> memoryview:
    return wire_records.encode(records, CODECS[case.codec], -1, -1, -1)
