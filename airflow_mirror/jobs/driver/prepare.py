"""The common part of bulk copy and tail: make or load a plan, resolve ranges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import is_read_again, load
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import IDENTICAL, CopyRange
from airflow_mirror.errors import AuthenticationFailed, LedgerLost, LedgerMissing, MirrorError, TryAgain
from airflow_mirror.jobs.driver.by_hand import plan_by_hand
from airflow_mirror.jobs.driver.stable import left_behind, stable_ends
from airflow_mirror.jobs.driver.windows import Span, WindowBook, resolve, summed
from airflow_mirror.jobs.request import CopyRequest, JobRequest
from airflow_mirror.jobs.runner.wishes import Wishes, require_not_paused
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.held import Held
from airflow_mirror.ledger.decisions import Decisions, Ledger, Values
from airflow_mirror.ledger.records import WINDOW, WISH
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror, time_ms
from airflow_mirror.plan import Plan
from airflow_mirror.plan.ledger_store import fetch_rule, with_amendments
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.owned import claimed_ids, target_ids, with_key_partitions
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.requirements import recreated, require_active, require_planned_clusters
from airflow_mirror.plan.store import is_hash
from airflow_mirror.plan.upstream import upstream_of
from airflow_mirror.sync.maps import mapped_topics
from airflow_mirror.sync.passes import log_offsets
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import TlsRefused
from airflow_mirror.wording import some

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CopyJob:
    """A copy that is ready to run.

    :param key_partitions: with key partitioning: target topic -> its partition count when the copy began.
    :param target_ids: target topic -> its id when it was known to be this mirror's.
    """

    mirror: Mirror
    source: str
    target: str
    plan: Plan
    options: CopyOptions
    key_partitions: Mapping[str, int] = field(default_factory=dict)
    target_ids: Mapping[str, str] = field(default_factory=dict)

    def outlives(self, refused: AuthenticationFailed) -> bool:
        """Return whether a login that is refused while the job runs may be let in later, without another job.

        A password that was changed is found where the settings of both clusters are in files. A certificate that has
        expired may be a broker's, whatever the settings are.
        """
        return isinstance(refused, TlsRefused) or (is_read_again(self.source) and is_read_again(self.target))


def prepare(request: JobRequest, without_plan: Callable[[JobRequest], Plan], *, writes: bool = True) -> CopyJob:
    """Load the plan, or make one, so that a job started by hand needs no operator before it.

    :param without_plan: makes the plan.
    :param writes: the job writes to the target's topics, so that they must be this mirror's.
    :raises InputError: with every finding, before anything is written; or a cluster is not the plan's.
    :raises TopicsOwned: topics belong to another mirror. :raises MirrorCutOver: topics are in production.
    :raises NeedsHuman: records would return to the target that they come from.
    :raises LedgerLost: nobody knows which topics are in production. A copy that runs goes on, and none is begun.
    :raises MissingRight, InputError: topics are mapped, and their maps could not be stored.
    """
    mirror = request.mirror
    with ClusterAdmin(load(request.target, "target")) as admin:
        path = Path(request.plan) if request.plan else None
        ledger = Ledger(admin)
        plan = _stored(path, mirror, admin, ledger) if path else without_plan(request)
        plan.raise_if_blocked()
        with ClusterAdmin(load(request.source, "source")) as source:
            require_planned_clusters(plan, source, admin)
            if writes:
                _claim(plan, source, admin, ledger)
        if writes and mapped_topics(plan):
            make_ready(admin)
        options = CopyOptions(
            mirror=mirror.name,
            committed_only=mirror.isolation == "read_committed",
            direct_markers=plan.capabilities.markers in ("direct", "unknown"),
            delivery=mirror.delivery,
            merge_below=mirror.merge_below,
            max_bytes_per_second=mirror.max_bytes_per_second,
        )
        nothing = replace(plan, topics=())
        job = CopyJob(mirror=mirror, source=request.source, target=request.target, plan=nothing, options=options)
        return taking_in(job, plan, admin, ledger if writes else None)


def prepare_to_copy(request: CopyRequest) -> CopyJob:
    """Prepare a job that writes; it makes a plan, and the topics, where it has none. Errors as of :func:`prepare`."""
    job = prepare(request, lambda _: plan_by_hand(request))
    options = replace(
        job.options, give_up_after_s=request.give_up_after_s, abort_on_send_failure=request.abort_on_send_failure
    )  # fmt: skip
    return replace(job, options=options)


def taking_in(job: CopyJob, plan: Plan, target: ClusterAdmin, ledger: Decisions | None) -> CopyJob:
    """Return a job that carries out a plan with more topics: what their copy needs to know is read from the target.

    :param ledger: where the topics were made this mirror's; None: the job does not write to them.
    """
    values = _decided(ledger) if ledger is not None else {}
    plan = with_key_partitions(plan, values, target)
    known = {t.target_topic for t in job.plan.topics}
    new = [t for t in plan.topics if t.target_topic not in known]
    configs = target.topic_configs([t.target_topic for t in new])
    told = {topic: entries.get("max.message.bytes") for topic, entries in configs.items()}
    limits = {topic: int(entry.value) for topic, entry in told.items() if entry is not None and entry.value is not None}
    fillers = (t.target_topic for t in new if t.filler == "tombstones")
    counts = _key_partitions(new, target) if job.mirror.partitioning == "by_key" else {}
    options = replace(
        job.options,
        max_batch_bytes={**job.options.max_batch_bytes, **limits},
        tombstone_topics=(*job.options.tombstone_topics, *fillers),
    )
    # As they were claimed: one may have been created again since.
    ids = claimed_ids(values, target_ids(replace(plan, topics=tuple(new)), target)) if ledger is not None else {}
    return replace(
        job, plan=plan, options=options, key_partitions={**job.key_partitions, **counts},
        target_ids={**job.target_ids, **ids},
    )  # fmt: skip


def _key_partitions(topics: Sequence[TopicPlan], target: ClusterAdmin) -> dict[str, int]:
    """Return among how many partitions of each target topic keys are dealt out: always as when its copy began.

    With the count of the moment all that was copied would be copied again once the topic has more.
    """
    there = {name: info.partitions for name, info in target.topics([t.target_topic for t in topics]).items()}
    planned = {t.target_topic: t.key_partitions for t in topics if t.key_partitions is not None}
    for name, count in planned.items():
        if there.get(name, count) > count:
            log.warning("%s has %s partitions; keys go to the first %s, as when its copy began", name, there[name], count)
    return {**there, **planned}


def _decided(ledger: Decisions) -> Values:
    """Return what is decided; nothing where that is lost."""
    with suppress(LedgerMissing, LedgerLost):  # whoever claimed the topics has said so
        return ledger.values()
    return {}


def wishes_at_start(job: CopyJob) -> Wishes:
    """Return what is wished of a job's mirror.

    :raises MirrorPaused: it is wished that nothing is copied.
    """
    name = job.mirror.name
    with ClusterAdmin(load(job.target, "target")) as target:
        wishes = require_not_paused(state_of(target, WISH.below(name)), name)
    if wishes.rate is not None:
        log.warning("%s", "; ".join(wishes.lines()))
    return wishes


def _stored(path: Path, mirror: Mirror, target: ClusterAdmin, ledger: Ledger) -> Plan:
    """Return the plan of a file, as it is amended by now. A host without the file fetches the plan from the target.

    :raises LedgerLost: nobody knows what was added to the plan since it was made, nor which topics are in production.
    """
    elsewhere = is_hash(path.stem) and not path.exists()
    plan = fetch_rule(path.stem, mirror.name, target) if elsewhere else Plan.load(path)
    if plan.mirror.policy == mirror.policy:  # a class that our own Mirror names may name new topics
        plan = replace(plan, mirror=replace(plan.mirror, policy=mirror.policy))
    return with_amendments(plan, target, ledger)


def _claim(plan: Plan, source: ClusterAdmin, target: ClusterAdmin, ledger: Ledger) -> None:
    """Make the topics this mirror's. What they hold is known without the ledger."""
    feeds = None
    try:
        feeds = upstream_of(plan, Ledger(source).peek()).of
    except LedgerLost as e:
        log.warning("where the source's records come from is not known, and the copy goes on: %s", e)
    with _unless_unknown(LedgerMissing):
        # Left to whoever has created them: their partitions stop by the id that was claimed (`taking_in`), others go on.
        if again := recreated(ledger, plan, target):
            log.warning("created again on the target since they were this mirror's, and not copied into: %s", some(again))
        claim(ledger, plan, target, feeds, again)


