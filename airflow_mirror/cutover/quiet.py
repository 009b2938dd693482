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


def longest_pause(run: Attempt) -> float:
    """Watch the source for ``quiet_at_most_s`` before it is fenced; return the longest pause between two writes, in s.

    A producer that writes to a partition every seven seconds looks fenced for seven seconds.
    """
    started, longest = run.now(), 0.0
    last: dict[TopicPartition, float] = {}
    ends: Offsets = {}
    # Before the fence, when it costs nobody anything: behind it a slow producer could not be told from one that is kept
    # out.
    while run.now() - started < run.limits.quiet_at_most_s:
        now, latest = run.now(), run.source_log.log_ends(run.routes)
        for tp in [tp for tp in ends if latest[tp] != ends[tp]]:
            longest = max(longest, now - last.get(tp, now))
            last[tp] = now
        ends = latest
        if not run.short_lease.is_seen:  # beside it, since the sooner that is known, the sooner the fence may go up
            run.short_lease.look()
        run.pause()
    return longest


def quiet_s(run: Attempt) -> float:
    """Return for how many seconds the source's ends must stand still behind the fence."""
    return max(run.limits.quiet_s, run.longest_pause_s + run.limits.poll_s if run.longest_pause_s else 0.0)


def prove_fence(run: Attempt) -> dict[str, Any]:
    """Prove the fence (:func:`prove_ends`), and look whether it is about all that is there by now.

    What is fenced is what was planned. Somebody may have added topics or partitions since that was looked at: nobody can
    write to them any more, but somebody may have, and nobody copies that.

    :raises PlanOutdated: somebody has. Other errors as :func:`prove_ends`.
    """
    evidence = prove_ends(run)
    # Looked at behind the fence: what was there before its first rule is seen now, and what comes later nobody can have
    # written to. The decision to open pins the plan's revision for what joins behind this.
    if changed := drift(run):
        raise PlanOutdated(changed)
    return evidence


def prove_ends(run: Attempt) -> dict[str, Any]:
    """Wait until the brokers prove the fence and no transaction is open. Stores the ends in the report.

    The ends have to stand still as well (:func:`stand_still`). That is waited for while the tail's writing ends, except
    where transactions may be open unseen: a marker that comes after the tail's end would be missing on the target.

    :raises FenceUnproven: a broker does not act on the fence.
    :raises FenceLeaks: data were written in spite of the fence.
    :raises TransactionsOpen: open transactions did not end in time.
    """
    assert run.report.fence is not None
    unseen = run.report.fence.unseen
    still_s = quiet_s(run) if unseen else 0.0
    run.waits_for = "brokers to hear of the fence"
    # For produce requests that were authorised before brokers heard of the fence: they end up below the ends that are
    # read next, or move them, which is seen.
    run.pause(run.limits.settle_s)
    # The proof before the ends: read before it, a record that a lagging broker let in would come behind the proven end.
    proof = prove(run)
    tps = list(run.routes)
    ends = run.source_log.log_ends(tps)
    started = run.quiet_since = run.now()
    timeout_s = run.at_most(run.limits.transactions_timeout_s)
    markers = 0
    waited: dict[str, None] = {}
    while True:
        held = holders(run)  # before the ends are read: the markers of what is over are below them
        waited |= dict.fromkeys(held)
        latest = run.source_log.log_ends(tps)
        moved = moves(ends, latest)
        if moved:
            # A marker may come, and moves the end; a record may not.
            raise_if_written(run, ends, latest)
            markers += sum(after - before for before, after in moved.values())
            ends = latest
        still_open = moves(run.source_log.last_stable(tps), ends)
        if moved or still_open or held:
            run.quiet_since = run.now()
        elif run.now() - run.quiet_since >= still_s:
            break
        # Its marker, and what that decides about its records, would come behind the proven end, when nobody copies any
        # more.
        if (still_open or held) and run.quiet_since - started >= timeout_s:
            raise TransactionsOpen(timeout_s, still_open, held)
        run.waits_for = f"transactions to end: {some(held)}" if held else _standing(still_s)
        run.pause()
    # The cut. Saved by the step's end, before anything rests on it; a process that dies before that has drained nothing
    # yet.
    run.report.ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in sorted(ends.items())]
    return {
        "proof": proof, "partitions": len(ends), "markers_after_fence": markers, "transactions_waited_for": list(waited),
        "no_identical_way_back": unseen,
    }  # fmt: skip


def stand_still(run: Attempt) -> dict[str, Any]:
    """Wait until no log end offset has moved for ``quiet_s``, and for the longest pause between two writes before.

    :raises FenceLeaks: data were written in spite of the fence.
    :raises FenceGone: somebody removed the fence meanwhile.
    """
    assert run.report.fence is not None
    still_s = quiet_s(run)
    # Since when they stand still is known to this process alone: a retry counts from the beginning, since writers may
    # be back.
    while run.now() - run.quiet_since < still_s:
        run.waits_for = _standing(still_s)
        run.pause()
        still_quiet(run)
    if not run.fence.is_up(run.intent):
        raise FenceGone(run.source.role)
    return {"quiet_s": still_s}


def _standing(still_s: float) -> str:
    return f"the source's ends to stand still for {still_s:.0f} s"


def still_quiet(run: Attempt) -> None:
    """Raise :class:`FenceLeaks` if the source was written to since the fence was proven.

    The proof holds for one moment only; each step that relies on it checks again.
    """
    ends = run.ends
    # Against the proven ends, not the last look: what was written while this process was frozen is seen all the same,
    # whenever it thaws.
    raise_if_written(run, ends, run.source_log.log_ends(ends))


def raise_if_written(run: Attempt, before: Offsets, after: Offsets) -> None:
    """Raise :class:`FenceLeaks` if a log end offset moved back, or forward by anything but transaction markers."""
    if found := changed_between(run.source_log, before, after):
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
