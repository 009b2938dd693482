"""End the mirror's own writing before the target opens, and prove that the target got nothing after the drain.

Once applications write to the target, a record that the tail still copied would land among theirs. So the cutover takes
the writer lease itself, once the target holds everything up to the proven ends, and never gives it back. Every task of
the tail, on any machine, stops when it can no longer confirm the lease, at the latest after the wait that the lease
states. Meanwhile the source stands still, the rest is compared, and the groups are committed (ADR 56). These are looked
at again after it, because the tail's driver lets groups follow. Only then are the ends of both sides read for the last
time. A tail that is started again takes the lease in turn. The next confirmation here detects that, and such a tail may
write only after a wait that is longer than the rest of the cutover.

A lease that was taken can't be handed back: after backing out, the tail has to be started again.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.drain import lags, positions, require_going
from airflow_mirror.cutover.groups import keep_groups, leave_checkpoints
from airflow_mirror.cutover.open_transactions import require_none_held
from airflow_mirror.cutover.proof import prove
from airflow_mirror.cutover.quiet import still_quiet
from airflow_mirror.errors import DrainTimedOut, FenceGone, JobNotRunning, LeaseLost, TargetMoved


def require_tail(attempt: Attempt) -> None:
    """Raise :class:`JobNotRunning` if the target has lag and no tail runs to copy the rest.

    Checked before the fence is raised, because otherwise the drain would wait in vain.

    :raises MirrorPaused: the tail runs, and rests.
    """
    require_going(attempt)
    reached = positions(
        attempt
    )  # the target first: read second, it would seem ahead of a source that is being written to
    behind = lags(attempt.source_log.last_stable(attempt.routes), reached)
    attempt.report.saw_lag(behind, reached)
    if not behind:
        return
    # A job that was killed holds the lease still: that it copies, the preview has looked at by its signs.
    if not attempt.on.target.is_anybody_writing(attempt.mirror.name):
        worst = sorted(behind.items(), key=lambda i: -i[1])[:5]
        shown = ", ".join(f"{tp} by {lag}" for tp, lag in worst)
        why = "No job holds the mirror's writer lease (a cutover that backs out takes it from the tail)"
        remedy = "start the tail (StartMirrorOperator), then cut over again"
        raise JobNotRunning("tail", "gone", f"{why}, and the target is behind ({shown}): {remedy}.")


def stop_writers(attempt: Attempt) -> dict[str, Any]:
    """Take the writer lease. Every task of the tail is then about to stop; `seal_target` waits for the last one.

    If the process dies before it has saved the lease, the lease itself says that no job holds it.

    :raises Fenced: another job takes the lease at the same moment.
    """
    # Never before the drain: whoever takes it ends the tail, and it can't be given back. Dies right behind it: the mark
    # says that writing was ended to every tail and status; backing out, or the guard, lifts the fence, and the tail is
    # started again.
    # Asked right before: a process that was frozen since the drain would end a tail that goes on, its fence being lifted,
    # or make the next attempt back out.
    attempt.permit()
    # Its answer is lost: it may be taken by a token that nobody has, and the report says that the tail may have lost it.
    attempt.lease = attempt.on.target.take_lease(attempt.mirror.name, to_end=True, short=attempt.short_lease.ripe)
    # From behind the answer, so never too early: tasks count from before their last confirmed request.
    attempt.sealed_at = attempt.now() + attempt.lease.wait_s
    # A process that was frozen takes it from whoever went on meanwhile: that one notices, and so does it.
    attempt.permit()
    attempt.report.lease = asdict(attempt.lease)
    # The report has it before anything rests on it. Who undoes this attempt tells by it that the tail has lost its
    # lease.
    attempt.save()
    return {"lease_epoch": attempt.lease.epoch, "wait_s": attempt.lease.wait_s}


def seal_target(attempt: Attempt) -> dict[str, Any]:
    """Wait until no job of the mirror can write any more, and check that the target is then at its fenced ends.

    :raises TargetMoved: a target partition is not at its fenced end.
    :raises DrainTimedOut: a partition has lag again.
    :raises FenceLeaks: the source was written to meanwhile.
    :raises LeaseLost: another job took the lease meanwhile.
    """
    assert attempt.lease is not None
    # First: what is looked at, or set again, below must be looked at behind the last request of whoever may still
    # write.
    waited_s = _wait_for_the_last_task(attempt)
    # The tail's driver sets positions under the same lease, up to the end of the wait.
    again = keep_groups(attempt)
    left = leave_checkpoints(attempt)
    # Before the target is looked at: what differs there is explained by a leak of the fence, if there is one.
    still_quiet(attempt)
    if behind := lags(attempt.ends, positions(attempt, attempt.ends)):
        raise DrainTimedOut(waited_s, behind)
    _require_target_ends(attempt)
    # Last: it says of all that was read above that no other job of the mirror has written since the wait.
    attempt.on.target.confirm_lease(attempt.lease)
    return {"waited_s": round(waited_s, 3), "positions_set_again": again, **left}


def take_lease(attempt: Attempt) -> None:
    """Take over the writer lease, and wait until the tasks of its previous holder must have stopped."""
    # Taken anew, whoever has taken it before: that one's token has died with it, and a tail may have been started since.
    stop_writers(attempt)
    _wait_for_the_last_task(attempt)


def _wait_for_the_last_task(attempt: Attempt) -> float:
    """Wait for the rest of the time in which an unseen task may still write; return the seconds waited."""
    started, attempt.waits_for = attempt.now(), "the tail's last task to stop"
    # A task that nobody can hear (a lost host, a Spark executor) is told by nobody; it stops by itself when it can no
    # longer confirm. A freeze of this process only makes the wait longer.
    while (left := attempt.sealed_at - attempt.now()) > 0:
        attempt.pause(left)
    return attempt.now() - started


def hold_lease(attempt: Attempt) -> None:
    """Make sure that no job of the mirror writes, before a fence is lifted while the target is open.

    Otherwise records that a tail copies from the open source would mix with those that applications write to the
    target.
    """
    if attempt.lease is not None:
        try:
            # Ours still: whoever takes it from now on waits seven seconds before it writes, and reads before that what
            # is decided.
            attempt.on.target.confirm_lease(attempt.lease)
            return
        except LeaseLost as e:
            attempt.log.warning("taking the writer lease again before the fence is lifted: %s", e)
    # A later process has no token, or another job has taken it: taken for good, and waited for, before the source is
    # open.
    take_lease(attempt)


def require_no_writer(attempt: Attempt) -> None:
    """Return if nothing was written on either side since ``seal_target`` and only we may write for the mirror.

    :raises FenceLeaks, FenceGone, FenceUnproven, TransactionsOpen: the source is no longer fenced, or not at rest.
    :raises TargetMoved: somebody wrote to the target.
    :raises LeaseLost: another job of the mirror took the lease.
    """
    assert attempt.lease is not None
    # The proof is of one moment, and minutes old by now. Frozen behind these looks: what can be decided meanwhile is
    # pinned (`steps.open_target`); rules that somebody deletes at the source meanwhile are not, and aftercare names
    # that.
    require_source_shut(attempt)
    _require_target_ends(attempt)
    # Last: a lease that is still ours proves that no task of the mirror wrote between the reading of the ends and now.
    attempt.on.target.confirm_lease(attempt.lease)


def require_source_shut(attempt: Attempt) -> None:
    """Return if the fence is up, proven once more, and the source was not written to since its ends were read.

    :raises FenceGone, FenceUnproven, FenceLeaks, TransactionsOpen: otherwise.
    """
    assert attempt.report.fence is not None
    if not attempt.fence.is_up(attempt.intent):
        raise FenceGone(attempt.source.role)
    # At each broker, and by the leaders' own answers: a list that the controller has says nothing about a broker that
    # lags.
    prove(attempt)
    require_none_held(attempt)
    # Behind the proof: what was written before a leader refused is below the ends that are read now.
    still_quiet(attempt)


def _require_target_ends(attempt: Attempt) -> None:
    """Compare log end offsets, which include records that are not yet replicated or belong to an open transaction.

    With mapped offsets a target topic may have its own writers; there only the lease excludes the mirror's.
    """
    identical = {t.source_topic for t in attempt.plan.topics if t.mode == "identical"}
    expected = {attempt.routes[source]: end for source, end in attempt.ends.items() if source.topic in identical}
    for tp, end in attempt.target_log.log_ends(expected).items():
        if end != expected[tp]:
            raise TargetMoved(
                tp.topic, tp.partition, expected[tp], end,
                f"the target's log ends at {end}, the source's at {expected[tp]}, and no job of the mirror writes now",
                "Somebody wrote to the target before it was opened: find and stop them, compare, and try again.",
            )  # fmt: skip
