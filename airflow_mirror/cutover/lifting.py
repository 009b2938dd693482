"""End a fence, and undo what else its cutover did: one way for the owner that backs out, its retry, a guard and a person.

1. It is decided that the fence is lifted: from here on nobody opens the target behind it.
2. Its rules go. Each request is permitted by that decision, which is read right before the bytes.
3. The groups get the positions back that they had on the target, likewise.
4. It is decided that all that is done. Only then another fence may go up.

Whoever dies in between leaves a decision that says ``lifting``; the next one takes it over. The kept fence of an open
target is ended in the same way, but that the decisions are ``closing`` and ``closed``, and the groups stay.

Where the ledger can't be asked, the source tells: a fence is lifted only while this attempt's name stands there, and no
other one of the mirror. The decision comes later, by whoever can make it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import lock
from airflow_mirror.common.policy import COLON
from airflow_mirror.cutover import decision
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.attempt import Attempt, Log
from airflow_mirror.cutover.decision import CLOSED, FenceState
from airflow_mirror.cutover.fence import AclFence, Fence, name_of
from airflow_mirror.cutover.groups import restore_groups
from airflow_mirror.cutover.heartbeat import require_over
from airflow_mirror.cutover.intent import Intent, fence_text, line
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import (
    CutoverRunning,
    CutoverTakenOver,
    FencedByAnother,
    FenceNotLifted,
    FenceStands,
    InputError,
    LedgerLost,
    LedgerMissing,
    LedgerNewer,
    MayBeOpen,
    MirrorCutOver,
    MirrorError,
    OpeningUnfinished,
    TryAgain,
    first_of,
)
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan import ledger_store as plans
from airflow_mirror.plan import ownership
from airflow_mirror.plan.direction import FAILOVER, direction

_LOG = logging.getLogger("airflow_mirror.cutover")
# After SIGTERM a supervisor sends SIGKILL within some seconds. Brokers may be restarting meanwhile.
LIFT_PATIENCE_S = 20.0
_LOCK_PATIENCE_S = 5.0  # an attempt that was just asked to stop needs a moment to back out


@dataclass(kw_only=True)
class Raised:
    """A fence that is decided about, and what its lifting needs.

    :param fence: by which it is lifted. :param intent: what it has changed.
    :param report: of that attempt; None: it has left none, so it has moved no group.
    :param rows: what was undone, or was not.
    """

    on: Platform
    mirror: str
    state: FenceState
    fence: Fence
    intent: Intent
    report: CutoverReport | None
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failures(self) -> list[str]:
        """What could not be undone, with the cause."""
        return [f"{row['step']}: {row['error']}" for row in self.rows if not row["ok"]]

    @classmethod
    def of(
        cls, on: Platform, mirror: str, state: FenceState, given: Fence | None, report: CutoverReport | None
    ) -> Raised:
        """Return it as the ledger has it.

        :raises InputError: another fence was given than is up. :raises PlanNotKept: the ledger has lost the plan.
        :raises LedgerNewer: a newer version decided it.
        """
        fence, intent = fence_for(state.kind, state.name, given, on.source), intent_of(on.target, mirror, state)
        return cls(on=on, mirror=mirror, state=state, fence=fence, intent=intent, report=report)

    @classmethod
    def by(cls, run: Attempt) -> Raised:
        """Return the fence that a run has decided, as its own process knows it."""
        assert run.up is not None
        return cls(
            on=run.on, mirror=run.mirror.name, state=run.up, fence=run.fence, intent=run.intent, report=run.report
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The name that it has at the source."""
        return name_of(self.mirror, self.state.run, self.state.id)

    @property
    def lines(self) -> list[str]:
        """What it has changed, for people."""
        return fence_text(self.fence.kind, self.intent)

    def lift_rules(self, permit: Permit) -> None:
        """Lift it; retry for ``LIFT_PATIENCE_S`` while brokers don't answer.

        :raises FenceNotLifted: names what is still in place. :raises CutoverTakenOver: it is somebody else's by now.
        """
        source = self.on.source
        deadline = source.clock.monotonic() + LIFT_PATIENCE_S
        while True:
            try:
                self.fence.lift(self.intent, self.name, permit)
                return
            except CutoverTakenOver:
                raise
            except TryAgain as e:
                if source.clock.monotonic() > deadline:
                    raise FenceNotLifted(source.admin.role, self.lines, str(e)) from e
                source.clock.sleep(0.5)

    def begin(self, lifter: str) -> bool:
        """Decide that it is lifted; return whether it is so by now, and there is something to undo.

        :raises CutoverTakenOver: another attempt's fence is decided about by now, or another process owns it.
        :raises Undecided: nobody knows.
        """
        found = decision.begin_lifting(self.on.target.ledger, self.mirror, self.state, lifter)
        if found is None:
            raise CutoverTakenOver(self.state.run)
        self.state = found
        return found.stands

    def undo(self, log: Log = _LOG) -> bool:
        """Do what was decided: lift the fence, restore the groups, and decide that it is done. Return whether all is.

        Producers come first. What fails is in the report, and does not keep the rest from being done. While brokers don't
        answer for a group it stays decided that the fence is being lifted: whoever goes on restores the group as well.

        :raises CutoverTakenOver: somebody else goes on with it.
        """
        report, permit = self.report, decision.permit(self.on.target.ledger, self.mirror, self.state)
        unanswered = list[TryAgain]()

        def attempt(step: str, do: Callable[[], str]) -> None:
            row: dict[str, Any] = {"step": step, "what": "", "ok": True, "error": None}
            try:
                row["what"] = do()
            except CutoverTakenOver:
                raise
            except Exception as e:
                if isinstance(e, TryAgain):
                    unanswered.append(e)
                row.update(ok=False, error="; ".join([f"{type(e).__name__}: {e}", *getattr(e, "__notes__", [])]))
            self.rows.append(row)
            log.info("undo %s: %s", step, row["what"] if row["ok"] else row["error"])

        attempt("fence", lambda: self._lifted(permit))
        if report is not None and report.groups:
            attempt("commit_groups", lambda: self._restored(report, permit))
        if report is not None and any(step.name == "stop_writers" for step in report.steps):
            lost = "has" if report.lease is not None else "may have"  # unknown if the takeover itself was interrupted
            attempt("stop_writers", lambda: f"the tail {lost} lost its lease: start it again")
        if self.rows[0]["ok"] and not unanswered:
            attempt("decision", self._ended)
        done = not self.failures
        if report is not None:
            if report.undone[-len(self.rows) :] != self.rows:  # a guard tries every second while a coordinator is away
                report.undone += self.rows
            report.outcome, report.state = reports.BACKED_OUT if done else reports.UNDO_FAILED, "CAUGHT_UP"
        return done

    def close(self, end_writing: Callable[[], object] = lambda: None) -> FenceState:
        """Lift the fence of an open target; return what is decided then.

        :param end_writing: returns when no mirror can write any more to what applications use from now on. Called once
            it is decided: who looks at the fence later begins nothing behind it.
        :raises CutoverTakenOver: something else is decided by now. :raises FenceNotLifted: names what is in place.
        """
        ledger = self.on.target.ledger
        self.state = decision.begin_closing(ledger, self.mirror, self.state, self.on.new_id())
        end_writing()
        self._lifted(decision.permit(ledger, self.mirror, self.state))
        self._ended()
        return self.state

    def take_back(self) -> None:
        """Undo what was raised in vain. Where another fence stands, also another mirror's, the same rules are that one's.

        :raises CutoverTakenOver: one does; only the name is taken back, unless it is that one's as well.
        """
        acl, ledger = self.fence if isinstance(self.fence, AclFence) else None, self.on.target.ledger
        unowned = decision.nobodys(ledger, self.mirror, self.state)

        def nobodys() -> None:
            unowned()
            if acl is not None and acl.others(self.mirror):
                raise CutoverTakenOver(self.state.run)

        try:
            self.fence.lift(self.intent, self.name, nobodys)
        except CutoverTakenOver:
            there = decision.fence_state(ledger.values(), self.mirror)
            if acl is not None and (there is None or there.is_over or there.id != self.state.id):
                acl.forget(self.name)
            raise

    def _lifted(self, permit: Permit) -> str:
        self.lift_rules(permit)
        self.is_down()
        return "fence lifted"

    def _restored(self, report: CutoverReport, permit: Permit) -> str:
        """Restore the groups, unless a failover has opened the target meanwhile: they are their readers' by then."""
        ledger = self.on.target.ledger

        def shut() -> None:
            permit()
            if (now := direction(ledger.values(), self.mirror)) is not None and now.by == FAILOVER:
                raise MirrorCutOver(self.mirror, [], now.at)

        try:
            return restore_groups(self.on.target, report, shut)
        except MirrorCutOver as e:
            return f"left where they are: {e}"

    def is_down(self) -> None:
        """Note in the report that it is."""
        if self.report is not None and self.report.fence is not None:
            self.report.fence.lifted, self.report.fence.kept = time.time(), False

    def _ended(self) -> str:
        self.state = decision.end_lifting(self.on.target.ledger, self.mirror, self.state)
        return f"it is decided that it is {self.state.phase}"


