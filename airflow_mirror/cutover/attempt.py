"""What the steps of a cutover share: the two clusters, the limits, the report, and how to wait."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.decision import FenceState, permit
from airflow_mirror.cutover.fence import Fence
from airflow_mirror.cutover.fence_names import attempt_id
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import ALONE, Additions, Clusters, CutoverRequest
from airflow_mirror.cutover.schema_ids import SchemaProof
from airflow_mirror.cutover.short_lease import ShortLease
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import CutoverCancelled, CutoverTakenOver, FenceTooLong
from airflow_mirror.jobs.runner.active import heard_by
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import Permit, recently
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.ledger.state import State
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.wire.cluster import WireCluster

_SAY_EVERY_S = 1.0
_LOG = logging.getLogger("airflow_mirror.cutover")


class Log(Protocol):
    """The part of a logger that is used. Airflow's task logger and the standard library's both fit."""

    def info(self, msg: str, *args: object) -> object:
        """Log progress."""

    def warning(self, msg: str, *args: object) -> object:
        """Log a problem."""


@dataclass(frozen=True)
class Settled:
    """A group at rest: its positions on the source, and why they are final."""

    why: str
    state: str
    positions: dict[TopicPartition, GroupPosition]


@dataclass(kw_only=True)
class Attempt:
    """One attempt of a cutover: the state that its steps share.

    :param request: what is wanted. :param clusters: what it is done with.
    :param store: where the report is written, and found by the next process.
    :param additions: what is done beside the steps. :param signer: signs the report's link in the chain of reports.
    :param require_guard: raises if nobody would lift the fence were this process killed.
    :param stop: set by another thread to make the cutover back out.
    :ivar me: names this process, and this attempt, in decisions.
    :ivar fence: as it is wanted, or as an earlier attempt has raised it that this one goes on with.
    :ivar before: what was decided about the mirror's fence when the attempt began; ``turned``: about its direction.
    :ivar intent: what the fence changes.
    :ivar others: fences of other mirrors that stood at the source when it was looked whether they are in the way.
    :ivar up: what is decided about this attempt's fence, or may be; None: nothing was.
    :ivar until_ms: of the broker's clock; `up` can't be opened from then on.
    :ivar fenced_until: of the clock of ``now``: ``max_fence_s`` are over; None: no fence is up, or it has served.
    :ivar waits_for: what a step waits for, for people; ``said_at``: when the log said so last, on the clock of ``now``.
    :ivar opening: whether the decision to open may have been sent.
    :ivar lease: the mirror's writer lease, after the cutover has taken it from the tail.
    :ivar short_lease: what was seen of the tail's lease before the fence.
    :ivar longest_pause_s: between two writes to a partition, as seen before the fence.
    :ivar quiet_since: the source's ends have not moved; on the clock of ``now``.
    :ivar sealed_at: when the tail's last task must have stopped; on the clock of ``now``.
    :ivar schemas: what was proven of schema ids before the fence; None: nothing was to be.
    :ivar seen_groups: each group's positions on the source, and since when; on the clock of ``now``.
    :ivar seen_empty: likewise before the fence, of groups without members that did not move while it was watched.
    """

    request: CutoverRequest
    clusters: Clusters
    report: CutoverReport
    store: ReportStore
    log: Log = _LOG
    additions: Additions = ALONE
    signer: Signer | None = None
    require_guard: Callable[[], object] = lambda: None
    stop: threading.Event = field(default_factory=threading.Event)
    me: str = ""
    fence: Fence = field(init=False)
    before: FenceState | None = None
    turned: Direction | None = None
    intent: Intent = field(default_factory=lambda: Intent(topics=()))
    others: Collection[str] = ()
    up: FenceState | None = None
    until_ms: int = 0
    fenced_until: float | None = None
    waits_for: str = ""
    said_at: float = -math.inf
    opening: bool = False
    lease: LeaseToken | None = None
    short_lease: ShortLease = field(init=False)
    longest_pause_s: float = 0.0
    quiet_since: float = 0.0
    sealed_at: float = 0.0
    seen_groups: dict[str, tuple[Mapping[TopicPartition, GroupPosition], float]] = field(default_factory=dict)
    seen_empty: dict[str, tuple[Mapping[TopicPartition, GroupPosition], float]] = field(default_factory=dict)
    schemas: SchemaProof | None = None

    def __post_init__(self) -> None:
        # Another name for each process, also of one run's retry: by it decisions, rules and permits tell them apart.
        self.me = self.me or attempt_id(self.on.new_id(), self.plan.target_cluster_id)
        self.fence = self.clusters.fence
        self.short_lease = ShortLease(lambda: self.on.target.seen_short(self.mirror.name), lambda: self.now())

    @property
    def on(self) -> Platform:
        """Both clusters, their ledgers, and time."""
        return self.clusters.on

    @property
    def plan(self) -> Plan:
        """What is cut over."""
        return self.request.plan

    @property
    def mirror(self) -> Mirror:
        """Selects the consumer groups that move."""
        return self.request.mirror or self.request.plan.mirror

    @property
    def limits(self) -> Limits:
        """Time limits of the steps."""
        return self.request.limits

    @property
    def source(self) -> ClusterAdmin:
        """The cluster that is fenced."""
        return self.on.source.admin

    @property
    def target(self) -> ClusterAdmin:
        """The cluster that is opened."""
        return self.on.target.admin

    @property
    def source_log(self) -> WireCluster:
        """Reads the source's logs."""
        return self.on.source.log

    @property
    def target_log(self) -> WireCluster:
        """Reads the target's logs."""
        return self.on.target.log

    @property
    def ledger(self) -> Decisions:
        """The target's ledger: what becomes of the fence, and which topics were handed over to applications."""
        return self.on.target.ledger

    @cached_property
    def tail_state(self) -> State:
        """What is said by the mirror's tail, and to it."""
        return self.on.target.state(*heard_by(self.mirror.name))

    @property
    def topics(self) -> list[str]:
        """The plan's source topics, sorted."""
        return sorted({t.source_topic for t in self.plan.topics})

    @property
    def routes(self) -> Mapping[TopicPartition, TopicPartition]:
        """Target partition by source partition, for all topics of the plan."""
        return self.plan.routes

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The fenced ends of the source; empty before the fence is proven."""
        # What the report has, and nothing else: a process that goes on with an opening has only that.
        return self.report.cut

    @property
    def permit(self) -> Permit:
        """What is called right before the bytes of an effect: the fence is decided to be this attempt's still."""
        assert self.up is not None
        # Made anew for each effect: `up` is another value behind each decision of our own. A step that keeps one across
        # such a decision would be refused by itself.
        return permit(self.ledger, self.mirror.name, self.up)

    @cached_property
    def may_set(self) -> Permit:
        """The permit for positions of groups: the fence and the writer lease were this attempt's a moment ago.

        Nobody else sets any sooner than seconds after that: a later attempt has its own fence to prove, waits for the
        lease, and sets again behind that wait what is no longer as it was set (:func:`.groups.keep_groups`).
        """

        # The lease last. A tail that takes it behind our confirmation waits 7 s before it writes or sets anything; a
        # decision has no such wait, and is looked at first, since the lease alone proves nothing: a thawed process can
        # take it itself.
        def ours() -> None:
            self.permit()
            if direction(self.ledger.values(), self.mirror.name) != self.turned:  # failed over, by force
                raise CutoverTakenOver(self.store.run)
            assert self.lease is not None
            self.on.target.confirm_lease(self.lease)

        # Hundreds of groups in a second: asked every two. The clock goes on while this process is frozen, so the first
        # request behind a freeze asks again.
        return recently(ours, self.on.clock.monotonic)

    def is_up(self, up: FenceState) -> None:
        """Note that its fence is decided to be up, or may be: from here on its report has a place on the target."""
        self.up, self.report.id = up, self.me
        self.store.begin_anew()

    def read_again(self) -> None:
        """Take up what others have written into a finished cutover's report: who has lifted its kept fence, say.

        Errors as :meth:`ReportStore.load`.
        """
        self.report = self.store.of(self.report.id) or self.report

    def save(self) -> None:
        """Write the report; on the target only once a fence of this attempt was decided.

        Errors as :meth:`ReportStore.save`.
        """
        # No other host may read of an attempt that was never decided to be up: such reports were once undone as if
        # their fence stood, and took that of another attempt away.
        # One of which nobody knows whether it was decided counts as up: whoever finds that it was needs the report.
        if self.up is None:
            self.store.save_here(self.report)
        else:
            self.store.save(self.report)

    def check_stop(self) -> None:
        """Return if the cutover may go on.

        :raises CutoverCancelled: it was asked to stop. :raises FenceTooLong: ``max_fence_s`` are over.
        """
        step = self.report.steps[-1].name if self.report.steps else "start"
        if self.stop.is_set():
            raise CutoverCancelled(step)
        # This clock only makes an attempt back out in time. That it can't open later is held by the broker's, in the
        # decision.
        if self._left_s() <= 0:
            raise FenceTooLong(step, self.limits.max_fence_s)

    def at_most(self, limit_s: float) -> float:
        """Return a limit, or what is left of ``max_fence_s`` if that is less.

        A little less than is left, so that the error is the one that says what was waited for.
        """
        return min(limit_s, self._left_s() - 2 * self.limits.poll_s)

    def _left_s(self) -> float:
        return math.inf if self.fenced_until is None else self.fenced_until - self.now()

    def pause(self, seconds: float | None = None) -> None:
        """Wait ``poll_s`` or the given time. Errors of :meth:`check_stop`, early if the cutover is asked to stop."""
        rest = self.limits.poll_s if seconds is None else seconds
        while True:
            self.say()
            # Never past `max_fence_s`: with each second behind that a guard comes nearer which takes this process for
            # one that hangs.
            self.stop.wait(max(0.0, min(rest, self._left_s(), _SAY_EVERY_S)))
            # Frozen in the wait: what was looked at before it is old, and this clock has gone on. If the fence's time is
            # over, the attempt ends here; otherwise each step looks again, and each effect asks its permit.
            self.check_stop()
            rest -= _SAY_EVERY_S
            if rest <= 0:
                return

    def say(self) -> None:
        """While producers are kept out, log once a second what is waited for, and how long that may still last."""
        now = self.now()
        if self.fenced_until is None or now - self.said_at < _SAY_EVERY_S:
            return
        self.said_at = now
        step, most_s = self.report.steps[-1].name if self.report.steps else "start", self.limits.max_fence_s
        waits = f" waits for {self.waits_for}" if self.waits_for else ""
        self.log.info("%s%s; %.0f of %.0f s are left", step, waits, max(0.0, self._left_s()), most_s)

    def now(self) -> float:
        """Return seconds of a monotonic clock."""
        return self.on.clock.monotonic()
