"""The comparison of two clusters: every partition of the plan, on Spark, then exit.

Exit status 0: equal. 1: a difference, nothing to compare, a spot check that fell out, or a cluster that could not be
read; each on stderr. 2: wrong arguments.
The last line on stdout is one JSON object.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.copy.ranges import CopyRange, deal
from airflow_mirror.errors import InputError, LedgerLost, LedgerMissing, TryAgain, VerificationFailed
from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.by_hand import plan_to_verify
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.executors import handover_for
from airflow_mirror.jobs.driver.prepare import CopyJob, frozen_starts, prepare, resolve_window, window_book
from airflow_mirror.jobs.driver.session import spark_context
from airflow_mirror.jobs.driver.stable import say
from airflow_mirror.jobs.request import VerifyRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.configs import cleaned_sides, held_topics
from airflow_mirror.plan.owned import active_topics, target_ids
from airflow_mirror.plan.requirements import require_planned_clusters
from airflow_mirror.sync.maps import MapSource, OffsetMaps, map_source
from airflow_mirror.verify.pairs import paired
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.proof import Proofs, standing
from airflow_mirror.verify.referee import Place, SpotCheck, Stretch, require_clients, second_look, spot_check
from airflow_mirror.verify.result import Difference, PartitionComparison, PartitionPair, differences, untouched
from airflow_mirror.verify.spark import run_verify
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wording import count, some

log = logging.getLogger(__name__)

_FEW, _FEW_PARTITIONS = 20_000, 500  # offsets: they are compared while executors would still start
PATIENCE_S = 10.0  # for a tail, which is behind by what was written a moment ago

DESCRIPTION = f"""Prove that two Kafka clusters hold the same records at the same offsets.

Without --end, each partition is compared up to the target's log end offset at the start, so a tail may run meanwhile. At
level offsets it has to have reached the source's end of the start within {PATIENCE_S:.0f} s."""


def main(argv: Sequence[str]) -> int:
    """Run the job; see the module docstring for exit status and output."""
    return entry.run(cli.parser("verify.py", DESCRIPTION, VerifyRequest), argv, VerifyRequest, work)


class Comparing(NamedTuple):
    """Who compares.

    :ivar tasks: how many lists of partitions are compared best. :ivar compare: compares the pairs of each list, mapped
        ones by their offset maps, as records were copied with an isolation; returns every partition's verdict.
    """

    tasks: int
    compare: Callable[[Sequence[Sequence[PartitionPair]], MapSource | None, str], list[PartitionComparison]]


def work(request: VerifyRequest, status: StatusFile) -> Outcome:
    """Compare on Spark; see :func:`verify`."""
    return verify(request, status, partial(_on_spark, request, status))


@contextmanager
def _on_spark(request: VerifyRequest, status: StatusFile) -> Iterator[Comparing]:
    status.update("starting Spark")
    with spark_context(f"airflow-mirror verify {request.mirror.name}") as context:
        status.update("comparing")
        handed = handover_for(context, request.settings_from, request.source, request.target)

        def compare(
            dealt: Sequence[Sequence[PartitionPair]], maps: MapSource | None, isolation: str
        ) -> list[PartitionComparison]:
            sides = request.source, request.target
            return run_verify(context, dealt, *sides, request.level, handed, maps, isolation)

        yield Comparing(request.tasks or context.defaultParallelism, compare)


def _here(request: VerifyRequest) -> Comparing:
    def compare(
        dealt: Sequence[Sequence[PartitionPair]], maps: MapSource | None, isolation: str
    ) -> list[PartitionComparison]:
        pairs = [pair for part in dealt for pair in part]
        sides = load(request.source, "source"), load(request.target, "target")
        return compare_partitions(pairs, *sides, request.level, maps=maps, isolation=isolation)

    return Comparing(1, compare)


def verify(
    request: VerifyRequest, status: StatusFile,
    comparing: Callable[[], AbstractContextManager[Comparing]],
) -> Outcome:  # fmt: skip
    """Compare every partition of a plan; return the summary, and why it is not equal if it is not.

    :raises InputError: the clusters are not the plan's, or not any more.
    """
    mirror = request.mirror
    if mirror.partitioning == "by_key":
        raise InputError(
            f"mirror {mirror.name!r}: partitions can't be compared one to one",
            "partitioning='by_key' splits the records of a partition to several",
            "Compare counts, or copy with partitioning='preserve'.",
        )
    if _asks_another(request):
        require_clients(load(request.source, "source"), load(request.target, "target"))
    job = prepare(request, plan_to_verify, writes=False)
    outcome = _compared(request, status, job, comparing)
    # Each reader has connected for itself meanwhile, the referee as well, and a name may have led elsewhere since.
    with (
        ClusterAdmin(load(request.source, "source")) as here,
        ClusterAdmin(load(request.target, "target")) as there,
    ):
        require_planned_clusters(job.plan, here, there)
    return outcome


