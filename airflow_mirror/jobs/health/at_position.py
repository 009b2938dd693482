"""What time a batch has that is to be copied next, read from the batch itself.

ListOffsets by a time answers from the log's begin on. One record far before a position whose time is in the future, or
only younger than asked for, hides all that stands behind it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.batch import BrokenFrame, iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED, FetchedPartition
from airflow_mirror.wire.single import answers_together, fetch_one

MOST = 200  # partitions: whoever looks every few minutes reads no more than 4 MB
_EACH_BYTES = 20 << 10  # producers' batches have 16 KB by default
_PATIENCE_S = 5.0  # of all whose batch is larger, which are asked for alone


def times_at(wire: WireCluster, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the newest time, in ms, of the batch at each position; that of the first :data:`MOST`, where it is known.

    It is not where nobody may read, where the leader does not answer at once, or where the batch has no time, or an old
    format (magic 0 and 1).
    """
    wanted = dict(list(positions.items())[:MOST])
    if not wanted:
        return {}
    answers = answers_together(
        wire, wanted, isolation=READ_UNCOMMITTED, max_bytes_each=_EACH_BYTES, max_bytes=MOST * _EACH_BYTES
    )
    deadline = time.monotonic() + _PATIENCE_S
    # Not those without an answer: a leader is waited for, and so is a quota, beyond any deadline of ours.
    for tp in [tp for tp, answer in answers.items() if not answer.records]:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        try:  # the first batch comes whole
            answers[tp] = fetch_one(
                wire, tp, wanted[tp], isolation=READ_UNCOMMITTED, max_bytes=_EACH_BYTES, timeout_s=left_s
            )
        except MirrorError:  # no other has to wait for it, and none is judged by it
            continue
    found = {tp: _time_at(answer, wanted[tp]) for tp, answer in answers.items()}
    return {tp: ms for tp, ms in found.items() if ms >= 0}


def _time_at(answer: FetchedPartition, position: int) -> int:
    try:
        for raw in iter_batches(answer.records):
            if raw.next_offset > position:
                return -1 if raw.header is None else raw.header.max_timestamp
    except BrokenFrame:  # who copies says so
        pass
    return -1
