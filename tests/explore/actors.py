"""The actors of a cutover: each runs the project's own code, on views of its own."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.retire import keep_of, require_as_seen
from airflow_mirror.copy.writer import lease, lease_watch
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.failover import run as failing_over
from airflow_mirror.cutover.failover.returned import NOT_YET, fence_returned
from airflow_mirror.cutover.fence import AclFence, fence_of
from airflow_mirror.cutover.intent import ACL
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.other_fences import let_in, lift_unexplained, unexplained
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Clusters, CutoverRequest
from airflow_mirror.cutover.rollback import arm as arming
from airflow_mirror.cutover.rollback.run import way_back
from airflow_mirror.cutover.steps import STEPS, walk
from airflow_mirror.cutover.swap import of_fence, swap_fence
from airflow_mirror.errors import (
    CutoverCancelled,
    FencedByAnother,
    FenceStands,
    FenceUnproven,
    LeaseUnconfirmed,
    MirrorError,
    TryAgain,
)
from airflow_mirror.jobs.driver import presence
from airflow_mirror.jobs.retire import Retirement
from airflow_mirror.jobs.runner import active as jobs
from airflow_mirror.jobs.runner.active import ActiveTail
from airflow_mirror.ledger import records
from airflow_mirror.ledger.records import CONFIGS, SIGN
from airflow_mirror.plan import ledger_store, ownership, requirements
from airflow_mirror.plan.standing import still_ours
from airflow_mirror.sync.acls import AclOptions, sync_acls
from airflow_mirror.sync.configs import sync_configs
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import GroupFollower
from airflow_mirror.sync.groups import Readers, move_groups
from airflow_mirror.sync.holding import may_set
from airflow_mirror.sync.passes import Sides
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire.transactions import TransactionClient
from tests.builders import rule
from tests.cutting_over import cut_over, go_back
from tests.explore.turns import Actor
from tests.explore.world import ANOTHER, APP, GROUP, MIRROR, OTHER, OWN, PLAN, REVERSE, TOPICS, TPS
from tests.memory.applications import Consumer, Producer, add_partitions, create_topic
from tests.memory.asking import touching

if TYPE_CHECKING:
    from airflow_mirror.copy.writer.lease import LeaseToken
    from airflow_mirror.cutover.fence import Fence
    from airflow_mirror.plan.model import Plan
    from tests.explore.platform import ActorPlatform
    from tests.explore.world import World

LIMITS = Limits(poll_s=1.0, quiet_s=1.0, quiet_at_most_s=0.0, max_fence_s=60.0)
_WRITES_A_CONFIRMATION = 2
_HOLDS_S = 20.0  # for which a rival's fence stands
_GIVES_UP_S = 150.0  # of who stands by until a source returns
_LOOK_EVERY_S, _TAIL_S = 2.0, 40.0  # of a tail's driver; when somebody ends it


def owner(w: World, name: str, run: str, *, keep_fence: bool = True, **when: Any) -> Actor:
    """A call of `run_cutover`, which starts a guard."""

    def body() -> Any:
        on = w.platform()
        return cut_over(
            on, PLAN, ReportStore(on.target.reports(MIRROR.name), MIRROR.name, run, None), keep_fence=keep_fence,
            fence=_fence(w, on), named=w.fenced_by, verify=lambda _: [], limits=LIMITS,
            stop=actor.stop,  # type: ignore[arg-type]
        )  # fmt: skip

    actor = Actor(name, body, stop=w.s.event(), **when)
    return w.s.add(actor)


def _fence(w: World, on: ActorPlatform) -> Fence:
    """Return the fence of a run, or what a person names by `--fence`."""
    return AclFence(on.source.admin, clock=on.clock) if w.fenced_by == ACL else fence_of(w.fenced_by, on.source.admin)


def guard(w: World, name: str, **when: Any) -> Actor:
    """A guard that nobody's cutover has started, as that beside a tail."""
    return w.guard(name, w.source, w.target, MIRROR.name, None, **when).actor