def _asks_another(request: VerifyRequest) -> bool:
    return bool(request.level != "offsets" and request.spot_checks)


def _compared(
    request: VerifyRequest, status: StatusFile, job: CopyJob,
    comparing: Callable[[], AbstractContextManager[Comparing]],
) -> Outcome:  # fmt: skip
    begun, mirror, asks_another = time.monotonic(), request.mirror, _asks_another(request)
    with WireCluster(load(request.source, "source")) as source, window_book(request) as book:
        until = request.end or "latest"
        ranges, window, held_back = resolve_window(job, source, mirror.start, until, request.late_s, book)
    behind = {one.source: str(one) for one in say(request.source, held_back)}
    # From the plan's start: records that retention has deleted since are not a gap in a proof; nobody can compare them.
    starts = {r.source: r.start_offset for r in ranges} | ({} if window else frozen_starts(job.plan, mirror.start))
    ends: Mapping[TopicPartition, int] = {r.source: r.end_offset or 0 for r in ranges}
    if not request.end:
        ends = _ends_of_now(request, job, ranges)
    begins = starts
    with ClusterAdmin(load(request.target, "target")) as admin:
        ids = target_ids(job.plan, admin)
        ours = set[str]()
        # A ledger that is lost says nothing of whose a topic is; by hand none need be there.
        with suppress(LedgerMissing, *(() if request.plan else (LedgerLost,))):
            ours = active_topics(Ledger(admin), job.plan, admin)
        configs = admin.topic_configs(ids)
        if request.only_new:
            proofs = Proofs.on(admin, mirror.name)
            proven = standing(proofs.ends(job.plan, ids, request.level), job.plan, configs)
            starts, ends = only_new(starts, ends, proven)
    held, cleaned = held_topics(job.plan, configs), cleaned_sides(job.plan, configs)
    # What is new since the last comparison is little, mostly, and a fence or a person waits for it.
    new = sum(max(0, ends[r.source] - starts[r.source]) for r in ranges)
    few = request.only_new and new <= _FEW and len(ranges) <= _FEW_PARTITIONS
    if few:
        log.info("%s: compared by the driver itself", count(new, "new offset"))
    with nullcontext(_here(request)) if few else comparing() as (tasks, compare):
        pair = paired(job.plan, held, cleaned)
        pairs = [
            [pair(r.source, begins[r.source], starts[r.source], ends[r.source]) for r in part]
            for part in deal(ranges, tasks, ends)
        ]
        compared = compare(pairs, map_source(job.plan), mirror.isolation)
    verdicts = sorted(compared, key=lambda v: (v.source_topic, v.partition))
    summary = _summary(verdicts, request.level, time.monotonic() - begun) | window
    beyond = list[str]()
    if ours:
        with WireCluster(load(request.source, "source")) as source, WireCluster(load(request.target, "target")) as target:
            beyond = longer(ranges, source, target, ours)
    summary["differences"] += beyond
    summary |= {"proven": _proven(verdicts, starts), "target_topic_ids": ids}
    summary |= {"mirror": mirror.name, "plan": job.plan.hash, "revision": job.plan.revision}
    summary |= {"open_transactions": list(behind.values())} if behind else {}
    if summary["differences"]:
        if asks_another:
            status.update("reading what differs with another client")
            summary["differences"] = [*_looked_at_again(verdicts, request, mirror.isolation), *beyond]
        return summary, VerificationFailed(summary["differences"])
    if asks_another:
        status.update("reading records sampled at random")
        mapped = {r.source_topic for r in ranges if r.is_mapped}
        kept = held - {name for name, sides in cleaned.items() if "target" in sides}
        checked = _spot_check(verdicts, request, mirror.isolation, mapped, kept)
        summary["spot_check"] = checked.to_dict()
        if (wrong := against(checked)) is not None:
            return summary, wrong
    nothing = _nothing_compared(verdicts, request, {r.source: r.end_offset or 0 for r in ranges}, job, behind)
    if not nothing:
        return summary, None
    remedy = "Run the copy first, or verify again when records have reached the target; check --start and --end."
    return summary, TryAgain("nothing was compared, so nothing is proven", nothing, remedy)


