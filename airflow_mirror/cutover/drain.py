"""Wait until the target holds everything up to the fenced ends, then compare it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from airflow_mirror.common.chart import Fold
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.quiet import still_quiet
from airflow_mirror.cutover.report import RUNNING
from airflow_mirror.cutover.request import Offsets
from airflow_mirror.cutover.schema_ids import BehindTheFence
from airflow_mirror.errors import DrainTimedOut, SchemasDiffer, TargetMoved, VerificationFailed
from airflow_mirror.jobs.runner.wishes import require_not_paused
from airflow_mirror.verify.result import PartitionComparison, differences
from airflow_mirror.wording import count

_LOOK_AT_SOURCE_EVERY_S = 2.0


def drain(attempt: Attempt) -> dict[str, Any]:
    """Wait until consumers of the target can read every record below the fenced ends.

    :raises DrainTimedOut: names the partitions that are behind, and their lag.
    :raises TargetMoved: a target partition goes beyond its fenced end: somebody else wrote there.
    :raises FenceLeaks: the source was written to meanwhile.
    :raises MirrorPaused: somebody has paused the tail meanwhile; the rest would not come.
    """
    ends = attempt.ends
    started = looked = attempt.now()
    timeout_s = attempt.at_most(attempt.limits.drain_timeout_s)
    lag_at_start: int | None = None
    level_s: dict[str, float] = {}
    while True:
        try:
            reached = positions(attempt, ends)
            behind = lags(ends, reached)
        except TargetMoved:
            still_quiet(attempt)  # the tail has copied what got through the fence
            raise
        attempt.report.saw_lag(behind, reached)
        level_s |= dict.fromkeys(behind, round(attempt.now() - started, 1))  # until the next look, at least
        lag_at_start = sum(behind.values()) if lag_at_start is None else lag_at_start
        # What consumers can read, not what the log has: an open transaction on the target would hide the rest from
        # them.
        if not behind:
            attempt.report.drained = asdict(Fold.of(level_s.items())) if level_s else {}
            return {"lag_at_start": lag_at_start}
        # The tail may have died behind the fence: it is not asked for its signs here, since what it says counts less
        # than what arrives.
        if attempt.now() - started >= timeout_s:
            raise DrainTimedOut(timeout_s, behind)
        # A fence that somebody takes down meanwhile is found within seconds, not when all is copied.
        if attempt.now() - looked > _LOOK_AT_SOURCE_EVERY_S:
            still_quiet(attempt)
            # A person may pause the tail in this very second: the rest would not come, and waiting for it keeps
            # producers out.
            require_going(attempt)
            looked = attempt.now()
        attempt.waits_for = (
            f"the tail, {count(sum(behind.values()), 'offset')} behind in {count(len(behind), 'partition')}"
        )
        attempt.pause()


def require_going(attempt: Attempt) -> None:
    """Raise :class:`MirrorPaused` if somebody wishes that the tail copies nothing."""
    require_not_paused(attempt.tail_state, attempt.mirror.name)


def positions(attempt: Attempt, ends: Offsets | None = None) -> Offsets:
    """Return the source offset up to which the target holds everything, by source partition.

    With identical offsets this is the target's last stable offset: consumers can't read beyond it yet.

    :param ends: the source's fenced ends; None while it is not fenced.
    :raises TargetMoved: a target log goes beyond its fenced end.
    """
    routes = attempt.routes
    identical = {t.source_topic for t in attempt.plan.topics if t.mode == "identical"}
    stable = attempt.target_log.last_stable([target for source, target in routes.items() if source.topic in identical])
    found: dict[TopicPartition, int] = {}
    all_identical = len(identical) == len(attempt.plan.topics)
    mapped = {} if all_identical or attempt.clusters.tail_positions is None else attempt.clusters.tail_positions()
    for source, target in routes.items():
        if source.topic not in identical:
            # By what the copy has stored of its map: behind its data, so never further than these.
            found[source] = mapped.get(source, 0)
            continue
        found[source] = stable[target]
        # Nobody but the mirror writes there, and it can't have more than the source: opened so, groups would read what
        # never was.
        if ends is not None and stable[target] > ends[source]:
            raise TargetMoved(
                target.topic, target.partition, ends[source], stable[target],
                f"the target's log ends at {stable[target]}, the source's at {ends[source]}",
                "Somebody else writes to the target: find and stop them, then compare before you try again.",
            )  # fmt: skip
    return found


def lags(ends: Offsets, reached: Offsets) -> dict[str, int]:
    """Return each partition's lag in offsets, by name; partitions without lag are omitted."""
    return {str(tp): end - reached[tp] for tp, end in ends.items() if reached[tp] < end}


def verify(attempt: Attempt) -> dict[str, Any]:
    """Compare what was not compared before the fence, and watch the source meanwhile.

    :raises VerificationFailed: lists the first difference of every partition.
    :raises FenceLeaks: the source was written to meanwhile.
    """
    comparisons = compare_watched(attempt, attempt.ends)
    # In the report and nowhere else: no later attempt leaves anything out of its comparison because of this one, whose
    # fence may have been down in between.
    attempt.report.verification = [c.to_dict() for c in comparisons]
    if found := differences(comparisons):
        raise VerificationFailed(found)
    return {"partitions": len(comparisons), "records": sum(c.records for c in comparisons), **prove_last_schemas(attempt)}


def prove_last_schemas(attempt: Attempt) -> dict[str, Any]:
    """Prove the schema ids of what came behind the look before the fence: no tail brings a schema any more.

    With ``sync_schemas`` what is missing is registered now, each change by this attempt's permit.

    :raises SchemasDiffer: consumers on the target could not read the last records.
    """
    if attempt.clusters.schemas is None or attempt.schemas is None:
        return {}

    @contextmanager
    def granted() -> Iterator[None]:
        attempt.permit()
        yield

    attempt.waits_for = "the schema registries"
    found = attempt.clusters.schemas(
        BehindTheFence(
            first=attempt.schemas, going=attempt.check_stop, granted=granted if attempt.mirror.sync_schemas else None
        )
    )  # fmt: skip
    if found.lines:
        raise SchemasDiffer(found.lines)
    known = {(row["topic"], row["part"], row["id"]) for row in attempt.report.schemas}
    attempt.report.schemas += [asdict(row) for row in found.rows if (row.topic, row.part, row.id) not in known]
    return {"schema_ids": len(attempt.report.schemas)}


def compare_watched(attempt: Attempt, ends: Offsets) -> Sequence[PartitionComparison]:
    """Compare up to ``ends`` in a thread: it may take minutes, and a request to stop must be noticed within ``poll_s``.

    An abandoned thread only reads, and ends with the process.
    """
    looked, attempt.waits_for = attempt.now(), "the comparison of what was not compared before"

    def meanwhile() -> None:
        nonlocal looked
        attempt.say()
        attempt.check_stop()
        # Behind a finished cutover the source may be written to again: then nothing is watched.
        if attempt.report.outcome == RUNNING and attempt.ends and attempt.now() - looked > _LOOK_AT_SOURCE_EVERY_S:
            still_quiet(attempt)
            looked = attempt.now()

    return attempt.on.beside(lambda: attempt.clusters.verify(ends), meanwhile, attempt.limits.poll_s)