def lift(w: World, name: str, *, run: str = "", include_retained: bool = False, **when: Any) -> Actor:
    """`airflow-mirror lift-fence`."""

    def body() -> list[str]:
        on = w.platform()
        return lift_leftover_fence(on, MIRROR.name, _fence(w, on), run=run, include_retained=include_retained)

    actor = Actor(name, body, **when)
    w.lifters.append(actor)
    return w.s.add(actor)


def lift_back(w: World, name: str, **when: Any) -> Actor:
    """`airflow-mirror lift-fence` of the reverse mirror."""
    return w.s.add(Actor(name, lambda: lift_leftover_fence(w.platform().turned(), REVERSE.mirror.name), **when))


def lift_rival(w: World, name: str, **when: Any) -> Actor:
    """`airflow-mirror lift-fence` of the other mirror that fences the same topics."""
    return w.s.add(Actor(name, lambda: lift_leftover_fence(w.platform(), OTHER.mirror.name), **when))


def lift_what_nothing_explains(w: World, name: str, mirror: str = MIRROR.name, **when: Any) -> Actor:
    """`airflow-mirror lift-fence --unexplained`, by a person who says yes."""

    def body() -> Any:
        on = w.platform()
        if w.fenced_by != ACL:
            let_in(on, mirror, _fence(w, on))
        return [str(one) for one in lift_unexplained(on, mirror, unexplained(on, mirror))]

    return w.s.add(Actor(name, body, **when))


class _Retirement(Retirement):
    """Without settings to restore: what these would be is another matter, and asks for hundreds of topics."""

    _plans = ()  # type: ignore[assignment]


class _NoMaps:
    """Offsets are equal: no map is kept."""

    def names(self, _: object) -> list[str]:
        return []


def retire(w: World, name: str, **when: Any) -> Actor:
    """`airflow-mirror retire --yes --end-writing`, of a mirror that has no fence when it looks first."""

    def body() -> str:
        side = w.platform().target
        one = _Retirement(
            mirror=MIRROR.name, target=side.admin, ledger=side.ledger, maps=_NoMaps(),  # type: ignore[arg-type]
            keys=side.state(""), seen=side.state(CONFIGS.below(MIRROR.name)),
            end_writing=partial(side.end_writing, MIRROR.name),
        )  # fmt: skip
        one.require_over(side.watch(MIRROR.name), may_be_held=True)
        seen = fence_state(side.ledger.values(), MIRROR.name)
        if seen is not None and not seen.is_over:
            return "is not over"
        for step in one.steps(keep_of(seen), partial(require_as_seen, MIRROR.name, None)):
            if step.lines:
                step.do()
        return "retired"

    return w.s.add(Actor(name, body, **when))


def plan_again(w: World, name: str, **when: Any) -> Actor:
    """The mirror is planned anew, and its topics are made its own; it may be the same plan."""

    def body() -> str:
        side = w.platform().target
        ledger_store.keep(PLAN, side.state(records.PLAN.below(MIRROR.name)), side.ledger)
        ownership.claim(side.ledger, PLAN, side.admin)
        return "planned"

    return w.s.add(Actor(name, body, **when))


def swap(w: World, name: str, *, run: str = "", **when: Any) -> Actor:
    """The fence of a finished cutover is swapped for one that spares the mirror."""

    def body() -> list[str]:
        return swap_fence(w.platform(), MIRROR.name, OWN, run=run, copied_by=REVERSE.mirror.name)

    actor = Actor(name, body, **when)
    w.swappers.append(actor)
    return w.s.add(actor)


def rollback(w: World, name: str, run: str, **when: Any) -> Actor:
    """A cutover whose way back was armed is rolled back."""

    def body() -> Any:
        on, back = w.platform(), REVERSE.mirror.name
        return go_back(
            way_back(MIRROR.name, on), on, ReportStore(on.source.reports(back), back, run, None),
            fence=AclFence(on.target.admin, clock=on.clock), verify=lambda _: [], limits=LIMITS, stop=actor.stop,
        )  # fmt: skip

    actor = Actor(name, body, stop=w.s.event(), **when)
    return w.s.add(actor)


