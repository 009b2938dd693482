"""A fence that is decided about: how its rules come and go, step by step, and what its lifting needs.

The order of lifting is that of :mod:`.lifting`; everybody who raises or ends a fence goes through here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from airflow_mirror.cutover import decision
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.attempt import Attempt, Log
from airflow_mirror.cutover.decided_fence import fence_for, intent_in, intent_of, pinned_plan, topics_of_another
from airflow_mirror.cutover.decision import LIFTED, FenceState
from airflow_mirror.cutover.fence import AclFence, Fence
from airflow_mirror.cutover.fence_names import name_of, target_of
from airflow_mirror.cutover.intent import Intent, fence_text, line
from airflow_mirror.cutover.platform import Platform, require_source
from airflow_mirror.cutover.report import CutoverReport, UndoneRecord
from airflow_mirror.cutover.restoring import restore_while_shut
from airflow_mirror.errors import (
    CutoverTakenOver,
    FencedByAnother,
    FenceNotLifted,
    TryAgain,
)
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.model import Plan

_LOG = logging.getLogger("airflow_mirror.cutover")
# After SIGTERM a supervisor sends SIGKILL within some seconds. Brokers may be restarting meanwhile.
# Given up is no harm: what is decided stays `lifting`, and the next lifter begins at the rules again.
LIFT_PATIENCE_S = 20.0


class _Gone(Exception):  # noqa: N818  # it is none, see Raised._is_gone
    pass


@dataclass(kw_only=True)
class Raised:
    """A fence that is decided about, and what its lifting needs.

    :param fence: by which it is lifted. :param intent: what it has changed.
    :param report: of that attempt; None: it has left none, so it has moved no group.
    :param plan: that the decision pins, whose source was fenced; None: our own process has fenced it, or none is known.
    :param undone: what was, or could not be.
    :param left: rules like its own that were found behind its lifting, and left to another mirror's fence.
    """

    on: Platform
    mirror: str
    state: FenceState
    fence: Fence
    intent: Intent
    report: CutoverReport | None
    plan: Plan | None = None
    undone: list[UndoneRecord] = field(default_factory=list)
    left: Collection[Acl] = ()

    @property
    def failures(self) -> list[str]:
        """What could not be undone, with the cause."""
        return [f"{record.step}: {record.error}" for record in self.undone if not record.ok]

    @classmethod
    def of(
        cls, on: Platform, mirror: str, state: FenceState, given: Fence | None, report: CutoverReport | None
    ) -> Raised:
        """Return it as the ledger has it.

        :raises InputError: another fence was given than is up. :raises PlanNotKept: the ledger has lost the plan.
        :raises LedgerNewer: a newer version decided it.
        """
        # All of it before the first effect: what can't be read, or can't be built here, must not be found out half way.
        fence = fence_for(state.kind, state.name, given, on.source)
        plan = pinned_plan(on.target, mirror, state)
        return cls(
            on=on, mirror=mirror, state=state, fence=fence, intent=intent_in(plan, state), report=report, plan=plan
        )  # fmt: skip

    @classmethod
    def by(cls, attempt: Attempt) -> Raised:
        """Return the fence that a run has decided, as its own process knows it."""
        assert attempt.up is not None
        on, mirror, report = attempt.on, attempt.mirror.name, attempt.report
        return cls(on=on, mirror=mirror, state=attempt.up, fence=attempt.fence, intent=attempt.intent, report=report)

    @property
    def name(self) -> str:
        """The name that it has at the source."""
        return name_of(self.mirror, self.state.run, self.state.id)

    @property
    def lines(self) -> list[str]:
        """What it has changed, for people; what was left in place is said."""
        its = fence_text(self.fence.kind, self.intent)
        if not self.left:
            return its
        why = "its name was gone, and another mirror's fence, which may have the same rule, stands"
        left = [line(acl) for acl in self.left]
        gone = [one for one in its if not one.startswith(tuple(left))]
        return [*gone, *(f"but {one} stays: {why}" for one in left)]

    def claim(self, before: Collection[str], permit: Permit) -> None:
        """Name it at the source, and look for another mirror's fence of the same second, which may be about its topics.

        Their rules are the same, and whoever lifts first would open both. Ours is named and has no rule yet: so of two
        that see each other neither has one, and of two of which one sees the other that one alone steps back.

        :param before: other mirrors' fences that :func:`.other_fences.require_no_other` has found to be no obstacle.
        :raises FencedByAnother: there is one, or it may be about any topic. Only the name of this one is there.
        :raises CutoverTakenOver: it is not to be any more; the name is taken back.
        """
        if not isinstance(self.fence, AclFence):
            return
        with self._taken_back():
            # The name before the first rule, at each broker: who finds rules that keep everybody out can tell whose
            # they may be. Dies behind it: a name alone, which keeps nobody out; the lifter removes it, and until then
            # it refuses every other cutover of the mirror.
            self.fence.claim(self.name, permit)
            permit()  # its request may have come to the broker after somebody else has undone this attempt
        # Read behind our own name, which every broker lists by now. So of two that do this at the same time at least
        # one sees the other, whoever is slow, frozen or dies in between.
        for other in self.fence.others(self.mirror, target_of(self.name)):
            its = topics_of_another(self.on, other)
            if its is None:
                its = () if other in before else self.intent.topics
            if topics := sorted({*self.intent.topics}.intersection(its)):
                raise FencedByAnother(self.on.source.admin.role, topics, [other])

    def raise_rules(self, permit: Permit) -> None:
        """Raise it. :raises CutoverTakenOver: it is not to be any more; what was raised by then is taken back."""
        with self._taken_back():
            # Dies amid it: some rules are there, and all of them in what is decided. Frozen before its bytes: the
            # permit refuses, since a guard has decided `lifting` by then.
            self.fence.raise_(self.intent, self.name, permit)
            # The fence first: whoever took over is to be heard of before what a failover has done.
            permit()  # a request may have come to the broker after somebody else has undone this attempt

    def lift_rules(self, permit: Permit) -> None:
        """Lift it; retry for ``LIFT_PATIENCE_S`` while brokers don't answer.

        :raises FenceNotLifted: names what is still in place. :raises CutoverTakenOver: it is somebody else's by now.
        """
        source = self.on.source
        deadline = source.clock.monotonic() + LIFT_PATIENCE_S

        def unless_gone() -> None:
            permit()
            # With each request: who lifted it before may die only now, and another mirror go up while we sleep.
            if self._is_gone():
                raise _Gone

        while True:
            try:
                # Again: it was decided although it was away, perhaps. A function need not ask it for anything.
                if isinstance(self.fence, AclFence):
                    self._require_source()
                # Each try begins at the first rule, as does each process that takes over: deleting what is gone does
                # nothing.
                self.fence.lift(self.intent, self.name, unless_gone)
                return
            except _Gone:
                # Lifted before, or only its name was removed: that these rules are the other one's nobody can tell.
                assert isinstance(self.fence, AclFence)
                if left := self.fence.listed(self.intent):
                    self.left = left
                    _LOG.warning("fence of run %r: %s", self.state.run, "; ".join(self.lines))
                return
            # Another lifter goes on, or it is opened: this one has nothing to try again, and its rules may be a later
            # attempt's.
            except CutoverTakenOver:
                raise
            except TryAgain as e:
                if source.clock.monotonic() > deadline:
                    raise FenceNotLifted(source.admin.role, self.lines, str(e)) from e
                source.clock.sleep(0.5)

    def begin(self, lifter: str) -> bool:
        """Decide that it is lifted; return whether it is so by now, and there is something to undo.

        :raises CutoverTakenOver: another attempt's fence is decided about by now, or another process owns it.
        :raises Undecided: nobody knows. :raises InputError: another cluster was fenced than the source is.
        """
        self._require_source_if_there()
        # Decided before the first rule goes. Deleted first, the owner's `opened` could still be appended behind that:
        # the target open, and the source as well.
        decided = decision.begin_lifting(self.on.target.ledger, self.mirror, self.state, lifter)
        if decided is None:
            raise CutoverTakenOver(self.state.run)
        if decided.intent != self.state.intent:
            # Undone is what is decided, not what was read before: rules that came in between would stay.
            self.intent = intent_of(self.on.target, self.mirror, decided)
        # From here on permits compare with what we have decided ourselves, our name as the lifter in it.
        self.state = decided
        return decided.stands

    def undo(self, log: Log = _LOG) -> bool:
        """Do what was decided: lift the fence, restore the groups, and decide that it is done. Return whether all is.

        Producers come first. What fails is in the report, and does not keep the rest from being done. While brokers don't
        answer for a group it stays decided that the fence is being lifted: whoever goes on restores the group as well.

        :raises CutoverTakenOver: somebody else goes on with it.
        """
        # One permit for rules and groups: as long as exactly our `lifting` is decided. Whoever takes over changes it,
        # and each request of this process that comes behind that is refused before its bytes.
        report, permit = self.report, decision.permit(self.on.target.ledger, self.mirror, self.state)
        unanswered = list[TryAgain]()

        def attempt(step: str, do: Callable[[], str]) -> None:
            unanswered.extend(self._attempt(step, do, log))

        # Producers first: each second counts for them, and no group waits on the source for anything. Dies behind it:
        # the rules are gone, `lifting` stands, and the next one lifts nothing once more, and then restores the groups.
        attempt("fence", lambda: self._lifted(permit))
        # By the report of this very attempt, written before its first position was set. Without one it has set none.
        if report is not None and report.groups:
            attempt("commit_groups", lambda: restore_while_shut(self.on.target, self.mirror, report, permit))
        if report is not None and any(step.name == "stop_writers" for step in report.steps):
            # A lease that was taken can't be given back. Dies before the report had it: the lease's own mark tells that
            # nobody writes.
            lost = "has" if report.lease is not None else "may have"  # unknown if the takeover itself was interrupted
            attempt("stop_writers", lambda: f"the tail {lost} lost its lease: start it again")
        # A group that was refused for good (it has members now) holds nothing up: its row says so, and nobody could do
        # better. The run's next try restores it (`undo_rest`).
        if self.undone[0].ok and not unanswered:
            # Without an answer a row that failed, and `lifted` all the same, perhaps: the next process reads which.
            attempt("decision", self._ended)
        if report is not None:
            self._note_in(report)
        return not self.failures

    def undo_rest(self, log: Log = _LOG) -> list[TryAgain]:
        """Restore what groups of a fence that was lifted could not get back then; return what nobody answered.

        What failed is in the report, and in ``failures``.

        :raises CutoverTakenOver: something else is decided by now.
        """
        unanswered = list[TryAgain]()
        report, permit = self.report, decision.permit(self.on.target.ledger, self.mirror, self.state)
        assert report is not None and self.state.phase == LIFTED
        # As long as no other fence has gone up: from then on groups are that attempt's. Dies amid it: done again by the
        # next try.
        if report.groups:
            unanswered = self._attempt(
                "commit_groups", lambda: restore_while_shut(self.on.target, self.mirror, report, permit), log
            )
        self._note_in(report)
        return unanswered

    def _attempt(self, step: str, do: Callable[[], str], log: Log) -> list[TryAgain]:
        """Undo a step, and note what became of it; return that there was no answer, where there was none."""
        record = UndoneRecord(step=step)
        unanswered = list[TryAgain]()
        try:
            record.what = do()
        # Not a row among others: the rest is another process's to undo, and it does.
        except CutoverTakenOver:
            raise
        except Exception as e:
            if isinstance(e, TryAgain):
                # Nobody knows whether that request came to be: it is tried again by whoever goes on, so `lifted` must
                # not be decided yet.
                unanswered.append(e)
            record.fail(e)
        self.undone.append(record)
        log.info("undo %s: %s", step, record)
        return unanswered

    def _note_in(self, report: CutoverReport) -> None:
        # A guard tries every second while a coordinator is away.
        if self.undone and report.undone[-len(self.undone) :] != self.undone:
            report.undone += self.undone
        # In memory only: who calls saves it. Dies before that: decided is `lifted`, and the run's next process says so
        # in its place.
        report.outcome = reports.UNDO_FAILED if self.failures else reports.BACKED_OUT
        report.state = reports.CAUGHT_UP

    def close(self, end_writing: Callable[[], object] = lambda: None) -> FenceState:
        """Lift the fence of an open target; return what is decided then.

        :param end_writing: returns when no mirror can write any more to what applications use from now on. Called once
            it is decided: who looks at the fence later begins nothing behind it.
        :raises CutoverTakenOver: something else is decided by now. :raises FenceNotLifted: names what is in place.
        :raises InputError: another cluster was fenced than the source is.
        """
        self._require_source_if_there()
        ledger = self.on.target.ledger
        # Three things in this order. Writing is ended behind the decision, so that who arms a way back at this moment
        # finds that, and begins nothing; and before the rules, since a tail would copy what producers write to the
        # reopened source into a target that applications use. Dies between any two: `closing` stands, behind which
        # nothing is swapped or armed, and the next `lift-fence` or rollback does it all again.
        self.state = decision.begin_closing(ledger, self.mirror, self.state, self.on.new_id())
        end_writing()
        self._lifted(decision.permit(ledger, self.mirror, self.state))
        self._ended()
        return self.state

    def _require_source(self) -> None:
        if self.plan is not None:
            require_source(self.on.source.admin, self.plan)

    def _require_source_if_there(self) -> None:
        # Before the decision. On another cluster there is nothing to lift: it would count as lifted, and the source that
        # was fenced would stay shut. One that is away is no other one: it is decided all the same, so that nobody opens
        # behind it, and its rules are tried again.
        with suppress(TryAgain):
            self._require_source()

    def take_back(self) -> None:
        """Undo what was raised in vain. Where another fence stands, also another mirror's, the same rules are that one's.

        :raises CutoverTakenOver: one does; only the name is taken back, unless it is that one's as well.
        """
        acl, ledger = self.fence if isinstance(self.fence, AclFence) else None, self.on.target.ledger
        # Called by an owner that has created rules, perhaps, behind somebody's lifting of them: no record explains
        # these.
        unowned = decision.nobodys(ledger, self.mirror, self.state)

        def nobodys() -> None:
            unowned()
            # Another mirror's fence consists of the same rules where topics are the same. Its names stand at the
            # source; whether its topics are ours is not asked: a rule too many is named by `lift-fence`, one too few
            # opens a source.
            if acl is not None and acl.others(self.mirror, target_of(self.name)):
                raise CutoverTakenOver(self.state.run)

        try:
            # Dies in here: rules stay that nobody decided. They are seen by `unexplained`, refuse the next cutover, and
            # a person removes them.
            self.fence.lift(self.intent, self.name, nobodys)
        except CutoverTakenOver:
            # The name bears the attempt's id, so it is never anybody else's; but while this attempt's fence is decided
            # about, its lifter takes the name away last. Once it is not it never is again: nothing is left to ask.
            state = decision.fence_state(ledger.values(), self.mirror)
            if acl is not None and (state is None or state.is_over or state.id != self.state.id):
                acl.forget(self.name, unfenced)
            raise

    @contextmanager
    def _taken_back(self) -> Iterator[None]:
        try:
            yield
        except CutoverTakenOver:
            # Somebody has lifted, and seen that no rule was there, before ours came. Nobody else would ever look for
            # them.
            self.take_back()
            raise

    def _is_gone(self) -> bool:
        """Whether it was lifted before, and the rules that are there are those of other mirrors' fences.

        Its name comes before its first rule and goes after the last one. Whoever lifted it died before it was decided
        that it is lifted, and others have gone up since. Where nobody else is named, a person may have removed the name.
        """
        return isinstance(self.fence, AclFence) and self.fence.is_gone(self.mirror, self.name)

    def _lifted(self, permit: Permit) -> str:
        self.lift_rules(permit)
        # Noted in the report only behind the brokers' own word that no rule is listed any more, or that none is known to
        # be its own.
        self.is_down()
        return "; ".join(self.lines) if self.left else "fence lifted"

    def is_down(self) -> None:
        """Note in the report that it is."""
        if self.report is not None and self.report.fence is not None:
            self.report.fence.lifted = time.time()

    def _ended(self) -> str:
        self.state = decision.end_lifting(self.on.target.ledger, self.mirror, self.state)
        return f"it is decided that it is {self.state.phase}"
