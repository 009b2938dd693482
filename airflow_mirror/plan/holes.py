"""Estimate how many of a topic's offsets hold no record, from the batch headers of a few samples of its log.

A header has the batch's offsets and its number of records, even after compaction. Markers are control batches, aborted
transactions are listed in each fetch response, and missing batches show as gaps between two batches. Only batches with
holes inside are decoded, to count the runs of holes.

The cost is bounded for any number of partitions: :data:`SAMPLES` samples in total, 32 KB each, in requests for up to
256 partitions. The range to copy is cut into equal parts, with one sample at the start of each. A sample represents its
whole part, so a compacted half of a log weighs as much as the other half, however few bytes it has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MissingRight, TryAgain
from airflow_mirror.plan.inventory import TopicState
from airflow_mirror.plan.model import HoleEstimate
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import fetch
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import BatchHeader, RawBatch
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import refusal
from airflow_mirror.wire.fetch import FetchedPartition, FetchSpec

log = logging.getLogger(__name__)

SAMPLES = 2_000  # in total: 64 MB at most
_PER_TOPIC = 32
_PER_PARTITION = 8
_SAMPLE_BYTES = 32 << 10
_PER_REQUEST = 256
_PATIENCE_S = 20.0  # samples without a response by then stay unknown


class Part(NamedTuple):
    """Offsets [start, end) of a partition, the start of which is sampled."""

    tp: TopicPartition
    start: int
    end: int


@dataclass(kw_only=True)
class Seen:
    """The result of reading some batches: ``offsets`` read, ``holes`` among them, in ``runs`` contiguous runs.

    ``bytes``: of these batches that are copied. ``keyless``: records without a key; counted on request alone.
    """

    offsets: int = 0
    holes: int = 0
    runs: int = 0
    bytes: int = 0
    keyless: int = 0
    _in_hole: bool = field(default=False, init=False)

    def hole(self, length: int) -> None:
        """Add offsets without a record."""
        if length > 0:
            self.offsets += length
            self.holes += length
            self.runs += not self._in_hole
            self._in_hole = True

    def records(self, count: int) -> None:
        """Add offsets with a record each."""
        if count > 0:
            self.offsets += count
            self._in_hole = False


@dataclass(frozen=True)
class HoleSamples:
    """The result of sampling, by source topic: estimates, and why it can't be read. Other topics are unknown.

    :param bytes: of all that is copied, also where most of it lies in tiered storage, which no broker counts.
    :param keyless: so many of the records that were read have no key; of topics where that was asked, if there is one.
    """

    holes: Mapping[str, HoleEstimate] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    keyless: Mapping[str, int] = field(default_factory=dict)

    def of(self, topic: str) -> HoleSamples:
        """Return what was found of one topic."""
        return HoleSamples(*({topic: found[topic]} if topic in found else {} for found in vars(self).values()))


def sample(
    source: ClientConfig, topics: Mapping[str, TopicState], *, committed: bool, keyed: Collection[str] = ()
) -> HoleSamples:
    """Estimate the holes of each topic between the mirror's start offset and the end of the log.

    :param committed: consumers get committed records only, so aborted ones are holes.
    :param keyed: topics of which each record has to have a key: batches are decoded, and those without one are counted.
    """
    spans = {name: _spans(state, committed) for name, state in topics.items()}
    spans = {name: partitions for name, partitions in spans.items() if partitions}
    seen: dict[Part, Seen] = {}
    unreadable: dict[str, str] = {}
    isolation = fetch.READ_COMMITTED if committed else fetch.READ_UNCOMMITTED
    with WireCluster(source, client_id="airflow-mirror.plan", timeout_s=5.0) as cluster:
        for part, answer in _fetch_all(cluster, choose(spans), isolation, _PATIENCE_S):
            if answer.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                denied = refusal(f"Fetch {part.tp}", answer.error, "Read", part.tp.topic, cluster.settings.principal)
                unreadable[part.tp.topic] = str(denied)
            elif not answer.error:
                seen[part] = walk(answer, part.start, part.end, keys=part.tp.topic in keyed)
    by_topic: dict[str, dict[Part, Seen]] = {}
    for part, found in seen.items():
        if found.offsets:
            by_topic.setdefault(part.tp.topic, {})[part] = found
    lengths = {name: sum(spans[name].values()) for name in by_topic}
    estimates = {name: estimate(lengths[name], found) for name, found in by_topic.items()}
    bytes_ = {name: estimated_bytes(lengths[name], found) for name, found in by_topic.items()}
    keyless = {name: sum(one.keyless for one in found.values()) for name, found in by_topic.items()}
    return HoleSamples(estimates, unreadable, bytes_, {name: number for name, number in keyless.items() if number})


def choose(spans: Mapping[str, Mapping[tuple[int, int], int]]) -> list[list[Part]]:
    """Choose the parts to sample, in rounds that contain each partition once, as a fetch request requires.

    :param spans: by topic, the length of each (partition, first offset).
    """
    # If there are more topics than samples, the longest topics are sampled: short topics can't have many holes.
    names = sorted(spans, key=lambda name: (-sum(spans[name].values()), name))[:SAMPLES]
    each = max(1, min(_PER_TOPIC, SAMPLES // max(1, len(names))))
    rounds: list[list[Part]] = []
    for name in names:
        by_length = sorted(spans[name].items(), key=lambda item: (item[1], item[0]))
        wanted = min(each, len(by_length))
        # Spread over short and long partitions; the longest is always included.
        chosen = [by_length[(i + 1) * len(by_length) // wanted - 1] for i in range(wanted)]
        for (partition, start), length in chosen:
            cuts = min(length, _PER_PARTITION, max(1, each // wanted))
            edges = [start + length * i // cuts for i in range(cuts + 1)]
            for i in range(cuts):
                if len(rounds) <= i:
                    rounds.append([])
                rounds[i].append(Part(TopicPartition(name, partition), edges[i], edges[i + 1]))
    return rounds


def walk(answer: FetchedPartition, start: int, end: int, *, keys: bool = False) -> Seen:
    """Count records and holes in the batches of one response, from ``start`` to ``end`` or as far as they go.

    :param keys: count records without a key as well, in the batches that are whole.
    """
    seen = Seen()
    at = start
    aborted = _aborted(answer.aborted)
    for header, raw in _headers(answer.records):
        first, following = (header.base_offset, header.next_offset) if header else _legacy_bounds(raw, at)
        is_empty = header is not None and (aborted(header) or header.is_control or header.record_count <= 0)
        if following <= at:
            continue
        seen.hole(min(first, end) - at)
        at = max(at, first)
        until = min(following, end)
        if at >= until:
            break
        if not is_empty:
            seen.bytes += (header.size if header else len(raw.view if raw else b"")) * (until - at) // (following - first)
        if keys and raw is not None and not is_empty:
            seen.keyless += _keyless(raw, at, until)
        if is_empty:
            seen.hole(until - at)
        elif header is not None and header.is_dense:
            seen.records(until - at)
        else:
            _inside(seen, header, raw, at, until)
        at = until
    return seen


def estimate(offsets: int, found: Mapping[Part, Seen]) -> HoleEstimate:
    """Project the samples, each onto its part, onto all ``offsets`` of a topic."""
    parts = sum(part.end - part.start for part in found)
    scale = offsets / parts
    holes = sum((part.end - part.start) * seen.holes / seen.offsets for part, seen in found.items())
    runs = sum((part.end - part.start) * seen.runs / seen.offsets for part, seen in found.items())
    count = round(holes * scale)
    at_least = 1 if count else 0
    return HoleEstimate(
        count, max(at_least, round(runs * scale)), count / offsets, sum(seen.offsets for seen in found.values())
    )


def estimated_bytes(offsets: int, found: Mapping[Part, Seen]) -> int:
    """Project the samples' bytes likewise."""
    parts = sum(part.end - part.start for part in found)
    return round(
        sum((part.end - part.start) * seen.bytes / seen.offsets for part, seen in found.items()) * offsets / parts
    )