def arm(w: World, name: str, *, follows: bool = True, **when: Any) -> Actor:
    """The way back of the cutover that has opened the target is armed, and then its tail begins. Tried again once."""

    def body() -> str:
        for left in (1, 0):
            on = w.platform()
            try:
                report_of, plan = arming.cutover_of(MIRROR.name, on.target)
                # What a plan of the reverse mirror finds is another matter; it blocks nothing here.
                arming.arm(on, report_of, plan, planner=lambda *_, **__: REVERSE)
                break
            except TryAgain:
                if not left:
                    raise
        if follows:
            tail(w, f"{name}tail", REVERSE)
        return "armed"

    return w.s.add(Actor(name, body, **when))


def failover(w: World, name: str, *, force: bool = False, **when: Any) -> Actor:
    """`airflow-mirror failover`."""
    return w.s.add(Actor(name, lambda: failing_over.run(w.platform().target, MIRROR.name, force=force), **when))


def returned(w: World, name: str, **when: Any) -> Actor:
    """What stands by after a failover does once the source answers, until it is done."""

    def body() -> Any:
        until = w.s.now + _GIVES_UP_S
        while True:
            on = w.platform()
            try:
                return fence_returned(on, MIRROR.name, AclFence(on.source.admin, clock=on.clock), limits=LIMITS)
            except NOT_YET:
                if w.s.now > until:
                    raise
                w.s.clock.sleep(3.0)

    return w.s.add(Actor(name, body, **when))


def tail(w: World, name: str, plan: Plan = PLAN, **when: Any) -> Actor:
    """What the driver of a mirror's tail decides and takes; one task copies, in a process of its own.

    The driver begins as the mirror's tail, takes the lease, makes sure that it is the tail and that the topics are the
    mirror's, waits, and copies until it is not the tail any more, or is asked to stop. Its task copies while it confirms
    the lease, whatever becomes of the driver: then it is an orphan.
    """

    def body() -> str:
        side, s, mirror = _on(w, plan).target, w.s, plan.mirror
        named = w.named(side.cluster.role, mirror.name)
        me = ActiveTail(mirror=mirror.to_dict(), plan=plan.hash, inputs="", directory="", **named)
        jobs.begin(side.ledger, me, side.watch(mirror.name))
        token = side.take_lease(mirror.name)
        presence._require(side.ledger, me)
        requirements.require_active(side.ledger, plan, side.admin)
        s.clock.sleep(token.wait_s)
        task = s.add(Actor(f"{name}task", lambda: _copy(w, plan, token), background=True))
        until = s.now + _TAIL_S
        try:
            while not task.is_over and s.now < until:
                presence._require(side.ledger, me)
                if jobs.stop_requested_by(side.state(SIGN.below(mirror.name)).read(), me):
                    break
                s.clock.sleep(_LOOK_EVERY_S)
        finally:
            lease.withdraw(side.log, token)
        return "stopped"

    return w.s.add(Actor(name, body, **when))


def _on(w: World, plan: Plan) -> ActorPlatform:
    return w.platform() if plan.mirror.name == MIRROR.name else w.platform().turned()


def _copy(w: World, plan: Plan, token: LeaseToken) -> str:
    """Copy records, each with a permit, as a task of a tail does; brokers have forgotten its sequences."""
    source, target = _on(w, plan).source, _on(w, plan).target
    here, there = source.cluster, target.cluster
    client = TransactionClient(target.log, token.transactional_id)
    known = lease_watch.Confirmation(token, w.s.clock.monotonic)
    at = target.log.log_ends(TPS)
    while True:
        known.ask(client.describe)
        known.check_not_lost()
        for _ in range(_WRITES_A_CONFIRMATION):
            for tp in [tp for tp in TPS if at[tp] < source.log.log_ends([tp])[tp]]:
                copy = partial(there.append, tp, here.values(tp)[at[tp]])
                with suppress(LeaseUnconfirmed):
                    w.s.ask(
                        f"{there.role}: the mirror copies {tp}@{at[tp]}", copy, effect=True, at=there.role,
                        touches=touching("log", tp.topic), check=known.check,
                    )  # fmt: skip
                    at[tp] += 1
            w.s.clock.sleep(lease.CONFIRM_EVERY_S / _WRITES_A_CONFIRMATION)


