"""What the records of the demo look like. Pure functions of a seed: no clock, no socket.

Real topics hold what schemas forget: null and empty keys and values, bytes that are no text, headers that repeat or
have no value, clocks that jump. Regular data would agree with many bugs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY_MS = 86_400_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Record:
    """A record before it has an offset. ``timestamp_ms`` is never 0: to confluent-kafka that means "now"."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def hostile(rng: random.Random, count: int, base_ms: int, spread_ms: int) -> Iterator[Record]:
    """Yield ``count`` irregular records with timestamps around ``base_ms``, out of order, some of them equal."""
    timestamp_ms = base_ms
    for number in range(count):
        timestamp_ms += rng.choice((0, 0, 1, 7, 1_000, -3, -spread_ms // 50, spread_ms // 40))
        timestamp_ms = min(max(timestamp_ms, base_ms - spread_ms), base_ms + spread_ms)
        yield Record(timestamp_ms, _key(rng, number), _value(rng), _headers(rng))


def _key(rng: random.Random, number: int) -> bytes | None:
    return rng.choice((None, b"", b"customer-%d" % (number % 97), rng.randbytes(rng.randint(1, 24))))


def _value(rng: random.Random) -> bytes | None:
    kind = rng.random()
    if kind < 0.08:
        return None
    if kind < 0.16:
        return b""
    if kind < 0.30:
        return rng.randbytes(rng.randint(1, 400))  # no text in any encoding
    if kind < 0.31:
        return rng.randbytes(64) * rng.randint(100, 700)  # much larger than its neighbours, and compressible
    return b'{"order": %d, "city": "Z\xc3\xbcrich", "note": "%s"}' % (rng.randrange(10**9), b"x" * rng.randint(0, 200))


def _headers(rng: random.Random) -> tuple[tuple[str, bytes | None], ...]:
    return rng.choice(
        (
            (),
            (("trace", rng.randbytes(16)),),
            (("retry", b"1"), ("retry", b"2"), ("retry", b"1")),
            (("empty", b""), ("absent", None)),
            (("", b"no name"), ("größe", "groß".encode())),
        )
    )


def payloads(rng: random.Random, count: int, size: int) -> list[bytes]:
    """Return ``count`` values of ``size`` bytes that compress to roughly half, like JSON with ids in it."""
    half = size // 2
    return [rng.randbytes(half).hex().encode()[: size - 64] + b" " * 64 for _ in range(count)]