def _spans(state: TopicState, committed: bool) -> dict[tuple[int, int], int]:
    ends = state.stable_ends if committed else state.ends
    return {(p, begin): ends[p] - begin for p, begin in state.begins.items() if ends[p] > begin}


def _fetch_all(
    cluster: WireCluster, rounds: Sequence[Sequence[Part]], isolation: int, patience_s: float
) -> Iterator[tuple[Part, FetchedPartition]]:
    """Fetch the start of each part; parts without a response are omitted."""
    deadline = time.monotonic() + patience_s
    try:
        cluster.refresh({part.tp.topic for parts in rounds for part in parts})
    except (TryAgain, MissingRight) as e:
        log.warning("holes are not estimated: %s", e)
        return
    for parts in rounds:
        for node_id, led in _by_leader(cluster, parts).items():
            for i in range(0, len(led), _PER_REQUEST):
                if time.monotonic() > deadline:
                    log.warning("holes are estimated from a part of the samples: the time for sampling is over")
                    return
                yield from _fetch(cluster, node_id, led[i : i + _PER_REQUEST], isolation)


def _by_leader(cluster: WireCluster, parts: Iterable[Part]) -> dict[int, list[Part]]:
    led: dict[int, list[Part]] = {}
    for part in parts:
        try:
            led.setdefault(cluster.leader(part.tp).node_id, []).append(part)
        except TryAgain as e:
            log.warning("%s is not sampled: %s", part.tp, e)
    return led


