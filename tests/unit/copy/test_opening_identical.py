"""Whether a target partition is taken as empty, as one whose priming was cut off, or as one that holds records."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_mirror.copy.opening import identical
from airflow_mirror.copy.opening.answers import Answers, TargetAnswers
from airflow_mirror.copy.opening.journal import Journal
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.writer import identity, priming
from airflow_mirror.errors import PartitionStopped, SourceGone
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import records
from airflow_mirror.wire.batch import RawBatch, iter_batches
from airflow_mirror.wire.records import Record
from airflow_mirror.wire.topology import Leader

NOWHERE: Any = None  # a cluster that must not be asked


def last_batch(producer_id: int, end: int) -> RawBatch:
    view = records.encode([Record(0, 0, b"", None, [])], 0, producer_id, 0, 0)
    (raw,) = iter_batches(view)
    assert raw.header is not None
    wire_batch.HEADER.pack_into(view, 0, *raw.header._replace(base_offset=end - 1))
    return next(iter_batches(view))


class Target:
    """A partition with [0, end) of one producer's records; remembers how it was primed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, copy_range: CopyRange, end: int, producer_id: int) -> None:
        self.one, self.end, self.producer_id = copy_range, end, producer_id
        self.primed: list[tuple[int, int]] = []
        monkeypatch.setattr(identical.journal, "read", self._read)  # type: ignore[attr-defined]
        monkeypatch.setattr(identical, "ask_again", lambda *_: None)
        monkeypatch.setattr(priming, "prime", self._prime)

    def _read(self, *_: object) -> Journal:
        return Journal(
            log_start=0,
            end=self.end,
            last=last_batch(self.producer_id, self.end) if self.end else None,
            epoch=0,
            sequence=0,
        )

    def _prime(self, _target: object, _mirror: str, _tp: object, end: int, up_to: int, *_: object) -> int:
        self.primed.append((end, up_to))
        self.end = up_to
        return up_to - end

    def open(self, source_start: int) -> identical.Opening:
        told = TargetAnswers(
            leader=Leader(1, 0), end=self.end, high_watermark=self.end, log_start=0, producers=(), end_after=self.end
        )
        answers = Answers(target=told, topic_id="id", log_start=source_start, high_watermark=10_000)
        return identical.open_partition(NOWHERE, NOWHERE, self.one, answers, "m", 1, lambda: None)


@pytest.mark.parametrize("cut_at", [200, 500, 700])
@pytest.mark.parametrize("planned", [100, 500])
def test_interrupted_priming_continues_after_the_source_start_moved(
    monkeypatch: pytest.MonkeyPatch, planned: int, cut_at: int
) -> None:
    """The first try primed up to the source's start as it was then, 700, and was killed at ``cut_at``; now it is 900."""
    one = CopyRange(source_topic="orders", target_topic="orders", partition=4, start_offset=planned)
    target = Target(monkeypatch, one, cut_at, identity.filler_producer_id("m", one.target))
    opening = target.open(source_start=900)
    assert target.primed == [(cut_at, 900)]
    assert (opening.position, opening.primed) == (900, 900 - cut_at)


def test_records_that_retention_took_before_they_were_copied_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CopyRange(source_topic="orders", target_topic="orders", partition=4, start_offset=100)
    target = Target(monkeypatch, one, 700, identity.data_producer_id("m", one.target))
    with pytest.raises(PartitionStopped, match=r"orders-4 offsets \[700, 900\)"):
        target.open(source_start=900)
    assert not target.primed


def test_fillers_of_another_mirror_are_no_priming_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CopyRange(source_topic="orders", target_topic="orders", partition=4, start_offset=100)
    target = Target(monkeypatch, one, 700, identity.filler_producer_id("another", one.target))
    with pytest.raises(PartitionStopped):
        target.open(source_start=900)


@pytest.mark.parametrize(("planned", "found"), [("", "X"), (None, "X"), ("X", ""), ("X", "X")])
def test_topic_without_an_id_then_or_now_is_the_planned_one(planned: str | None, found: str) -> None:
    """Brokers that are upgraded to 2.8 give ids to topics that had none; what is in the log tells the rest."""
    one = CopyRange(source_topic="t", target_topic="t", partition=4, start_offset=0, source_topic_id=planned)
    identical.check_same_topic(found, one, lambda: 0)


def test_topic_of_another_id_is_another_one() -> None:
    one = CopyRange(source_topic="t", target_topic="t", partition=4, start_offset=0, source_topic_id="X")
    with pytest.raises(SourceGone, match="created again"):
        identical.check_same_topic("Y", one, lambda: 0)
