"""The scenarios of cutovers: who meets whom."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.copy.writer.lease import HANDOVER_S
from airflow_mirror.cutover.decision import CLOSING, OPENED, fence_state
from airflow_mirror.cutover.fence import READ_BACK_S
from airflow_mirror.cutover.fence_names import RETURNED
from airflow_mirror.cutover.guard import GRACE_S
from airflow_mirror.cutover.heartbeat import SILENCE_S
from airflow_mirror.cutover.intent import ACL
from airflow_mirror.cutover.raised import LIFT_PATIENCE_S
from airflow_mirror.cutover.report import DONE
from airflow_mirror.cutover.run import _GUARDED_S
from airflow_mirror.kafka import permit
from airflow_mirror.kafka.model import GroupPosition
from tests.builders import rule
from tests.explore import actors, gate
from tests.explore.deviations import Deviation, around
from tests.explore.invariants import ALL
from tests.explore.scenario import Scenario
from tests.explore.world import CUT, GROUP, LATE, OTHER, REVERSE, TOPICS, TPS, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.explore.scheduler import Scheduler
    from tests.explore.turns import Asked

_FENCE_S = actors.LIMITS.max_fence_s
# Shorter and longer than each time after which somebody else goes on: another writer (7 s), the rules at each broker
# (10 s), an owner that counts as dead (12 s), a lifting that is tried again (20 s), a retry that waits for a guard (30),
# an opening that is void (60), and a guard that can't ask the ledger (75).
_LIMITS_S = (HANDOVER_S, READ_BACK_S, SILENCE_S, LIFT_PATIENCE_S, _GUARDED_S, _FENCE_S, _FENCE_S + GRACE_S)
FREEZES = around(*_LIMITS_S)
BESIDE = around(permit._ASK_EVERY_S, *_LIMITS_S)  # of who asks for its permit only then
# What actors are there for.
OPENS, ENDS = (f"target: decide fence/flow {phase}" for phase in (OPENED, CLOSING))
SHUTS, SPARES = "source: create DENY WRITE on topic ", "source: create DENY WRITE for User:app "
FAILS_OVER, RETIRES, PLANS = (f"target: decide {what}" for what in (
    "active/flow ended, direction/flow", "plan/flow ended", "plan/flow"
))  # fmt: skip
SETS, READS, COPIES = "target: set readers at ", "target: m reads ", "target: the mirror copies "
DECIDES_BACK, NOTES_BACK = "target: decide direction/flow", "source: decide direction/flow-reverse"
COPIES_BACK, TAKES_BACK = "source: the mirror copies ", "source: take over "
LETS_READ, ALTERS = "target: create ALLOW READ ", "target: alter configs of "
CLAIMS, WRITES = "target: decide topic/orders, topic/payments", "source: User:app writes "


def retry(w: World) -> None:
    """A run's cutover, and its next try."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "B", "r1", last=True)
    actors.lift(w, "L", last=True)


def groups(w: World) -> None:
    """As `retry`, with a consumer group; once the target is open its application goes over."""
    retry(w)
    actors.application(w, "App")


def parts(w: World) -> None:
    """As `retry`, with two groups: one is at rest, and is set while a member of the other reads on."""
    retry(w)
    w.source.commit(LATE, {TPS[0]: GroupPosition(CUT - 4)})
    actors.consumer(w, "C", "source", group=LATE, member="c", times=4, every_s=2.5, most=1, starts=1.0)


def soon(w: World) -> None:
    """A run's cutover, and its next try while the first may still live; the application goes back behind the cut."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "B", "r1", starts=14.0)
    actors.application(w, "App", goes_back_to=1)


def runs(w: World) -> None:
    """Two runs of one mirror; the first one's task is cleared at last."""
    actors.owner(w, "R2", "r2")
    actors.owner(w, "R1", "r1", last=True)
    actors.lift(w, "L", last=True)
    actors.owner(w, "R2again", "r2", last=True)


def runs_groups(w: World) -> None:
    """As `runs`, with a consumer group."""
    runs(w)
    actors.application(w, "App")