def intent_of(target: Side, mirror: str, state: FenceState) -> Intent:
    """Return what a decided fence has changed, by the topics of the plan that it pins. Errors as :meth:`Raised.of`."""
    return Intent.of(state.intent, [t.source_topic for t in target.plan(mirror, state.plan, state.revision).topics])


def fence_for(kind: str, name: str, given: Fence | None, source: Side) -> Fence:
    """Return the fence that was raised.

    What is decided about ACLs is complete, whatever fence is given now; any other fence has to be given again. If a fence
    of another kind lifted it, it would count as lifted and still be up.

    :raises InputError: the fence can't be built.
    """
    if given is not None and given.kind == kind:
        return given
    if kind == AclFence.kind:
        return AclFence(source.admin, clock=source.clock)
    got = "none" if given is None else f"one of kind {given.kind!r}"
    raise InputError(
        f"the fence that is up is of kind {kind!r} ({name or 'nobody says which'}), and {got} was given. "
        "Pass the fence that was used: airflow-mirror lift-fence --fence package.module.function, or fence= of "
        "LiftFenceOperator. The ledger's word is not enough: whoever may write there could name any function."
    )


@dataclass(frozen=True, kw_only=True)
class Assurance:
    """What whoever lifts a fence knows, and answers for: no ledger says it.

    :param listened: no sign of the cutover's process was heard for long enough.
    :param ended: a mirror of which all writing was ended.
    :param unfinished_too: lift it also if the target is open, and its cutover died before its end, which perhaps nobody
        can bring about any more, because the source has changed. A person's yes, not a teardown's.
    """

    listened: bool = False
    ended: str = ""
    unfinished_too: bool = False


