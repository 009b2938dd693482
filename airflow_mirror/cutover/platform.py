"""What each process of a mirror is handed, and builds nowhere for itself: both clusters, their ledgers and leases, time.

Whatever one process sees of another one, and whatever it waits for, goes through here. So the tests can put a cutover,
its guard, its retry, a second run and everybody who lifts a fence on one clock and one pair of clusters, and decide
before each shared operation who goes on (`make explore`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from airflow_mirror.common.clock import SYSTEM, Clock
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover import heartbeat, report_store
from airflow_mirror.cutover.intent import ACL
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner.active import Watch
from airflow_mirror.jobs.runner.guarding import guarded
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import PLAN, REPORT, SIGN
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.plan import ledger_store as plans
from airflow_mirror.plan.amendment import amended
from airflow_mirror.plan.model import Plan
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionDescription

T = TypeVar("T")
PATIENCE_S = 20.0  # for one decision; an election takes nine seconds
_LOOK_EVERY_S = 1.0  # whether a fence stands


class Side:
    """One of the two clusters, as one thread of a process reaches it.

    :param admin: its connections; the caller closes them.
    """

    def __init__(self, admin: ClusterAdmin, clock: Clock = SYSTEM) -> None:
        self.admin, self.clock = admin, clock
        self._plans: dict[tuple[str, str, str], Plan] = {}

    @property
    def log(self) -> WireCluster:
        """The connections that read its logs. :raises ClusterUnreachable: no broker answers."""
        return self.admin.wire

    @cached_property
    def ledger(self) -> Ledger:
        """What is decided there."""
        # One reader for this side: what a permit reads is what its decisions rest on.
        return Ledger(self.admin, PATIENCE_S)

    def state(self, *prefixes: str, patience_s: float = 60.0) -> State:
        """Return what has one writer, by the prefixes of its keys."""
        return state_of(self.admin, *prefixes, patience_s=patience_s)

    def plan(self, mirror: str, plan_hash: str, revision: str = "") -> Plan:
        """Return a plan that the ledger keeps, as it was at a revision, or is amended by now.

        :raises PlanNotKept: it is not there. :raises InputError: it, or an amendment, is not what its hash says.
        """
        # Kept where a revision pins it, since what has its hash never changes: each reading is one of the whole topic,
        # and behind a fence there may be one for each fence of others that was kept.
        if (kept := self._plans.get((mirror, plan_hash, revision))) is not None:
            return kept
        found = self.state(f"{PLAN.below(mirror)}{plan_hash}").read()
        # As it was when the fence went up, where a decision pins that: topics that joined since are not fenced, and
        # must neither be lifted nor opened by it.
        last = revision or plans.revision(self.ledger.values(), mirror, plan_hash)
        plan = amended(plans.plan_in(found, mirror, plan_hash), plans.amendments_in(found, mirror, plan_hash, last))
        if revision:
            self._plans[mirror, plan_hash, revision] = plan
        return plan

    def reports(self, mirror: str) -> State:
        """Return the reports of a mirror's cutovers."""
        return self.state(REPORT.below(mirror), patience_s=report_store.PATIENCE_S)

    def take_lease(
        self, mirror: str, *, to_end: bool = False, short: TransactionDescription | None = None
    ) -> LeaseToken:  # fmt: skip
        """See :func:`airflow_mirror.copy.writer.lease.take`."""
        # Without an answer it may be taken all the same, by a token that nobody has: then nobody writes, and whoever
        # calls again takes it from that.
        return lease.take(self.log, mirror, to_end=to_end, short=short)

    def seen_short(self, mirror: str) -> TransactionDescription | None:
        """See :func:`airflow_mirror.copy.writer.lease.seen_short`."""
        return lease.seen_short(self.log, mirror)

    def confirm_lease(self, token: LeaseToken) -> None:
        """See :func:`airflow_mirror.copy.writer.lease.confirm`."""
        lease.confirm(self.log, token)

    def is_anybody_writing(self, mirror: str) -> bool:
        """See :func:`airflow_mirror.copy.writer.lease.is_anybody_writing`."""
        return lease.is_anybody_writing(self.log, mirror)

    def is_writing_ended(self, mirror: str) -> bool:
        """See :func:`airflow_mirror.copy.writer.lease.is_writing_ended`."""
        return lease.is_writing_ended(self.log, mirror)

    def end_writing(self, mirror: str) -> None:
        """Take the lease for good, and wait until no task of the mirror can write any more."""
        # Taken, then waited: a task writes for up to six seconds behind its last confirmation. Dies in the wait: the
        # mark says that writing was ended, and who must be sure takes it again, and waits itself.
        self.clock.sleep(self.take_lease(mirror, to_end=True).wait_s)

    def watch(self, mirror: str, pause: Callable[[float], object] | None = None) -> Watch:
        """Return what observes a mirror's tail by its signs of life. :param pause: sleeps so many seconds."""
        return Watch(self.state(SIGN.below(mirror)), self.clock.monotonic, pause or self.clock.sleep)

    def watch_cutover(self, mirror: str) -> Watch:
        """Return what observes the process of a mirror's cutover."""
        # Shorter than a tail's: producers wait. What is taken for dead too early is refused by what is decided.
        return Watch(
            self.state(SIGN.below(mirror)),
            self.clock.monotonic,
            self.clock.sleep,
            heartbeat.SILENCE_S,
            heartbeat.SIGN_EVERY_S,
        )