def third(w: World) -> None:
    """A run's cutover, its next try, and the next run."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "B", "r1", last=True)
    actors.owner(w, "N", "r2", last=True)
    actors.lift(w, "L", last=True)


def twice(w: World) -> None:
    """Two processes of one run at once."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "Y", "r1")
    actors.owner(w, "B", "r1", last=True)
    actors.lift(w, "L", last=True)


def unkept(w: World) -> None:
    """As `retry`, with a fence that is not kept."""
    actors.owner(w, "A", "r1", keep_fence=False)
    actors.owner(w, "B", "r1", keep_fence=False, last=True)
    actors.lift(w, "L", last=True)


def called(w: World) -> None:
    """As `retry`, with a fence that has no name: the site's gateway; a person types how it is lifted."""
    retry(w)


def called_runs(w: World) -> None:
    """As `runs`, with such a fence, and a consumer group."""
    runs_groups(w)


def called_unkept(w: World) -> None:
    """As `unkept`, with such a fence."""
    unkept(w)


def called_asking(w: World) -> None:
    """As `called`, with a function that asks its permit right before what it does."""
    retry(w)


def swap(w: World) -> None:
    """A finished cutover's fence is swapped for a way back, and lifted, perhaps at the same time."""
    w.cut_over()
    actors.swap(w, "S", run="r1")
    actors.lift(w, "K", run="r1", include_retained=True, last=True)


def arming(w: World) -> None:
    """A way back is armed, by two at once perhaps, and its tail begins; a person lets writers into the old source."""
    w.cut_over()
    actors.arm(w, "M")
    actors.producer(w, "P", "target", starts=1.0, times=12, every_s=4.0)
    actors.producer(w, "Q", "source", starts=2.0, times=12, every_s=4.0)
    actors.arm(w, "M2", starts=5.0)
    actors.lift(w, "K", include_retained=True, starts=20.0)


def rollback(w: World) -> None:
    """An armed way back is gone, and tried again; somebody lifts the old source's fence, or swaps it again."""
    w.armed()
    actors.rollback(w, "RB", "back")
    actors.rollback(w, "RB2", "back", last=True)
    actors.swap(w, "S", last=True)
    actors.lift(w, "K", include_retained=True, last=True)


def armed_again(w: World) -> None:
    """An armed way back is gone, while somebody arms it once more, and starts its tail."""
    w.armed()
    actors.arm(w, "M")
    actors.rollback(w, "RB", "back")
    actors.rollback(w, "RB2", "back", last=True)
    actors.arm(w, "M2", last=True)


def way_back(w: World) -> None:
    """A tail copies back; a person lets writers into the old source; the tail is started again."""
    w.armed()
    actors.tail(w, "T", REVERSE)
    actors.producer(w, "P", "target", starts=1.0, times=30)
    actors.lift(w, "K", include_retained=True, starts=12.0)
    actors.tail(w, "T2", REVERSE, starts=24.0)


def failover_unkept(w: World) -> None:
    """A cutover that keeps no fence, and a failover that nobody has forced; then the next try of each."""
    actors.owner(w, "A", "r1", keep_fence=False)
    actors.failover(w, "F", force=False, starts=60.0)
    actors.failover(w, "F2", force=False, last=True)


def failover_twice(w: World) -> None:
    """Two calls complete one failover, of a group that stands beyond the cut; its application begins meanwhile."""
    w.beyond = GroupPosition(CUT + 3)  # its position had followed before the records
    w.target.commit(GROUP, {TPS[0]: w.beyond, TPS[1]: GroupPosition(CUT)})
    actors.failover(w, "F", force=True)
    actors.failover(w, "F2", force=True, last=True)
    actors.application(w, "App", after=lambda: bool(w.opened_by) and w.target.positions(GROUP)[TPS[0]].offset == CUT)


def failover(w: World) -> None:
    """A cutover with a group, and a failover: forced or, as the cutover seems dead, not; then the next try."""
    actors.owner(w, "A", "r1")
    actors.failover(w, "F", last=True)
    actors.failover(w, "FF", force=True, last=True)
    actors.owner(w, "B", "r1", last=True)
    actors.application(w, "App")


