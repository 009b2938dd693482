"""The two hearts against each other: ``python -m tests.hearts`` throws random responses at both until the time is up.

What a broker may send, and what it never would: batches of every kind, some of them damaged under a checksum that fits,
cut off, or not batches at all. Pure Python says what is right; of each response, the compiled heart must make the same
steps, the same bytes and the same error. `tests/unit/copy/test_hearts.py` does it with hypothesis, which finds the
smallest response that is taken differently; here it is as fast as it can be, for hours, and with a sanitizer:

    CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all" python setup.py build_ext --inplace --force
    ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
      python -m tests.hearts --seconds 3600
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import crc32c
import lz4.frame

from airflow_mirror.copy.batches import joining
from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.asked import Begin, Commit, Pad
from airflow_mirror.copy.loop.limits import Buffer, Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, heart, packed
from airflow_mirror.wire.fetch import FetchedPartition
from airflow_mirror.wire.varint import unsigned, zigzag

_HALF = 1 << 63
_NOW = 1_700_000_000_000
LIMITS = (200, 700, 3000, 20_000, 1 << 18)  # of a merged batch
_HEADER_FIELDS = {8: "i", 12: "i", 16: "b", 21: "h", 23: "i", 27: "q", 35: "q", 43: "q", 51: "h", 53: "i", 57: "i"}
_EXTREMES = (0, 1, -1, 2, 127, 1 << 14, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))


@contextmanager
def beating(engine: Any, joined_bytes: int) -> Iterator[None]:
    """Have this heart run, None for pure Python, which merges up to so many bytes."""
    before = heart.engine, joining._JOINED_BYTES
    heart.engine, joining._JOINED_BYTES = engine, joined_bytes
    try:
        yield
    finally:
        heart.engine, joining._JOINED_BYTES = before


# --- what is sent -----------------------------------------------------------------------------------------------------


def blob(rnd: random.Random) -> bytes | None:
    size = rnd.choice((None, 0, 1, 5, 62, 63, 64, 65, 200))
    return None if size is None else rnd.randbytes(size)


def timestamp(rnd: random.Random) -> int:
    return rnd.choice((-1, 0, _NOW, _NOW + rnd.randrange(5000), -_HALF, _HALF - 1, rnd.randrange(-_HALF, _HALF)))


def rows(rnd: random.Random, at: int, count: int) -> list[packed.Packed]:
    near, found = rnd.random() < 0.7, []
    for i in range(count):
        time_ms = _NOW + rnd.randrange(-100, 1000) if near else timestamp(rnd)
        headers = (
            [(rnd.randbytes(rnd.randrange(4)), blob(rnd)) for _ in range(rnd.randrange(3))] if rnd.random() < 0.3 else []
        )
        found.append(packed.Packed(at + i, time_ms, packed.body_of(blob(rnd), blob(rnd), headers)))
    return found


def odd_varint(rnd: random.Random, value: int) -> bytes:
    """As nobody encodes it: with zeros behind it, with bits that don't count, or without an end."""
    plain = bytearray(zigzag(value))
    plain[-1] |= 0x80
    how = rnd.randrange(3)
    if how == 0:
        return bytes(plain) + b"\x80" * rnd.randrange(0, 9 - len(plain)) + b"\0" if len(plain) < 9 else zigzag(value)
    if how == 1:
        return unsigned(rnd.randrange(1 << 63, 1 << 70))
    return b"\xff" * rnd.randrange(9, 12)


def encoded(rnd: random.Random, records: list[packed.Packed], at: int, base: int, hostile: bool) -> bytes:
    """A payload whose timestamps count from ``base``; a hostile one has a field here and there that is not its own."""
    parts: list[bytes] = []
    for record in records:
        delta = record.offset - at
        values = record.timestamp - base, delta
        fields = [odd_varint(rnd, v) if hostile and rnd.random() < 0.1 else zigzag(v) for v in values]
        if hostile and rnd.random() < (0.3 if record is records[-1] else 0.05):
            fields[1] = zigzag(rnd.choice((delta + 1, *_EXTREMES)))
        frame, body = b"\0" + b"".join(fields), bytes(record.body)
        if hostile and rnd.random() < 0.02:  # under a length that is right
            body = body[: rnd.randrange(len(body) + 1)] if rnd.random() < 0.5 else altered(rnd, bytearray(body))
        length = len(frame) + len(body)
        if hostile and rnd.random() < 0.05:
            length = rnd.choice((length + rnd.randrange(-9, 9), *_EXTREMES))
        size = odd_varint(rnd, length) if hostile and rnd.random() < 0.05 else zigzag(length)
        parts += (size, frame, body)
    return b"".join(parts)


