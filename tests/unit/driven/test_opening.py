"""A copy begins again on a target to which something happened: it goes on exactly there, or says what is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.opening import journal
from airflow_mirror.copy.opening.answers import ask_again
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED, CopyRange
from airflow_mirror.copy.writer import identity, priming
from airflow_mirror.errors import ForeignData, LeaseLost, PartitionStopped, SourceTruncated, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import READ_COMMITTED
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, copy, errors, ranges_of
from tests.driven.log import PartitionLog
from tests.driven.script import Fault, Request
from tests.driven.validation import TopicConfig

TP = TopicPartition("t", 0)
OURS = identity.data_producer_id("m", TP)


class World:
    """A source of five records in one batch, and a target; ``copied``: they are on it."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster) -> None:
        self.source, self.target = source, target
        self.here, self.there = source.create("t").logs[0], target.create("t").logs[0]
        self.here_writer = Writer(self.here)

    def copied(self) -> World:
        self.here_writer.plain(5)
        assert self.copy() is None
        return self

    def copy(self, **options: object) -> Exception | None:
        return errors(copy(self.source, self.target, ranges_of(self.source, "t"), **options))[TP]  # type: ignore[arg-type]


@pytest.fixture
def world(source: DrivenCluster, target: DrivenCluster) -> World:
    return World(source, target)


def compacted(log: PartitionLog, number: int, kept: slice) -> None:
    """Leave only some records of a batch, as the cleaner does: header, sequences and the batch's end stay."""
    stored = log.batches[number]
    header = records.header_of(stored.content)
    content = records.encode(
        records.decode(stored.content)[kept], base_offset=header.base_offset, last_offset=header.next_offset - 1,
        producer_id=header.producer_id, epoch=header.producer_epoch, sequence=header.base_sequence,
    )  # fmt: skip
    log.batches[number] = stored._replace(content=content, header=records.header_of(content))


def test_records_of_somebody_else_at_the_end_stop_the_copy(world: World) -> None:
    world.here_writer.plain(5)
    Writer(world.there).plain(5, size=21)
    assert isinstance(world.copy(), ForeignData)
    assert world.there.end == 5 and not world.target.asked("Produce")


def test_marker_in_place_of_a_source_record_stops_the_copy(world: World) -> None:
    world.copied()
    world.there.append_marker(OURS + 1, 0, commit=True, coordinator_epoch=0)
    world.here_writer.plain(3)
    error = world.copy()
    assert isinstance(error, ForeignData) and "aborted records, where the source has 1 record(s)" in str(error)
    assert world.there.end == 6


def test_filler_in_place_of_a_source_record_stops_the_copy(world: World) -> None:
    world.here_writer.plain(2)
    world.here_writer.skip(3)
    world.here_writer.plain(1)
    assert world.copy(tombstone_topics=frozenset({"t"})) is None
    assert world.there.rows()[2].key == b"airflow-mirror.filler"
    world.there.truncate(5)
    world.here.batches[1:] = []
    world.here.end = 2
    world.here_writer.plain(5)  # another story: records where the fillers stand
    error = world.copy()
    assert isinstance(error, ForeignData) and "fillers or aborted records, where the source has 3 record(s)" in str(error)


def test_a_source_that_lost_what_was_copied_stops_the_copy(world: World) -> None:
    world.copied()
    world.here_writer.plain(5)
    whole = ranges_of(world.source, "t")
    world.here.truncate(0)
    world.here_writer.plain(3)
    error = errors(copy(world.source, world.target, whole))[TP]
    assert isinstance(error, SourceTruncated) and "the source's log ends at 3" in str(error)
    assert world.there.end == 5


@pytest.mark.parametrize("mode", [IDENTICAL, MAPPED])
@pytest.mark.parametrize("copied", [5, 0])
def test_a_source_that_lost_what_is_still_to_be_copied_stops_the_copy(world: World, mode: str, copied: int) -> None:
    """It would wait for ever, or take what producers write in place of what was lost."""
    world.here_writer.plain(5)
    world.here_writer.plain(2)
    world.here_writer.plain(3)
    (whole,) = ranges_of(world.source, "t", mode)
    if copied:
        assert errors(copy(world.source, world.target, [replace(whole, end_offset=copied)]))[TP] is None
    world.here.truncate(7)
    turns = count()
    error = errors(copy(world.source, world.target, [whole], should_stop=lambda: next(turns) > 20))[TP]
    assert isinstance(error, SourceTruncated) and (error.start_offset, error.end_offset) == (7, 10)
    assert "log ends at 7, and reached 10 when this copy was begun" in str(error)
    assert world.there.end == copied


