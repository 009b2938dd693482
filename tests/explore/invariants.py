"""What must hold of a cutover, whoever does what, and dies where: each in one sentence, with its exceptions by design.

By design the old source is let in behind an opening by who says so: `keep_fence=False`, a rollback, or
`lift-fence --include-retained`. That is decided (`closing`) before the first rule goes, and scenarios in which somebody
does that say so (`World.reopens`). A failover opens a target whose source nobody can fence; once a source that returned
is shut, it stays shut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover.decision import CLOSED, CLOSING, LIFTED, LIFTING, OPENED, UP, fence_state
from airflow_mirror.cutover.failover.report import FailoverReport
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.guard import GRACE_S
from airflow_mirror.cutover.intent import ACL, Intent
from airflow_mirror.cutover.raised import LIFT_PATIENCE_S
from airflow_mirror.cutover.report import BACKED_OUT, DONE, CutoverReport
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.direction import direction
from tests.explore.actors import LIMITS
from tests.explore.scenario import Invariant
from tests.explore.world import APP, GROUP, LATE, MIRROR, OTHER, OWN, REVERSE, TOPICS, TPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.explore.world import World

_LIMIT_S = LIMITS.max_fence_s + GRACE_S + LIFT_PATIENCE_S


def _both_open(w: World) -> str:
    if not w.opened_by or not (here := w.source.writable(APP, [*w.opened_by])):
        return ""
    phase = "nothing" if w.fence is None else w.fence.phase
    if w.reopens and phase in (CLOSING, CLOSED):
        both = [t for t in w.target.writable(APP) if t in here] if w.is_rolled_back else []
        return f"a rollback has opened the old source, and applications may write to {both} on both sides" if both else ""
    if any(by.startswith("failover") for by in w.opened_by.values()) and not w.was_shut:
        return ""  # nobody can fence a source that is lost
    return f"the target is in production, the fence is {phase}, and applications may write to {here} of the source"


def _unopened(w: World) -> str:
    wrong = list(w.unopened)
    for one in w.fences:
        before, now = one.before, one.now
        if before is None or before.phase != OPENED or now is None:
            continue
        if now.phase == CLOSING or (now.phase == OPENED and now.id == before.id):
            continue
        wrong.append(f"{one.by}: opened ({before.run}, {before.id}) became {now.phase} ({now.run}, {now.id})")
    return "; ".join(wrong + w.written_behind)


def _unexplained(w: World) -> str:
    if w.fence is not None and not w.fence.is_over:
        return ""  # what is named beside it keeps nobody out, and is found once it is over
    found = [f"DENY WRITE on {w.denied}"] if w.denied else []
    return "; ".join([*found, *([f"names {w.names}"] if w.names else [])])


def _stands(w: World) -> str:
    both = (w.fence, fence_state(w.source.decided, REVERSE.mirror.name))
    return "; ".join(
        f"decided stays {one.phase} ({one.run}, {one.id})"
        for one in both if one is not None and one.phase in (UP, LIFTING, CLOSING)
    )  # fmt: skip


def _read_again(w: World) -> str:
    """A group that nobody reads for on the target yet goes on where it has ended on the source."""
    if not (w.with_groups and w.is_cut_over):
        return ""
    wrong = []
    for group in (GROUP, LATE):
        here, there = w.source.positions(group), w.target.positions(group)
        if not w.target.group(group).protocol_type:
            moved = [(tp, one) for tp, one in sorted(here.items()) if there.get(tp) != one]
            wrong += [f"{group}: {tp} at {there.get(tp)}, the source's at {one}" for tp, one in moved]
    return "; ".join(wrong)


def _two_records(w: World) -> str:
    wrong = []
    for tp in TPS:
        if not w.target.has(tp) or not w.source.has(tp):
            continue
        here, there = w.source.values(tp), w.target.values(tp)
        wrote = {offset for who, where, offset, _ in w.target.written if where == tp and who == APP}
        for offset, value in enumerate(there):
            if offset in wrote:
                break
            if offset >= len(here) or here[offset] != value:
                wrong.append(f"{tp} has {value!r} at {offset}, the source {here[offset : offset + 1]}")
                break
    return "; ".join(wrong)


def _too_long(w: World) -> str:
    return "; ".join(
        f"the fence of {one} was up for {seconds:.0f} s, and its guard lived"
        for one, seconds in w.stood.items() if seconds > _LIMIT_S
    )  # fmt: skip


def _told(w: World) -> str:
    return "; ".join([*_told_of_fences(w), *(wrong for actor in w.s.actors for wrong in _told_wrongly(w, actor))])


def _told_of_fences(w: World) -> Iterator[str]:
    may = w.source.writable(APP, [*TOPICS])
    for one in w.lifters:
        again = [c for c in w.fences if c.at > one.silent_since and c.now is not None and not c.now.is_over]
        if one.state == "done" and one.result and not again and len(may) < len(TOPICS):
            yield f"{one.name} was told that the fence is lifted, and applications may write to {may} only"
    stands = w.fence is not None and w.fence.phase == OPENED
    for one in w.swappers:
        late = any(deviation.kind == "late" for *_, deviation in w.s.happened)  # the next call of the swap removes it
        shut_out = not late and not w.source.writable(OWN, [*TOPICS])
        if one.state == "done" and one.result and stands and (may or shut_out):
            yield f"{one.name} was told that the fence is swapped; applications may write to {may}, or the mirror may not"


def _told_wrongly(w: World, actor: Any) -> Iterator[str]:
    if actor.state != "done" or actor.error is not None:
        return
    found, fence = actor.result, w.fence
    if isinstance(found, CutoverReport) and found.outcome == DONE and found.mirror == MIRROR.name:
        if len(w.opened_by) != len(TOPICS):
            yield f"{actor.name} was told that the target is open; it is for {sorted(w.opened_by)}"
        if fence is None or (fence.id != found.id and not fence.run.startswith("failover-")):
            yield f"{actor.name} was told that {found.id} is done; decided is {fence and (fence.phase, fence.id)}"
        if not w.reopens and (here := w.source.writable(APP, [*TOPICS])):
            yield f"{actor.name} was told that its fence is kept; applications may write to {here}"
    if isinstance(found, CutoverReport) and found.outcome == DONE and found.mirror != MIRROR.name:
        if not w.source.writable(APP):
            yield f"{actor.name} was told that the cutover is rolled back, and nobody may write to the old source"
        if w.target.writable(APP):
            yield f"{actor.name} was told that the cutover is rolled back, and applications may write to the target"
    if isinstance(found, FailoverReport):
        now = direction(w.target.decided, MIRROR.name)
        if now is None or now.by != "failover" or len(w.opened_by) != len(TOPICS):
            yield f"{actor.name} was told that the mirror is failed over; decided is {now}"


def _backed_out(w: World) -> str:
    """Reports on the target that contradict what is decided."""
    wrong = []
    for run, report in w.reports():
        opened = w.fence is not None and w.fence.id == report.id and w.fence.phase == OPENED
        if report.outcome == BACKED_OUT and opened:
            wrong.append(f"the report of {run} says backed out, and its target is open")
        lifted = w.fence is not None and w.fence.id == report.id and w.fence.phase == LIFTED
        if report.outcome == DONE and lifted:
            wrong.append(f"the report of {run} says done, and its fence was lifted, nothing opened")
    return "; ".join(wrong)


def _both_told(w: World) -> str:
    done = [a.name for a in w.s.actors if isinstance(a.result, CutoverReport) and a.result.outcome == DONE]
    over = [a.name for a in w.s.actors if isinstance(a.result, FailoverReport)]
    return f"{done} was told that it cut over, {over} that it failed over" if done and over else ""


def _plan_lost(w: World) -> str:
    last = ledger_store.last_hash(w.target.decided, MIRROR.name)
    if last is None or PLAN.text(w.target.state, MIRROR.name, last):
        return ""
    return f"plan {last[:12]} is the last one, and is not there"


def _unnamed(w: World) -> str:
    """Without its name whoever lifts it takes its rules for those of other mirrors' fences, and leaves them."""
    one = w.fence
    if w.fenced_by != ACL or one is None or one.phase not in (UP, OPENED) or Intent.of(one.intent, TOPICS).pending:
        return ""
    name = name_of(MIRROR.name, one.run, one.id)
    return f"{name} is not among {w.names}, and DENY WRITE is on {w.denied}" if w.denied and name not in w.names else ""


