"""A tail's life, whoever copies (:mod:`.crew`): it follows the source in one turn after another, until asked to stop.

Nothing is copied between two turns, for a second or so. So a turn lasts until there is a reason for another one
(:mod:`.supervision`). A partition that stops for good (`errors.NeedsHuman`) ends the tail after that turn, when the
others have stopped cleanly. A source topic that was deleted, or created again, does not: the next turn goes on without
it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import load
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.results import summarise
from airflow_mirror.copy.task import CopyWork
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import LeaseLost, MirrorError, TailReplaced, TryAgain, WritingEnded
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.crew import Crew, Muster
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.followers import followers
from airflow_mirror.jobs.driver.held_lease import HeldLease, wait_until_safe, writer_lease
from airflow_mirror.jobs.driver.lease_recovery import LeaseRecovery
from airflow_mirror.jobs.driver.prepare import CopyJob, prepare_to_copy, require_still_ours
from airflow_mirror.jobs.driver.presence import TailHeartbeat, presence
from airflow_mirror.jobs.driver.publication import publish
from airflow_mirror.jobs.driver.rounds import LOSSES, SOON_S
from airflow_mirror.jobs.driver.supervision import LOOK_EVERY_S, Supervisor
from airflow_mirror.jobs.driver.tail_states import Event, State
from airflow_mirror.jobs.driver.turns import Stream, Tail
from airflow_mirror.jobs.driver.watches import Watches
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.keeper import Progress
from airflow_mirror.jobs.request import TURN_S, TailRequest
from airflow_mirror.jobs.runner.guarding import guarded
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.sync.schemas.follower import registries
from airflow_mirror.wire.errors import Fenced, StoppedByQuota

log = logging.getLogger(__name__)

_TURN_UNTOLD_S = 60.0  # upper limit if tasks can't be told to end early
_GUARD_EVERY_S = 5.0  # whether a cutover has raised its fence
_GUARD_WAIT_S = 120.0  # a deposed tail's guard stays until that fence is decided
_WITHDRAW_AGAIN_S = 5.0


def follow(
    request: TailRequest, status: StatusFile, publication: Publication, muster: Muster, *,
    stopping: threading.Event, on_present: Callable[[], None] = lambda: None, known_as: str = "",
) -> Outcome:  # fmt: skip
    """Be the mirror's tail until ``stopping`` is set, or somebody asks for that in the target's ledger.

    :param muster: calls those together who copy.
    :param known_as: the job as which it is decided, gives signs and deals partitions to others; empty: it deals none.
    :param on_present: called once it is decided that this is the tail, by the same thread.
    :raises TailRuns: another one lives, here or elsewhere.
    """
    begun, mirror = time.monotonic(), request.mirror
    if mirror.sync_acls:  # it may have changed since the plan
        for role, reference in (("source", request.source), ("target", request.target)):
            with ClusterAdmin(load(reference, role)) as cluster:
                own_principal(cluster, mirror.own_principals)
    clusters = load(request.source, "source"), load(request.target, "target")
    if mirror.sync_schemas:
        registries(mirror, *clusters)
    job = prepare_to_copy(request)
    with presence(job, request, status, stopping, known_as) as there:
        tail, ended = None, None
        with guarded(*clusters, mirror.name, every_s=_GUARD_EVERY_S, alarm=request.alarm, wait_s=_GUARD_WAIT_S):
            on_present()
            try:
                tail = _copy(job, request, status, stopping, there, publication, muster)
            except MirrorError as e:
                ended = there.cause_of(e)
                if not isinstance(ended, WritingEnded | TailReplaced):
                    raise
        if tail is None:  # whoever ended it has decided by now, or the guard would still be there
            return there.ends_with(({}, ended))
        return there.ends_with(_outcome(tail, time.monotonic() - begun))


def _outcome(tail: Tail, seconds: float) -> Outcome:
    """Return how a tail has ended.

    :param seconds: how long it took.
    """
    # Said, and no failure: a leader may be away for days, and who keeps the tail would start one again that was asked to
    # stop. So with what the next turn would have opened again.
    waits = {TopicPartition(r.topic, r.partition): str(r.error) for r in tail.totals.values() if r.passes}
    waits |= {tp: f"its leader did not answer: {why}" for tp, why in tail.waiting.items()}
    for tp in sorted(waits):
        log.warning("%s was not copied to its end by this tail: %s", tp, waits[tp])
    results = [replace(r, error=None) if r.passes else r for r in tail.totals.values()]
    summary = summarise(results, seconds) | {"gone": sorted(tail.gone), "waiting": [str(tp) for tp in sorted(waits)]}
    return summary, entry.failure(results, summary["errors"])


def _copy(
    job: CopyJob, request: TailRequest, status: StatusFile, stopping: threading.Event, there: TailHeartbeat,
    publication: Publication, muster: Muster,
) -> Tail:  # fmt: skip
    with writer_lease(request.target, job.mirror.name, lambda: there.is_cut_over) as held:
        there.require_active()
        require_still_ours(job)
        tail = Tail(job, request.tasks, stopping)
        tail.discover()
        status.update("starting")
        with muster(tail.stopping) as crew:
            tail.slots = crew.slots
            tail.hear(there.wishes)
            there.plan = lambda: tail.job.plan
            tail.deal()
            wait_until_safe(held, status, tail.stopping)
            try:
                _follow(crew, tail, job, held, there, request, status, publication)
            except StoppedByQuota as e:  # partitions may not have ended cleanly
                raise TryAgain(str(e), "partitions may not have ended cleanly") from e
    return tail


def _follow(
    crew: Crew,
    tail: Tail,
    job: CopyJob,
    held: HeldLease,
    there: TailHeartbeat,
    request: TailRequest,
    status: StatusFile,
    publication: Publication,
) -> None:
    clusters, committed = (request.source, request.target), job.options.committed_only
    progress = Progress(*clusters, tail.ranges, committed, status, None if request.no_progress else crew.hosts)
    tail.on_turn_end, tail.report_to = progress.begin_turn, progress.report_to
    tail.deal()
    turn_s = _turn_s(request, told=progress.report_to is not None)

    def start() -> Stream:
        work = CopyWork(
            source=clusters[0], target=clusters[1], options=tail.options, lease=held.begin(), report_to=progress.report_to
        )
        return crew.follow(tail, work, turn_s)

    progress.start()
    try:
        with Watches(job, held, status, tail.gone) as watches:
            groups = DelayMeter()
            publish(publication, request, "streaming_tail", job, progress, held, watches.hold, groups)
            if not tail.stopping.is_set():  # else nobody waited until writing is safe
                with followers(tail, held, status, groups, by_hand=not request.plan):
                    # Tasks that can't be told end their turns by themselves.
                    ends_s = math.inf if progress.report_to is None else request.turn_s and turn_s
                    settings = lambda: [load(one).stamp() for one in clusters]  # noqa: E731
                    supervisor = Supervisor(tail, there, progress, watches, settings, ends_s, time.monotonic)
                    _copy_on(crew, start, supervisor, tail, there, held, watches, status)
    finally:
        progress.stop()
        _end(held, tail, status, is_last=True)
        tail.on(Event.END)
    if tail.failed is not None:
        raise tail.failed


def _turn_s(request: TailRequest, *, told: bool) -> float:
    """Return after how many seconds a task ends that does not hear its driver.

    That is long enough for a partition to be given up in it, where that is to end the tail.

    :param told: tasks can be told to end.
    """
    turn_s = request.turn_s or TURN_S
    turn_s = turn_s if told else min(turn_s, _TURN_UNTOLD_S)
    bound_s = request.give_up_after_s
    if request.abort_on_send_failure and bound_s is not None and math.isfinite(bound_s):
        return float(max(turn_s, bound_s + _TURN_UNTOLD_S))
    return float(turn_s)


def _copy_on(
    crew: Crew, start: Callable[[], Stream], supervisor: Supervisor, tail: Tail, there: TailHeartbeat, held: HeldLease,
    watches: Watches, status: StatusFile,
) -> None:  # fmt: skip
    """Let one stream copy, and after a pause, a lost lease or task or a change of the crew the next one, until the end.

    :param start: makes a stream.
    :raises TryAgain: tasks are lost again and again.
    """
    failed, back = 0, LeaseRecovery(there, held, status, tail.stopping)
    while True:
        _rest_while_paused(tail, there, watches, status)
        if tail.is_over():  # also one that lost its lease while it rested: nobody takes it back
            return
        if tail.deposed is not None:
            tail.on(Event.LOSE)
            back.go(tail.deposed, tail.job.plan)
            tail.deposed = None
            tail.on(Event.TAKE_BACK)
        if tail.is_over():
            return
        tail.withdrawn.clear()
        tail.deal()
        status.update("copying")
        begun = time.monotonic()
        tail.on(Event.START)
        try:
            tail.stream = start()
            supervisor.watch(tail.stream)
            failed *= time.monotonic() - begun < SOON_S
        except LeaseLost as e:  # the watch of settings may find it first
            tail.deposed = str(e)
        except Exception as e:
            if not crew.may_start_again(e):
                raise
            tail.unheard = str(e)
        if tail.is_over():
            return  # the last words of its tasks are no progress any more
        tail.on(Event.WITHDRAW)
        _end(held, tail, status)  # others of the same turn may still be running
        tail.on(Event.REPORT)
        tail.on_turn_end()
        if tail.unheard is not None:
            failed += 1
            if failed == LOSSES:
                raise TryAgain(tail.unheard)
            log.warning("start %d of %d: %s", failed, LOSSES, tail.unheard)
            tail.unheard = None
            tail.reported.set()


def _end(held: HeldLease, tail: Tail, status: StatusFile, *, is_last: bool = False) -> None:
    """Make all tasks stop, wherever they run, if there are any: each finishes its requests in flight and reports.

    When this returns, none of them writes any more, heard of or not.

    :param is_last: no stream follows. Then the lease stays held instead.
    """
    if tail.stream is None:
        return
    while not _is_withdrawn(held, tail) and not (is_last or tail.is_over()):
        tail.stopping.wait(_WITHDRAW_AGAIN_S)  # who copies next must not copy beside them under the same lease
    if tail.stream.stop(lease.HANDOVER_S) and not held.is_in_use:
        held.all_reported()
    elif not (is_last or tail.is_over()):
        tail.unheard = tail.unheard or "not every task has reported"
        wait_until_safe(held, status, tail.stopping)
    tail.stream = None


def _is_withdrawn(held: HeldLease, tail: Tail) -> bool:
    """Withdraw the lease; return whether no task can confirm it any more."""
    tail.withdrawn.set()
    try:
        held.withdraw()
    except MirrorError as e:
        tail.withdrawn.clear()
        if isinstance(e, Fenced):
            tail.deposed = str(e)  # said at the end; no task can confirm it either
        else:
            log.warning("lease not withdrawn, tasks stop when they can't confirm it: %s", e)
    return not held.is_in_use


def _rest_while_paused(tail: Tail, there: TailHeartbeat, watches: Watches, status: StatusFile) -> None:
    """Return once the mirror is not paused (any more), or the tail has to end; meanwhile keep topics on hold.

    The lease stays held, so that nobody else begins to copy. What follows the data goes on following: it is never set
    beyond what was copied, and a failover during a pause needs it.
    """
    while there.wishes.pause is not None and not tail.is_over():
        if tail.state is not State.RESTING:
            tail.on(Event.PAUSE)
        status.update("paused")
        try:
            watches.look()
        except LeaseLost as e:
            tail.deposed = str(e)
        tail.stopping.wait(LOOK_EVERY_S)
    if tail.state is State.RESTING and not tail.is_over():
        tail.on(Event.RESUME)
