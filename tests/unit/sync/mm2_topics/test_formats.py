"""Traces byte for byte. The vectors were written by the Java classes of connect-mirror-client 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.sync.mm2_topics.formats import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    is_writable,
    read_checkpoint,
    read_offset_sync,
)

VECTORS: list[tuple[Any, str, str]] = [
    (Heartbeat("A", "B", 1700000000000), "000141000142", "00000000018bcfe56800"),
    (Checkpoint("g1", TopicPartition("A.orders", 3), 1005, 991), "000267310008412e6f726465727300000003",
     "000000000000000003ed00000000000003df0000"),
    (Checkpoint("g1", TopicPartition("A.orders", 3), 1005, 991, "m"), "000267310008412e6f726465727300000003",
     "000000000000000003ed00000000000003df00016d"),
    (Checkpoint("gé", TopicPartition("t", 0), 0, 0), "000367c3a900017400000000", "00" * 20),
    (OffsetSync(TopicPartition("orders", 3), 1000, 990), "00066f726465727300000003", "00000000000003e800000000000003de"),
]  # fmt: skip
READ: dict[Any, Any] = {Checkpoint: read_checkpoint, OffsetSync: read_offset_sync}
PARTITIONS = st.builds(TopicPartition, st.text("ab.-é"), st.integers(0, 2**31 - 1))
OFFSETS = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(("trace", "key", "value"), VECTORS)
def test_traces_are_the_bytes_that_java_writes(trace: Any, key: str, value: str) -> None:
    assert (trace.key.hex(), trace.value.hex()) == (key, value)


@given(
    st.one_of(
        st.builds(Checkpoint, st.text(), PARTITIONS, OFFSETS, OFFSETS, st.text()),
        st.builds(OffsetSync, PARTITIONS, OFFSETS, OFFSETS),
    )
)
def test_what_was_written_is_read_again(trace: Any) -> None:
    assert READ[type(trace)](trace.key, trace.value) == trace


@given(st.sampled_from(VECTORS[1:]), st.integers(0, 40))
def test_what_is_cut_off_is_no_trace(vector: Any, length: int) -> None:
    trace = vector[0]
    read = READ[type(trace)]
    assert (read(trace.key[:length], trace.value) is None) == (length < len(trace.key))
    assert (read(trace.key, trace.value[:length]) is None) == (length < len(trace.value))


def test_other_versions_and_other_bytes_are_no_traces() -> None:
    checkpoint = VECTORS[1][0]
    assert read_checkpoint(checkpoint.key, b"\0\1" + checkpoint.value[2:]) is None
    assert read_checkpoint(b"\xff\xff", checkpoint.value) is None


def test_only_what_fits_into_a_checkpoint_is_written_there() -> None:
    assert is_writable("g", "m" * (2**15 - 1))
    assert not is_writable("g", "m" * 2**15)
    assert not is_writable("é" * 2**14, "")