def rival(w: World, name: str, **when: Any) -> Actor:
    """Another mirror fences the same topics, by the first step of a cutover, stands for a while, and backs out."""

    def hold(attempt: Attempt) -> dict[str, Any]:
        w.rivals.append(attempt)
        w.s.clock.sleep(_HOLDS_S)
        w.rivals.remove(attempt)
        raise CutoverCancelled("the rival has had enough")

    def body() -> str:
        on, of = w.platform(), OTHER.mirror.name
        run = Attempt(
            request=CutoverRequest(plan=OTHER, limits=LIMITS), before=fence_state(on.target.ledger.values(), of),
            clusters=Clusters(on=on, fence=AclFence(on.source.admin, clock=on.clock), verify=lambda _: []),
            report=CutoverReport(mirror=of, plan_hash=OTHER.hash),
            store=ReportStore(on.target.reports(of), of, "o", None), stop=on.event(),
        )  # fmt: skip
        with on.guarded(of, None, "", "acl") as run.require_guard, on.signs_of_life(run.report):
            try:
                walk(run, [STEPS[0], replace(STEPS[1], do=hold)])
            except (CutoverCancelled, FencedByAnother, FenceStands, FenceUnproven) as e:
                return type(e).__name__
        raise AssertionError("it never holds for good")

    return w.s.add(Actor(name, body, **when))


def translate(w: World, name: str, **when: Any) -> Actor:
    """`TranslateConsumerOffsetsOperator`, with equal offsets: a task that may be cleared at any time."""

    def body() -> str:
        on = w.platform()
        here, there = on.source.admin, on.target.admin
        permit = still_ours(on.target.ledger, PLAN, there, clock=on.clock.monotonic)
        report = move_groups(
            Readers(mirror=PLAN.mirror, topics=PLAN.topics), here, there, lambda: None, permit, commit=True
        )
        return ", ".join(sorted({move.action for move in report.moves})) or "nothing"

    return w.s.add(Actor(name, body, **when))


def follow_groups(w: World, name: str, **when: Any) -> Actor:
    """What follows a mirror's groups beside its tail, which takes the lease: a pass every other second, by its right."""

    def body() -> str:
        on, s = w.platform(), w.s
        side, until = on.target, s.now + _TAIL_S
        token = side.take_lease(MIRROR.name)
        s.clock.sleep(token.wait_s)
        right, proof = WritePermit(lambda: token), lease_watch.LeaseProof(side.log, token)
        right._proof, proof._known = proof, lease_watch.Confirmation(token, s.clock.monotonic)  # by virtual time
        follower = GroupFollower(Sides(
            plan=lambda: PLAN, mirror=MIRROR, source=on.source.admin, target=side.admin, ledger=side.ledger,
            state=side.state(notes.prefix(MIRROR.name)), right=right, maps=None, take_in=lambda _: None, gone=dict,
            moved=lambda *_: None,
        ))  # type: ignore[arg-type]  # fmt: skip
        while s.now < until:
            with suppress(LeaseUnconfirmed):
                follower.follow(round(s.clock.time() * 1000))
            s.clock.sleep(_LOOK_EVERY_S)
        return "stopped"

    return w.s.add(Actor(name, body, **when))


def sync_rules(w: World, name: str, **when: Any) -> Actor:
    """`SyncAclsOperator` for readers, which also removes what the source does not have."""

    def body() -> int:
        on = w.platform()
        permit = still_ours(on.target.ledger, PLAN, on.target.admin, clock=on.clock.monotonic)
        permit()
        report = sync_acls(
            PLAN, on.source.admin, on.target.admin, AclOptions(remove=True), granted=lambda: nullcontext(permit),
            fence=partial(of_fence, on.target, MIRROR.name),
        )  # fmt: skip
        return report.changes

    return w.s.add(Actor(name, body, **when))