def lift_leftover_fence(
    on: Platform, mirror: str, fence: Fence | None = None, *, run: str = "", attempt: str = "",
    include_retained: bool = False, runs: Path | None = None, known: Assurance = Assurance(),
) -> list[str]:  # fmt: skip
    """Lift the fence that a killed cutover of a mirror left up, and undo what else it did. Nothing if there is none.

    A finished cutover's fence stays, unless ``include_retained``. Before that one is lifted the mirror's writer lease is
    taken, so that no tail copies new source records into a target that is in use. If the fence was swapped, the source's
    topics are decided to be in production, and the lease of the mirror that copies back is taken.

    :param fence: the fence that was used; needed unless it was an ACL fence.
    :param run: only if it is this run's; "": of whichever run. :param attempt: only if it is this attempt's, by its id,
        which the caller has seen: a retry of the run may have raised another one since.
    :param include_retained: also if nobody can say whether the target is open.
    :param runs: directory of the mirror's runs on this host, for what the target can't tell.
    :param known: what the caller answers for.
    :return: what was undone, as readable lines.
    :raises CutoverRunning: the cutover is still running.
    :raises CutoverTakenOver: somebody else lifts it, or another cutover of the mirror has begun.
    :raises InputError: the given fence is not of the kind that is up.
    :raises FenceNotLifted: names what is still in place. It is undone as far as possible.
    :raises OpeningUnfinished: it is decided that the target is open; only the cutover itself can continue from there. Not
        with ``include_retained`` where its report is lost: then it can't either.
    :raises MayBeOpen: the ledger can't be asked, and it may be decided; or the fence is another attempt's by now.
    """
    try:
        there = decision.fence_state(on.target.ledger.values(), mirror)
    except LedgerMissing:
        return []  # no fence goes up without it
    except LedgerNewer:
        raise
    except MirrorError as e:  # producers must be able to write to the source again, whatever became of the target
        return _by_the_source(on, mirror, fence, run, runs, e, include_retained=include_retained)
    if there is None or there.is_over or run not in ("", there.run) or attempt not in ("", there.id):
        return []
    kept = ReportStore(on.target.reports(mirror), mirror, there.run, directory_of(runs, there.run))
    raised = Raised.of(on, mirror, there, fence, kept.of(there.id))
    done = (
        _undone(raised, listened=known.listened) if there.stands
        else _closed(raised, known.ended, include_retained=include_retained, unfinished_too=known.unfinished_too)
    )  # fmt: skip
    if not done:
        return []
    lines = raised.lines
    if raised.state.phase == CLOSED and (back := raised.intent.copied_by) not in ("", known.ended):
        lines.append(
            f"mirror {back!r} is ended, and its topics there are in production: 'airflow-mirror retire' names the "
            "settings that it held"
        )
    if (error := _tell(kept, raised.report)) is not None:
        lines.append(f"but the report on the target still says that it is up: {error}")
    if raised.failures:
        raise FenceNotLifted(on.source.admin.role, lines, "; ".join(raised.failures))
    return lines


