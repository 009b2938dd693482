"""Where the copy was cut: read back whole, whatever its size, and never guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.failover.record import Cut, Record
from airflow_mirror.errors import InputError, LedgerNewer, TryAgain
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from tests.unit.ledger.memory import MemoryState

AB = TopicPartition("a/b", 12)
CUT = Cut(
    at_ms=7, offsets={AB: 5, TopicPartition("c", 0): 0}, lost={"at_least": 3},
    beyond={"g/é": {AB: (GroupPosition(9, "note"), 5)}},
)  # fmt: skip


@pytest.mark.parametrize(
    "cut", [CUT, replace(CUT, beyond={}), replace(CUT, beyond=None)], ids=["some", "none", "not noted"]
)
def test_a_cut_of_any_size_reads_back_the_same(small_records: Callable[[int], None], cut: Cut) -> None:
    for size in (1_000_000, 20):
        small_records(size)
        state = MemoryState()
        record = Record(state, "m", "x")
        assert record.done() == {}
        record.write_cut(cut)
        for step in ("groups", "checkpoints", "writing"):
            record.write_done(step, {"count": 0, "lines": []})
        assert (record.cut(), list(record.done())) == (cut, ["writing", "groups", "checkpoints"])
        assert record.lacks() == ["settings", "grants"]


def test_a_cut_that_was_deleted_is_not_taken_for_none() -> None:
    with pytest.raises(InputError, match=r"mirror 'm' was failed over \(x\), and not where its copy ended"):
        Record(MemoryState(), "m", "x").cut()


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"7", b"{}", json.dumps({"v": 99}).encode()], ids=repr)
def test_what_can_not_be_read_is_named(value: bytes) -> None:
    state = MemoryState()
    state.write({"failover/m/x/cut/0/1": value, "failover/m/x/done/groups": value})
    record = Record(state, "m", "x")
    for read in (record.cut, record.done):
        with pytest.raises(LedgerNewer):
            read()


def test_call_that_slept_before_the_bytes_leaves_what_others_have_noted_since() -> None:
    """It had looked at what is decided before it read what is there."""
    state = MemoryState()
    ours, later = Record(state, "m", "ours"), Record(state, "m", "later")
    for one in (ours, later):
        one.write_cut(Cut(at_ms=1, offsets={}, lost={}))

    def permit() -> None:
        raise TryAgain("another direction was decided")

    with pytest.raises(TryAgain):
        ours.forget_others(permit)
    assert later.cut().at_ms == 1
    ours.forget_others(unfenced)
    with pytest.raises(InputError):
        later.cut()
