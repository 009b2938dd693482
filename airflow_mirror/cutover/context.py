"""What the steps of a cutover share: the two clusters, the limits, the report, and how to wait."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.cutover.decision import FenceState, permit
from airflow_mirror.cutover.fence import Fence
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import CutoverCancelled, CutoverTakenOver, FenceTooLong
from airflow_mirror.jobs.runner.active import heard_by
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import Permit, recently
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.state import State
from airflow_mirror.mirror import Mirror
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.groups import Translate
from airflow_mirror.verify.result import PartitionComparison
from airflow_mirror.wire.cluster import WireCluster

_SAY_EVERY_S = 1.0

Offsets = Mapping[TopicPartition, int]
Verify = Callable[[Offsets], "Sequence[PartitionComparison]"]


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


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Time limits of the steps, in seconds.

    :param max_fence_s: for everything from the fence to the opening. It caps every limit below by what is left of it.
    :param drain_timeout_s: for the tail to reach the fenced ends.
    :param quiet_s: how long the source's log end offsets must stay unchanged to prove the fence; longer where the pauses
        between two writes are longer. ``quiet_at_most_s``: so long they are watched for that, before the fence.
    :param settle_s: wait after raising the fence, for brokers to learn of it and to answer requests in flight.
    :param proof_timeout_s: for every broker to learn of the fence and to refuse writers.
    :param transactions_timeout_s: for transactions that were open at the fence to end.
    :param wait_groups_s: for consumer groups on the source to come to rest.
    :param group_quiet_s: how long a group with members and lag must not commit. Above 5 s, because consumers commit
        every 5 s by default, and between two commits no position moves.
    :param approval_valid_s: how old it may be what was shown before the cutover.
    :param poll_s: between two polls.
    """

    max_fence_s: float = 60.0
    drain_timeout_s: float = 300.0
    quiet_s: float = 3.0
    quiet_at_most_s: float = 10.0
    settle_s: float = 1.0
    proof_timeout_s: float = 10.0
    transactions_timeout_s: float = 90.0
    wait_groups_s: float = 60.0
    group_quiet_s: float = 6.0
    approval_valid_s: float = 3600.0
    poll_s: float = 0.2