def _rival_leaks(w: World) -> str:
    now = fence_state(w.target.decided, OTHER.mirror.name)
    holds = [run.me for run in w.rivals if now is not None and (now.id, now.phase) == (run.me, UP)]
    return f"{holds} stands, and WRITE is denied on {w.denied} only" if holds and len(w.denied) < len(TOPICS) else ""


ALL = (
    Invariant("never are both sides writable for applications", _both_open),
    Invariant("an opened target is never un-opened, nor written by the mirror", _unopened),
    Invariant("a committed offset on an open target is nobody's but its readers'", lambda w: "; ".join(w.set_behind)),
    Invariant("who may use an open target, and its settings, no mirror changes", lambda w: "; ".join(w.changed_behind)),
    Invariant("a group goes on where it has ended on the source", _read_again, at_end=True),
    Invariant("no offset holds two different records", _two_records, at_end=True),
    Invariant("what was written to the source before the opening is on the target", lambda w: "; ".join(w.left_behind)),
    Invariant("a fence ends within its limit while a guard lives", _too_long),
    Invariant("nothing stays up, lifting or closing once everybody has ended", _stands, at_end=True),
    Invariant("nothing of a fence stays that nothing explains once everybody has ended", _unexplained, at_end=True),
    Invariant("who is told that it is done finds it done", _told, at_end=True),
    Invariant("no report says something else than is decided", _backed_out, at_end=True),
    Invariant("a fence that another mirror has raised on the same topics stays as it is", _rival_leaks),
    Invariant("a fence that keeps writers out is named at the source", _unnamed),
    Invariant("what is decided to be the last plan is there", _plan_lost, at_end=True),
    Invariant("a cutover and a failover are not both told that they are done", _both_told, at_end=True),
)  # fmt: skip