class Platform:
    """See the module.

    :param source: of the mirror. :param target: whose ledger decides.
    """

    def __init__(self, source: Side, target: Side) -> None:
        self.source, self.target = source, target

    @classmethod
    def of(cls, source: ClusterAdmin, target: ClusterAdmin, clock: Clock = SYSTEM) -> Platform:
        """Return the real one."""
        return cls(Side(source, clock), Side(target, clock))

    @property
    def clock(self) -> Clock:
        """Time."""
        return self.target.clock

    def turned(self) -> Platform:
        """Return that of the mirror which copies back."""
        # The same connections with their parts changed: what is decided about the way back is decided on the other
        # cluster.
        return type(self)(self.target, self.source)

    def new_id(self) -> str:
        """Return a name that nobody else has."""
        # By nobody's counter: two attempts that can't see each other's reports must not come to the same name.
        return uuid.uuid4().hex

    def event(self) -> threading.Event:
        """Return what asks a process to stop."""
        return threading.Event()

    @contextmanager
    def signs_of_life(self, report: CutoverReport) -> Iterator[None]:
        """Name this process in a report, and give signs of life until the block ends."""
        with heartbeat.signs_of_life(self.target.admin.config, report):
            yield

    @contextmanager
    def guarded(self, mirror: str, log: Path | None, alarm: str, fence: str) -> Iterator[Callable[[], object]]:
        """Have a fence guarded while the block lasts, and longer while one stands; yields what raises if nobody does.

        :param log: of the guard. :param alarm: path of the function by which it calls a person; "": none.
        :param fence: by what the cutover fences; "": by ACL.
        """
        # A process of its own, started before the fence: it outlives this one, and what ends this process group does
        # not end it.
        with guarded(
            self.source.admin.config, self.target.admin.config, mirror, every_s=_LOOK_EVERY_S, alarm=alarm,
            fence=fence or ACL, log=log,
        ) as ready:  # fmt: skip
            yield ready

    def beside(self, work: Callable[[], T], meanwhile: Callable[[], object], every_s: float) -> T:
        """Return what ``work`` does in a thread of its own, and call ``meanwhile`` every so many seconds.

        What either raises is raised here. A thread that is left behind must only read: it ends with the process.
        """
        done: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(work())
            except BaseException as e:  # raised in the waiting thread
                failed.append(e)

        # A daemon: a stop, or `max_fence_s`, must not wait for it. It only reads, so what it does behind that is
        # nobody's harm.
        thread = threading.Thread(target=run, name="cutover-verify", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(every_s)
            # What it raises, a stop or a leak of the fence, leaves the thread to itself: it has nothing that would have
            # to be undone.
            meanwhile()
        if failed:
            raise failed[0]
        return done[0]


def require_source(source: ClusterAdmin, plan: Plan) -> None:
    """Return if that is the plan's source. :raises InputError: it is another cluster."""
    # Before anything is read, fenced or lifted: rules, positions and cuts of one cluster mean nothing on another one.
    if (found_id := source.cluster_id()) != plan.source_cluster_id:
        raise InputError(
            f"the source is cluster {found_id}",
            f"mirror {plan.mirror.name!r} copied from {plan.source_cluster_id}",
            "One that was formatted anew is another cluster, and has nothing of the mirror's: make an ordinary mirror to "
            "it.",
        )
