"""The order of a cutover, in one tuple.

`walk` executes it: each step leads from one state to the next, and after any failure everything is undone
(:mod:`.lifting`). No state outlives an attempt, so a restart starts from the beginning: quiet writers are proven only
while the cutover watches them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow_mirror.cutover import decision
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.drain import drain, verify
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.groups import commit_groups
from airflow_mirror.cutover.groups_at_rest import read_ahead
from airflow_mirror.cutover.intent import fence_text
from airflow_mirror.cutover.open_transactions import look_for_unseen
from airflow_mirror.cutover.other_fences import described
from airflow_mirror.cutover.proof import look_before
from airflow_mirror.cutover.quiet import prove_fence, stand_still
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import (
    CAUGHT_UP,
    CUT_OVER,
    DRAINED,
    ENDING,
    FENCED,
    GROUPS_MOVED,
    PROVEN,
    QUIET,
    SEALED,
    VERIFIED,
    FenceRecord,
    StepRecord,
    as_recorded,
)
from airflow_mirror.cutover.undoing import back_out
from airflow_mirror.cutover.writers import (
    require_no_writer,
    require_source_shut,
    seal_target,
    stop_writers,
    take_lease,
)
from airflow_mirror.errors import (
    CutoverTakenOver,
    FenceGone,
    FenceLeaks,
    FenceNotLifted,
    FenceUnproven,
    OpeningUnfinished,
    OpenOutcomeUnknown,
    TransactionsOpen,
    Undecided,
)
from airflow_mirror.ledger.records import ACTIVE
from airflow_mirror.plan.owned import owned_topics, require_listed, target_ids
from airflow_mirror.plan.requirements import target_topics


@dataclass(frozen=True)
class Step:
    """One step.

    :param leads_from: the state that it requires; ``to`` is the state that it leads to.
    :param do: executes the step and returns evidence for the report.
    """

    name: str
    leads_from: str
    to: str
    do: Callable[[Attempt], dict[str, Any]]


def raise_fence(attempt: Attempt) -> dict[str, Any]:
    """Look who is let in, describe the fence, decide that it is up, raise it, and look whether it still is to be.

    :raises FencedByAnother: :raises FenceStands: before anything is touched.
    :raises CutoverTakenOver: somebody was faster, or has undone this attempt; what it had raised by then is taken back.
    """
    # All that takes its time is asked before the decision: behind it producers are about to wait.
    proof, unseen = look_before(attempt), look_for_unseen(attempt)
    # Described before anything is there: what is found now is the site's own, and stays when the fence is lifted.
    intent = described(attempt)
    attempt.intent = replace(intent, pending=isinstance(attempt.fence, AclFence))
    attempt.report.fence = FenceRecord(
        kind=attempt.fence.kind,
        name=attempt.request.fence,
        intent=as_recorded(attempt.intent),
        requested=time.time(),
        proof=proof,
        unseen=unseen,
    )
    # The last line before anything is decided. A process that dies behind the next one needs somebody who lifts its
    # fence.
    attempt.require_guard()
    up = FenceState(
        run=attempt.store.run, attempt=attempt.report.attempt, id=attempt.me, plan=attempt.plan.hash,
        revision=attempt.plan.revision, owner=attempt.me, max_fence_s=attempt.limits.max_fence_s, kind=attempt.fence.kind,
        name=attempt.report.fence.name, intent=attempt.intent.value(),
        kept=attempt.request.keep_fence, process=attempt.report.process or {},
    )  # fmt: skip
    # Begun before the request, as the broker's time is later: our own clock ends this attempt first, which then can
    # back out in order, before `opened` is void, and before a guard steps in.
    attempt.fenced_until = attempt.now() + attempt.limits.max_fence_s
    try:
        attempt.until_ms = decision.go_up(attempt.ledger, attempt.mirror.name, up, attempt.before, attempt.turned)
    except Undecided:
        # So that backing out asks what is decided. Nothing is raised yet: dies here, and `up` is applied all the same,
        # then a guard, the tail's or the next run's, lifts what is not there.
        attempt.is_up(up)  # it may have been decided
        raise
    attempt.is_up(up)
    # Dies in here, or before it: `up` without a rule, and a name at most. Who lifts it takes the name away, and no rule:
    # those that are there by then are another mirror's, whatever target's ledger has decided that.
    Raised.by(attempt).claim(attempt.others, attempt.permit)
    # Only here it is decided that there are rules. Dies before it, or nobody knows whether it was applied: no rule is
    # there in any case, and who lifts goes by what is decided then (`Raised.begin`), not by what was read.
    if attempt.intent != intent:
        attempt.up, attempt.intent = (
            decision.change_intent(attempt.ledger, attempt.mirror.name, up, intent.value()),
            intent,
        )
        attempt.report.fence.intent = as_recorded(intent)
    # Behind the decision, and before the first rule. For people, and for `lift-fence --home` should the target be lost
    # with this host's process: without it nobody would know what to lift.
    attempt.save()
    # Dies amid it: some rules are there, and all of them in what is decided. Frozen before its bytes: the permit refuses,
    # since a guard has decided `lifting` by then.
    Raised.by(attempt).raise_rules(attempt.permit)
    return {"fence": fence_text(attempt.fence.kind, intent)}


def verify_rest(attempt: Attempt) -> dict[str, Any]:
    """Read the groups' positions ahead, and compare what was not compared before."""
    read_ahead(attempt)
    return verify(attempt)


