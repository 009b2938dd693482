"""Trust a fence only if the source's log end offsets stop moving, and watch them until the end.

Log end offsets rather than high watermarks: a record that is appended but not yet replicated was written all the same.
Markers of transactions that were open at the fence may still arrive and are not a leak; any other record is.
"""

from __future__ import annotations

from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.drift import drift
from airflow_mirror.cutover.open_transactions import holders
from airflow_mirror.cutover.proof import prove
from airflow_mirror.cutover.request import Offsets
from airflow_mirror.errors import FenceGone, FenceLeaks, PlanOutdated, TransactionsOpen
from airflow_mirror.verify.partition import data_batches
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wording import some


def longest_pause(attempt: Attempt) -> float:
    """Watch the source for ``quiet_at_most_s`` before it is fenced; return the longest pause between two writes, in s.

    A producer that writes to a partition every seven seconds looks fenced for seven seconds.
    """
    started, longest = attempt.now(), 0.0
    last: dict[TopicPartition, float] = {}
    ends: Offsets = {}
    # Before the fence, when it costs nobody anything: behind it a slow producer could not be told from one that is kept
    # out.
    while attempt.now() - started < attempt.limits.quiet_at_most_s:
        now, latest = attempt.now(), attempt.source_log.log_ends(attempt.routes)
        for tp in [tp for tp in ends if latest[tp] != ends[tp]]:
            longest = max(longest, now - last.get(tp, now))
            last[tp] = now
        ends = latest
        if not attempt.short_lease.is_seen:  # beside it, since the sooner that is known, the sooner the fence may go up
            attempt.short_lease.look()
        attempt.pause()
    return longest


def quiet_s(attempt: Attempt) -> float:
    """Return for how many seconds the source's ends must stand still behind the fence."""
    return max(
        attempt.limits.quiet_s, attempt.longest_pause_s + attempt.limits.poll_s if attempt.longest_pause_s else 0.0
    )


def prove_fence(attempt: Attempt) -> dict[str, Any]:
    """Prove the fence (:func:`prove_ends`), and look whether it is about all that is there by now.

    What is fenced is what was planned. Somebody may have added topics or partitions since that was looked at: nobody can
    write to them any more, but somebody may have, and nobody copies that.

    :raises PlanOutdated: somebody has. Other errors as :func:`prove_ends`.
    """
    evidence = prove_ends(attempt)
    # Looked at behind the fence: what was there before its first rule is seen now, and what comes later nobody can have
    # written to. The decision to open pins the plan's revision for what joins behind this.
    if changed := drift(attempt):
        raise PlanOutdated(changed)
    return evidence


def prove_ends(attempt: Attempt) -> dict[str, Any]:
    """Wait until the brokers prove the fence and no transaction is open. Stores the ends in the report.

    The ends have to stand still as well (:func:`stand_still`). That is waited for while the tail's writing ends, except
    where transactions may be open unseen: a marker that comes after the tail's end would be missing on the target.

    :raises FenceUnproven: a broker does not act on the fence.
    :raises FenceLeaks: data were written in spite of the fence.
    :raises TransactionsOpen: open transactions did not end in time.
    """
    assert attempt.report.fence is not None
    unseen = attempt.report.fence.unseen
    still_s = quiet_s(attempt) if unseen else 0.0
    attempt.waits_for = "brokers to hear of the fence"
    # For produce requests that were authorised before brokers heard of the fence: they end up below the ends that are
    # read next, or move them, which is seen.
    attempt.pause(attempt.limits.settle_s)
    # The proof before the ends: read before it, a record that a lagging broker let in would come behind the proven end.
    proof = prove(attempt)
    tps = list(attempt.routes)
    ends = attempt.source_log.log_ends(tps)
    started = attempt.quiet_since = attempt.now()
    timeout_s = attempt.at_most(attempt.limits.transactions_timeout_s)
    markers = 0
    waited: dict[str, None] = {}
    while True:
        held = holders(attempt)  # before the ends are read: the markers of what is over are below them
        waited |= dict.fromkeys(held)
        latest = attempt.source_log.log_ends(tps)
        moved = moves(ends, latest)
        if moved:
            # A marker may come, and moves the end; a record may not.
            raise_if_written(attempt, ends, latest)
            markers += sum(after - before for before, after in moved.values())
            ends = latest
        still_open = moves(attempt.source_log.last_stable(tps), ends)
        if moved or still_open or held:
            attempt.quiet_since = attempt.now()
        elif attempt.now() - attempt.quiet_since >= still_s:
            break
        # Its marker, and what that decides about its records, would come behind the proven end, when nobody copies any
        # more.
        if (still_open or held) and attempt.quiet_since - started >= timeout_s:
            raise TransactionsOpen(timeout_s, still_open, held)
        attempt.waits_for = f"transactions to end: {some(held)}" if held else _standing(still_s)
        attempt.pause()
    # The cut. Saved by the step's end, before anything rests on it; a process that dies before that has drained nothing
    # yet.
    attempt.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in sorted(ends.items())]
    return {
        "proof": proof, "partitions": len(ends), "markers_after_fence": markers, "transactions_waited_for": list(waited),
        "no_identical_way_back": unseen,
    }  # fmt: skip


