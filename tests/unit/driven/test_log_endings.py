"""However a log ends, a copy begins again behind it: the next copy of the same mirror, and the one that goes back.

The way back has the old source for its target, with what applications left there: transactions of theirs, and what its
cleaner made of it. The other side has markers or fillers at these offsets, and they are no records of anybody.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.opening import journal
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import ForeignData
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.log import PartitionLog

TP = TopicPartition("t", 0)
APP, OTHER = 7, 8  # producers

Ending = Callable[[PartitionLog, Writer], object]


def records_only(_log: PartitionLog, w: Writer) -> None:
    w.plain(3)


def a_committed_transaction(_log: PartitionLog, w: Writer) -> None:
    w.in_transaction(APP, 3)
    w.end(APP, commit=True)


def an_aborted_transaction(_log: PartitionLog, w: Writer) -> None:
    w.in_transaction(APP, 3)
    w.end(APP, commit=False)


def aborted_transactions_in_a_row(_log: PartitionLog, w: Writer) -> None:
    for count in (2, 1, 3):
        w.in_transaction(APP, count)
        w.end(APP, commit=False)


def aborted_transactions_of_many_batches(_log: PartitionLog, w: Writer) -> None:
    """More than the first steps back look at."""
    for _ in range(3):
        for _ in range(30):
            w.in_transaction(APP, 1)
        w.end(APP, commit=False)


def an_aborted_one_around_a_committed_one(_log: PartitionLog, w: Writer) -> None:
    w.in_transaction(APP, 2)
    w.in_transaction(OTHER, 2)
    w.end(OTHER, commit=True)
    w.in_transaction(APP, 2)
    w.end(APP, commit=False)


def an_aborted_one_inside_a_committed_one(_log: PartitionLog, w: Writer) -> None:
    w.in_transaction(APP, 2)
    w.in_transaction(OTHER, 2)
    w.end(OTHER, commit=False)
    w.end(APP, commit=True)


def nothing_but_an_aborted_transaction(log: PartitionLog, w: Writer) -> None:
    log.batches.clear()
    log.log_start = log.end
    an_aborted_transaction(log, w)


def a_marker_of_nothing(_log: PartitionLog, w: Writer) -> None:
    w.end(APP, commit=False)


def an_emptied_batch(_log: PartitionLog, w: Writer) -> None:
    w.holed((), 4)


def an_emptied_marker(log: PartitionLog, w: Writer) -> None:
    an_aborted_transaction(log, w)
    stored = log.batches[-1]
    emptied = records.changed(stored.content[:61], record_count=0, length=49)
    log.batches[-1] = stored._replace(content=emptied, header=records.header_of(emptied))


def a_batch_with_holes(_log: PartitionLog, w: Writer) -> None:
    w.holed((1, 3), 6)


def an_emptied_batch_behind_a_hole(log: PartitionLog, w: Writer) -> None:
    """The cleaner took what it could; it leaves the last batch of a log, if only its frame."""
    an_aborted_transaction(log, w)
    w.skip(3)
    w.holed((), 2)


def an_old_message(log: PartitionLog, _w: Writer) -> None:
    log.lay(legacy_message(log.end))


def a_start_inside_an_aborted_transaction(log: PartitionLog, w: Writer) -> None:
    at = log.end
    w.in_transaction(APP, 4)
    w.in_transaction(APP, 2)
    log.begin_at(at + 2)
    w.end(APP, commit=False)


def a_start_inside_the_last_batch(log: PartitionLog, w: Writer) -> None:
    w.plain(4)
    log.begin_at(log.end - 2)


def a_start_at_the_end(log: PartitionLog, w: Writer) -> None:
    an_aborted_transaction(log, w)
    log.begin_at(log.end)


ENDINGS = [
    records_only, a_committed_transaction, an_aborted_transaction, aborted_transactions_in_a_row,
    aborted_transactions_of_many_batches, an_aborted_one_around_a_committed_one, an_aborted_one_inside_a_committed_one,
    nothing_but_an_aborted_transaction, a_marker_of_nothing, an_emptied_batch, an_emptied_marker, a_batch_with_holes,
    an_emptied_batch_behind_a_hole, an_old_message, a_start_inside_an_aborted_transaction,
    a_start_inside_the_last_batch, a_start_at_the_end,
]  # fmt: skip


def legacy_message(offset: int) -> bytes:
    """A message of magic 1."""
    body = struct.pack(">bbqi", 1, 0, 1_700_000_000_000, 1) + b"k" + struct.pack(">i", 3) + b"old"
    message = struct.pack(">I", crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


class World:
    """A source whose log has an ending, and a target to which it was copied."""

    def __init__(
        self, source: DrivenCluster, target: DrivenCluster, ending: Ending, *, committed: bool = True,
        fillers: bool = False,
    ) -> None:  # fmt: skip
        self.source, self.target, self.committed = source, target, committed
        self.options: dict[str, Any] = {
            "committed_only": committed,
            "merge_below": 0,
            "tombstone_topics": frozenset({"t"} if fillers else ()),
        }
        self.old, self.new = source.create("t").logs[0], target.create("t").logs[0]
        self.writer = writer = Writer(self.old)
        writer.plain(3)
        ending(self.old, writer)
        assert self.forth() is None
        assert self.new.end == self.old.end and self.equal()

    def forth(self) -> Exception | None:
        (found,) = errors(copy(self.source, self.target, self._ranges(self.source), **self.options)).values()
        return found

    def back(self) -> Exception | None:
        ranges = self._ranges(self.target)
        (found,) = errors(copy(self.target, self.source, ranges, mirror="m-reverse", **self.options)).values()
        return found

    def _ranges(self, of: DrivenCluster) -> list[CopyRange]:
        return ranges_of(of, "t", committed=self.committed)

    def equal(self) -> bool:
        """Whether consumers see the same; fillers are no records of anybody."""
        one, other = (
            [row for row in log.rows(int(self.committed)) if row.key != b"airflow-mirror.filler"]
            for log in (self.old, self.new)
        )
        return one == other and self.old.end == self.new.end


every_ending = pytest.mark.parametrize("ending", ENDINGS, ids=[one.__name__ for one in ENDINGS])
every_way = pytest.mark.parametrize(
    ("committed", "fillers"), [(True, False), (True, True), (False, False), (False, True)],
    ids=["committed", "committed-fillers", "uncommitted", "uncommitted-fillers"],
)  # fmt: skip


@every_way
@every_ending
def test_a_copy_goes_on_behind_every_ending(
    source: DrivenCluster, target: DrivenCluster, ending: Ending, committed: bool, fillers: bool
) -> None:
    world = World(source, target, ending, committed=committed, fillers=fillers)
    assert world.forth() is None, "nothing to do"
    Writer(world.old).plain(2)
    assert world.forth() is None
    assert world.equal()


@every_way
@every_ending
def test_what_follows_every_ending_is_copied_back(
    source: DrivenCluster, target: DrivenCluster, ending: Ending, committed: bool, fillers: bool
) -> None:
    """And forth once more, behind what applications left on the other side."""
    world = World(source, target, ending, committed=committed, fillers=fillers)
    assert world.back() is None, "nothing to do"
    writer = Writer(world.new)
    writer.in_transaction(APP, 2, epoch=1)
    writer.end(APP, epoch=1, commit=True)
    writer.in_transaction(OTHER, 2, epoch=1)
    writer.end(OTHER, epoch=1, commit=False)
    assert world.back() is None
    assert world.equal()
    Writer(world.old).plain(2)
    assert world.forth() is None
    assert world.equal()


def other_records_at_the_end(world: World, at: int) -> None:
    """Another story: consumers of the new side see records where the old one has aborted ones."""
    world.new.truncate(at)
    Writer(world.new).plain(world.old.end - at, size=99)


def test_records_where_the_last_ones_were_aborted_are_no_copy(source: DrivenCluster, target: DrivenCluster) -> None:
    world = World(source, target, an_aborted_transaction)
    other_records_at_the_end(world, 3)
    error = world.back()
    assert isinstance(error, ForeignData) and "where the source has 4 record(s), the first at offset 3" in str(error)
    assert not source.asked("Produce")


def test_aborted_records_do_not_stand_for_records(source: DrivenCluster, target: DrivenCluster) -> None:
    """Somebody has tried to write to the target: what the source has at these offsets would be missing for ever."""
    world = World(source, target, records_only)
    stranger = Writer(world.new)
    stranger.in_transaction(OTHER, 2)
    stranger.end(OTHER, commit=False)
    world.writer.plain(4)
    error = world.forth()
    assert isinstance(error, ForeignData) and "where the source has 3 record(s), the first at offset 6" in str(error)
    assert world.new.end == 9


def test_the_last_records_that_were_not_aborted_are_compared(source: DrivenCluster, target: DrivenCluster) -> None:
    world = World(source, target, an_aborted_transaction)
    rows = [row._replace(value=b"another") for row in records.decode(world.old.batches[0].content)]
    content = records.encode(rows)
    world.old.batches[0] = world.old.batches[0]._replace(content=content, header=records.header_of(content))
    error = world.back()
    assert isinstance(error, ForeignData) and "differs from the source at offset 0" in str(error)


def test_a_transaction_that_is_open_counts_as_records(source: DrivenCluster, target: DrivenCluster) -> None:
    """Nobody knows how it will end."""
    world = World(source, target, an_aborted_transaction)
    world.writer.in_transaction(OTHER, 2)
    stranger = Writer(world.new)
    stranger.plain(2, size=99)
    error = world.back()
    assert isinstance(error, ForeignData) and "differs from the source at offset 7" in str(error)


@pytest.mark.parametrize(("isolation", "first"), [(READ_COMMITTED, 0), (READ_UNCOMMITTED, 8)])
def test_aborted_records_are_passed_over_in_read_committed(source: DrivenCluster, isolation: int, first: int) -> None:
    log = source.create("t").logs[0]
    Writer(log).plain(3)
    aborted_transactions_in_a_row(log, Writer(log))
    with WireCluster(source.config) as wire:
        last = journal.last_data_batch(wire, TP, 0, log.end, isolation)
        assert last is not None and last.first_offset == first


@pytest.mark.parametrize("fillers", [False, True], ids=["markers", "fillers"])
@pytest.mark.parametrize("back", [False, True], ids=["forth", "back"])
def test_what_the_cleaner_took_before_the_end_was_copied(
    source: DrivenCluster, target: DrivenCluster, back: bool, fillers: bool
) -> None:
    """A tombstone goes after a day, on the other side later. Behind it is nothing that the cleaner would leave alone."""

    def a_tombstone(log: PartitionLog, w: Writer) -> None:
        w.plain(1)
        an_aborted_transaction(log, w)

    world = World(source, target, a_tombstone, fillers=fillers)
    cleaned = world.old if back else world.new
    (taken,) = (one for one in cleaned.batches if one.base_offset == 3)
    cleaned.batches.remove(taken)
    assert (world.back() if back else world.forth()) is None
