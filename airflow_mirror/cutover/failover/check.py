"""What a failover would do and cost, as the target's ledger tells it. The source is not asked: it need not be known.

Nothing is changed. To tell whether a tail lives, its signs are listened for, up to half a minute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.reader import MapReader
from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.failover.decision import cut_over, cutover_at_work
from airflow_mirror.cutover.failover.groups import Groups, groups_of
from airflow_mirror.cutover.failover.losses import Losses, losses
from airflow_mirror.cutover.failover.tail_seen import TailSeen, tail_of
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError, LedgerNewer, MirrorError
from airflow_mirror.jobs.runner.active import ActiveTail, active_tail
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.ledger.records import FENCE
from airflow_mirror.plan import ledger_store, requirements
from airflow_mirror.plan.direction import FAILOVER, Direction, direction
from airflow_mirror.plan.missing_acls import Lacking, lacking
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import began_anew, ended_by, mirrors, target_ids
from airflow_mirror.plan.rights import FAILOVER as ROLE
from airflow_mirror.plan.rights import TARGET
from airflow_mirror.plan.rights_command import rights_command
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.verify.partition import count_data
from airflow_mirror.wording import first_lines, some

_LOOKED_INTO = 200  # partitions at most, those that lack most: a failover does not wait for ten thousand
_LOOKED_AT = 100  # offsets at the end of a partition's log that tell whether it has markers or holes
_LISTED = 50
UNMOVED = "the mirror moves none (sync_groups), each stands where its application or a cutover has left it"
_READ = 15  # lines of a list in the text that an approver reads: each list ends by itself, and none hides the next


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a failover would find.

    :param at: when, in seconds since the epoch: an approver may read it hours later.
    :param decided: a failover that was decided before; the next one completes it.
    :param missing: target topics of the plan that are not there.
    :param others: those that belong to other mirrors, each with its owner; ``plan`` has none of them.
    :param lacking: rights that this connection's principal would need. :param principal: None: nobody knows it.
    :param unattended: nobody approves it.
    :param fenced_by: mirrors that were cut over from here, whose fences keep everybody but this one out of the target
        topics.
    :param at_work: why a cutover refuses it as well, without force. :param cut_over: why one does with force, too.
    """

    at: float
    plan: Plan
    tail: TailSeen
    losses: Losses
    groups: Groups
    decided: Direction | None
    missing: tuple[str, ...]
    lacking: tuple[Lacking, ...] = ()
    principal: str | None = None
    others: Mapping[str, str] = field(default_factory=dict)
    unattended: bool = False
    fenced_by: tuple[str, ...] = ()
    at_work: MirrorError | None = None
    cut_over: MirrorError | None = None

    @property
    def refusal(self) -> InputError | None:
        """Why it would be refused: the source was seen in the last half minute, or rights are missing.

        Cut off from here is not gone. And what is decided without the right to complete it leaves groups beyond the
        log's end, or writers outside. One that nobody approves also while nobody has missed the source: of a tail that
        died, and is started again, its own host may be all that was lost.
        """
        name = self.plan.mirror.name
        if saw := self.tail.saw(self.losses.age_s):
            return InputError(
                f"mirror {name!r}", f"{saw}: cut off from here is not gone. Nothing was changed",
                "If the source lives, cut over instead (CutoverOperator): nothing is lost then. If it has just gone, try "
                "again in half a minute; or use force: what the source takes from now on is lost.",
            )  # fmt: skip
        if self.unattended and not self.tail.misses and self.losses.missed_s is None:
            tail = f"its tail on host {self.tail.host!r} is {self.tail.status}" if self.tail.status else "it has no tail"
            return InputError(
                f"mirror {name!r}", f"{tail}, and none has missed the source: it may live. Nothing was changed",
                "A person has to decide that: fail it over with an approval, or by force. Or start the tail again: it "
                "says whether the source is there.",
            )  # fmt: skip
        if not self.lacking:
            return None
        return InputError(
            f"mirror {name!r} can't be failed over with these rights on the target",
            f"{some(map(str, self.lacking), 10, '; ')}. Nothing was changed",
            "Grant them by the commands that this prints, or use a connection whose principal has them: "
            f"{rights_command(self.plan.mirror, ROLE, TARGET, self.principal)}. With force, what needs them fails behind "
            "the decision, and stays to be done.",
        )  # fmt: skip

    def lines(self, most: int = _LISTED) -> list[str]:
        """Return what there is to say, for people: what refuses or lacks before the partitions.

        :param most: how many lines of each list.
        """
        plan = self.plan
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")
        head = f"mirror {plan.mirror.name!r}, {len(plan.topics)} topics of cluster {plan.source_cluster_id}, seen at {at}"
        if self.decided is not None:
            head += f": failed over at {self.decided.at}; another failover completes that one"
        lines = [head, *self.losses.lines(), *map(fence_line, self.fenced_by), *self._tail(), *self._groups(most)]
        if self.decided is None:
            refused = (one for one in (self.refusal, self.at_work) if one is not None)
            lines[1:1] = [f"a failover would be refused without force: {one}" for one in refused]
            lines[1:1] = [] if self.cut_over is None else [f"a failover would be refused: {self.cut_over}"]
        lines += left_out(self.others)
        lines += first_lines((f"not allowed: {one}" for one in self.lacking), most)
        lines += first_lines((f"missing on the target: {topic}" for topic in self.missing), most)
        return lines + self.losses.by_partition(most)

    def _tail(self) -> list[str]:
        tail = self.tail
        if not tail.status:
            return ["no tail is decided to be the mirror's"]
        unseen = tail.unseen_s
        seen = "nobody knows when it saw the source" if unseen is None else f"source unseen for {unseen:.0f} s"
        ages = ", ".join(f"{name} {age:.0f} s" for name, age in sorted((tail.ages_s or {}).items()))
        return [f"its tail on host {tail.host!r}: {tail.status}, {seen}; looked at before that: {ages or 'nothing'}"]

    def _groups(self, most: int) -> list[str]:
        one = self.groups
        unmoved = "" if self.plan.mirror.sync_groups else f"; {UNMOVED}"
        lines = [f"groups: {one.positions} positions are on the target{unmoved}"]
        if one.without:
            lines.append(f"  {len(one.without)} groups of the plan have no position here, as {one.without[0]}")
        members = ", and has members: nobody can set it"
        # Those that nobody can set first: what a person has to do must not be behind what is done by itself.
        beyond = (
            f"  {group} at {tp}: {p.offset} goes back to {stable}{members if group in one.active else ''}"
            for group, its in sorted(one.beyond.items(), key=lambda item: item[0] not in one.active)
            for tp, (p, stable) in its.items()
        )
        return lines + first_lines(beyond, most)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values in a few kilobytes."""
        beyond = [f"{group} at {tp}" for group, its in self.groups.beyond.items() for tp in its]
        return {
            "mirror": self.plan.mirror.name,
            "at": self.at,
            "plan": self.plan.hash,
            "topics": len(self.plan.topics),
            "missing": list(self.missing[:_LISTED]),
            "others": left_out(self.others),
            "lacking": [str(one) for one in self.lacking],
            "fenced_by": list(self.fenced_by),
            "decided": None if self.decided is None else self.decided.value(),
            "tail": {**vars(self.tail), "ages_s": dict(self.tail.ages_s or {})},
            "lost": self.losses.to_dict(),
            "groups": {
                "positions": self.groups.positions,
                "beyond": {"count": len(beyond), "first": beyond[:_LISTED]},
                "active": list(self.groups.active[:_LISTED]),
                "without": {"count": len(self.groups.without), "first": list(self.groups.without[:_LISTED])},
            },
            "text": self.lines(_READ),
        }


def check(on: Side, mirror: str, *, unattended: bool = False) -> Check:
    """Return what a failover of a mirror would find. Changes nothing.

    :param on: the mirror's target. :param unattended: nobody approves it.
    :raises InputError: the target knows no such mirror. :raises LedgerMissing: :raises LedgerLost: it has no ledger.
    """
    target = on.admin
    plan, decided, tail, others = mirror_of(on, mirror)
    # Listened for before the losses are worked out: what is told is as of the end of the silence.
    seen = tail_of(on, tail)
    now_ms = int(on.clock.time() * 1000)
    # Each of what follows is of its own moment, and pins nothing. The decision pins direction, tail and fence by readings
    # of its own (`run._decide`).
    there = target.topics([t.target_topic for t in plan.topics])
    groups, values = groups_of(target, plan), on.ledger.values()
    missing_rights = tuple(lacking(ROLE, plan, groups.known, target=target)[0])
    return Check(
        at=now_ms / 1000,
        plan=plan,
        tail=seen,
        losses=lost(on, plan, now_ms),
        groups=groups,
        decided=decided,
        lacking=missing_rights,
        principal=target.principal if missing_rights else None,
        missing=tuple(t.target_topic for t in plan.topics if t.target_topic not in there),
        others=others,
        unattended=unattended,
        fenced_by=tuple(fenced_by(values, mirror)),
        at_work=cutover_at_work(values, mirror),
        cut_over=cut_over(values, plan, {name: info.topic_id for name, info in there.items()}),
    )


def fenced_by(values: Values, mirror: str) -> list[str]:
    """Return the mirrors that were cut over from the target of this one, which copies back, and whose fences stand there.

    What is decided about them stands here as a copy (:mod:`.rollback.fence_copy`), since their own target may be lost.
    """
    found = []
    for name in FENCE.under(values):
        # A newer version's: what it has changed can't be told, and a failover is not to wait for that.
        with suppress(LedgerNewer):
            there = fence_state(values, name)
            if there is not None and not there.is_over and there.intent.get("copied_by") == mirror:
                found.append(name)
    return found


def fence_line(name: str) -> str:
    """Return what to do about a fence that keeps applications out, of :func:`fenced_by`."""
    return (
        f"applications are kept out by the fence of mirror {name!r}, which stands here. Lift it after the failover; this "
        f"is CLUSTER: airflow-mirror lift-fence --target CLUSTER --source CLUSTER --mirror {name} --include-retained"
    )


def left_out(others: Mapping[str, str]) -> list[str]:
    """Return what there is to say, for people, of topics that belong to other mirrors."""
    return first_lines((f"left out: {topic} belongs to {owner}" for topic, owner in others.items()), _LISTED)


def mirror_of(on: Side, mirror: str) -> tuple[Plan, Direction | None, ActiveTail | None, dict[str, str]]:
    """Return a mirror's plan with its amendments, what is decided about its direction, its tail, and what is others'.

    The plan is that of the tail, which is what was copied; without one the last that was made. Topics that have passed
    on since, by a split that was cut off, say, are not in it: they come last, with their owners.

    :raises InputError: the target knows no such mirror, or all topics of its plan are others'.
    """
    target, ledger = on.admin, on.ledger
    # One reading for all three: of two, the plan could be of a tail that was decided behind the direction.
    values = ledger.values()
    decided, tail = direction(values, mirror), active_tail(values, mirror)
    # A way back that was armed, or a rollback, has the direction since: there is no failover that could be completed.
    if decided is not None and (decided.by != FAILOVER or is_former(on, decided, mirror, values)):
        decided = None
    # The tail's, not the last one that was made: what was copied is what is there. Behind a decision the one that it
    # names, since the tail has ended, and whoever completes it must open the same topics.
    plan_hash = decided.plan if decided else tail.plan if tail else ledger_store.last_hash(values, mirror)
    if plan_hash is None:
        raise ledger_store.unknown_mirror(mirror, mirrors(values))
    plan = on.plan(mirror, plan_hash)
    # A ledger that was restored elsewhere has the same plans: promoted there, nobody would find the records.
    if plan.target_cluster_id != (found := target.cluster_id()):
        what = f"mirror {mirror!r} was planned for target cluster {plan.target_cluster_id}, and this is {found}"
        raise InputError(what, remedy="Nothing was changed. Name the target's own connection.")
    own, others = own_part(on, plan, values)
    return own, decided, tail, others


def is_former(on: Side, decided: Direction, mirror: str, values: Values) -> bool:
    """Return whether a mirror was started over since a failover: its topics were made anew, and none is in production.

    :param decided: the failover. :raises PlanNotKept: the plan of these topics is gone; InputError: it can't be read.
    """
    if decided.by != FAILOVER or ended_by(values, mirror):  # all that the mirror has is in production
        return False
    # By its topics: a tail that had looked before the failover may be decided behind it, and ends by its lease. What
    # that failover lacks is completed all the same, under its own cut: its first record has opened some of them.
    # Of a mirror without a tail, which the failover has ended, by the last plan: a bulk copy goes by it, and no tail
    # may follow for hours, or ever.
    tail = active_tail(values, mirror)
    plan_hash = tail.plan if tail else ledger_store.last_hash(values, mirror) or decided.plan
    return began_anew(values, on.plan(mirror, plan_hash))


def own_part(on: Side, plan: Plan, values: Values) -> tuple[Plan, dict[str, str]]:
    """Return a plan without topics of other mirrors, and these with their owners.

    :raises InputError: all of them are.
    """
    own, others = requirements.own_part(values, plan, target_ids(plan, on.admin))
    if others and not own.topics:
        what, cause = f"mirror {plan.mirror.name!r} has no topic of its own", "; ".join(left_out(others))
        raise InputError(what, cause, "Nothing was changed. Fail over the mirrors that have them.")
    return own, others


def failed_over(on: Side, mirror: str) -> tuple[Plan, Direction]:
    """Return the plan of a mirror that was failed over, and that decision.

    :raises InputError: it was not; or as :func:`mirror_of`.
    """
    plan, decided, *_ = mirror_of(on, mirror)
    if decided is None:
        what = f"mirror {mirror!r} was not failed over, or its way back is armed since, or it was started over"
        raise InputError(what, remedy="'airflow-mirror failover' without --yes says what would be lost.")
    return plan, decided


def lost(on: Side, plan: Plan, now_ms: int) -> Losses:
    """Return what would be lost if the copy ended here."""
    target = on.admin
    noted = notes.load(plan.mirror.name, on.state(notes.prefix(plan.mirror.name)).read())
    seen = notes.since(noted, plan.created_at)
    # Behind the notes. While a tail still copies, the target may have more than the last noted ends: counted as `beyond`,
    # and not as a loss. Behind the taken lease the copy moves no more.
    copied = copied_to(target, plan)
    committed = plan.mirror.isolation == "read_committed"
    partitions = list(plan.routes)
    first = losses(seen, copied, partitions, (), now_ms, committed=committed)
    short = [one.source for one in sorted(first.partitions, key=lambda one: -one.missing)[:_LOOKED_INTO] if one.missing]
    return losses(seen, copied, partitions, _dense(target, plan, short), now_ms, committed=committed)


def copied_to(target: ClusterAdmin, plan: Plan) -> dict[TopicPartition, int]:
    """Return by source partition the offset up to which the target has everything, where that can be told.

    With mapped offsets it is what the stored map says: the copy may have been a little further.
    """
    wire = target.wire
    there = target.topics([t.target_topic for t in plan.topics])
    found: dict[TopicPartition, int] = {}
    identical = [t for t in plan.topics if t.mode == "identical" and t.target_topic in there]
    wire.refresh([t.target_topic for t in identical])
    sources = {
        TopicPartition(t.target_topic, p): TopicPartition(t.source_topic, p)
        for t in identical
        for p in range(there[t.target_topic].partitions)
    }
    # The log's end: nobody writes any more, and what is appended there is the mirror's, replicated already or not.
    for tp, end in wire.log_ends(sources).items():
        found[sources[tp]] = end
    maps = MapReader(plan.mirror.name)
    for t in plan.topics if plan.mirror.partitioning != "by_key" else ():
        if t.mode != "identical" and t.target_topic in there:
            for p in range(t.partitions):
                # What is stored of the map, which the copy writes behind its data: a copy that died in between was a
                # little further.
                known = maps.load(wire, mapped_range(t.source_topic, t.target_topic, p))
                if known is not None:
                    found[TopicPartition(t.source_topic, p)] = known.source_end
    return found


def _dense(target: ClusterAdmin, plan: Plan, short: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return those source partitions whose newest offsets all hold records on the target."""
    names = {t.source_topic: t.target_topic for t in plan.topics if t.mode == "identical"}
    there = {TopicPartition(names[tp.topic], tp.partition): tp for tp in short if tp.topic in names}
    wire = target.wire
    starts, ends = (wire.log_starts(there), wire.last_stable(there)) if there else ({}, {})
    dense = []
    for tp, source in there.items():
        start = max(starts[tp], ends[tp] - _LOOKED_AT)
        if start < ends[tp] and count_data(wire, tp, start, ends[tp]) == ends[tp] - start:
            dense.append(source)
    return dense
