"""A source whose new leader lacks what was copied of the old one: found by leader epochs (KIP-320)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import crc32c
import pytest

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.opening import epochs
from airflow_mirror.copy.opening.answers import Answers, TargetAnswers
from airflow_mirror.copy.opening.epochs import Consumed, Trail, check_same_log
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import SourceTruncated
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire.cluster import Leader, WireCluster
from airflow_mirror.wire.requests import EpochEnd
from tests.unit.copy.test_damage import START, feed, log, opened, run

ONE = CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0)
CONSUMED = Consumed(5, 100, 130)  # under epoch 5 from 100 on, up to 130


def told(found: EpochEnd, leader_epoch: int = 7) -> Answers:
    target = TargetAnswers(leader=Leader(1, 1), end=130, high_watermark=130, log_start=0, producers=[], end_after=130)
    return Answers(target=target, topic_id="id", leader=Leader(2, leader_epoch), epoch_ends={5: found})


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[tuple[int, int]]], None]:
    """Give the source's log batches of (base offset, leader epoch)."""

    def give(stored: list[tuple[int, int]]) -> None:
        def read(_: object, __: object, start: int, end: int, **___: object) -> list[tuple[object, list[object]]]:
            found = []
            for base, epoch in stored:
                content, _begins = log(4)
                struct.pack_into(">qii", content, 0, base, len(content) - 12, epoch)
                if base + 4 > start:
                    found.append((next(epochs_batches(content)), list[object]()))
            return found

        monkeypatch.setattr(epochs, "read_batches", read)

    from airflow_mirror.wire.batch import iter_batches

    def epochs_batches(content: bytearray):  # type: ignore[no-untyped-def]
        return iter_batches(memoryview(content))

    return give


def check(found: EpochEnd, leader_epoch: int = 7, consumed: Consumed = CONSUMED) -> None:
    check_same_log(WireCluster.__new__(WireCluster), ONE, consumed, told(found, leader_epoch))


@pytest.mark.parametrize("end", [130, 131, 9000])
def test_a_leader_whose_epoch_reaches_the_position_has_everything(end: int) -> None:
    check(EpochEnd(5, end))


@pytest.mark.parametrize(
    ("found", "start"),
    [
        (EpochEnd(5, 129), 129),  # the last record is missing
        (EpochEnd(5, 90), 90),
        (EpochEnd(4, 110), 100),  # it never saw epoch 5, and its own records began before our position
        (EpochEnd(4, 80), 80),
        (EpochEnd(0, 0), 0),
    ],
)
def test_leader_that_lacks_offsets_is_found_and_they_are_named(found: EpochEnd, start: int) -> None:
    with pytest.raises(SourceTruncated, match="unclean leader election") as stopped:
        check(found)
    assert (stopped.value.start_offset, stopped.value.end_offset) == (start, 130)


def test_a_leader_with_other_records_at_our_offsets_is_found(batches: Callable[[list[tuple[int, int]]], None]) -> None:
    """Its log was longer when it took over: by offsets alone nothing is missing."""
    batches([(96, 4), (100, 4), (104, 4)])
    with pytest.raises(SourceTruncated, match="never saw epoch 5") as stopped:
        check(EpochEnd(4, 200))
    assert (stopped.value.start_offset, stopped.value.end_offset) == (100, 130)


def test_replica_built_from_a_compacted_log_lacks_nothing(
    batches: Callable[[list[tuple[int, int]]], None],
) -> None:
    """Compaction had taken every batch of epoch 5 by then."""
    batches([(132, 6), (136, 6)])
    check(EpochEnd(4, 132))


def test_a_leader_of_an_older_term_leads_another_topic() -> None:
    """Brokers without topic ids: it was created again, and counts its leaders from 0."""
    with pytest.raises(SourceTruncated, match="another topic"):
        check(EpochEnd(-1, -1), leader_epoch=0)


def test_a_leader_that_does_not_know_its_epochs_proves_nothing() -> None:
    check(EpochEnd(-1, -1))