def open_target(attempt: Attempt) -> dict[str, Any]:
    """Check both sides for the last time, and decide that the target is open.

    The decision takes the topics out of the mirror's hands in the same moment. Once it is made nothing can be undone,
    because applications may write to the target.

    :raises TryAgain: a broker of the target does not list topics that are there. Errors else of the last looks.
    """
    assert attempt.up is not None
    # Both before the last looks: what another process decides from here on has moved, and refuses the opening.
    ids = target_ids(attempt.plan, attempt.target)
    # By the word of one broker that has just started none would be opened, behind a fence that says that they are. First,
    # as to know it of a topic that is gone takes half a minute.
    require_listed(target_topics(attempt.plan), ids, attempt.target)
    pin = decision.Pin(direction=attempt.turned, tail=ACTIVE.at(attempt.ledger.values(), attempt.mirror.name))
    require_no_writer(attempt)
    if isinstance(attempt.fence, AclFence):
        # At the source, and before the decision: whoever can't ask the ledger must know that the target may be open.
        # Dies between the two: who can ask it finds `up`, and lifts; a guard that can't leaves the fence, and calls a
        # person (`MayBeOpen`).
        attempt.fence.announce(Raised.by(attempt).name, attempt.permit)
    # The last moment at which a stop, or `max_fence_s`, makes it back out. A process that is frozen behind this for too
    # long is refused by the broker's clock (`until_ms`), or by what others have decided.
    attempt.check_stop()
    # From here on "nobody knows" may mean that it is open: backing out without the ledger is forbidden (`back_out`).
    attempt.opening = True
    at = datetime.now(UTC).isoformat(timespec="seconds")
    # The point of no return is inside this call, when a broker appends the record; not when the answer comes.
    attempt.up = decision.open_behind(
        attempt.ledger, attempt.plan, attempt.up, ids, at, attempt.until_ms, pin, attempt.additions.decide_with
    )
    # Behind it the time limit must end nothing any more.
    attempt.fenced_until = None
    return {"topics": len(ids), **_opened(attempt, time.time())}


def _opened(attempt: Attempt, at: float) -> dict[str, Any]:
    assert attempt.report.fence is not None and attempt.up is not None
    # For people: what counts is when a broker appended the record.
    attempt.report.fence.opened = at
    # As it was decided to go up: a retry that asks for something else completes what the first process has opened.
    attempt.report.fence.kept = kept = attempt.up.kept
    return {"fence_seconds": round(attempt.report.fence.seconds or 0.0, 3), "source": "fenced" if kept else "open"}