def require_still_ours(job: CopyJob) -> None:
    """Return if the topics are still the mirror's; call it when the lease is held. Its holder may have decided otherwise.

    :raises MirrorCutOver: :raises TopicsOwned: see :func:`.requirements.require_active`.
    """
    with ClusterAdmin(load(job.target, "target")) as target, _unless_unknown(LedgerMissing, LedgerLost):
        require_active(Ledger(target), job.plan, target)


@contextmanager
def _unless_unknown(*errors: type[MirrorError]) -> Iterator[None]:
    """Warn where the ledger that says whose the topics are is not there: what copies does not wait for a lost one."""
    try:
        yield
    except errors as e:
        log.warning("whose the target's topics are is not known, and the copy goes on: %s", e)


def shared(options: CopyOptions, tasks: int) -> CopyOptions:
    """Return the options of one of ``tasks`` concurrent tasks: each has its share of the byte rate."""
    rate = options.max_bytes_per_second
    return options if rate is None else replace(options, max_bytes_per_second=rate / max(1, tasks))


def resolve_ranges(
    job: CopyJob, source: WireCluster, start: str, end: str | None
) -> tuple[list[CopyRange], list[Held]]:  # fmt: skip
    """Resolve the plan's topics to offset ranges, partition by partition.

    :param start: ``earliest``, ``latest`` or ISO 8601: start of a partition of which the target holds no record.
    :param end: ``latest`` (the current last stable offset, or high watermark), or None to follow.
    :return: the ranges, and what is in none because a transaction is open.
    """
    wanted = {t.source_topic: (t.target_topic, t.source_topic_id) for t in job.plan.topics}
    partitions = _partitions(source, wanted)
    log_starts = source.log_starts(partitions)
    starts = _starts(job, source, start, {tp: log_starts[tp] for tp in partitions})
    ends, held = _latest(source, partitions, job.options.committed_only) if end is not None else ({}, [])
    return _ranges(job, wanted, starts, ends), held