def batch(rnd: random.Random, at: int, count: int, number: int, epoch: int, hostile: bool) -> bytearray:
    """One batch; its checksum fits most often."""
    records = rows(rnd, at, count)
    if rnd.random() < 0.2:  # the log cleaner was here
        records = sorted(rnd.sample(records, rnd.randrange(1, count + 1)))
    base = records[0].timestamp if rnd.random() < 0.8 else timestamp(rnd)
    payload = encoded(rnd, records, at, base, hostile and rnd.random() < 0.3)
    damaged = hostile and rnd.random() < 0.2
    if damaged and rnd.random() < 0.5:
        payload = altered(rnd, bytearray(payload))
    if number == codec.LZ4 and rnd.random() < 0.2:  # blocks that are linked: readable, but not for a broker
        linked = lz4.frame.LZ4FrameCompressor(block_linked=True)
        payload = linked.begin() + linked.compress(payload) + linked.flush()
    else:
        payload = bytes(codec.compress(number, payload))
    if damaged and rnd.random() < 0.3:
        payload = altered(rnd, bytearray(payload))
    attributes = number | rnd.choice((0, 0, 0, 0, wire_batch.TRANSACTIONAL, wire_batch.LOG_APPEND_TIME))
    if hostile and rnd.random() < 0.2:
        attributes |= rnd.choice((0x08, 0x20, 0x30, 0x40, 0x80, 5, 7))
    view = wire_batch.build(
        payload, attributes, len(records), base, max(r.timestamp for r in records), rnd.choice((-1, 7)), 3, 9
    )
    struct.pack_into(">i", view, 23, count - 1)  # what was written: it stays
    struct.pack_into(">q", view, 0, at)
    struct.pack_into(">i", view, 12, epoch)
    content = bytearray(view)
    if hostile and rnd.random() < 0.1:  # a header of lies, signed
        field_at = rnd.choice(list(_HEADER_FIELDS)[3:])
        kind = _HEADER_FIELDS[field_at]
        bits = 8 * struct.calcsize(kind)
        lie = rnd.choice((*_EXTREMES, count, count - 1, count + 1))
        lie = (lie + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        struct.pack_into(f">{kind}", content, field_at, lie)
    struct.pack_into(">I", content, 17, crc32c.crc32c(bytes(content[21:])))
    if hostile and rnd.random() < 0.03:
        content[rnd.randrange(len(content))] ^= 1 << rnd.randrange(8)
    if hostile and rnd.random() < 0.02:
        struct.pack_into(">q", content, 0, rnd.choice((*_EXTREMES, at + 1, at - 1, _HALF - 2)))
    if hostile and rnd.random() < 0.01:
        struct.pack_into(">i", content, 8, rnd.choice((*_EXTREMES[:8], 48, 49, 50, len(content))))
    return content


def altered(rnd: random.Random, content: bytearray) -> bytes:
    how = rnd.randrange(3)
    if how == 0:
        del content[rnd.randrange(len(content) + 1) :]
    elif how == 1:
        content += rnd.randbytes(rnd.randrange(1, 9))
    for _ in range(rnd.randrange(1, 4)) if how == 2 and content else ():
        content[rnd.randrange(min(len(content), 60))] = rnd.choice((0xFF, 0x80, 0x7F, 0, 1, rnd.randrange(256)))
    return bytes(content)


class Case:
    """What is copied, how, and what the source sends: all of it is drawn once, so that both hearts get the same.

    :param most: batches in a response.
    """

    def __init__(self, rnd: random.Random, most: int = 13) -> None:
        self.hostile, self.mapped = rnd.random() < 0.5, rnd.random() < 0.4
        self.start = at = rnd.choice((0, 5, 1 << 40, _HALF - 3000))
        self.joined_bytes = rnd.choice(LIMITS)
        self.max_bytes = rnd.choice((150, 2000, 1 << 20))
        self.merge_below = rnd.choice((40, 256, 4096, 1 << 16))
        self.transaction_bytes = rnd.choice((0, 0, 2000)) if self.mapped else 0
        self.key_partitions = rnd.choice((None, None, None, 2)) if self.mapped else None
        self.parts: list[bytearray] = []
        number, epoch, begins = rnd.randrange(5), 1, []
        for _ in range(rnd.randrange(1, 4)):
            part = bytearray()
            for _ in range(rnd.randrange(1, most + 1)):
                count = rnd.choice((1, 1, 1, 2, 5, 10, 30))
                number = rnd.randrange(5) if rnd.random() < 0.05 else number
                epoch += rnd.random() < 0.05
                at += rnd.randrange(1, 9) if rnd.random() < (0.15 if self.mapped or self.hostile else 0.02) else 0
                begins.append(at)
                part += batch(rnd, at, count, number, epoch, self.hostile)
                at += count
            if rnd.random() < 0.2:  # brokers cut off what they don't send whole
                part += batch(rnd, at, 3, number, epoch, False)[: rnd.choice((-1, rnd.randrange(1, 61 + 20)))]
            if self.hostile and rnd.random() < 0.02:
                part += rnd.randbytes(rnd.randrange(1, 100))
            self.parts.append(part)
        self.behind = at
        self.end = rnd.choice((None, at, max(self.start, at - rnd.randrange(4))))
        self.aborted = [(7, rnd.choice(begins))] if rnd.random() < 0.3 else []

    def taken(self, engine: Any) -> list[object]:
        """Return all that a partition's copy makes of it with this heart."""
        with beating(engine, self.joined_bytes):
            return list(self._steps())

    def _steps(self) -> Iterator[object]:
        one = CopyRange(
            source_topic="t", target_topic="t", partition=0, start_offset=self.start, end_offset=self.end,
            mode=MAPPED if self.mapped else "identical", key_partitions=self.key_partitions,
        )  # fmt: skip
        copy = PartitionCopy(
            one, True, self.max_bytes, merge_below=self.merge_below, transaction_bytes=self.transaction_bytes
        )
        book = OffsetMap(self.start, 0) if self.mapped else None
        copy.begin_opening()
        copy.reopen(Opening(position=self.start, producer_id=1 << 62, epoch=0, sequence=(1 << 31) - 40, map=book))
        for part in self.parts:
            view = memoryview(bytearray(part))
            fetched = FetchedPartition(one.source, 0, self.behind, self.behind, 0, self.aborted, view)
            copy.feed(fetched, Buffer(Memory(1 << 30), len(view), 0))
            yield copy.fetch_offset, copy.queued_bytes
        there = 0
        try:
            while (step := copy.next_step()) is not None:
                if isinstance(step, Send):
                    yield told(step, copy)
                    copy.sent(step)
                    copy.acknowledged(step, there if self.mapped else step.base_offset, 0)
                    there += step.record_count
                    continue
                yield step
                copy.sent()
                match step:
                    case Pad():
                        copy.padded(step, step.end - step.start)
                    case Begin():
                        copy.began()
                    case Commit():
                        copy.transaction_ended(step)
        except (MirrorError, ValueError) as e:  # a map that refuses what a source claims that takes back an offset
            yield type(e), str(e)
        yield copy.position, copy.sequence, copy.state, vars(copy.counters), repr(vars(copy.trail)), copy.queued_bytes
        yield copy.map and (copy.map.source_end, copy.map.target_end), copy.open_bytes


def told(step: Send, copy: PartitionCopy) -> object:
    times = step.newest_timestamp, step.last_timestamp, step.spans()
    fields = step.base_offset, step.record_count, step.size, step.codec, step.next_source, step.merged, step.filler
    # Without its runs of offsets: those that count are told above.
    encoded = step.encoded and (bytes(step.encoded.batch[wire_batch.HEADER_SIZE :]), *step.encoded[1:-1])
    if step.raw is not None and step.raw.header is None:
        return fields, times
    return fields, times, encoded, bytes(step.signed(copy.max_bytes, copy.producer_id, copy.epoch, copy.sequence))


def main() -> int:
    """Run the command; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.hearts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() & 0xFFFFFFFF, help="of the first case; each has the next"
    )
    arguments = parser.parse_args()
    if heart.engine is None:
        print("nothing could compile the heart on this machine", file=sys.stderr)
        return 1
    by = "the processor's instruction" if heart.engine.HAS_INSTRUCTION else "tables"
    print(f"first seed {arguments.seed}, checksums by {by}", flush=True)
    deadline, seed, merged, errors = time.monotonic() + arguments.seconds, arguments.seed, 0, 0
    while time.monotonic() < deadline:
        case = Case(random.Random(seed))
        pure, compiled = case.taken(None), case.taken(heart.engine)
        if pure != compiled:
            print(f"seed {seed}: the hearts differ", *zip(pure, compiled, strict=False), sep="\n")
            return 1
        merged += pure[-2][3]["merged"]  # type: ignore[index]
        errors += isinstance(pure[-3], tuple) and isinstance(pure[-3][0], type)
        seed += 1
    print(f"{seed - arguments.seed:,} responses, {merged:,} batches merged, {errors:,} errors: both hearts agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