def _undone(raised: Raised, *, listened: bool) -> bool:
    if not listened:
        require_over(raised.on.target.watch_cutover(raised.mirror), raised.mirror, raised.state)
    if raised.begin(raised.on.new_id()):
        raised.undo()
        return True
    if raised.state.phase == decision.OPENED:
        raise OpeningUnfinished(raised.state.run, "it was opened meanwhile")
    return False


def _closed(raised: Raised, ended: str, *, include_retained: bool, unfinished_too: bool) -> bool:
    """Lift the fence of an open target; return whether it was to be lifted."""
    report = raised.report
    if raised.state.phase == decision.OPENED:
        if report is None or report.outcome != reports.DONE:
            if not unfinished_too and not (include_retained and report is None):
                raise OpeningUnfinished(raised.state.run, "its report does not say that it has ended")
            require_over(raised.on.target.watch_cutover(raised.mirror), raised.mirror, raised.state)
        elif report.fence is not None and report.fence.kept and not include_retained:
            return False
    raised.close(lambda: _end_writing(raised, ended))
    return True


def _end_writing(raised: Raised, ended: str) -> None:
    """End all writing of the mirror, and of the one that copies back."""
    raised.on.target.end_writing(raised.mirror)
    if raised.intent.copied_by != ended:
        _end_copying_back(raised)


def _end_copying_back(raised: Raised) -> None:
    """First no job of the mirror that copies back begins any more, then none writes.

    A source without a ledger has none that begins.
    """
    if not (back := raised.intent.copied_by):
        return
    at = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        ownership.hand_over(raised.on.source.ledger, back, handed_over_by(raised.state.run), at)
    except (LedgerMissing, LedgerLost) as e:
        _LOG.warning("the source's ledger can't be told that its topics are in production: %s", e)
    raised.on.source.end_writing(back)


def handed_over_by(run: str) -> str:
    """Return by whose word an old source is in production whose fence was lifted."""
    return f"lift-fence {run}"