def _fetch(
    cluster: WireCluster, node_id: int, parts: Sequence[Part], isolation: int
) -> Iterator[tuple[Part, FetchedPartition]]:
    specs = [FetchSpec(p.tp, p.start, _SAMPLE_BYTES, cluster.leader(p.tp).epoch) for p in parts]
    asked = {p.tp: p for p in parts}
    try:
        connection = cluster.connection(node_id)
        error, answers = fetch.at_once(connection, specs, len(specs) * _SAMPLE_BYTES, isolation)
    except TryAgain as e:
        log.warning("%d partitions are not sampled: %s", len(parts), e)
        return
    if not answers:
        log.warning("%d partitions are not sampled: the broker answered %s", len(parts), error_name(error))
    for answer in answers:
        yield asked[answer.tp], answer


def _headers(records: memoryview) -> Iterator[tuple[BatchHeader | None, RawBatch | None]]:
    """Yield each batch with its header; of a truncated last batch only the header, if that is complete."""
    at = 0
    try:
        for raw in wire_batch.iter_batches(records):
            at += len(raw.view)
            yield raw.header, raw
    except wire_batch.BrokenFrame:  # the copy will report it, with its offsets
        return
    rest = records[at:]
    if len(rest) >= wire_batch.HEADER_SIZE and rest[16] == 2:
        yield BatchHeader._make(wire_batch.HEADER.unpack_from(rest, 0)), None


def _aborted(listed: Iterable[tuple[int, int]]) -> Callable[[BatchHeader], bool]:
    """Return a function that tells, batch by batch in log order, whether a batch belongs to an aborted transaction."""
    first_offsets: dict[int, list[int]] = {}
    for producer_id, first in listed:
        first_offsets.setdefault(producer_id, []).append(first)

    def is_aborted(header: BatchHeader) -> bool:
        begun = [first for first in first_offsets.get(header.producer_id, ()) if first <= header.base_offset]
        if header.is_control:  # the marker that ends them
            for first in begun:
                first_offsets[header.producer_id].remove(first)
        return header.is_transactional and bool(begun)

    return is_aborted


def _inside(seen: Seen, header: BatchHeader | None, raw: RawBatch | None, start: int, end: int) -> None:
    """Count the records and holes between ``start`` and ``end`` inside a batch that has both."""
    offsets: list[int] | None = None
    if raw is not None:
        try:
            offsets = [r.offset for r in wire_records.decode(raw) if start <= r.offset < end]
        except ValueError:  # the copy will report it, with its offsets
            pass
    if offsets is None:
        # Only the header is available: assume as many runs as possible, since records mostly disappear one by one.
        length = end - start
        kept = length if header is None else min(length, header.record_count)
        seen.records(kept)
        seen.hole(length - kept)
        seen.runs += max(0, min(length - kept, kept) - 1)
        return
    at = start
    for offset in offsets:
        seen.hole(offset - at)
        seen.records(1)
        at = offset + 1
    seen.hole(end - at)


def _keyless(raw: RawBatch, start: int, end: int) -> int:
    try:
        return sum(r.key is None for r in wire_records.decode(raw) if start <= r.offset < end)
    except ValueError:  # the copy will report it, with its offsets
        return 0


def _legacy_bounds(raw: RawBatch | None, at: int) -> tuple[int, int]:
    """Return the offsets [first, next) of a magic 0 or 1 batch, whose offset field holds its *last* offset."""
    assert raw is not None
    try:
        offsets = [r.offset for r in wire_records.decode(raw)]
    except ValueError:
        offsets = []
    following = int.from_bytes(raw.view[:8], "big", signed=True) + 1
    return (offsets[0] if offsets else min(at, following)), following