# What a death leaves beside a fence that has to come down. Before `stop_writers`: nothing, since those steps only read.
# From there on: a tail that has ended, and is to be started again. From `commit_groups` on: positions as well, which go
# back by the report. In `open_target` the decision alone tells: `up` is undone as before, `opened` is gone on with.
STEPS = (  # name          leads from    to            does
    Step("fence",          CAUGHT_UP,    FENCED,       raise_fence),    # undone: lifted
    Step("prove_fence",    FENCED,       PROVEN,       prove_fence),
    Step("drain",          PROVEN,       DRAINED,      drain),
    Step("stop_writers",   DRAINED,      ENDING,       stop_writers),   # all that follows is done meanwhile
    Step("verify",         ENDING,       VERIFIED,     verify_rest),
    Step("commit_groups",  VERIFIED,     GROUPS_MOVED, commit_groups),  # undone: positions are restored
    Step("stand_still",    GROUPS_MOVED, QUIET,        stand_still),    # for what is left of it: all above took its time
    Step("seal_target",    QUIET,        SEALED,       seal_target),
    Step("open_target",    SEALED,       CUT_OVER,     open_target),    # the point of no return
)  # fmt: skip


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep Python from looking for garbage in cycles: there is next to none, and producers wait.

    Each look goes through all that is there. Of 300 groups that is hundreds of thousands of objects, and more with each
    reading: a second of a fence of seven.
    """
    # Of the whole process, for a fence at most: what is no longer referred to is freed all the same.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# No state is taken up by a later process: whoever comes next undoes, and begins anew. Only `opened` is gone on with.
@_without_collections()
def walk(attempt: Attempt, steps: Sequence[Step] = STEPS, begin: int = 0) -> None:
    """Execute the steps in order, from number ``begin`` on.

    On any exception, including KeyboardInterrupt, undo what was done and raise it again.

    :raises FenceNotLifted: instead, if undoing failed too and producers may still be kept out.
    :raises CutoverTakenOver: instead, if another process has undone it, and another cutover has begun. Nothing is undone.
    :raises OpenOutcomeUnknown: instead, if nobody knows whether it is decided that the target is open. Nothing is undone.
    """
    try:
        for step in steps[begin:]:
            # Frozen before it for longer than the fence may last: its clock has gone on, and this look ends the attempt
            # before the next step's first effect.
            attempt.check_stop()
            _do(attempt, step, is_last=step is steps[-1])
    except BaseException as e:
        # Interrupted behind its last save: it is open, and there is nothing to undo.
        if attempt.report.outcome == reports.DONE:
            raise
        attempt.report.error = f"{type(e).__name__}: {e}"
        try:
            back_out(attempt)
        except (CutoverTakenOver, OpenOutcomeUnknown) as taken:
            # Somebody else goes on, or nobody knows what is decided. Each effect from here on could be upon another
            # one's fence.
            raise taken from e
        if attempt.report.is_fenced and attempt.report.undone and not isinstance(e, FenceNotLifted):
            raise FenceNotLifted(
                attempt.source.role, fence_text(attempt.fence.kind, attempt.intent), "see 'undone' in the report"
            ) from e
        raise


def finish_opening(attempt: Attempt) -> None:
    """Complete a report whose process ended after it had decided that the target is open.

    Nothing can be undone, because applications may be writing to the target. So the source must be unchanged.

    :raises OpeningUnfinished: the source has changed.
    """
    try:
        # The process before may have died long ago: somebody may have lifted the fence by hand since, and both sides
        # take writes. Completing the report would say that all is well. So a person decides.
        require_source_shut(attempt)
    except (FenceGone, FenceLeaks, FenceUnproven, TransactionsOpen) as e:
        raise OpeningUnfinished(attempt.store.where, str(e)) from e
    # The dead process's lease may have been taken by a tail that was started since. It has ended itself, if it asked
    # what is decided; one that did not is ended here, before the report says that the cutover is done.
    take_lease(attempt)
    # Of the last step only its record is left to do: it is decided, and nothing of it can be undone or done twice.
    *before, last = STEPS
    walk(attempt, [*before, replace(last, do=partial(_opened, at=_decided_open_at(attempt)))], len(before))


def _decided_open_at(attempt: Attempt) -> float:
    """Return when it was decided that the target is open, whoever has gone on with it since; seconds since the epoch."""
    assert attempt.report.fence is not None
    topics, owned = {t.target_topic for t in attempt.plan.topics}, owned_topics(attempt.ledger)
    # By the topics: each process that goes on with an opening decides about the fence anew. In full seconds, and so
    # before the fence, perhaps.
    opened = [one.opened_at for topic, one in owned.items() if topic in topics and one.opened_at is not None]
    if not opened:  # a person has released them since
        return decision.since_ms(attempt.ledger, attempt.mirror.name) / 1000
    return max(attempt.report.fence.requested, datetime.fromisoformat(min(opened)).timestamp())


def _do(attempt: Attempt, step: Step, is_last: bool) -> None:
    record = StepRecord(name=step.name, status="running", started=time.time())
    attempt.report.steps.append(record)
    started = attempt.now()
    try:
        # Before the step: a process that dies within it leaves the name of the step that it was in, by which a lost lease
        # is told. The same write says what the step before has led to: of many groups a report has megabytes, and all of
        # this is behind the fence. Dies before it: as if within the step before, which leaves the same effects.
        attempt.save()
        attempt.log.info("%s ...", step.name)
        attempt.waits_for, started = "", attempt.now()
        record.evidence = step.do(attempt)
        record.status = "done"
    except BaseException:
        record.status = "failed"
        raise
    finally:
        record.seconds = attempt.now() - started
    attempt.report.state = step.to
    if is_last:
        _save_done(attempt, step)
    attempt.log.info("%s: done in %.1f s", step.name, record.seconds)


def _save_done(attempt: Attempt, last: Step) -> None:
    attempt.report.outcome = reports.DONE
    try:
        attempt.save()
    except BaseException:
        # The target is open by then, and its report is not written. So backing out asks what is decided, finds `opened`,
        # and undoes nothing; the next process completes the report.
        attempt.report.state, attempt.report.outcome = last.leads_from, reports.RUNNING
        raise