def sync_settings(w: World, name: str, **when: Any) -> Actor:
    """`SyncTopicConfigsOperator` with `hold`."""

    def body() -> int:
        on = w.platform()
        permit = may_set(on.target.ledger, PLAN, on.target.admin, hold=True, clock=on.clock.monotonic)
        permit()
        return len(sync_configs(PLAN, on.source.admin, on.target.admin, permit, hold=True).changes)

    return w.s.add(Actor(name, body, **when))


def another_mirror(w: World, name: str, **when: Any) -> Actor:
    """The plan of another mirror that wants the same topics: it claims them, and takes its own lease."""

    def body() -> str:
        side = w.platform().target
        ownership.claim(side.ledger, OTHER, side.admin)
        requirements.require_active(side.ledger, OTHER, side.admin)
        return "claimed"

    return w.s.add(Actor(name, body, **when))


def grows(w: World, name: str, *, creates: bool = False, **when: Any) -> Actor:
    """Somebody adds a partition to a topic, or a topic that the mirror selects, and writes to it."""
    app = Producer(w.source, ask=w.s.ask)
    tp = TopicPartition(ANOTHER, 0) if creates else TopicPartition(TOPICS[0], 1)

    def body() -> str:
        if creates:
            w.source.create_acls(rule(ANOTHER, "WRITE", "ALLOW", APP))
            create_topic(w.source, ANOTHER, ask=w.s.ask)
        else:
            add_partitions(w.source, TOPICS[0], 2, w.s.ask)
        try:
            app.write(tp, b"new")
        except MirrorError:
            return "was kept out"
        return "wrote"

    return w.s.add(Actor(name, body, fragile=False, **when))


def producer(w: World, name: str, role: str, *, times: int = 3, every_s: float = 2.0, **when: Any) -> Actor:
    """An application that writes to one side, as long as its authorizer lets it."""
    cluster = w.source if role == "source" else w.target
    app = Producer(cluster, ask=w.s.ask)

    def body() -> int:
        written = 0
        for n in range(times):
            with suppress(MirrorError):
                app.write(TPS[0], b"%s-%d" % (name.encode(), n))
                written += 1
            w.s.clock.sleep(every_s)
        return written

    return w.s.add(Actor(name, body, fragile=False, **when))


def consumer(
    w: World, name: str, role: str, *, group: str = GROUP, member: str = "", times: int = 1, every_s: float = 1.0,
    most: int | None = None, **when: Any,
) -> Actor:  # fmt: skip
    """An application that reads on one side: as a member of the group, or standalone; it leaves at last."""
    cluster = w.source if role == "source" else w.target
    one = Consumer(cluster, group, member, w.s.ask, reset="earliest")

    def body() -> int:
        if member:
            one.join()
        at = 0
        for _ in range(times):
            at = one.read(TPS[0], most)
            w.s.clock.sleep(every_s)
        if member:
            one.leave()
        return at

    return w.s.add(Actor(name, body, fragile=False, **when))


def application(w: World, name: str, *, goes_back_to: int | None = None, **when: Any) -> Actor:
    """An application that goes over to the target once it is open: it writes there, and its readers read on, and rest.

    :param goes_back_to: an offset from which it then wants to read again.
    """
    app, reader = Producer(w.target, ask=w.s.ask), Consumer(w.target, GROUP, "m", w.s.ask, reset="earliest")

    def body() -> int:
        reader.join()
        at = 0
        for n in range(2):
            app.write(TPS[0], b"%s-%d" % (name.encode(), n))
            at = reader.read(TPS[0])
        if goes_back_to is not None:
            reader.go_back(TPS[0], goes_back_to)
        reader.leave()
        return at

    return w.s.add(Actor(name, body, **{"fragile": False, "after": lambda: bool(w.opened_by), **when}))