def unexplained(on: Platform, mirror: str) -> list[Acl]:
    """Return rules of a mirror's fences that nothing decided explains: what keeps everybody out, and what names them.

    A request of a process that is long gone may have come late. What a fence has found there before is the site's own.

    :raises PlanNotKept: the ledger has lost the mirror's plan. :raises FencedByAnother: they may be another mirror's.
    """
    values = on.target.ledger.values()
    there = decision.fence_state(values, mirror)
    plan_hash = there.plan if there is not None else plans.last_hash(values, mirror)
    if plan_hash is None:
        return []
    topics = [t.source_topic for t in on.target.plan(mirror, plan_hash).topics]
    intent = None if there is None else intent_of(on.target, mirror, there)
    known: set[Acl] = set()
    name, held = "", frozenset[str]() if intent is None else intent.held
    if intent is not None and there is not None and not there.is_over:
        known, name = set(intent.deny), name_of(mirror, there.run, there.id)
    found = AclFence(on.source.admin).left(mirror, set(topics) - held, known, name)
    if found and decision.fence_state(on.target.ledger.values(), mirror) != there:
        return unexplained(on, mirror)  # a fence went up, or came down, while we looked
    return found


def told_unexplained(on: Platform, mirror: str, log: Callable[..., object]) -> list[str]:
    """Return such rules as readable lines, for who looks at a mirror; where they can't be told, that is no alarm.

    :param log: takes what is said quietly, as loggers do: a source that is away, has no authorizer, or does not list its
        rules; fences of other mirrors, which may be about the same topics.
    """
    try:
        return [line(one) for one in unexplained(on, mirror)]
    except MirrorError as e:
        log("rules of the source that no record explains were not looked for: %s", e)
        return []


def described(run: Attempt) -> Intent:
    """Return what raising a run's fence changes, if no other fence stands in its way.

    A rule that keeps everybody out is taken for the site's own, and stays. Where an earlier fence of the mirror did not
    find it there, it may be a late request of that fence's, and nobody would ever lift it.

    :raises FencedByAnother: :raises FenceStands: something does. Errors as of :meth:`.fence.Fence.intent`.
    """
    intent, before = run.fence.intent(run.topics), run.before
    if not isinstance(run.fence, AclFence):
        return intent
    run.others = run.fence.others(run.mirror.name)
    run.fence.require_no_other(run.mirror.name, run.topics)
    if before is not None and before.kind == AclFence.kind:
        earlier = intent_of(run.on.target, run.mirror.name, before)
        if late := sorted(intent.held.intersection(earlier.topics) - earlier.held):
            cause = f"was lifted, and WRITE is denied to everybody again on {', '.join(late[:5])}: late, or by you"
            raise FenceStands(run.mirror.name, before.run, cause)
    return intent


def require_first(run: Attempt) -> None:
    """Return unless another mirror's fence, named at the source by now, may be about a run's topics.

    Its rules are the same as ours, and whoever lifts first would open both. Ours is named and has no rule yet: so of two
    that see each other neither has one, and of two of which one sees the other that one alone steps back.

    :raises FencedByAnother: it is, or our ledger does not know. It is decided before that no rule there is ours.
    """
    if not isinstance(run.fence, AclFence):
        return
    for other in sorted(set(run.fence.others(run.mirror.name)).difference(run.others)):
        mirror, _, attempt = other.split(COLON)
        there, topics = decision.fence_state(run.life.values(), mirror), set(run.topics)
        if there is not None and there.id == attempt:
            topics.intersection_update(intent_of(run.on.target, mirror, there).topics)
        if topics:
            assert run.up is not None
            run.intent = replace(run.intent, held=frozenset(run.intent.topics), bare=frozenset())
            run.up = decision.change_intent(run.life, run.mirror.name, run.up, run.intent.value())
            raise FencedByAnother(run.source.role, sorted(topics), [other])


def lift_unexplained(on: Platform, mirror: str, acls: Collection[Acl]) -> list[Acl]:
    """Remove such rules, because a person said so; return those that were there.

    :raises CutoverTakenOver: a fence of the mirror stands by now.
    """
    return AclFence(on.source.admin).remove(acls, decision.nobodys(on.target.ledger, mirror))


