"""The referee: reads both clusters with confluent-kafka consumers and says what differs, and where first.

It shares no code with what made the copy: no wire client, no codec, no verifier of airflow_mirror. It sees what an
application would see: ``read_committed``, with checksums checked. Partition by partition, a few thousand records of
each side in memory at a time.

Alone: ``python -m demo.referee --source a.properties --target b.properties [--topic T ...] [--group G ...]``;
exit status 0: equal, 1: not equal, 2: bad arguments.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from demo.clients import Partition, Settings, admin, config, group_positions, log_bounds, partitions_of, topics_of
from demo.console import Console
from demo.table import print_verdict
from demo.verdict import Difference, GroupResult, TopicResult, Verdict

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

CHUNK = 5_000
SILENCE_S = 30.0
FIELDS = ("offset", "timestamp", "key", "value", "headers")

Row = tuple[Any, ...]
"""A record as a consumer sees it, in the order of FIELDS."""

Progress = Callable[[str, int, int], None]
"""Called with (partition, records so far, records expected at most)."""


class Reader:
    """Reads one cluster, a partition at a time, as an application would."""

    def __init__(self, settings: Settings) -> None:
        more: dict[str, Any] = {"isolation_level": "read_committed", "check_crcs": True, "enable_partition_eof": True}
        more |= {"enable_auto_commit": False, "auto_offset_reset": "error", "fetch_message_max_bytes": 4_000_000}
        # At the end of a partition the broker would hold the request for half a minute of the next one's time.
        more |= {"fetch_wait_max_ms": 10}
        self._consumer = Consumer(config(settings, group_id="demo-referee", **more))

    def rows(self, partition: Partition, start: int, end: int) -> Iterator[list[Row]]:
        """Yield the records in [start, end) in chunks, up to the end of the log if that comes first.

        :raises KafkaException: what the client reports, a failed checksum too.
        :raises TimeoutError: when the cluster is silent for half a minute.
        """
        if start >= end:
            return
        self._consumer.assign([TopicPartition(*partition, start)])
        position, heard = start, time.monotonic()
        while position < end:
            # Asking for no more than there can be: consume() waits until it has that many, or for the timeout.
            messages = self._consumer.consume(min(CHUNK, end - position), 0.1)
            if not messages and time.monotonic() - heard > SILENCE_S:
                raise TimeoutError(f"{partition}: no record and no end of log at offset {position} in {SILENCE_S:.0f} s")
            chunk, at_end = [], False
            for message in messages:
                heard = time.monotonic()
                if message.error() is None:
                    chunk.append(
                        (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
                    )
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    at_end = True
                else:
                    raise KafkaException(message.error())
            if chunk:
                position = chunk[-1][0] + 1
                yield chunk if position <= end else [row for row in chunk if row[0] < end]
            if at_end:
                return

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def compare_rows(
    partition: Partition, source: Iterator[list[Row]], target: Iterator[list[Row]], counted: Callable[[list[Row]], None]
) -> Difference | None:
    """Compare two streams of records; return the first difference. ``counted`` is given what was equal."""
    left: list[Row] = []
    right: list[Row] = []
    while True:
        left = left or next(source, [])
        right = right or next(target, [])
        if not left and not right:
            return None
        n = min(len(left), len(right))
        if n == 0 or left[:n] != right[:n]:
            pairs = zip(left[:n], right[:n], strict=True)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), 0)
            return _difference(partition, left[at] if left else None, right[at] if right else None)
        counted(left[:n])
        left, right = left[n:], right[n:]


def _difference(partition: Partition, source: Row | None, target: Row | None) -> Difference:
    if target is None or (source is not None and source[0] < target[0]):
        assert source is not None
        return Difference(partition, source[0], "the source has a record here, the target has none")
    if source is None or target[0] < source[0]:
        return Difference(partition, target[0], "the target has a record here, the source has none")
    parts = [
        f"{name} {_short(a)} became {_short(b)}" for name, a, b in zip(FIELDS, source, target, strict=True) if a != b
    ]
    return Difference(partition, source[0], ", ".join(parts))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}... ({len(text)} characters)"


def compare_topics(
    source: Settings,
    target: Settings,
    topics: Iterable[str],
    added: Mapping[str, Collection[bytes]] | None = None,
    progress: Progress = lambda *_: None,
) -> list[TopicResult]:
    """Compare topics record by record, and where their logs start and end.

    :param added: topic -> values that were written on the target after the cutover, in any order. Behind the source's
        end the topic must hold exactly these; topics that are not named must end where the source's end.
    """
    clients, readers = (admin(source), admin(target)), (Reader(source), Reader(target))
    try:
        return [_compare_topic(topic, clients, readers, (added or {}).get(topic), progress) for topic in topics]
    finally:
        for reader in readers:
            reader.close()


def _compare_topic(
    topic: str,
    clients: tuple[AdminClient, AdminClient],
    readers: tuple[Reader, Reader],
    added: Collection[bytes] | None,
    progress: Progress,
) -> TopicResult:
    partitions, theirs = (partitions_of(client, topic) for client in clients)
    result = TopicResult(topic, partitions=len(partitions))
    if partitions != theirs or not partitions:
        what = f"the source has {len(partitions)} partitions, the target {len(theirs)}"
        result.differences.append(Difference(Partition(topic, min(len(partitions), len(theirs))), 0, what))
        return result
    bounds = tuple(log_bounds(client, partitions) for client in clients)
    new: list[Row] = []
    for partition in partitions:
        here, there = bounds[0][partition], bounds[1][partition]
        result.offsets += _compare_bounds(partition, here, there, added is not None)
        _compare_partition(partition, here, there, readers, result, progress)
        for rows in readers[1].rows(partition, max(here[1], there[0]), there[1]):
            new += [(partition, row[0], row[3]) for row in rows]
    if added is not None:
        result.added = len(new)
        result.differences += _compare_added(new, added, partitions[0])
    return result


def _compare_bounds(
    partition: Partition, source: tuple[int, int], target: tuple[int, int], grows: bool
) -> Iterator[Difference]:
    if source[0] != target[0]:
        yield Difference(partition, source[0], f"the source's log starts here, the target's at {target[0]}")
    if target[1] < source[1] or (target[1] > source[1] and not grows):
        yield Difference(partition, source[1], f"the source's log ends here, the target's at {target[1]}")


def _compare_partition(
    partition: Partition,
    source: tuple[int, int],
    target: tuple[int, int],
    readers: tuple[Reader, Reader],
    result: TopicResult,
    progress: Progress,
) -> None:
    """Compare up to the source's end; adds to ``result``."""

    def counted(rows: list[Row]) -> None:
        result.records += len(rows)
        result.bytes += sum(len(row[2] or b"") + len(row[3] or b"") for row in rows)
        progress(str(partition), rows[-1][0] + 1, source[1])

    end = source[1]
    # Each side from its own start: a record that the target has below the source's log start is one too many.
    streams = readers[0].rows(partition, source[0], end), readers[1].rows(partition, target[0], min(end, target[1]))
    difference = compare_rows(partition, *streams, counted)
    if difference is not None:
        result.differences.append(difference)