def test_what_retention_took_before_it_was_copied_stops_the_copy(world: World) -> None:
    world.copied()
    world.here_writer.plain(5)
    world.here_writer.plain(5)
    world.here.begin_at(6)
    error = world.copy()
    assert isinstance(error, PartitionStopped) and (error.start_offset, error.end_offset) == (5, 6)
    assert world.there.end == 5


@pytest.mark.parametrize("deleted", [5, 3], ids=["all", "some"])
@pytest.mark.parametrize("bounded", [False, True], ids=["tail", "bulk-copy"])
def test_what_landed_and_was_deleted_before_its_answer_was_looked_for_is_copied(
    world: World, bounded: bool, deleted: int
) -> None:
    """The answer is lost, and the source's retention takes the records: what is gone there can't be compared."""
    world.copied()

    def delete(_: Request) -> None:
        with world.source.changing():
            world.here.delete_records(5 + deleted)

    lost = world.target.script.on("Produce", Fault(answer_bytes=0, after=delete))
    world.here_writer.plain(5)
    if bounded:
        assert world.copy(give_up_after_s=2) is None
    else:
        with Following(world.source, world.target, ranges_of(world.source, "t"), give_up_after_s=2) as tail:
            (p,) = tail.loop.partitions
            tail.until(lambda: p.position == 10 or p.error is not None, "the batch is known to have landed")
            assert p.error is None
            with world.source.changing():
                world.here_writer.plain(1)
            tail.until(lambda: p.position == 11, "it goes on")
    assert lost.hits and world.there.end == world.here.end
    assert world.there.rows()[5 + deleted :] == world.here.rows()


