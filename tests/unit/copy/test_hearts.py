"""Both hearts make the same of whatever comes: steps, bytes and errors."""

from __future__ import annotations

import random

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import heart
from tests.hearts import Case, beating

compiled = pytest.mark.skipif(heart.engine is None, reason="nothing could compile the heart on this machine")
# A batch has many fields, and several are wanted.
large = settings(suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])


@compiled
@large
@given(st.randoms(use_true_random=False))
def test_both_hearts_make_the_same_of_any_response(rnd: random.Random) -> None:
    case = Case(rnd, 3)
    assert case.taken(heart.engine) == case.taken(None)


@compiled
@pytest.mark.repeats
def test_both_hearts_make_the_same_of_long_responses() -> None:
    """Longer ones than hypothesis tries, of which each kind is merged."""
    merged = 0
    for seed in range(500):
        case = Case(random.Random(seed))
        expected = case.taken(None)
        assert case.taken(heart.engine) == expected, f"seed {seed}"
        merged += expected[-2][3]["merged"]  # type: ignore[index]
    assert merged > 500


def frames(engine: object, content: bytes) -> tuple[int, int] | str:
    with beating(engine, 1 << 18):
        try:
            return wire_batch.scan(memoryview(content))
        except wire_batch.BrokenFrame as e:
            return f"{e.offset}: {e}"


@compiled
@large
@given(st.randoms(use_true_random=False), st.binary(max_size=200))
def test_both_hearts_see_the_same_frames(rnd: random.Random, noise: bytes) -> None:
    content = b"".join(Case(rnd, 3).parts)
    for some in (content, noise, content[: rnd.randrange(len(content) + 1)] + noise):
        assert frames(heart.engine, some) == frames(None, some)


@compiled
@given(
    st.binary(max_size=80), st.binary(max_size=200), st.randoms(use_true_random=False),
    st.sampled_from([0, 1, 2**12, 2**20]),
)  # fmt: skip
def test_checksum_follows_from_the_one_before_where_only_the_begin_changes(
    before: bytes, rest: bytes, rnd: random.Random, zeros: int
) -> None:
    after, rest = rnd.randbytes(len(before)), rest + bytes(zeros)
    derived = heart.engine.crc_with_another_begin(crc32c.crc32c(before + rest), before, after, len(rest))
    assert derived == crc32c.crc32c(after + rest)
    with pytest.raises(ValueError, match="bytes for"):
        heart.engine.crc_with_another_begin(0, before, after + b"x", len(rest))


@compiled
@given(st.binary(max_size=300))
def test_checksums_are_those_of_the_library(content: bytes) -> None:
    for some in (content, content[1:], 40 * content):
        assert heart.engine.crc(some) == heart.engine.crc(some, by_tables=True) == crc32c.crc32c(some)