def returned(w: World) -> None:
    """A failover is decided; two processes stand by and fence the source that returns; its fence is swapped."""
    w.failed_over()
    actors.returned(w, "X")
    actors.returned(w, "Y", last=True)
    actors.swap(w, "S", run="failover-f", last=True)
    actors.lift(w, "L", last=True)


def returned_late(w: World) -> None:
    """A source that returned is fenced, and let in again by a person; a second process stands by as well."""
    w.failed_over()
    actors.returned(w, "X")
    actors.lift(w, "K", run="failover-f", include_retained=True, last=True)
    actors.returned(w, "Y", last=True)


def partitions(w: World) -> None:
    """Somebody adds a partition at the source, and writes to it; a cutover goes on meanwhile, and is tried again."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "B", "r1", last=True)
    actors.grows(w, "P", starts=30.0)


def topics(w: World) -> None:
    """Somebody creates a topic that the mirror selects, and writes to it; a cutover goes on meanwhile."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "B", "r1", last=True)
    actors.grows(w, "P", creates=True, starts=30.0)


def standalone(w: World) -> None:
    """A consumer that is no member reads on behind the fence, and commits every other second, and then ends."""
    actors.consumer(w, "C", "source", times=3, every_s=2.0, most=1)
    actors.owner(w, "A", "r1")


def tail(w: World) -> None:
    """A tail copies; a cutover ends its writing, and its driver is started again; a producer writes meanwhile."""
    w.behind(2)
    actors.tail(w, "T")
    actors.producer(w, "P", "source", starts=1.0)
    actors.owner(w, "A", "r1", starts=9.0)
    actors.tail(w, "T2", last=True)


def orphan(w: World) -> None:
    """A mirror is failed over, forced, while its tail begins, or its orphaned task still copies."""
    w.behind(3)
    actors.tail(w, "T")
    actors.producer(w, "P", "source", times=30)
    actors.failover(w, "F", force=True, starts=9.0)
    actors.tail(w, "T2", starts=20.0)


def other(w: World) -> None:
    """The plan of another mirror wants the same topics while a cutover goes on; the mirror is retired, perhaps before."""
    actors.owner(w, "A", "r1")
    actors.retire(w, "RT", last=True)
    actors.another_mirror(w, "M", last=True)
    actors.owner(w, "B", "r1", last=True)


def rivals(w: World) -> None:
    """Two mirrors fence the same topics in the same second; one opens its target behind that, the other backs out."""
    w.keep(OTHER, w.target)
    actors.owner(w, "A", "r1")
    actors.rival(w, "R")
    actors.owner(w, "B", "r1", last=True)


def rivals_lifted(w: World) -> None:
    """Who lifted a fence died before it was decided; whoever goes on meets another mirror that fences the same topics."""
    w.keep(OTHER, w.target)
    w.half_lifted()
    actors.lift(w, "L")
    actors.rival(w, "R", starts=20.0)


def rivals_returned(w: World) -> None:
    """A source that returned after a failover is fenced in the second in which another mirror fences its topics."""
    w.failed_over()
    w.keep(OTHER, w.target)
    actors.rival(w, "R")
    actors.returned(w, "X")
    actors.returned(w, "Y", last=True)


def retired(w: World) -> None:
    """A mirror is retired while a cutover of it goes on, and behind that."""
    actors.owner(w, "A", "r1")
    actors.retire(w, "RT")
    actors.lift(w, "L", last=True)
    actors.retire(w, "RT2", last=True)


def remade(w: World) -> None:
    """A mirror is retired, by two at once perhaps, and made anew."""
    actors.retire(w, "RT")
    actors.retire(w, "RT2", starts=3.0)
    actors.plan_again(w, "P", last=True)


def translated(w: World) -> None:
    """A task sets positions while a cutover is about to open, and is cleared behind it."""
    actors.owner(w, "A", "r1")
    actors.translate(w, "T", starts=6.13)
    actors.application(w, "App")
    actors.translate(w, "Again", last=True)


