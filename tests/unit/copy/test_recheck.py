"""A source topic that is created again during the copy: which offsets may be the new topic's."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.opening.recheck import same_topic
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import SourceTruncated
from airflow_mirror.wire.errors import UnknownTopic

ONE = CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0, source_topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
AGAIN = "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.mark.parametrize(("since", "position", "affected"), [(5, 9, (5, 9)), (9, 9, (0, 9))])
def test_what_was_copied_since_it_was_last_seen_is_named(since: int, position: int, affected: tuple[int, int]) -> None:
    """Nothing copied since: what was copied before belongs to a topic that is gone."""
    with pytest.raises(SourceTruncated) as failed:
        same_topic(AGAIN, ONE, since, position)
    assert (failed.value.start_offset, failed.value.end_offset) == affected
    assert ("copied since it was last seen unchanged" in str(failed.value)) == (since < position)


def test_topic_with_its_planned_id_is_the_same() -> None:
    assert ONE.source_topic_id is not None
    same_topic(ONE.source_topic_id, ONE, 5, 9)


def test_deleted_topic_is_not_the_same() -> None:
    with pytest.raises(SourceTruncated):
        same_topic(UnknownTopic("source", "t"), ONE, 5, 9)
