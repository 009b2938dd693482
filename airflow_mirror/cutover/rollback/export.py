"""Export what an old source has and the target lacks, as files that keep every record exactly.

::

    DIRECTORY/<topic>.<topic id>/manifest.json
    DIRECTORY/<topic>.<topic id>/<topic>-<partition>/00000000000000048112.log

Each file holds the batches as the broker has them in its own segments, one after the other: keys, values, headers,
timestamps, producer ids and the markers of transactions. Kafka's own tool reads it (``kafka-dump-log.sh
--print-data-log``). Each begins at the offset that its name says, or at that of its first batch: batches are not cut. A
partition has two files where what both sides have lies between them. The manifest comes last. It has for each file its
digest (SHA-256), size, batches, records and offsets; an export without one was not finished.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import replace_file, sync
from airflow_mirror.cutover.failover.after import Surplus
from airflow_mirror.cutover.rollback.topic_divergence import TopicDivergence
from airflow_mirror.errors import ExportBroken
from airflow_mirror.wire.batch import LOG_OVERHEAD, BrokenFrame, RawBatch, iter_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.fetch import READ_UNCOMMITTED
from airflow_mirror.wire.records import damage, decode
from airflow_mirror.wire.single import read_batches

MANIFEST = "manifest.json"
_VERSION = 1
_LOG_END = (1 << 63) - 1


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An export of one topic that was read back.

    :param directory: of this topic. :param digest: SHA-256 of its manifest, which has those of the files.
    :param records: data records, those of aborted transactions as well.
    :param partitions: rows of ``partition, start, end, file, sha256, bytes, batches, records``.
    """

    topic: str
    topic_id: str
    directory: str
    digest: str
    records: int
    partitions: list[dict[str, Any]]

    def __str__(self) -> str:
        """One readable line."""
        return f"{self.topic}: {self.records:,} records of {len(self.partitions)} partitions are in {self.directory}"


def export(log: WireCluster, mirror: str, cluster_id: str, verdict: TopicDivergence, directory: Path) -> Exported:
    """Write the surplus of one topic, and read it back. An export that was begun before is written anew.

    :param log: the old source.
    :raises ExportBroken: what is on disk is not what was read. :raises TryAgain: a broker does not answer, or retention
        has deleted the next records.
    """
    place = _place(directory, verdict)
    # The files first, each synced, the manifest last: a process or host that dies at any line leaves no manifest, or
    # one whose files are all on disk.
    rows = [_write(log, one, place) for one in verdict.surplus]
    manifest = {
        "v": _VERSION, "mirror": mirror, "cluster": cluster_id, "topic": verdict.topic, "topic_id": verdict.topic_id,
        "partitions": rows,
    }  # fmt: skip
    # As a whole, synced, and in the place of the one before: from here on this export counts.
    replace_file(place / MANIFEST, json.dumps(manifest, indent=1))
    sync(place.parent)
    # What was written is believed only after it was read: the topic is deleted on this word.
    return read_back(verdict, directory)


def read_back(verdict: TopicDivergence, directory: Path) -> Exported:
    """Return a finished export of what a topic has by now, after each of its files was read to the end.

    :raises ExportBroken: there is none, or a file of it is not what the manifest says, or the topic has more by now.
    """
    place = _place(directory, verdict)
    try:
        text = (place / MANIFEST).read_bytes()
        # Read once, with its digest of these very bytes: replaced behind this, it is another export (`failback.failback`
        # compares).
        manifest = json.loads(text)
        rows: list[dict[str, Any]] = manifest["partitions"]
        known = [(row["partition"], row["start"], row["end"]) for row in rows]
    except FileNotFoundError:
        raise ExportBroken(verdict.topic, str(place), "no finished export is there") from None
    except (ValueError, KeyError, TypeError) as e:
        raise ExportBroken(verdict.topic, str(place / MANIFEST), f"it is no manifest ({e!r})") from None
    # Of another topic of that name: its deletion would take records that are in no export.
    if manifest.get("v") != _VERSION or manifest.get("topic_id") != verdict.topic_id:
        raise ExportBroken(verdict.topic, str(place / MANIFEST), f"it is not of topic id {verdict.topic_id}")
    # Against the topic as it is by now: an export that was whole yesterday lacks what the source took since.
    for one in verdict.surplus:
        its = [(start, end) for partition, start, end in known if partition == one.source.partition]
        if not any(start <= one.first and end == one.end for start, end in its):
            named = " and ".join(f"{start} to {end}" for start, end in its) or "none"
            cause = f"it has offsets {named} of {one.source}, which has {one.first} to {one.end} to export"
            raise ExportBroken(verdict.topic, str(place / MANIFEST), cause)
    for row in rows:
        path = place / row["file"]
        # Each byte, not the sizes: a host that lost its power has files of the right length full of zeros.
        found = _summed(_read(path, verdict.topic), row["start"], row["end"], verdict.topic, str(path))
        if wrong := [f"{key} {found[key]}, not {row[key]}" for key in found if found[key] != row[key]]:
            raise ExportBroken(verdict.topic, str(path), ", ".join(wrong))
    return Exported(
        topic=verdict.topic, topic_id=verdict.topic_id, directory=str(place), digest=hashlib.sha256(text).hexdigest(),
        records=sum(row["records"] for row in rows), partitions=rows,
    )  # fmt: skip