def followed(w: World) -> None:
    """Groups follow by the lease of a tail; a cutover takes it; its application goes back behind the cut."""
    actors.consumer(w, "C", "source", times=5, every_s=2.0, most=1, starts=1.0)
    actors.follow_groups(w, "F")
    actors.owner(w, "A", "r1", starts=9.0)
    actors.application(w, "App", goes_back_to=1)


def synced(w: World) -> None:
    """Tasks bring settings, and rules of readers, while a cutover is about to open, and are cleared behind it."""
    w.target.create_acls(*(rule(t, "READ", "ALLOW", "User:gone") for t in TOPICS))
    w.source.create_acls(*(rule(t, "READ", "ALLOW", "User:reader") for t in TOPICS))
    actors.owner(w, "A", "r1")
    actors.sync_rules(w, "S", starts=7.5)
    actors.sync_settings(w, "C", starts=7.6)
    actors.sync_rules(w, "S2", last=True)
    actors.sync_settings(w, "C2", last=True)


def final(w: World) -> None:
    """Do what is left to do once everybody rests: run an opening again, guard, lift; a person does the rest."""
    done = {run for run, report in w.reports() if report.outcome == DONE}
    fence, back = w.fence, fence_state(w.source.decided, REVERSE.mirror.name)
    if fence is not None and fence.phase == OPENED and fence.run not in done and not fence.run.startswith(RETURNED):
        actors.owner(w, "Again", fence.run, last=True, fragile=False)
    if back is not None and back.phase == OPENED:
        actors.rollback(w, "Again", back.run, last=True, fragile=False)
    actors.guard(w, "GZ", last=True, fragile=False)
    actors.lift(w, "LZ", last=True, fragile=False)
    rival = fence_state(w.target.decided, OTHER.mirror.name)
    if rival is not None and not rival.is_over:
        actors.lift_rival(w, "LR", last=True, fragile=False)
    if back is not None and not back.is_over:
        actors.lift_back(w, "LB", last=True, fragile=False)
    late, shut = (deviation.kind == "late" for *_, deviation in w.s.happened), w.fence is not None and w.fence.is_over
    if any(late) or (w.fenced_by != ACL and shut and w.denied):
        actors.lift_what_nothing_explains(w, "LU", last=True, fragile=False)
        if rival is not None:
            actors.lift_what_nothing_explains(w, "LUR", OTHER.mirror.name, last=True, fragile=False)


def _built(build: Callable[[World], None], scheduler: Scheduler, **given: Any) -> World:
    w = World(scheduler, **given)
    build(w)
    scheduler.at_rest.append(partial(final, w))
    return w


def _is_known(deviation: Deviation, asked: Asked) -> bool:
    """Requests whose permit was good when their bytes were handed over, and that are applied later.

    Positions, and rules of readers: docs/security.md. The rules of a fence are the same for each attempt, and bear no
    name: one that is deleted late may be the next attempt's. A rule of a swap, which names a principal, is never told
    from the site's. Of a function that asks no permit who sleeps between that and its call lets everybody in behind
    whatever was decided since.
    """
    if asked.what == gate.OPENS:
        return deviation.kind in ("freeze", "hang", "switch")
    if deviation.kind != "late":
        return False
    of_fence = ("delete DENY WRITE on ", "create DENY WRITE for ")  # the target's, too: a rollback fences that one
    once_permitted = ("target: set ", "target: forget ", "target: create ALLOW READ ", "target: delete ALLOW READ ")
    return asked.what.startswith(once_permitted) or asked.what.partition(": ")[2].startswith(of_fence)


def _scenario(
    build: Callable[[World], None], reaches: Mapping[str, str], freezes: Sequence[float] = FREEZES, **given: Any
) -> Scenario:  # fmt: skip
    made = partial(_built, build, **given)
    made.__doc__ = build.__doc__
    return Scenario(
        build.__name__, made, ALL, freezes=freezes, cuts=("target",), accepts=_is_known, reaches=reaches
    )  # fmt: skip