def _compare_added(new: list[Row], added: Collection[bytes], anywhere: Partition) -> Iterator[Difference]:
    missing = Counter(added)
    for partition, offset, value in new:
        if missing[value] <= 0:
            yield Difference(partition, offset, f"{_short(value)} was not written by the live producer, or only once")
            return
        missing[value] -= 1
    left = list(missing.elements())
    if left:
        yield Difference(
            anywhere, -1, f"{len(left)} records written after the cutover are gone, one is {_short(left[0])}"
        )


def compare_groups(target: Settings, before: Mapping[str, Mapping[Partition, int]]) -> list[GroupResult]:
    """Compare what groups had committed on the source (``before``) with what the target has for them now."""
    return [GroupResult(group, positions, group_positions(target, group)) for group, positions in before.items()]


def read_properties(path: str) -> dict[str, str]:
    """Read librdkafka settings from a file of ``key=value`` lines.

    :raises SystemExit: with status 2 when it can't be read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as e:
        print(f"{path}: {e.strerror or e}. Give a file of librdkafka settings, one key=value a line.", file=sys.stderr)
        raise SystemExit(2) from None
    pairs = (line.partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def main(argv: list[str] | None = None) -> int:
    """Compare two clusters, print the table, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m demo.referee", description="Compare two clusters, record by record.")
    parser.add_argument("--source", required=True, metavar="FILE", help="librdkafka settings of the source")
    parser.add_argument("--target", required=True, metavar="FILE", help="librdkafka settings of the target")
    parser.add_argument("--topic", action="append", help="default: every topic of the source")
    parser.add_argument("--group", action="append", help="compare this group's positions; default: none")
    args = parser.parse_args(argv)
    source, target = read_properties(args.source), read_properties(args.target)
    console, client = Console(), admin(source)
    with console.step("referee") as step:
        before = {group: group_positions(source, group) for group in args.group or ()}
        verdict = Verdict(
            topics=compare_topics(
                source,
                target,
                args.topic or sorted(topics_of(client)),
                progress=lambda where, done, total: step.note(f"{where} {done:,} of {total:,}"),
            ),
            groups=compare_groups(target, before),
        )
    return print_verdict(verdict, console.rich)


if __name__ == "__main__":
    sys.exit(main())