@dataclass(kw_only=True)
class Run:
    """One attempt of a cutover: the state that its steps share.

    :param on: both clusters, their ledgers, and time.
    :param kept: where the report is written, and found by the next process.
    :param verify: compares up to the given source ends; called while the source is fenced.
    :param mirror: selects the consumer groups that move.
    :param tail_positions: source offsets up to which the target holds everything, for topics with mapped offsets.
    :param translate_offset: translates an offset of a source partition, for topics with mapped offsets.
    :param require_guard: raises if nobody would lift the fence were this process killed.
    :param allow_rewind: also commit a position that is behind the group's position on the target; otherwise such a
        group is refused.
    :param accept_still_groups: groups with members and lag whose positions count once they stand still.
    :param leave_out_groups: selected groups that don't move: nothing of them is read on the source, or set on the target.
    :param accept_ledger_writers: principals who may write to the target's ledger beside the mirror's; see :mod:`.check`.
    :param fence_name: as it was asked for, for people.
    :param compared_to: source offsets up to which an earlier comparison found both sides equal; ``verify`` begins there.
        None: nobody knows.
    :param compared: revisions of the plan that were compared, or shown, before.
    :param shown_at: when was seen what was shown before; seconds since the epoch. None: nothing was.
    :param signer: signs the report's link in the chain of reports.
    :param require: raises what else refuses this cutover, before anything is touched.
    :param decide_with: what is decided in the record that opens the target.
    :param stop: set by another thread to make the cutover back out.
    :ivar me: names this process, and this attempt, in decisions.
    :ivar before: what was decided about the mirror's fence when the attempt began; ``turned``: about its direction.
    :ivar intent: what the fence changes.
    :ivar up: what is decided about this attempt's fence, or may be; None: nothing was.
    :ivar until_ms: of the broker's clock; `up` can't be opened from then on.
    :ivar fenced_until: of the clock of ``now``: ``max_fence_s`` are over; None: no fence is up, or it has served.
    :ivar waits_for: what a step waits for, for people; ``said_at``: when the log said so last, on the clock of ``now``.
    :ivar opening: whether the decision to open may have been sent.
    :ivar lease: the mirror's writer lease, after the cutover has taken it from the tail.
    :ivar longest_pause_s: between two writes to a partition, as seen before the fence.
    :ivar quiet_since: the source's ends have not moved; on the clock of ``now``.
    :ivar sealed_at: when the tail's last task must have stopped; on the clock of ``now``.
    :ivar settled: the groups that came to rest; None: nobody has waited for them yet.
    :ivar seen_groups: each group's positions on the source, and since when; on the clock of ``now``.
    """

    mirror: Mirror
    plan: Plan
    on: Platform
    fence: Fence
    keep_fence: bool
    verify: Verify
    limits: Limits
    report: CutoverReport
    kept: Kept
    log: Log = field(default_factory=lambda: logging.getLogger("airflow_mirror.cutover"))
    tail_positions: Callable[[], Offsets] | None = None
    translate_offset: Translate | None = None
    require_guard: Callable[[], object] = lambda: None
    allow_rewind: bool = False
    accept_still_groups: Collection[str] = ()
    leave_out_groups: Collection[str] = ()
    accept_ledger_writers: Collection[str] = ()
    fence_name: str = ""
    compared_to: Offsets | None = None
    compared: Sequence[str] = ()
    shown_at: float | None = None
    signer: Signer | None = None
    require: Callable[[], object] = lambda: None
    decide_with: Callable[[Values], Values] = lambda _: {}
    stop: threading.Event = field(default_factory=threading.Event)
    me: str = ""
    before: FenceState | None = None
    turned: Direction | None = None
    intent: Intent = field(default_factory=lambda: Intent(topics=()))
    up: FenceState | None = None
    until_ms: int = 0
    fenced_until: float | None = None
    waits_for: str = ""
    said_at: float = -math.inf
    opening: bool = False
    lease: LeaseToken | None = None
    longest_pause_s: float = 0.0
    quiet_since: float = 0.0
    sealed_at: float = 0.0
    settled: dict[str, Settled] | None = None
    seen_groups: dict[str, tuple[Mapping[TopicPartition, GroupPosition], float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.me = self.me or self.on.new_id()

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
    def life(self) -> Decisions:
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

    @cached_property  # asked for each partition behind the fence
    def routes(self) -> Mapping[TopicPartition, TopicPartition]:
        """Target partition by source partition, for all topics of the plan."""
        return {
            TopicPartition(t.source_topic, p): TopicPartition(t.target_topic, p)
            for t in self.plan.topics
            for p in range(t.partitions)
        }

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The fenced ends of the source; empty before the fence is proven."""
        return self.report.cut

    @property
    def permit(self) -> Permit:
        """What is called right before the bytes of an effect: the fence is decided to be this attempt's still."""
        assert self.up is not None
        return permit(self.life, self.mirror.name, self.up)

    @cached_property
    def may_set(self) -> Permit:
        """The permit for positions of groups: the fence and the writer lease were this attempt's a moment ago.

        Nobody else sets any sooner than seconds after that: a later attempt has its own fence to prove, waits for the
        lease, and sets again behind that wait what is no longer as it was set (:func:`.groups.keep_groups`).
        """

        def ours() -> None:
            self.permit()
            if direction(self.life.values(), self.mirror.name) != self.turned:  # failed over, by force
                raise CutoverTakenOver(self.kept.run)
            assert self.lease is not None
            self.on.target.confirm_lease(self.lease)

        return recently(ours, self.on.clock.monotonic)

    def save(self) -> None:
        """Write the report; on the target only once a fence of this attempt was decided. Errors as :meth:`Kept.save`."""
        if self.up is None:
            self.kept.save_here(self.report)
        else:
            self.kept.save(self.report)

    def check_stop(self) -> None:
        """Return if the cutover may go on.

        :raises CutoverCancelled: it was asked to stop. :raises FenceTooLong: ``max_fence_s`` are over.
        """
        step = self.report.steps[-1].name if self.report.steps else "start"
        if self.stop.is_set():
            raise CutoverCancelled(step)
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
            self.stop.wait(max(0.0, min(rest, self._left_s(), _SAY_EVERY_S)))
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