def _place(directory: Path, verdict: TopicDivergence) -> Path:
    return directory / f"{verdict.topic}.{verdict.topic_id}"


def _write(log: WireCluster, one: Surplus, place: Path) -> dict[str, Any]:
    """Write one partition; return its row in the manifest."""
    name = f"{one.source}/{one.first:020}.log"
    # By the offset at which it differs: a call that finds another one writes another file, and the manifest names which
    # counts.
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Over what a call that died has left: half a file is never gone on with, since the log may have lost its beginning.
    # Two calls at once write the same bytes here. One that reads back what the other has just begun anew says that the
    # export is broken, and deletes nothing.
    with path.open("wb") as file:

        def written() -> Iterator[RawBatch]:
            # Uncommitted batches and markers as well: what the log has, not what consumers of it would see.
            for raw, _ in read_batches(log, one.source, one.first, _LOG_END, isolation=READ_UNCOMMITTED):
                file.write(raw.view)
                yield raw
                # By where a batch ends, not by where the next one begins: there may be a hole before that one.
                if raw.next_offset >= one.end:
                    return

        found = _summed(written(), one.first, one.end, one.source.topic, f"the log of {one.source}")
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)
    return {"partition": one.source.partition, "start": one.first, "end": one.end, "file": name, **found}


def _summed(batches: Iterable[RawBatch], start: int, end: int, topic: str, where: str) -> dict[str, Any]:
    """Return digest, size and counts of batches that hold [start, end).

    :raises ExportBroken: one is damaged, or they end before ``end``.
    """
    digest, size, count, records, reached = hashlib.sha256(), 0, 0, 0, start
    for raw in batches:
        try:
            cause = damage(raw)
            if cause is None and (raw.header is None or not raw.header.is_control):
                records += sum(start <= record.offset < end for record in decode(raw))
        except ValueError as e:
            cause = str(e)
        if cause is not None:
            raise ExportBroken(topic, where, f"batch at offset {raw.first_offset}: {cause}")
        digest.update(raw.view)
        size, count, reached = size + len(raw.view), count + 1, raw.next_offset
    # Retention has taken the rest meanwhile, or a fetch ended early: not all of it, so it is no export.
    if reached < end:
        raise ExportBroken(topic, where, f"it ends at offset {reached}, and should reach {end}")
    return {"sha256": digest.hexdigest(), "bytes": size, "batches": count, "records": records}


def _read(path: Path, topic: str) -> Iterator[RawBatch]:
    """Yield the batches of a file.

    :raises ExportBroken: it is not there, or something in it is no whole batch.
    """
    try:
        with path.open("rb") as file:
            while head := file.read(LOG_OVERHEAD):
                body = file.read(int.from_bytes(head[8:], "big"))
                found = list(iter_batches(memoryview(head + body)))
                if len(found) != 1:
                    raise ExportBroken(topic, str(path), f"it is cut at byte {file.tell()}")
                yield found[0]
    except (FileNotFoundError, BrokenFrame) as e:
        raise ExportBroken(topic, str(path), str(e)) from None