def stand_still(attempt: Attempt) -> dict[str, Any]:
    """Wait until no log end offset has moved for ``quiet_s``, and for the longest pause between two writes before.

    :raises FenceLeaks: data were written in spite of the fence.
    :raises FenceGone: somebody removed the fence meanwhile.
    """
    assert attempt.report.fence is not None
    still_s = quiet_s(attempt)
    # Since when they stand still is known to this process alone: a retry counts from the beginning, since writers may
    # be back.
    while attempt.now() - attempt.quiet_since < still_s:
        attempt.waits_for = _standing(still_s)
        attempt.pause()
        still_quiet(attempt)
    if not attempt.fence.is_up(attempt.intent):
        raise FenceGone(attempt.source.role)
    return {"quiet_s": still_s}


def _standing(still_s: float) -> str:
    return f"the source's ends to stand still for {still_s:.0f} s"


def still_quiet(attempt: Attempt) -> None:
    """Raise :class:`FenceLeaks` if the source was written to since the fence was proven.

    The proof holds for one moment only; each step that relies on it checks again.
    """
    ends = attempt.ends
    # Against the proven ends, not the last look: what was written while this process was frozen is seen all the same,
    # whenever it thaws.
    raise_if_written(attempt, ends, attempt.source_log.log_ends(ends))


def raise_if_written(attempt: Attempt, before: Offsets, after: Offsets) -> None:
    """Raise :class:`FenceLeaks` if a log end offset moved back, or forward by anything but transaction markers."""
    if found := changed_between(attempt.source_log, before, after):
        leaks = {str(tp): (before[tp], after[tp]) for tp in found}
        raise FenceLeaks(leaks, [line for lines in found.values() for line in lines])


def changed_between(log: WireCluster, before: Offsets, after: Offsets) -> dict[TopicPartition, list[str]]:
    """Return the partitions that took data between two looks at their ends, with its writers, or that lost some.

    The marker of a transaction is no data: one that had registered a partition ends minutes later, whatever the fence.
    """
    found = {}
    for tp, old in before.items():
        new = after[tp]
        written = written_by(log, tp, old, new) if new > old else []
        # Back: an election of an unclean leader. What was drained and compared is not what the source has any more.
        if new < old or written:
            found[tp] = written
    return found


def written_by(log: WireCluster, tp: TopicPartition, start: int, end: int) -> list[str]:
    """Return a line for each producer that wrote data to [start, end), by its batches' headers; none for markers."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for raw in data_batches(log, tp, start, end, committed=False):
        producer = (-1, -1) if raw.header is None else (raw.header.producer_id, raw.header.producer_epoch)
        first, _ = found.get(producer, (max(raw.first_offset, start), end))
        found[producer] = first, min(raw.next_offset, end) - 1
    return [
        f"{f'producer {number} (epoch {epoch})' if number >= 0 else 'a producer without an id'} wrote from offset "
        f"{first} to {last} of {tp}"
        for (number, epoch), (first, last) in found.items()
    ]


def moves(before: Offsets, after: Offsets) -> dict[str, tuple[int, int]]:
    """Return (before, after) for each partition where they differ, by name."""
    return {str(tp): (before[tp], after[tp]) for tp in before if before[tp] != after[tp]}