def test_trail_tells_the_last_epoch_below_a_position() -> None:
    """What was cut off, or is too old, is forgotten."""
    trail = Trail()
    assert trail.at(10) is None
    for epoch, offset, end in ((3, 0, 5), (3, 5, 10), (4, 10, 20), (6, 20, 30), (-1, 30, 40)):
        trail.note(epoch, offset, 0)
        trail.reach(end)
    assert [trail.at(at) for at in (0, 1, 10, 11, 20, 30)] == [
        None, Consumed(3, 0, 1), Consumed(3, 0, 10), Consumed(4, 10, 11), Consumed(4, 10, 20), Consumed(6, 20, 30),
    ]  # fmt: skip
    assert trail.at(31) is None  # written by brokers without epochs
    trail.cut(20)
    assert trail.at(50) == Consumed(4, 10, 20)
    trail.note(7, 20, 15)
    assert trail.at(9) is None and trail.at(15) == Consumed(4, 10, 15)


@pytest.mark.parametrize("position", [150, 160, 200])
def test_position_in_a_hole_is_not_taken_for_an_epoch_that_ended_in_it(position: int) -> None:
    """Epoch 5 has batches up to 130. The cleaner took those of [130, 200), and with them the whole of epoch 6."""
    trail = Trail()
    trail.note(5, 100, 0)
    trail.reach(130)
    trail.note(7, 200, 130)
    trail.reach(220)
    consumed = trail.at(position)
    assert consumed == Consumed(5, 100, 130)
    check(EpochEnd(5, 150), consumed=consumed)
    with pytest.raises(SourceTruncated):
        check(EpochEnd(5, 129), consumed=consumed)
    trail.cut(position)  # the connection is lost
    assert trail.at(position) == consumed


@pytest.mark.parametrize("merge_below", [0, 1 << 16])
@pytest.mark.usefixtures("either_heart")
def test_trail_reaches_to_the_end_of_what_is_sent_and_of_what_is_dropped(merge_below: int) -> None:
    """The last one is a marker. What is merged is sent while the run of batches that it is made of goes on."""
    content, begins = log(*[1] * 14)
    for begin, epoch in zip(begins, [2] * 4 + [3] * 10, strict=True):
        struct.pack_into(">i", content, begin + 12, epoch)
    content[begins[-1] + 22] |= wire_batch.CONTROL
    struct.pack_into(">I", content, begins[-1] + 17, crc32c.crc32c(bytes(content[begins[-1] + 21 :])))
    copy = opened()
    copy.merge_below, copy.max_bytes = merge_below, 300
    feed(copy, content)
    while isinstance(step := copy.next_step(), Send):
        epoch, first = (2, START) if step.next_source <= START + 4 else (3, START + 4)
        assert copy.trail.at(step.next_source) == Consumed(epoch, first, step.next_source)
        copy.sent(step)
        copy.acknowledged(step, step.base_offset, 0)
    assert copy.trail.at(START + 50) == Consumed(3, START + 4, START + 14)


def test_copy_remembers_the_epoch_of_sent_not_fetched_batches() -> None:
    content, begins = log(4, 9, 5)
    for begin, epoch in zip(begins, (2, 2, 3), strict=True):
        struct.pack_into(">i", content, begin + 12, epoch)
    copy = opened()
    feed(copy, content)
    for _ in range(2):
        step = copy.next_step()
        copy.sent(step)  # type: ignore[arg-type]
        copy.acknowledged(step, step.base_offset, 0)  # type: ignore[arg-type, union-attr]
    assert copy.next_step() is not None  # the third was looked at
    assert copy.trail.at(copy.position) == Consumed(2, START, START + 13)
    copy.fail()
    copy.begin_opening()
    copy.reopen(Opening(position=START + 13, producer_id=5, epoch=0, sequence=0))
    assert copy.trail.at(START + 18) == Consumed(2, START, START + 13)
    feed(copy, content[begins[2] :])
    run(copy)
    assert copy.trail.at(copy.position) == Consumed(3, START + 13, START + 18)


def test_a_new_copy_knows_no_epoch() -> None:
    assert PartitionCopy(ONE, True, 1 << 20).trail.at(10) is None
