"""What a partition's copy counts when answers are lost, and what it makes of what arrives meanwhile."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.asked import Begin, Commit, Pad
from airflow_mirror.copy.loop.limits import Buffer, Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.errors import CorruptBatch
from airflow_mirror.wire.fetch import FetchedPartition
from tests.unit.copy.test_damage import START, feed, log, opened, run

pytestmark = pytest.mark.usefixtures("either_heart")


def send(copy: PartitionCopy) -> Send:
    step = copy.next_step()
    assert isinstance(step, Send)
    copy.sent(step)
    return step


@pytest.mark.parametrize("landed", [True, False])
def test_each_record_is_counted_once_whatever_became_of_the_answer(landed: bool) -> None:
    content, begins = log(4, 9, 5)
    copy = opened(START + 18)
    feed(copy, content)
    copy.acknowledged(send(copy), START, 0)
    send(copy)
    copy.fail()
    copy.begin_opening()
    copy.fail()  # the next try to open it fails, too
    copy.begin_opening()
    assert copy.counters.records == 4, "nobody knows yet"
    copy.reopen(Opening(position=START + (13 if landed else 4), producer_id=5, epoch=0, sequence=0))
    assert copy.counters.records == (13 if landed else 4)
    copy.fail()
    copy.begin_opening()
    copy.reopen(Opening(position=copy.position, producer_id=5, epoch=0, sequence=0))
    feed(copy, content[begins[2 if landed else 1] :])
    run(copy)
    assert copy.done
    assert (copy.counters.records, copy.counters.batches, copy.counters.passed) == (18, 3, 3)


def test_failures_are_over_with_the_commit_and_not_with_batches_of_its_transaction() -> None:
    """A batch that is refused each time would be sent for ever, behind others that are acknowledged each time."""
    copy = opened(START + 4)
    copy.transaction_bytes, copy.failures = 300, 2
    feed(copy, log(4)[0])
    assert isinstance(copy.next_step(), Begin)
    copy.sent()
    copy.began()
    copy.acknowledged(send(copy), START, 0)
    assert copy.failures == 2
    commit = copy.next_step()
    assert isinstance(commit, Commit)
    copy.sent()
    copy.transaction_ended(commit)
    assert (copy.failures, copy.done) == (0, True)


def test_a_batch_that_arrives_late_is_counted_and_not_the_longer_one_sent_in_its_place() -> None:
    content, begins = log(4, 9, 5)
    copy = opened(START + 18)
    feed(copy, content[: begins[1]])
    send(copy)
    copy.fail()
    copy.begin_opening()
    copy.reopen(Opening(position=START, producer_id=5, epoch=0, sequence=0))  # not there yet
    longer, _ = log(13)
    feed(copy, longer)
    send(copy)
    copy.fail()  # out of order: the first has arrived meanwhile
    copy.begin_opening()
    copy.reopen(Opening(position=START + 4, producer_id=5, epoch=0, sequence=4))
    assert copy.counters.records == 4
    feed(copy, content[begins[1] :])
    run(copy)
    assert copy.done and copy.counters.records == 18


def test_generations_tell_requests_before_a_failure_from_later_ones() -> None:
    """An answer that comes late would otherwise be taken for one to the request under way."""
    copy = opened(START + 18)
    generations = [copy.generation]
    copy.fail()
    generations.append(copy.generation)
    copy.begin_opening()
    copy.reopen(Opening(position=START, producer_id=5, epoch=0, sequence=0))
    generations.append(copy.generation)
    assert generations[0] < generations[1] <= generations[2]


def queue_of(copy: PartitionCopy) -> tuple[int, int, bool]:
    return copy.queued_bytes, copy.fetch_offset, copy.wants_fetch


def test_batches_shed_while_one_is_sent_are_refetched_behind_it() -> None:
    content, begins = log(4, 9, 5)
    copy = opened(START + 18)
    feed(copy, content)
    first = send(copy)
    lean = copy.shed()
    assert queue_of(copy) == (0, START + 4, False)
    assert lean is not None and lean.raw is not None and first.raw is not None
    assert (len(lean.raw.view), len(first.raw.view) > 0) == (0, True)
    copy.acknowledged(lean, START, 0)
    assert queue_of(copy) == (0, START + 4, True)
    feed(copy, content[begins[1] :])
    assert [step.base_offset for step in run(copy)] == [START + 4, START + 13]
    assert (copy.done, copy.counters.records, copy.counters.bytes) == (True, 18, len(content))


def test_shed_batch_is_counted_when_its_answer_is_lost() -> None:
    content, _ = log(4, 9)
    copy = opened(START + 13)
    feed(copy, content)
    send(copy)
    copy.shed()
    copy.fail()
    copy.begin_opening()
    copy.reopen(Opening(position=START + 4, producer_id=5, epoch=0, sequence=0))
    assert (copy.counters.records, copy.wants_fetch) == (4, True)


def test_batches_shed_while_a_hole_is_padded_are_refetched() -> None:
    content, begins = log(4, 9, 5)
    copy = opened(START + 18)
    feed(copy, content[: begins[1]] + content[begins[2] :])  # nine offsets are missing
    copy.acknowledged(send(copy), START, 0)
    pad = copy.next_step()
    assert pad == Pad(START + 4, START + 13)
    copy.sent()
    assert copy.shed() is None
    assert queue_of(copy) == (0, START + 13, False)
    copy.padded(Pad(START + 4, START + 13), 9)
    feed(copy, content[begins[2] :])
    assert [step.base_offset for step in run(copy)] == [START + 13]
    assert copy.done


def test_shed_batches_that_were_merged_keep_none_of_the_bytes_they_came_in() -> None:
    """Their records look into the answers: up to 16 MB, that of one broker for all its partitions."""
    content, _ = log(1, 1, 9, 5)
    copy, memory = opened(START + 16), Memory(1 << 20)
    copy.merge_below = 1024
    buffer = Buffer(memory, len(content), 0)
    copy.feed(FetchedPartition(copy.range.source, 0, START + 16, START + 16, 0, [], memoryview(content)), buffer)
    assert send(copy).merged == 4
    lean = copy.shed()
    assert lean is not None and memory.used == 0
    content += b"nothing looks into it any more"
    assert (lean.last_timestamp, lean.spans().tolist()) == (1_650_000_000_000 - 4 * 977, [START, 16])
    copy.acknowledged(lean, START, 0)
    assert copy.done and copy.counters.merged == 4


def test_nothing_is_shed_while_more_is_on_its_way() -> None:
    """The answer to a fetch that was asked for would begin behind what is given back."""
    content, _ = log(4, 9)
    copy = opened(START + 13)
    feed(copy, content)
    send(copy)
    copy.fetching = True
    assert copy.shed() is None
    assert copy.queued_bytes == len(content)


def arriving(*sizes: int, damaged: int | None = None) -> tuple[PartitionCopy, Send]:
    """A copy that follows: the first batch is under way, and each of the others came in a response of its own."""
    content, begins = log(*sizes)
    if damaged is not None:
        content[begins[damaged] + 80] ^= 1
    copy = opened()
    copy.merge_below = 1024
    ends = [*begins[1:], len(content)]
    feed(copy, content[: ends[0]])
    first = send(copy)
    for begin, end in zip(begins[1:], ends[1:], strict=True):
        assert copy.wants_fetch
        feed(copy, content[begin:end])
    return copy, first


def test_what_arrives_while_a_batch_is_under_way_is_sent_as_one() -> None:
    """A target that is far away takes one batch a round trip; the seventh would wait for seven."""
    copy, first = arriving(*[1] * 8)
    assert not copy.wants_fetch, "each response is held whole, with what it has for other partitions"
    copy.acknowledged(first, START, 0)
    (joined,) = run(copy)
    assert (joined.base_offset, joined.record_count, joined.merged) == (START + 1, 7, 7)
    assert (copy.position, copy.queued_bytes, copy.wants_fetch) == (START + 8, 0, True)
    assert (copy.counters.records, copy.counters.passed, copy.counters.merged) == (8, 1, 7)


def test_a_damaged_batch_among_what_arrived_stops_the_copy_behind_what_is_intact() -> None:
    copy, first = arriving(1, 2, 3, 4, 5, damaged=3)
    copy.acknowledged(first, START, 0)
    found: list[Send] = []
    with pytest.raises(CorruptBatch, match=rf"offsets \[{START + 6}, "):
        run(copy, found)
    assert [(one.base_offset, one.record_count) for one in found] == [(START + 1, 5)]


def test_what_arrived_together_is_given_back_together() -> None:
    copy, _ = arriving(1, 2, 3)
    copy.fail()
    assert copy.queued_bytes == 0
    copy.begin_opening()
    copy.reopen(Opening(position=START + 1, producer_id=5, epoch=0, sequence=0))
    content, begins = log(1, 2, 3)
    feed(copy, content[begins[1] :])
    assert sum(one.record_count for one in run(copy)) == 5