def _spot_check(
    verdicts: Sequence[PartitionComparison], request: VerifyRequest, isolation: str, mapped: Collection[str],
    kept: Collection[str],
) -> SpotCheck:  # fmt: skip
    """Let a client that is not ours read some of the records that were found equal, where both sides have the offsets.

    :param mapped: source topics whose offsets are mapped. :param kept: target topics of which no broker takes records.
    """
    stretches = [
        Stretch(
            source=v.source, target=v.target, start=v.start_offset, end=v.end_offset, may_lack=v.target_topic not in kept
        )
        for v in verdicts
        if v.source_topic not in mapped
    ]
    clusters = load(request.source, "source"), load(request.target, "target")
    seed = secrets.randbits(32) if request.seed is None else request.seed
    checked = spot_check(stretches, *clusters, places=request.spot_checks, seed=seed, isolation=isolation)
    if mapped:
        checked.left_out.append(f"topics with mapped offsets: {some(sorted(mapped))}")
    for line in checked.left_out:
        log.warning("spot check: left out: %s", line)
    return checked


def against(checked: SpotCheck) -> VerificationFailed | TryAgain | None:
    """Return why a comparison that has found no difference fails all the same; None: it does not."""
    if checked.differences:
        return VerificationFailed(checked.differences)
    if not checked.failed:
        return None
    what = "the comparison found no difference, but its spot check fell out"
    remedy = "Correct that and compare again, or do without (--spot-checks 0, spot_checks=0)."
    return TryAgain(what, checked.failed, remedy)


def _looked_at_again(
    verdicts: Sequence[PartitionComparison], request: VerifyRequest, isolation: str
) -> list[str]:  # fmt: skip
    """Return a line for each partition that differs, with what a client that is not ours finds at that offset."""
    differing = [v for v in verdicts if not v.equal]
    places = [_place_of(v, v.first_difference) for v in differing if v.first_difference is not None]
    clusters = load(request.source, "source"), load(request.target, "target")
    seen = second_look(places, *clusters, isolation=isolation)
    found = {one.source: f"; {what}" for one, what in zip(places, seen, strict=True)}
    return [f"{v}{found.get(v.source, '')}" for v in differing]


def _place_of(verdict: PartitionComparison, at: Difference) -> Place:
    return Place(
        source=verdict.source, source_offset=at.offset, target=verdict.target,
        target_offset=at.offset if at.target_offset is None else at.target_offset, corrupt=at.kind == "corrupt",
    )  # fmt: skip


def only_new(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], proven: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the bounds of what is not proven yet, by partition; nothing is left of one that is proven up to its end.

    :param proven: source offsets up to which everything from the plan's start on is proven. What is compared from there
        on is adjacent to it, and the proofs become one.
    """
    begins = {tp: max(start, proven.get(tp, start)) for tp, start in starts.items()}
    return begins, {tp: max(end, begins[tp]) for tp, end in ends.items()}


def _nothing_compared(
    verdicts: Sequence[PartitionComparison], request: VerifyRequest, ends: Mapping[TopicPartition, int],
    job: CopyJob, behind: Mapping[TopicPartition, str],
) -> list[str]:  # fmt: skip
    """Return a line for each partition that must not pass as equal; log those that pass although nothing was compared.

    :param ends: the source's log end offsets at the start, or the window's ends.
    :param behind: what an open transaction hides, as people read it.
    """
    expected = ends
    # What came since a proof a tail may copy at this moment: a cutover compares it. A window's end is asked for, and so
    # judged by the bounds.
    if request.end or request.only_new:
        planned = {TopicPartition(t.source_topic, p): end for t in job.plan.topics for p, end in t.ends.items()}
        expected = {tp: min(end, ends[tp]) for tp, end in planned.items() if tp in ends}
    lines = [line for v in verdicts if (line := untouched(v, expected))]
    unseen = [v for v in verdicts if (v.start_offset >= v.end_offset if request.level == "offsets" else not v.records)]
    lines += [behind[v.source] for v in unseen if v.source in behind]
    if lines or request.level == "offsets" or any(v.records for v in verdicts):
        return lines
    if request.plan or request.only_new or all(v.source_log.start == v.source_log.stable for v in verdicts):
        log.warning("nothing to compare: the source holds no record in the plan's ranges, or no new one")
        return []
    return [f"0 records in {len(verdicts)} partition(s) from --start {job.mirror.start}"]


def _ends_of_now(request: VerifyRequest, job: CopyJob, ranges: Sequence[CopyRange]) -> Mapping[TopicPartition, int]:
    source, target = load(request.source, "source"), load(request.target, "target")
    with WireCluster(target) as cluster, OffsetMaps(job.plan, source, target) as maps:
        if request.level == "offsets":
            return awaited(ranges, cluster, maps)
        return reached(ranges, cluster, maps) if request.only_new else begun(ranges, cluster, maps)


def reached(ranges: Sequence[CopyRange], target: WireCluster, maps: OffsetMaps | None) -> dict[TopicPartition, int]:
    """Return, for each source partition, the source offset that the target has reached, at most the source's end."""
    stable = target.last_stable([r.target for r in ranges if not r.is_mapped])
    by_map = maps.positions() if maps else {}
    there = {r.source: by_map.get(r.source, r.start_offset) if r.is_mapped else stable[r.target] for r in ranges}
    return {r.source: min(there[r.source], r.end_offset or 0) for r in ranges}