_BOTH = {"A": OPENS, "B": OPENS}
_RUNS = {"R2": OPENS, "R1": OPENS}
_APP = {"App": READS}
# Without who lifts last: with one deviation there is nothing left to lift (tests/unit/explore/test_stories.py has two).
SCENARIOS = (
    _scenario(retry, _BOTH),
    _scenario(groups, _BOTH | _APP, with_groups=True),
    _scenario(parts, _BOTH | {"A": SETS, "C": "source: c reads "}, with_groups=True),
    _scenario(soon, _BOTH | _APP, with_groups=True),
    _scenario(runs, _RUNS | {"R2again": OPENS}),
    _scenario(runs_groups, _RUNS | _APP, with_groups=True),
    _scenario(third, _BOTH | {"N": OPENS}),
    _scenario(twice, _BOTH | {"Y": OPENS}),
    _scenario(unkept, dict.fromkeys("AB", ENDS), reopens=True),
    _scenario(called, _BOTH, gated=gate.NAME),
    _scenario(called_runs, _RUNS | _APP, gated=gate.NAME, with_groups=True),
    _scenario(called_unkept, dict.fromkeys("AB", ENDS), gated=gate.NAME, reopens=True),
    _scenario(called_asking, _BOTH, gated=gate.ASKING),
    _scenario(swap, {"S": SPARES, "K": ENDS}, reopens=True),
    _scenario(
        arming, {"M": DECIDES_BACK, "Mtailtask": COPIES_BACK, "K": ENDS}, reopens=True, changing=("log", "state:plan"),
    ),
    _scenario(armed_again, {"M": NOTES_BACK, "RB": ENDS, "RB2": ENDS}, reopens=True, changing=("log", "state:plan")),
    _scenario(rollback, {"RB": ENDS, "RB2": ENDS, "S": SPARES}, reopens=True, with_groups=True),
    _scenario(
        way_back, {"Ttask": COPIES_BACK, "K": ENDS, "T2": TAKES_BACK}, reopens=True, changing=("log",)
    ),
    _scenario(failover, _BOTH | _APP | {"F": FAILS_OVER}, with_groups=True),
    _scenario(failover_unkept, {"A": ENDS, "F": FAILS_OVER}, reopens=True),
    _scenario(failover_twice, _APP | {"F": FAILS_OVER, "F2": SETS}, with_groups=True),
    _scenario(returned, {"X": SHUTS, "Y": SHUTS, "S": SPARES}),
    _scenario(returned_late, {"X": SHUTS, "Y": SHUTS, "K": ENDS}, reopens=True),
    _scenario(partitions, _BOTH | {"P": WRITES}, changing=("topic",)),
    _scenario(topics, _BOTH | {"P": WRITES}, changing=("topic",)),
    _scenario(standalone, {"A": OPENS, "C": "source: a consumer reads "}, with_groups=True),
    _scenario(translated, _APP | {"A": OPENS, "T": SETS, "Again": SETS}, with_groups=True, freezes=BESIDE),
    _scenario(followed, _APP | {"A": OPENS, "F": SETS}, with_groups=True),
    _scenario(
        synced, {"A": OPENS} | dict.fromkeys(("S", "S2"), LETS_READ) | dict.fromkeys(("C", "C2"), ALTERS),
        freezes=BESIDE, changing=("topic",),
    ),
    _scenario(tail, {"A": OPENS, "P": WRITES, "Ttask": COPIES, "T2task": COPIES}, changing=("log",)),
    _scenario(orphan, {"F": FAILS_OVER, "P": WRITES, "Ttask": COPIES, "T2task": COPIES}, changing=("log",)),
    _scenario(other, _BOTH | {"M": CLAIMS}, changing=("state:plan", "state:configs", "topic")),
    _scenario(rivals, _BOTH | {"R": SHUTS}),
    _scenario(rivals_lifted, {"L": "target: decide fence/flow lifted", "R": SHUTS}),
    _scenario(rivals_returned, dict.fromkeys("RXY", SHUTS)),
    _scenario(retired, {"A": OPENS, "RT": RETIRES, "RT2": RETIRES}, changing=("state:plan", "state:configs", "topic")),
    _scenario(remade, {"RT": RETIRES, "RT2": RETIRES, "P": PLANS}, changing=("state:plan", "state:configs", "topic")),
)  # fmt: skip