def joining_ranges(
    job: CopyJob, source: WireCluster, topics: Mapping[str, tuple[str, str]], known: Collection[TopicPartition]
) -> tuple[list[CopyRange], dict[TopicPartition, MirrorError]]:
    """Resolve partitions to ranges that are followed from now on, without those whose leaders do not answer.

    :param topics: source topic -> (target topic, source topic id).
    :param known: partitions that are followed already, of which nothing is asked.
    :return: the ranges, and why other partitions have none yet.
    :raises MissingRight: a leader refuses to tell.
    """
    new = [tp for tp in _partitions(source, topics) if tp not in known]
    log_starts, waiting = log_offsets(source, "log start", new, requests.EARLIEST)
    for error in waiting.values():
        if not isinstance(error, TryAgain):
            raise error
    return _ranges(job, topics, _starts(job, source, job.mirror.start, log_starts), {}), waiting


def _starts(
    job: CopyJob, source: WireCluster, start: str, log_starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return where the copy of these partitions begins; what is below their log starts is gone."""
    frozen = frozen_starts(job.plan, start)
    # Partitions that appeared since the plan are copied completely; a time means the same whenever it is resolved.
    if start in ("earliest", "latest"):
        others = log_starts
    else:
        new = [tp for tp in log_starts if tp not in frozen]
        others = _offsets_at(source, new, start, job.options.committed_only)
    begins = {**others, **frozen}
    return {tp: max(begins[tp], at) for tp, at in log_starts.items()}


def frozen_starts(plan: Plan, start: str) -> dict[TopicPartition, int]:
    """Return the offsets at which the plan's partitions begin; empty if the plan did not resolve ``start``.

    ``latest`` is a moment. If each job resolved it again, records between two jobs would be skipped; so it means the
    moment of the plan.
    """
    planned = start == plan.mirror.start
    if not planned and start != "latest":
        return {}
    by_topic = {t.source_topic: t.starts if planned else t.ends for t in plan.topics}
    return {TopicPartition(topic, p): offset for topic, offsets in by_topic.items() for p, offset in offsets.items()}


def resolve_window(
    job: CopyJob, source: WireCluster, start: str, end: str, late_s: float, book: WindowBook
) -> tuple[list[CopyRange], dict[str, Any], list[Held]]:
    """Resolve ranges with an end. If the end is a time, records that arrived a little late are included.

    :param end: ``latest`` or ISO 8601.
    :param late_s: how late a record of the window may arrive, in seconds.
    :param book: windows that were resolved before; they are used unchanged.
    :return: the ranges, for a window its part of the job's summary, and what is in none because a transaction is open.
    """
    committed = job.options.committed_only
    if end == "latest":
        ranges, held = resolve_ranges(job, source, start, end)
        return ranges, {}, held
    wanted = {t.source_topic: (t.target_topic, t.source_topic_id) for t in job.plan.topics}
    topic_ids = {t.source_topic: t.source_topic_id for t in job.plan.topics}
    span = Span.of(start, end, late_s)
    windows = book.load(span, topic_ids)
    partitions = _partitions(source, wanted)
    missing, held = [tp for tp in partitions if tp not in windows], list[Held]()
    if missing:
        log_starts = source.log_starts(missing)
        starts = _starts(job, source, start, log_starts)
        latest, waits = _latest(source, missing, committed)
        before, after = book.before(span, topic_ids), book.after(span, topic_ids)
        starts = {tp: max(log_starts[tp], before.get(tp, at)) for tp, at in starts.items()}
        latest = {tp: min(at, after.get(tp, at)) for tp, at in latest.items()}
        resolved = resolve(source, span, starts, latest, committed)
        windows |= {
            tp: replace(one, end=max(one.start, after[tp])) if tp in after else one for tp, one in resolved.items()
        }
        held = left_behind(waits, {tp: windows[tp].end for tp in missing})
        # One that ends at an open transaction is resolved again by the next try, which then has what is behind it.
        short = {one.source for one in held}
        book.save(span, {tp: one for tp, one in windows.items() if tp not in short}, topic_ids)
    counts = summed(windows[tp] for tp in partitions)
    log.info(
        "window [%s, %s): %s of its records arrived late, %s newer ones are before the last of them, %s older ones after "
        "its first one", start, end, f"{counts['late']:,}", f"{counts['newer']:,}", f"{counts['older']:,}",
    )  # fmt: skip
    starts, ends = ({tp: getattr(windows[tp], side) for tp in partitions} for side in ("start", "end"))
    return _ranges(job, wanted, starts, ends), {"window": {"start": start, "end": end, "late_s": late_s, **counts}}, held


@contextmanager
def window_book(request: JobRequest) -> Iterator[WindowBook]:
    """Yield the book of a mirror's windows; that of a job without a plan is empty, and forgets."""
    if not request.plan:
        yield WindowBook(None, request.mirror.name)
        return
    with ClusterAdmin(load(request.target, "target")) as target:
        yield WindowBook(state_of(target, WINDOW.below(request.mirror.name)), request.mirror.name)


def _partitions(source: WireCluster, topics: Iterable[str]) -> list[TopicPartition]:
    source.refresh(topics)
    return [TopicPartition(t, p) for t in topics for p in range(source.partitions(t))]


def _ranges(
    job: CopyJob, topics: Mapping[str, tuple[str, str]], starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[CopyRange]:  # fmt: skip
    modes = {t.source_topic: t.mode for t in job.plan.topics}
    return [
        CopyRange(
            source_topic=tp.topic,
            target_topic=topics[tp.topic][0],
            partition=tp.partition,
            start_offset=start,
            end_offset=ends.get(tp),
            source_topic_id=topics[tp.topic][1],
            target_topic_id=job.target_ids.get(topics[tp.topic][0]),
            mode=modes.get(tp.topic, IDENTICAL),
            target_partition=place,
            key_partitions=job.key_partitions.get(topics[tp.topic][0]),
        )
        for tp, start in starts.items()
        for place in _places(job.key_partitions.get(topics[tp.topic][0]))
    ]


def _places(key_partitions: int | None) -> Sequence[int | None]:
    """Return the target partitions of a source partition: its own, or all of them with key partitioning."""
    return (None,) if key_partitions is None else range(key_partitions)


def _offsets_at(
    source: WireCluster, partitions: list[TopicPartition], when: str, committed_only: bool
) -> Mapping[TopicPartition, int]:
    if when == "earliest":
        return source.log_starts(partitions)
    latest, _ = _latest(source, partitions, committed_only)
    if when == "latest":
        return latest
    found = source.offsets_for_time(partitions, time_ms("start", when))
    # -1: every record is older, so the time is at the end of the log.
    return {tp: latest[tp] if found[tp] < 0 else found[tp] for tp in partitions}


def _latest(
    source: WireCluster, partitions: list[TopicPartition], committed_only: bool
) -> tuple[Mapping[TopicPartition, int], list[Held]]:  # fmt: skip
    """Return where the logs end for this isolation, and what is behind that because a transaction is open."""
    return stable_ends(source, partitions) if committed_only else (source.high_watermarks(partitions), [])
