"""Checks during a copy: whether the source topic was re-created, and whether the target has another writer."""

from __future__ import annotations

from airflow_mirror.copy.fingerprint import committed_records, decoded, digest
from airflow_mirror.copy.opening.identical import check_same_topic
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import ForeignData, SourceGone
from airflow_mirror.wire.batch import RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.single import read_batches

_BATCHES = 64  # compare at most this many batches; the rest is left to the copier that wrote them


def same_topic(found: str | UnknownTopic, copy_range: CopyRange, since: int, position: int) -> None:
    """Check the source topic's id (`opening.check_same_topic`) during the copy.

    :param found: the topic's current id, or the error that says why it has none.
    :param since: position of the copy when the topic was last seen with the planned id.
    :raises SourceGone: names the offsets that may be the new topic's, or else those from `opening.affected`.
    """
    try:
        check_same_topic(found, copy_range, lambda: position)
    except SourceGone as e:
        # Nothing was copied between the two looks: what was copied is all of the old topic.
        if position <= since:
            raise
        cause = f"{e.cause}; these were copied since it was last seen unchanged"
        raise SourceGone(e.topic, e.partition, since, position, cause, e.remedy) from e.__cause__


def not_foreign(
    source: WireCluster, target: WireCluster, copy_range: CopyRange, ours: int, start: int, end: int, isolation: int
) -> None:
    """Compare the records appended to the target in [start, end), since our last acknowledged write, with the source.

    Comparing the last batch alone is not enough: after a foreign record, ours follow one offset too late, and if the
    source repeats itself (a heartbeat) they are equal all the same.

    :param ours: our producer id. Records of another producer that the source lacks are foreign. The source may lack
        records of ours, because it was compacted meanwhile.
    :raises ForeignData: names the offsets from the first one that differs from the source.
    """
    at = start
    # All of it is below the end that the opening has read, where nothing is appended any more.
    for number, (raw, _aborted) in enumerate(
        read_batches(target, copy_range.target, start, end, isolation=READ_UNCOMMITTED)
    ):
        # Our own lost answer is one batch. More of them are another copier's, which has compared before it wrote, as we
        # do.
        if number >= _BATCHES:
            return
        stop = min(raw.next_offset, end)
        wrong = _first_wrong(source, copy_range, raw, ours, at, stop, isolation)
        if wrong is not None:
            raise ForeignData(
                copy_range.target_topic, copy_range.target.partition, wrong, end,
                f"the record written at offset {wrong} during this copy is not the source's",
                "Another writer appended to the target. Stop it, then delete the target topic and copy it again.",
            )  # fmt: skip
        at = stop


def _first_wrong(
    source: WireCluster, copy_range: CopyRange, raw: RawBatch, ours: int, start: int, end: int, isolation: int
) -> int | None:
    header = raw.header
    # A marker takes an offset: if the source has a record there, it would be missing.
    is_data = header is None or not header.is_control
    copies = (
        {r.offset: r for r in decoded(raw, copy_range.target, "target") if start <= r.offset < end} if is_data else {}
    )
    originals = committed_records(source, copy_range.source, start, end, isolation)
    # By the header: no client of ours writes magic 0 or 1.
    foreign = header is None or header.producer_id != ours
    for offset in range(start, end):
        a, b = originals.get(offset), copies.get(offset)
        if a is None and b is None:
            continue
        if a is None:
            if foreign:
                return offset
        elif b is None or digest(a) != digest(b):
            return offset
    return None
