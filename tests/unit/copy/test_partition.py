"""What a partition's copy counts when answers are lost."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.opening.identical import Opening
from tests.unit.copy.test_damage import START, feed, log, opened, run


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
    copy.acknowledged(send(copy), START)
    send(copy)
    copy.fail()
    copy.begin_opening()
    copy.fail()  # the next try to open it fails, too
    copy.begin_opening()
    assert copy.counters.records == 4, "nobody knows yet"
    copy.reopen(Opening(START + (13 if landed else 4), 5, 0, 0))
    assert copy.counters.records == (13 if landed else 4)
    copy.fail()
    copy.begin_opening()
    copy.reopen(Opening(copy.position, 5, 0, 0))
    feed(copy, content[begins[2 if landed else 1] :])
    run(copy)
    assert copy.done
    assert (copy.counters.records, copy.counters.batches, copy.counters.passed) == (18, 3, 3)
