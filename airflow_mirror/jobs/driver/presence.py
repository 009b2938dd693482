"""A tail's presence in the target's ledger: it is decided to be the one, gives signs of life, and listens.

A thread with connections of its own does that. Copying never waits for it: what can't be written or read is said in the
log and tried again. A target without a ledger, for a tail that was started by hand, leaves it out.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from airflow_mirror.common.policy import STATE
from airflow_mirror.config import load
from airflow_mirror.errors import LedgerLost, LedgerMissing, MirrorError, TailReplaced, WritingEnded
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.active import (
    ActiveTail,
    Heartbeat,
    Watch,
    active_tail,
    begin,
    heard_by,
)
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.cutover_signs import CutoverSigns
from airflow_mirror.jobs.runner.reports import job_of
from airflow_mirror.jobs.runner.state import FAILED, RUNNING, SUCCEEDED
from airflow_mirror.jobs.runner.status import StatusFile, blame, words
from airflow_mirror.jobs.runner.wishes import Wishes, require_not_paused
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.plan import Plan, ledger_store
from airflow_mirror.plan.owned import ended_by
from airflow_mirror.plan.requirements import require_active

log = logging.getLogger(__name__)

_LISTEN_EVERY_S = 1.0
_KEEP_EVERY_S = 30.0
_PATIENCE_S = 5.0  # for one write, after which it listens again


class TailHeartbeat:
    """See the module. Use :func:`presence`.

    :param me: what was decided; None without a ledger: nothing is given, nothing heard.
    :param target: reference to the target's settings.
    :param stopping: set if the tail has to end.
    :param wishes: what is wished of the mirror at its start.
    :param plan: returns what the tail copies by now.
    :param every_s: how often it listens. :param clock: monotonic, in seconds.
    :ivar wishes: what is wished by now. :ivar is_cut_over: whether a cutover of the mirror gives signs of life.
    """

    def __init__(
        self, me: ActiveTail | None, target: str, status: StatusFile, stopping: threading.Event, wishes: Wishes,
        plan: Callable[[], Plan], every_s: float, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._me, self._reference, self._status, self._stopping = me, target, status, stopping
        self._every_s, self._clock = every_s, clock
        self.wishes, self.plan = wishes, plan
        self.is_cut_over, self._cutovers = False, CutoverSigns()
        self._replaced: TailReplaced | None = None
        self._told = False
        self._ended = threading.Event()
        self._last: dict[str, Any] = {}
        self._complaints = Complaints(log, "no sign of life in the target's ledger, and the copy goes on: %s")
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def start(self) -> None:
        """Begin to give signs and to listen."""
        if self._me is not None:
            self._thread.start()

    def require_active(self) -> None:
        """Raise if another job is the mirror's tail by now; call it when the writer lease was taken.

        :raises TailReplaced: it is; this one must not copy.
        """
        if self._me is not None:
            with ClusterAdmin(load(self._reference, "target")) as target:
                _require(Ledger(target), self._me)

    def require_decided(self, plan: Plan) -> None:
        """Return if this job is decided to be the mirror's tail, and the topics are still the mirror's.

        :raises LedgerMissing: nobody has decided that. :raises TailReplaced: another job is.
        :raises MirrorCutOver: :raises TopicsOwned: see :func:`.requirements.require_active`.
        """
        if self._me is None:
            raise LedgerMissing()
        with ClusterAdmin(load(self._reference, "target")) as target:
            ledger = Ledger(target)
            _require(ledger, self._me)
            require_active(ledger, plan, target)

    def ends_with(self, outcome: Outcome) -> Outcome:
        """Return how the job ends: as given, unless it was replaced. The last sign of the block says that.

        Well, if all that the mirror has was handed over: whoever did so has ended the tail on purpose.
        """
        summary, error = outcome[0], self._replaced if outcome[1] is None else self.cause_of(outcome[1])
        if by := self._ended_by(error):
            log.info("mirror %s was %s, and this tail with it", self.plan().mirror.name, by)
            summary, error = {**summary, "ended": by}, None
        self._last = {"state": SUCCEEDED, "phase": "done", "summary": {**summary, "end_offsets": {}}}
        if error is not None:
            self._last |= {"state": FAILED, "error": words(error), "blame": blame(error)}
        return summary, error

    def _ended_by(self, error: MirrorError | None) -> str:
        if isinstance(error, WritingEnded):
            with suppress(MirrorError), ClusterAdmin(load(self._reference, "target")) as target:
                return ended_by(Ledger(target).values(), error.mirror)
        return error.ended if isinstance(error, TailReplaced) else ""

    def cause_of(self, error: MirrorError) -> MirrorError:
        """Return why the job ends with an error: it was replaced, if so. Its tasks may notice the lost lease first."""
        try:
            self.require_active()
        except TailReplaced as e:
            self._replaced = e
        except MirrorError as e:
            self._complaints.of(e)
        return self._replaced or error

    def end(self, error: BaseException | None = None) -> None:
        """Give the last sign, and end. May take some seconds if the target can't be written to."""
        if error is not None:
            self._last = {"state": FAILED, **self._status.brief(), "error": words(error), "blame": blame(error)}
        self._ended.set()
        if self._me is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._me is not None
        with ClusterAdmin(load(self._reference, "target")) as target:
            heartbeat: Heartbeat | None = None
            kept_s = self._clock()
            ledger = Ledger(target)  # one for all looks: each reads what was decided since the last one

            def require_me() -> None:
                nonlocal ledger
                assert self._me is not None
                try:
                    _require(ledger, self._me)
                except LedgerLost:  # one that is brought back is not the one that was read
                    ledger = Ledger(target)
                    raise

            plans = state_of(target, PLAN.below(self._me.name), patience_s=_PATIENCE_S, keys_only=True)
            while True:
                last = self._ended.is_set()
                if heartbeat is None and self._attempt(require_me):
                    state = state_of(target, *heard_by(self._me.name), patience_s=_PATIENCE_S)
                    heartbeat = Heartbeat(state, self._me, self._clock)
                    self._attempt(partial(heartbeat.forget_others, require_me))  # by the one that copies
                if heartbeat is not None:
                    self._attempt(partial(self._listen, heartbeat, self._me.name))
                if heartbeat is not None and last:
                    self._attempt(partial(heartbeat.give, **self._last))
                elif heartbeat is not None and heartbeat.is_due:
                    brief = self._status.brief()
                    self._attempt(partial(heartbeat.give, RUNNING, **brief, heard=asdict(self.wishes)))
                    self._attempt(require_me)
                if last:
                    return
                if self._clock() - kept_s >= _KEEP_EVERY_S:
                    self._attempt(partial(self._keep, plans))
                    kept_s = self._clock()
                self._ended.wait(self._every_s)

    def _keep(self, plans: State) -> None:
        """See that the target has the plan: without it nobody could fail the mirror over."""
        if ledger_store.keep_again(self.plan(), plans):
            log.error("topic %s had lost the plan by which this tail copies: it is written again", STATE)

    def _attempt(self, step: Callable[[], object]) -> bool:
        """Take a step and return whether that was possible. Each by itself: some topics can be read, and not written."""
        try:
            step()
        except TailReplaced as e:
            self._replaced = e
            self._tell(str(e))
        except MirrorError as e:
            self._complaints.of(e)
        else:
            return True
        return False

    def _listen(self, heartbeat: Heartbeat, mirror: str) -> None:
        if not self._told and (by := heartbeat.stop_requested_by()) is not None:
            self._tell(f"stopping: {by} asked for that")
        self.is_cut_over = self._cutovers.look(heartbeat.values(), mirror)
        self._hear(heartbeat.wishes())

    def _tell(self, why: str) -> None:
        if not self._told:
            log.warning("%s", why)
        self._told = True
        self._stopping.set()

    def _hear(self, wishes: Wishes) -> None:
        if wishes != self.wishes:
            log.warning("%s", "; ".join(wishes.lines()) or "no pause and no other rate is wished any more")
            self.wishes = wishes