@pytest.mark.parametrize("deleted", [0, 2])
def test_stranger_behind_what_the_source_deleted_since_is_found(world: World, deleted: int) -> None:
    world.copied()

    def deposed(_: Request) -> None:
        with world.target.changing():
            Writer(world.there).plain(3, size=21)
        with world.source.changing():
            world.here.delete_records(5 + deleted)

    world.here_writer.plain(3)
    whole = ranges_of(world.source, "t")
    world.target.script.on("Produce", Fault(before=deposed, effect=False, code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert isinstance(errors(copy(world.source, world.target, whole, give_up_after_s=2))[TP], ForeignData)


def test_primed_partition_without_records_follows_the_source_start(world: World) -> None:
    """Retention moved the source's start between the priming and the first record: nothing was lost to the target."""
    world.here.begin_at(50)
    assert world.copy() is None
    assert (world.there.log_start, world.there.end) == (50, 50)
    world.here_writer.plain(2)
    world.here_writer.plain(3)
    world.here.begin_at(53)
    assert world.copy() is None
    assert (world.there.log_start, world.there.rows()) == (53, world.here.rows())


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("start", [0, 50])
def test_emptied_target_is_not_mistaken_for_a_primed_one(world: World, start: int, remembered: bool) -> None:
    world.here.begin_at(start)
    world.here_writer.plain(5)
    world.here_writer.plain(5)
    world.here_writer.plain(5)
    whole = ranges_of(world.source, "t")
    assert errors(copy(world.source, world.target, [replace(whole[0], end_offset=start + 5)]))[TP] is None
    world.there.begin_at(start + 5)
    world.here.begin_at(start + 8)
    if not remembered:
        world.target.expire_producers()
    error = world.copy()
    assert isinstance(error, PartitionStopped) and (error.start_offset, error.end_offset) == (start + 5, start + 8)


def test_copy_continues_the_sequence_behind_a_compacted_batch(world: World) -> None:
    world.copied()
    first = records.header_of(world.there.batches[0].content).base_sequence
    compacted(world.there, 0, slice(1, 3))
    with WireCluster(world.target.config) as there:
        found = journal.read(there, "m", TP, ask_again(there, TP), READ_COMMITTED)
    assert (found.end, found.sequence) == (5, first + 5)


def test_target_without_producer_state_gets_a_sequence_by_position(world: World) -> None:
    """Not 0, and not the position: a copier that still runs must not fit in behind it."""
    world.copied()
    world.there.begin_at(5)
    world.target.expire_producers()
    world.here_writer.plain(3)
    assert world.copy() is None
    written = records.header_of(world.there.batches[-1].content)
    assert written.base_sequence == identity.sequence_after_unknown("m", TP, 5)


def test_a_target_that_forgot_the_priming_is_trimmed_again(world: World) -> None:
    world.here.begin_at(50)
    world.here_writer.plain(5)
    assert world.copy() is None
    assert world.there.log_start == 50
    world.there.log_start = 0  # a broker died before it wrote down what was deleted
    world.here_writer.plain(5)
    assert world.copy() is None
    assert (world.there.log_start, world.there.end) == (50, 60)


def test_priming_takes_as_many_fillers_as_the_topic_takes(source: DrivenCluster, target: DrivenCluster) -> None:
    """A million of them is more than a source with a small max.message.bytes lets the target take."""
    log = source.create("t").logs[0]
    log.begin_at(50_000)
    Writer(log).plain(5)
    there = target.create("t", config=TopicConfig(max_message_bytes=5_000)).logs[0]
    assert errors(copy(source, target, ranges_of(source, "t"), max_batch_bytes={"t": 5_000})) == {TP: None}
    assert (there.log_start, there.rows()) == (50_000, log.rows())
    fillers = [one for one in there.batches if one.base_offset < 50_000]
    assert len(fillers) > 5 and all(len(one.content) <= 5_000 for one in fillers)


def test_topic_that_takes_no_filler_at_all_is_named(world: World) -> None:
    """It is asked three times, with ever fewer, and not for ever."""
    world.here.begin_at(5_000)
    world.target.script.on("Produce", Fault.refused(ErrorCode.MESSAGE_TOO_LARGE), times=None)
    error = world.copy(give_up_after_s=-1.0)
    assert isinstance(error, TryAgain) and "broker answered MESSAGE_TOO_LARGE" in str(error)
    assert len(world.target.asked("Produce")) == 3


def test_stranger_writing_during_priming_stops_the_copy(world: World) -> None:
    world.here.begin_at(50)
    world.here_writer.plain(5)

    def meddle(_: object) -> None:
        with world.target.changing():
            Writer(world.there).plain(1)

    world.target.script.on("Produce", Fault(before=meddle))
    error = world.copy()
    assert isinstance(error, ForeignData)
    assert all(row.key == b"" or row.offset == 0 for row in world.there.rows()), "nothing of ours behind the stranger's"


@pytest.mark.parametrize(("remembered", "primed"), [(True, 21), (False, 50)])
def test_a_strangers_record_among_the_fillers_is_not_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch, remembered: bool, primed: int
) -> None:
    """A broker that knows the fillers' producer takes none behind it; one that has forgotten it takes them all."""
    monkeypatch.setattr(priming, "FILLERS_PER_BATCH", 20)
    world.here.begin_at(50)
    world.here_writer.plain(5)

    def meddle(_: object) -> None:
        if not world.there.end:
            with world.target.changing():
                Writer(world.there).plain(1)
        if not remembered:
            world.target.expire_producers()

    world.target.script.on("Produce", Fault(before=meddle), times=None)
    for _ in range(2):  # the second copy finds a log that ends with fillers
        error = world.copy()
        assert isinstance(error, ForeignData) and (error.start_offset, error.end_offset) == (0, primed)
    assert (world.there.log_start, world.there.end) == (0, primed)
    assert not world.target.asked("DeleteRecords")


def lost() -> None:
    raise LeaseLost("id", 1, "epoch 2")


def test_two_copiers_prime_and_one_deletes_the_fillers_while_the_other_looks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = priming._behind_fillers

    def deleted_meanwhile(there: WireCluster, *args: Any) -> int:
        there.delete_records({TP: 50}, lambda: None)
        return look(there, *args)

    monkeypatch.setattr(priming, "_behind_fillers", deleted_meanwhile)
    with WireCluster(world.target.config) as there:
        assert priming.prime(there, "m", TP, 0, 50, lambda: None) == 50
    assert (world.there.log_start, world.there.end) == (50, 50)


def test_nothing_is_primed_without_the_lease(world: World) -> None:
    with WireCluster(world.target.config) as there, pytest.raises(LeaseLost):
        priming.prime(there, "m", TP, 0, 50, lost)
    assert not world.target.asked("Produce", "DeleteRecords")


def test_a_priming_is_not_deleted_without_the_lease(world: World) -> None:
    def lost_behind_the_fillers() -> None:
        if world.there.end:
            lost()

    with WireCluster(world.target.config) as there, pytest.raises(LeaseLost):
        priming.prime(there, "m", TP, 0, 5, lost_behind_the_fillers)
    assert (world.there.log_start, world.there.end) == (0, 5)


def test_no_record_is_sent_without_the_lease(world: World) -> None:
    world.here_writer.plain(5)
    with pytest.raises(LeaseLost):
        world.copy(check=lost)
    assert not world.target.asked("Produce")


def test_a_topic_that_was_created_again_is_not_copied_on(world: World) -> None:
    world.copied()
    one = CopyRange(
        source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=8, source_topic_id="another"
    )
    world.here_writer.plain(3)
    error = errors(copy(world.source, world.target, [one]))[TP]
    assert isinstance(error, SourceTruncated) and "created again" in str(error)
    assert world.there.end == 5