def directory_of(runs: Path | None, run: str) -> Path | None:
    """Return the directory that a run has on this host; None if it has none."""
    return None if runs is None or not (runs / run).is_dir() else runs / run


@contextmanager
def locked(kept: ReportStore) -> Iterator[None]:
    """Hold the run's lock, which tells the processes of one host apart.

    :raises CutoverRunning: another one holds it.
    """
    if kept.directory is None:
        yield
        return
    try:
        held = lock(kept.directory / "lock", _LOCK_PATIENCE_S)
    except BlockingIOError:
        raise CutoverRunning(kept.where) from None
    with held:
        yield


def _by_the_source(
    on: Platform, mirror: str, fence: Fence | None, run: str, runs: Path | None, unasked: MirrorError, *,
    include_retained: bool,
) -> list[str]:  # fmt: skip
    """Lift the fences that this host knows of and the source still names, without the target.

    :param unasked: why the target can't be asked; raised if nothing is known here.
    """
    _LOG.warning("what is decided about the fence, the target can't tell: %s", unasked)
    names, lines = [run] if run else sorted(path.name for path in (runs.iterdir() if runs is not None else ())), []
    known, failed = False, list[MirrorError]()
    for name in names:
        kept = ReportStore(on.target.reports(mirror), mirror, name, directory_of(runs, name))
        report = kept.on_disk()
        if report is not None and report.fence is not None and report.fence.lifted is None:
            known = True
            try:
                lines += _lifted_here(on, kept, report, fence, include_retained=include_retained)
            except MirrorError as e:  # one that can't be lifted keeps no other one up
                failed.append(e)
    unsure = [e for e in failed if isinstance(e, MayBeOpen)]  # told by names at the source, so there is an authorizer
    if lines and unsure and not AclFence(on.source.admin).standing(mirror):  # of another attempt nothing is up by now
        failed = [e for e in failed if e not in unsure]
    if failed or not known:
        raise first_of(failed) if failed else unasked
    return lines


def _lifted_here(
    on: Platform, kept: ReportStore, report: CutoverReport, given: Fence | None, *, include_retained: bool
) -> list[str]:
    record = report.fence
    assert record is not None
    with locked(kept):
        state = FenceState(
            run=kept.run, attempt=report.attempt, id=report.id, plan=report.plan_hash, revision="", owner="",
            max_fence_s=0.0, kind=record.kind, name=record.name,
        )  # fmt: skip
        used = fence_for(record.kind, record.name, given, on.source)
        intent = _noted_there(on.source, report) if include_retained else None
        raised = Raised(
            on=on, mirror=report.mirror, state=state, fence=used, intent=intent or record.changes, report=report
        )  # fmt: skip
        permit = alone(raised, opened=include_retained)
        permit()
        _end_copying_back(raised)
        raised.lift_rules(permit)
        raised.is_down()
        kept.save_here(report)
    return raised.lines


def _noted_there(source: Side, report: CutoverReport) -> Intent | None:
    """Return what the source's own ledger says that a fence has changed, once a way back was armed; None: nothing.

    The report of a cutover does not know what a swap has changed since.
    """
    try:
        there = decision.fence_state(source.ledger.values(), report.mirror)
    except (LedgerMissing, LedgerLost):
        return None
    return None if there is None or there.id != report.id else intent_of(source, report.mirror, there)


def alone(raised: Raised, *, opened: bool) -> Permit:
    """Return what takes a decision's place where the ledger can't be asked: at the source only this fence is named.

    A callable fence has no name there: nobody but who knows its callable lifts it.

    :param opened: also if its opening is announced.
    """
    fence = raised.fence
    return fence.alone(raised.mirror, raised.name, opened=opened) if isinstance(fence, AclFence) else unfenced


def _tell(kept: ReportStore, report: CutoverReport | None) -> MirrorError | None:
    """Write the report; return why that was not possible. It must not keep applications from writing to the source."""
    try:
        if report is not None:
            kept.save(report)
    except MirrorError as e:
        _LOG.warning("the target could not be told: %s", e)
        return e
    return None