def _application(env: Mapping[str, str]) -> str:
    """Return the application in whose container this process runs; empty outside of one."""
    found = re.fullmatch(r"container_(?:e\d+_)?(\d+_\d+)_\d+_\d+", env.get("CONTAINER_ID", ""))
    return f"application_{found[1]}" if found else ""


def _require(ledger: Ledger, me: ActiveTail) -> None:
    values = ledger.values()
    there = active_tail(values, me.name)
    if there is None:
        raise TailReplaced(me.name, None, ended_by(values, me.name))
    if there.job != me.job:
        raise TailReplaced(me.name, there.host)


@contextmanager
def presence(
    job: CopyJob, request: TailRequest, status: StatusFile, stopping: threading.Event, known_as: str = "", *,
    every_s: float = _LISTEN_EVERY_S, clock: Callable[[], float] = time.monotonic,
) -> Iterator[TailHeartbeat]:  # fmt: skip
    """Decide that this process is the mirror's tail, and give signs of life until the block ends.

    Without a ledger a tail that was started by hand copies on, and says so. It hears no wishes then: it does not begin
    while the mirror is paused.

    :param known_as: its job, if it deals partitions to others as that.
    :param every_s: see :class:`TailHeartbeat`; ``clock`` likewise.
    :param request: ``takeover`` as for :func:`.active.begin`, ``replaces`` as ``lost`` for :class:`.active.Watch`.
    :raises TailRuns: another one lives, here or elsewhere.
    :raises MirrorPaused: the ledger is lost, and the mirror paused.
    """
    plan = job.plan
    me = ActiveTail(  # its own Mirror: in what no plan depends on, as a rate, the plan's may differ
        mirror=job.mirror.to_dict(), plan=plan.hash, inputs=plan.digest, directory=request.job_dir,
        application=_application(os.environ),
    )  # fmt: skip
    if request.report:
        me = replace(me, job=job_of(request.report))
    if known_as:
        me = replace(me, job=known_as, deals=True)
    status.update("looking for another tail of the mirror")
    known: ActiveTail | None = me
    wishes = Wishes()
    with ClusterAdmin(load(request.target, "target")) as admin:
        state = state_of(admin, *heard_by(me.name))
        try:
            begin(Ledger(admin), me, Watch(state, lost=request.replaces), takeover=request.takeover)
            wishes = Wishes.of(state.read(), me.name)
        except (LedgerMissing, LedgerLost) as e:
            if isinstance(e, LedgerLost):
                require_not_paused(state, me.name)
            log.warning("whether another tail of the mirror runs is not known, and the copy goes on: %s", e)
            known = None
    there = TailHeartbeat(known, request.target, status, stopping, wishes, lambda: plan, every_s, clock)
    there.start()
    try:
        yield there
    except MirrorError as e:
        cause = there.cause_of(e)
        there.end(cause)
        if cause is e:
            raise
        raise cause from e
    except BaseException as e:
        there.end(e)
        raise
    there.end()
