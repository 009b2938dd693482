"""The two clusters of a mirror, in memory, and what has happened there: what invariants look at.

The mirror `flow` copies `orders` and `payments`, of one partition each, with equal offsets; both sides hold the same
records. The application `User:app` may write on both sides until a fence keeps it out. Topics carry their ids, so that a
topic that somebody creates again is another one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.decision import LIFTING, OPENED, UP, FenceState, fence_state
from airflow_mirror.cutover.failover.decision import promote
from airflow_mirror.cutover.failover.record import Cut, Record
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import ACL, Intent
from airflow_mirror.cutover.report import DONE, CutoverReport, FenceRecord, GroupRecord, StepRecord, as_recorded
from airflow_mirror.cutover.report_store import ReportStore, text_in
from airflow_mirror.cutover.rollback.reverse import reverse_of
from airflow_mirror.cutover.swap import swap_fence
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger import records
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import ledger_store, ownership
from airflow_mirror.plan.direction import FAILOVER, Direction, direction, turn
from tests.builders import plan_of, rule, topic_plan
from tests.explore import gate
from tests.explore.platform import ActorPlatform, ActorSide, GuardProcess, keys
from tests.explore.turns import Actor
from tests.memory.admin import MemoryAdmin
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger, MemoryState
from tests.memory.rules import Rules

if TYPE_CHECKING:
    from airflow_mirror.cutover.attempt import Attempt
    from airflow_mirror.plan.model import Plan
    from tests.explore.scheduler import Scheduler

TOPICS = ("orders", "payments")
TPS = tuple(TopicPartition(topic, 0) for topic in TOPICS)
APP, OWN = "User:app", "User:mirror"
GROUP, READ = "readers", 7  # a consumer group, and how far it has read on the source
LATE = f"{GROUP}-late"  # another one, in scenarios that give it a position; what is done for either names GROUP
CUT = 10  # records in each partition
# What nobody changes in most scenarios. Of rights nobody's are changed but those of writers of topics.
_STILL = frozenset({"topic", "log", "transaction", "state:plan", "state:acls", "state:configs", "state:ends"})
_APPLICATIONS_OWN = ("target: create ALLOW", "target: delete ALLOW", "target: alter configs")  # once it is open


def _cluster(role: str, s: Scheduler | None = None) -> MemoryCluster:
    cluster = MemoryCluster(role, clock=None if s is None else s.brokers_clock(), rules=Rules())
    for topic in TOPICS:
        cluster.create(topic)
    return cluster


def _plan(mirror: Mirror, source: MemoryCluster, target: MemoryCluster, *topics: str) -> Plan:
    ends = {0: CUT}
    return plan_of(
        mirror,
        *(topic_plan(t, {0: 0}, source_topic_id=source.topics[t].topic_id, ends=ends) for t in topics or TOPICS),
        source_cluster_id=source.cluster_id, target_cluster_id=target.cluster_id,
    )  # fmt: skip


MIRROR = Mirror(name="flow", source="src", target="dst", topics=["orders.*", "payments"])
ANOTHER = "orders-eu"  # a topic that the mirror selects, and that is not planned
_SOURCE, _TARGET = _cluster("source"), _cluster("target")
PLAN = _plan(MIRROR, _SOURCE, _TARGET)
REVERSE = _plan(reverse_of(MIRROR), _TARGET, _SOURCE)
OTHER = _plan(Mirror(name="other", source="elsewhere", target="dst", topics=[*TOPICS]), _SOURCE, _TARGET)


@dataclass
class Change:
    """A change of the decision about the fence: when, by whom, and what it was before."""

    at: float
    by: str
    before: FenceState | None
    now: FenceState | None


class World:
    """See the module.

    :param with_groups: a consumer group has positions on the source.
    :param gated: by which function of `gate` the site fences; "": by ACLs.
    :param reopens: somebody lets writers into the old source on purpose while the target is open.
    :ivar lifters, swappers: who lifts a fence, or swaps one.
    :ivar rivals: attempts of another mirror that were told that their fence is raised.
    :ivar fences: the changes of what is decided about the fence of `flow`, in order.
    :ivar set_behind: positions that were set on the target while it was in production, by whom: not by their readers.
    :ivar changed_behind: rules that let somebody in, and settings, that were changed there meanwhile.
    :ivar unopened: topics that were in production and are no more, or by somebody else.
    :ivar written_behind: what the mirror wrote to the target while it was in production, or back to the source while
        applications might write there.
    :ivar left_behind: what the source had when a cutover opened the target, and the target had not.
    :ivar beyond: where a group stands that a failover takes back to the cut; None: none does.
    :ivar is_cut_over: whether a cutover has opened the target in this schedule.
    :ivar was_shut: whether the source was shut by a kept fence at some time since the target is in production.
    :ivar stood: for how many seconds which attempt's fence has kept writers out, while guards were undisturbed.
    """

    def __init__(
        self, scheduler: Scheduler, *, with_groups: bool = False, reopens: bool = False, gated: str = "",
        changing: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.s, self.with_groups, self.reopens = scheduler, with_groups, reopens
        self.fenced_by = gated or ACL
        self.source, self.target = _cluster("source", scheduler), _cluster("target", scheduler)
        self.gives_signs: dict[tuple[str, str], Actor] = {}
        self.guards: list[GuardProcess] = []
        self.fences: list[Change] = []
        self.set_behind: list[str] = []
        self.written_behind: list[str] = []
        self.changed_behind: list[str] = []
        self.unopened: list[str] = []
        self.left_behind: list[str] = []
        self.lifters: list[Actor] = []
        self.swappers: list[Actor] = []
        self.rivals: list[Attempt] = []
        self.was_shut, self.is_cut_over = False, False
        self.beyond: GroupPosition | None = None
        self.stood: dict[str, float] = {}
        self._up: dict[str, float] = {}
        self._is_shut, self._fenced = False, set[str]()
        self._back: dict[str, str] = {}
        self._names: Counter[str] = Counter()
        for cluster in (self.source, self.target):
            rules = [rule(t, "WRITE", "ALLOW", APP) for t in TOPICS]
            rules += [rule(t, "ALL", "ALLOW", OWN) for t in TOPICS]
            rules += [rule("kafka-cluster", "ALL", "ALLOW", OWN, kind="CLUSTER")]
            rules += [rule("*", "ALL", "ALLOW", OWN, kind="GROUP")]
            cluster.create_acls(*rules)
            for tp in TPS:
                cluster.append(tp, *(b"%d" % n for n in range(CUT)))
        if with_groups:
            self.source.commit(GROUP, {tp: GroupPosition(READ) for tp in TPS})
        self.keep(PLAN, self.target)
        ownership.claim(MemoryLedger(self.target), PLAN, MemoryAdmin(self.target))  # type: ignore[arg-type]
        lease.take(MemoryAdmin(self.target).wire, MIRROR.name)  # type: ignore[arg-type]
        self._was: tuple[Any, ...] = (None, {}, {})
        self._forget()
        scheduler.still = (_STILL | (frozenset() if with_groups else {"group"})).difference(changing)
        scheduler.after_effect.append(self._look)

    # --- what is so ---------------------------------------------------------------------------------------------------

    @property
    def fence(self) -> FenceState | None:
        """What is decided about the fence of the source."""
        return fence_state(self.target.decided, MIRROR.name)

    @property
    def opened_by(self) -> dict[str, str]:
        """By whom topics of the target are in production; without those that are the mirror's."""
        found = ((t, self.target.decided.get(f"topic/{t}") or {}) for t in TOPICS)
        return {t: one["opened_by"] for t, one in found if one.get("opened_by")}

    @property
    def opened_back_by(self) -> dict[str, str]:
        """By whom topics of the old source are in production again."""
        found = ((t, self.source.decided.get(f"topic/{t}") or {}) for t in TOPICS)
        return {t: one["opened_by"] for t, one in found if one.get("opened_by")}

    @property
    def is_rolled_back(self) -> bool:
        """Whether it is decided that applications write to the old source again."""
        one = direction(self.source.decided, REVERSE.mirror.name)
        return one is not None and one.by == "rollback"

    @property
    def denied(self) -> list[str]:
        """The topics of the source that a fence keeps everybody out of."""
        rules = self.source.rules.now
        return [t for t in TOPICS if (rule(t, "WRITE", "DENY") if self.fenced_by == ACL else gate.shut_by(t)[0]) in rules]

    @property
    def names(self) -> list[str]:
        """The names that fences have at the source."""
        return sorted({a.name for a in self.source.rules.now if a.name.startswith("airflow-mirror.fence.")})

    # --- what actors are handed ---------------------------------------------------------------------------------------

    def platform(self, *, polls: bool = False) -> ActorPlatform:
        """Return what one process is handed."""
        return ActorPlatform(ActorSide(self, self.source, polls=polls), ActorSide(self, self.target, polls=polls))

    def new_id(self) -> str:
        """Return a name that nobody else has, by which a story is readable: the actor's, and a number."""
        who = self.s.me.name if self.s.me is not None else "world"
        self._names[who] += 1
        return f"{who}-{self._names[who]}"

    def named(self, role: str, mirror: str) -> dict[str, Any]:
        """Name the process of the actor that runs, which gives signs of life on a cluster from now on."""
        me = self.s.me
        assert me is not None
        job = f"job-{me.name}"
        self.gives_signs[role, keys(mirror, job)] = me
        return {"host": f"host-{me.name}", "where": f"host-{me.name}/1", "pid": 1, "started": 1, "job": job}

    def guard(
        self, name: str, source: MemoryCluster, target: MemoryCluster, mirror: str, owner: Actor | None,
        fence: str = ACL, **when: Any,
    ) -> GuardProcess:  # fmt: skip
        """Start the guard of a mirror's fence."""
        on = ActorPlatform(ActorSide(self, source, polls=True), ActorSide(self, target, polls=True))
        one = GuardProcess(on, mirror, owner, fence)
        one.actor = Actor(name, one.run, background=True, rests=lambda: one.rests, **when)
        self.guards.append(one)
        self.s.add(one.actor)
        return one

    # --- states to begin with -----------------------------------------------------------------------------------------

    def keep(self, plan: Plan, cluster: MemoryCluster, *, as_last: bool = True) -> None:
        """Keep a plan in a cluster's ledger, as who plans a mirror does."""
        state = MemoryState(cluster, records.PLAN.below(plan.mirror.name))
        ledger_store.keep(plan, state, MemoryLedger(cluster), as_last=as_last)

    def cut_over(self, run: str = "r1") -> None:
        """Begin behind a finished cutover that has kept its fence."""
        fence = AclFence(MemoryAdmin(self.source))  # type: ignore[arg-type]
        intent = fence.intent(TOPICS)
        fence.raise_(intent, name_of(MIRROR.name, run, "before"), unfenced)
        state = FenceState(
            run=run, attempt=1, id="before", plan=PLAN.hash, revision=PLAN.hash, owner="before", max_fence_s=60.0,
            intent=intent.value(), phase=OPENED, name="acl",
        )  # fmt: skip
        rows = [
            {"topic": tp.topic, "partition": 0, "source_offset": READ, "target_topic": tp.topic, "target_offset": READ}
            for tp in TPS
        ]
        report = CutoverReport(
            mirror=MIRROR.name, plan_hash=PLAN.hash, id="before", outcome=DONE, state="CUT_OVER",
            ends=[{"topic": tp.topic, "partition": 0, "end": CUT} for tp in TPS],
            steps=[StepRecord(name="fence", status="done", started=1.0)],
            fence=FenceRecord(
                kind="acl", name="acl", intent=as_recorded(intent), requested=1.0, opened=2.0, kept=True, unseen="",
                proven=1.5,
            ),
            groups=[GroupRecord(group=GROUP, settled="empty", source_state="Empty", positions=rows, committed=True)]
            if self.with_groups else [],
        )  # fmt: skip
        ledger = MemoryLedger(self.target)
        ledger.decide(lambda _: {"fence/flow": {"v": 1, **asdict(state)}})
        ReportStore(MemoryState(self.target, "report/"), MIRROR.name, run, None).save(report)
        ownership.mark_cut_over(ledger, PLAN, self._ids(self.target), "noon")
        if self.with_groups:
            self.target.commit(GROUP, {tp: GroupPosition(READ) for tp in TPS})
        lease.take(MemoryAdmin(self.target).wire, MIRROR.name, to_end=True)  # type: ignore[arg-type]
        self._forget()

    def half_lifted(self, run: str = "r1") -> None:
        """Begin with a fence whose rules and name are gone; who lifted it died before that was decided."""
        intent = AclFence(MemoryAdmin(self.source)).intent(TOPICS)  # type: ignore[arg-type]
        state = FenceState(
            run=run, attempt=1, id="before", plan=PLAN.hash, revision=PLAN.hash, owner="before", max_fence_s=60.0,
            intent=intent.value(), phase=LIFTING, lifter="dead", name="acl",
        )  # fmt: skip
        MemoryLedger(self.target).decide(lambda _: {"fence/flow": {"v": 1, **asdict(state)}})
        self._forget()

    def failed_over(self) -> None:
        """Begin behind a finished failover, whose source does not answer yet."""
        ledger = MemoryLedger(self.target)
        one = Direction(
            generation=1, primary=self.target.cluster_id, by=FAILOVER, attempt="f", plan=PLAN.hash, at="noon"
        )  # fmt: skip
        state = MemoryState(self.target, records.CUT.below(MIRROR.name))
        Record(state, MIRROR.name, "f").write_cut(Cut(at_ms=1, offsets=dict.fromkeys(TPS, CUT), lost={}))
        promote(ledger, PLAN, self._ids(self.target), one, None)
        lease.take(MemoryAdmin(self.target).wire, MIRROR.name, to_end=True)  # type: ignore[arg-type]
        self._forget()

    def armed(self, run: str = "r1") -> None:
        """Begin behind a finished cutover whose way back was armed: its fence spares the mirror."""
        self.cut_over(run)
        swap_fence(self.platform(), MIRROR.name, OWN, run=run, copied_by=REVERSE.mirror.name)
        one = Direction(
            generation=1, primary=self.target.cluster_id, by="cutover", attempt=run, plan=REVERSE.hash, at="noon"
        )  # fmt: skip
        MemoryLedger(self.target).decide(lambda _: turn(MIRROR.name, one))
        self.keep(REVERSE, self.source)
        self.keep(PLAN, self.source, as_last=False)
        there = MemoryLedger(self.source)
        ownership.adopt(there, REVERSE, MemoryAdmin(self.source), require=lambda _: None, unless="")  # type: ignore[arg-type]
        lease.take(MemoryAdmin(self.source).wire, REVERSE.mirror.name)  # type: ignore[arg-type]
        self._forget()

    def _ids(self, cluster: MemoryCluster) -> dict[str, str]:
        return {name: topic.topic_id for name, topic in cluster.topics.items()}

    def behind(self, ends: int) -> None:
        """Begin with so many records more on the source, which the target lacks."""
        for tp in TPS:
            self.source.append(tp, *(b"%d" % n for n in range(CUT, CUT + ends)))

    def reports(self) -> list[tuple[str, CutoverReport]]:
        """Return the last report of each run of `flow`, as the target has it."""
        state = self.target.state
        found = ((run, text_in(state, MIRROR.name, run)) for run in records.REPORT.under(state, MIRROR.name))
        return [(run, CutoverReport.from_json(text, run)) for run, text in found if text is not None]

    # --- what has happened --------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._look("", "")
        for notes in (
            self.fences,
            self.set_behind,
            self.written_behind,
            self.changed_behind,
            self.unopened,
            self.left_behind,
        ):
            notes.clear()  # type: ignore[attr-defined]

    def _is_taken_back(self, positions: Any, now: Any) -> bool:
        at = positions.get(GROUP, {}).get(TPS[0])
        return at is not None and at == self.beyond and now[GROUP][TPS[0]].offset == CUT

    def _look(self, actor: str, what: str) -> None:
        fence, opened, positions = self._was
        now, by = self.fence, self.opened_by
        there = {group: self.target.positions(group) for group in (GROUP, LATE)}
        if now != fence:
            self.fences.append(Change(self.s.now, actor, fence, now))
        for topic, one in opened.items():
            if by.get(topic) != one:
                self.unopened.append(f"{actor}: {topic} was opened by {one[:12]}, is {by.get(topic, 'not')[:12]}")
        self._look_back(actor)
        if by and not opened and not any(one.startswith(FAILOVER) for one in by.values()):
            self._look_behind()
            self.is_cut_over = True
        theirs = ": a consumer " in what or f"for {GROUP}" in what or self._is_taken_back(positions, there)
        if there != positions and opened and not theirs:
            self.set_behind.append(f"{actor}: {what}")
        if opened and what.startswith(_APPLICATIONS_OWN):
            self.changed_behind.append(f"{actor}: {what}")
        in_use = opened if what.startswith("target: ") else self.source.writable(APP)
        if in_use and "the mirror copies" in what:
            self.written_behind.append(f"{actor}: {what}")
        shut = not self.source.writable(APP, [*TOPICS])
        if shut and not self._is_shut:
            self._fenced = set(self.source.topics)  # a topic that somebody creates later is as one that came after it all
        self._is_shut = shut
        kept = now is not None and now.phase == OPENED and not Intent.of(now.intent, TOPICS).pending
        self.was_shut = bool(by) and (self.was_shut or (shut and kept))
        if now is not None and now.stands:
            self._up.setdefault(now.id, self.s.now)
            guarded = not any(event[0].startswith("G") for event in self.s.happened)
            if guarded and (now.phase == UP or self.denied):
                self.stood[now.id] = self.s.now - self._up[now.id]
        self._was = now, by, there

    def _look_back(self, actor: str) -> None:
        back = self.opened_back_by if self.is_rolled_back else {}
        for topic in self._back:
            if topic not in back:
                self.unopened.append(f"{actor}: {topic} of the old source was in production, and is not")
        self._back = back

    def _look_behind(self) -> None:
        for topic in sorted(self._fenced & self.source.topics.keys()):
            for log in self.source.topics[topic].logs:
                has = self.target.log(log.tp).end if self.target.has(log.tp) else 0
                if log.end > has:
                    self.left_behind.append(f"{log.tp} ends at {log.end} on the source, at {has} on the target")