def begun(
    ranges: Sequence[CopyRange], target: WireCluster, maps: OffsetMaps | None, patience_s: float = PATIENCE_S
) -> dict[TopicPartition, int]:
    """Return what the target has :func:`reached` once it has something of each partition, or ``patience_s`` later.

    One whose first records a tail copies at this moment would pass for one that nobody copies.
    """

    def is_begun(ends: Mapping[TopicPartition, int]) -> bool:
        return not any(ends[r.source] <= r.start_offset < (r.end_offset or 0) for r in ranges)

    return _reached_once(is_begun, ranges, target, maps, patience_s)


def awaited(
    ranges: Sequence[CopyRange], target: WireCluster, maps: OffsetMaps | None, patience_s: float = PATIENCE_S
) -> dict[TopicPartition, int]:
    """Return the source's ends once the target has reached them, or ``patience_s`` later.

    For a comparison that reads no record: up to where the target ends, it would compare the target with itself.
    """
    ends = {r.source: r.end_offset or 0 for r in ranges}
    _reached_once(ends.__eq__, ranges, target, maps, patience_s)
    return ends


def _reached_once(
    is_enough: Callable[[Mapping[TopicPartition, int]], bool], ranges: Sequence[CopyRange], target: WireCluster,
    maps: OffsetMaps | None, patience_s: float,
) -> dict[TopicPartition, int]:  # fmt: skip
    until = time.monotonic() + patience_s
    while not is_enough(ends := reached(ranges, target, maps)) and time.monotonic() < until:
        time.sleep(min(1.0, patience_s))
    return ends


def longer(ranges: Sequence[CopyRange], source: WireCluster, target: WireCluster, ours: Collection[str]) -> list[str]:
    """Return a line for each partition of which the target has more than the source: up to the source's end, which is
    all that is compared, both may be equal all the same.

    :param ours: target topics to which nobody but the mirror may write. Those with mapped offsets are left out.
    """
    routes = {r.source: r.target for r in ranges if not r.is_mapped and r.target_topic in ours}
    there = target.last_stable(list(routes.values()))
    here = source.log_ends(routes)  # last: a copy that runs is never ahead of it
    return [
        f"{tp}: the target's log ends at {there[on_target]:,}, the source's at {here[tp]:,}: somebody else has written "
        "to the target, or the source has lost records, or its topic was created again"
        for tp, on_target in sorted(routes.items())
        if there[on_target] > here[tp]
    ]


def _summary(verdicts: Sequence[PartitionComparison], level: str, seconds: float) -> dict[str, Any]:
    return {
        "level": level,
        "partitions": len(verdicts),
        "empty_partitions": sum(v.records == 0 for v in verdicts) if level != "offsets" else None,
        "records": sum(v.records for v in verdicts),
        "expired": sum(v.expired for v in verdicts),
        "cleaned": sum(v.cleaned for v in verdicts),
        "unseen": sum(v.unseen for v in verdicts),
        "bytes": sum(v.bytes for v in verdicts),
        "seconds": round(seconds, 3),
        # Named by the source topic: the cutover reads this, and counts in source offsets.
        "end_offsets": {str(v.source): v.end_offset for v in verdicts},
        "differences": differences(verdicts),
    }


def _proven(
    verdicts: Sequence[PartitionComparison], starts: Mapping[TopicPartition, int]
) -> list[tuple[str, int, int, int]]:
    """Return (source topic, partition, start, end) of verified ranges; without compared records nothing is proven."""
    # From what was asked for: what the source's retention took nobody can compare. What only the target lacks is a gap,
    # behind which a cutover begins anew.
    return [
        (v.source_topic, v.partition, v.start_offset if v.unseen else starts[v.source], v.end_offset)
        for v in verdicts
        if v.equal and v.records
    ]
