"""Fence a source that returns after a failover, and list what it took.

Producers that nobody has told write to it from its first second on, and no mirror copies that. So somebody stands by and
asks it every second. What is kept of it is what a finished cutover with a kept fence leaves: the target is open, and the
source is fenced. Whoever lifts a fence, swaps it, arms a way back or rolls back finds it there.

1. It is decided that this fence stands behind an open target: no guard lifts it. Then its name goes to the source, and
   it is looked for other mirrors' fences on the same topics: they would have the same rules. While there is one, this one
   waits, and has none.
2. It is decided what it changes, and its report is kept on the target, with the cut in the place of the fenced ends.
3. The fence is raised; each request is permitted by that decision.
4. It is proven: every live broker lists it, the ends stand still, no transaction holds a partition. No leader is asked
   before the fence, as a cutover does: that would cost seconds, and some partitions have no leader yet.
5. Behind it is read what the source took, and where its groups stand. Only then the report says that no transaction is
   unseen, which arming a way back asks for, and gets its link in the mirror's chain of reports.

A process may die between any two of these, or the source go away again; the next try goes on. Once proven, nothing is
raised again: by then the fence may have been swapped. What a missing right hid from the proof is looked for by a later
call, as long as the fence is as it was raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.attempt import Attempt, Log
from airflow_mirror.cutover.decision import (
    OPENED,
    FenceState,
    change_intent,
    fence_state,
    go_on_opening,
    permit,
    stand_behind_open,
)
from airflow_mirror.cutover.failover.after import beyond, counted, topics_there
from airflow_mirror.cutover.failover.check import failed_over
from airflow_mirror.cutover.failover.record import Cut, Record
from airflow_mirror.cutover.fence import AclFence, Fence, fence_of
from airflow_mirror.cutover.fence_names import RETURNED, attempt_id
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.open_transactions import look_for_unseen, unseen_because
from airflow_mirror.cutover.other_fences import require_no_other
from airflow_mirror.cutover.platform import Platform, Side, require_source
from airflow_mirror.cutover.proof import ACLS, CHECK
from airflow_mirror.cutover.quiet import prove_ends
from airflow_mirror.cutover.raised import Raised
from airflow_mirror.cutover.report import CUT_OVER, DONE, CutoverReport, FenceRecord, GroupRecord, as_recorded
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Clusters, CutoverRequest
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import (
    AuthenticationFailed,
    CutoverTakenOver,
    FencedByAnother,
    FenceGone,
    FenceLeaks,
    FenceStands,
    FenceUnproven,
    NeedsHuman,
    TransactionsOpen,
    TryAgain,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import CUT
from airflow_mirror.plan.direction import Direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.groups import read_positions
from airflow_mirror.wording import first_lines

# The source went away again, or is not yet at rest: whatever was raised stays, and is proven by a later try. Or it is not
# all back: a broker is there before the directory that knows its users. Or a cutover's fence stands, which nobody could
# lift while the source was away.
NOT_YET = (
    TryAgain, FencedByAnother, FenceUnproven, FenceLeaks, FenceGone, FenceStands, TransactionsOpen, AuthenticationFailed,
)  # fmt: skip
_POLL_S = 1.0
_ANSWER_S = 3.0  # for a first answer; a host that is away may swallow what is sent to it
_SAY_EVERY_S = 30.0
_LISTED = 50
_WHY = "a source that returns is fenced before its leaders are asked"
_LOG = logging.getLogger("airflow_mirror.cutover.failover")


@dataclass(frozen=True, kw_only=True)
class Returned:
    """A source that is fenced.

    :param took: what it has beyond the cut, as readable lines, a line for each partition; ``offsets`` in all of them.
    :param fence: what the fence consists of, as readable lines.
    :param fenced_s: from its first answer until every live broker listed the fence; None: nobody saw its first answer.
    """

    mirror: str
    at: str
    offsets: int
    took: list[str]
    fence: list[str]
    fenced_s: float | None

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        after = "" if self.fenced_s is None else f", {self.fenced_s:.1f} s after its first answer"
        head = f"the source of mirror {self.mirror!r} has returned, and was fenced at {self.at}{after}"
        return [head, *(self.took or ["it took nothing after the last copied offset"])]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {**vars(self), "text": self.lines()}


def watch(
    source: ClientConfig, target: ClusterAdmin, mirror: str, *, fence: str = "acl", open_by_default: bool | None = None,
    signer: Signer | None = None, log: Log = _LOG, pause: Callable[[float], None] = time.sleep,
) -> Returned:  # fmt: skip
    """Ask the source every second until it answers, and fence it then. Ends when that is done, or by an error.

    :param fence: as for :func:`fence_of`; ``open_by_default`` likewise.
    :param signer: signs the link that the report gets in the mirror's chain of reports.
    :param pause: sleeps so many seconds; what it raises ends the watch, at a moment when nothing is half done in memory.
    :raises InputError: that is not its source; no rights, no authorizer: see :class:`AclFence`. What may be over in a
        minute does not end it: see ``NOT_YET``.
    """
    begun, said_at, said = time.monotonic(), 0.0, ""
    # Before the source is asked: a mirror that was not failed over is said now, and not on the day on which its source
    # returns.
    on_target = Side(target)
    _, decided = failed_over(on_target, mirror)
    there = fence_state(on_target.ledger.values(), mirror)
    if there is not None and not there.is_over and there.run != RETURNED + decided.attempt:
        # By force over a cutover. Its fence keeps producers out too, and nobody can lift it before the source answers.
        log.warning(
            "the fence of cutover %r %s: when the source has returned, lift it ('airflow-mirror lift-fence'), and this "
            "one goes up", there.run, there.text,
        )  # fmt: skip
    answered: float | None = None
    while True:
        try:
            with ClusterAdmin(source, timeout_s=_ANSWER_S) as asked:
                # A first answer, by connections of its own: a host that is away may swallow what is sent to it for
                # longer.
                asked.cluster_id()
            # For people. A watch that dies takes it along, and the next one counts from its own first answer.
            answered = answered or time.time()
            with ClusterAdmin(source) as admin:
                its = fence_of(fence, admin, open_by_default)
                on = Platform.of(admin, target)
                # Each try begins anew, on new connections: what the one before has done is on the target and at the
                # source, not in memory.
                return fence_returned(on, mirror, its, answered=answered, signer=signer, log=log)
        except NOT_YET as e:
            now, what = time.monotonic(), type(e).__name__
            if what != said or now - said_at >= _SAY_EVERY_S:
                log.info("not fenced yet, %.0f s by now: %s", now - begun, e)
                said_at, said = now, what
        pause(_POLL_S)


def fence_returned(
    on: Platform, mirror: str, fence: Fence, *, answered: float | None = None, limits: Limits | None = None,
    signer: Signer | None = None, log: Log = _LOG,
) -> Returned:  # fmt: skip
    """Fence a source that answers; see the module. May be repeated: a fence that was proven is only looked at.

    :param answered: when it did for the first time; seconds since the epoch.
    :raises InputError: as :func:`watch`. :raises FenceStands: a cutover's is, or may be, up.
    :raises FencedByAnother: topics are fenced for other mirrors. Nothing was changed.
    :raises FenceUnproven: :raises FenceLeaks: :raises TransactionsOpen: it stands, and is not proven. Call it again.
    :raises FenceGone: it was raised, and no broker lists it; call it again.
    :raises TryAgain: a broker does not know the topics yet, or does not answer; call it again.
    :raises NeedsHuman: it was lifted, or it was proven and is gone.
    """
    source, ledger = on.source.admin, on.target.ledger
    plan, decided = failed_over(on.target, mirror)
    require_source(source, plan)
    record = Record(on.target.state(CUT.below(mirror)), mirror, decided.attempt)
    # From here on it is on record that a fence may be there. Dies behind it: the next process that stands by finds it,
    # and goes on by what it says; a person who lifts fences finds it as well.
    raised = _decided(on, plan, decided, fence)
    store = ReportStore(on.target.reports(mirror), mirror, raised.state.run, None)
    # By the attempt's id. Before the first rule, since arming and rollback read the cut in it in the place of fenced
    # ends.
    # Two that stand by may both write it: of one attempt, with one cut, so either one serves.
    report = raised.report = store.of(raised.state.id) or _begun(plan, raised, record.cut(), store)
    assert report.fence is not None
    noted = record.returned()
    # Both: one that died between the proof and the note lists again what the source took.
    is_proven = report.fence.proven is not None and noted is not None
    # Raised again it would shut out whom a person has let in since, or a mirror that copies back.
    if raised.state.phase != OPENED or (is_proven and not raised.fence.is_up(raised.intent)):
        how = "was lifted" if raised.state.phase != OPENED else "is gone, or incomplete: somebody else has removed it"
        raise NeedsHuman(
            f"the source of mirror {mirror!r} was fenced when it returned, and that fence {how}.",
            "Producers may write there, and it is not raised again",
            "'airflow-mirror failover --after' lists what they wrote; keep them away by other means.",
        )
    if noted is not None and is_proven:
        noted = _seen_since(on, plan, raised, store, limits or Limits(), log, record) or noted
        store.add_to_chain(
            report, ledger, signer, log.warning
        )  # the process that has fenced it may have died just before
        return known(Returned)(noted)
    # Not proven yet, and perhaps half raised by one that died: rules are a set, so all of them are created once more.
    if not raised.intent.spared:  # else it was up, and somebody has let the mirror in since
        # A person lifts it, or another process swaps it, meanwhile: the permit refuses what comes behind that, and what
        # was sent already is taken back unless a fence stands (`Raised.take_back`).
        raised.raise_rules(permit(ledger, mirror, raised.state))
    log.info("the fence is raised; waiting until every broker lists it, and the source's logs stand still")
    # In memory until the report is saved below: one that dies in between proves it again.
    _prove(on, plan, raised, store, limits or Limits(), log)
    assert report.fence.proven is not None
    # Behind the proof: what is counted now is all that the source will ever have taken.
    took = counted(source, beyond(source, plan, record.cut().offsets))
    found = Returned(
        mirror=mirror, at=datetime.fromtimestamp(report.fence.proven, UTC).isoformat(timespec="seconds"),
        offsets=sum(one.offsets for one in took), took=first_lines(map(str, took), _LISTED),
        fence=first_lines(raised.lines, _LISTED),
        fenced_s=None if answered is None else round(report.fence.proven - answered, 1),
    )  # fmt: skip
    # Before the report, which says that it is proven: who finds that one looks at nothing any more (`is_proven` asks
    # for both).
    record.write_returned(vars(found))
    # Consumers may read on behind a fence, which keeps producers out alone. Who moves from here on is found by a rollback
    # (`rollback.divergence`).
    report.groups = _groups(source, plan)
    # Arming trusts this: that it is proven, which transactions are unseen, where the groups stood. Dies before it: done
    # again.
    store.save(report)
    store.add_to_chain(report, ledger, signer, log.warning)
    return found


def _seen_since(
    on: Platform, plan: Plan, raised: Raised, store: ReportStore, limits: Limits, log: Log, record: Record
) -> dict[str, Any] | None:  # fmt: skip
    """Prove again a fence whose proof could not see all transactions, once they can be seen; return the new note.

    :return: None: nothing was unseen, or it still is.
    :raises TransactionsOpen: a transaction holds a partition. Nothing was noted; call it again.
    """
    report, noted, source = raised.report, record.returned(), on.source.admin
    assert report is not None and report.fence is not None and noted is not None
    # Swapped, a mirror may write behind it, and the ends move.
    if not report.fence.unseen or raised.intent.spared or unseen_because(raised.fence, source):
        return None
    log.info("transactions can be seen on the source by now: its fence is proven again")
    _prove(on, plan, raised, store, limits, log)
    # Markers may have come since. The groups stay as they were first found: whoever moved since has read on the source.
    took = counted(source, beyond(source, plan, record.cut().offsets))
    found = noted | {"offsets": sum(one.offsets for one in took), "took": first_lines(map(str, took), _LISTED)}
    record.write_returned(found)
    # Last, as the first time. Dies before it: still unseen, and done again.
    store.save(report)
    return found


def _decided(on: Platform, plan: Plan, failed_over: Direction, fence: Fence) -> Raised:
    """Decide that the fence stands behind an open target, and what it changes, unless that is decided; return it.

    What it changes is decided once it was looked for others: who finds it decided, after a death, may raise it.
    """
    name, run, ledger = plan.mirror.name, RETURNED + failed_over.attempt, on.target.ledger
    there = fence_state(ledger.values(), name)
    # Decided by a call before, which may be alive beside this one: its intent counts. Without rules it had not looked
    # yet.
    if there is not None and there.run == run:
        raised = Raised.of(on, name, there, fence, None)
        if not raised.intent.pending or there.phase != OPENED:
            return raised
    topics, others = [t.source_topic for t in plan.topics], list[str]()
    me = attempt_id(on.new_id(), plan.target_cluster_id)
    # Those that have passed on are the other mirror's to fence. Whoever reads the decision has the plan as it was made,
    # with them.
    passed_on = {t.source_topic for t in on.target.plan(name, plan.hash, plan.revision).topics}.difference(topics)
    intent = replace(fence.intent(topics), others=frozenset(passed_on))
    if isinstance(fence, AclFence):
        others = require_no_other(on, fence, plan, run)
    # Without a process: no guard waits for its signs. Without rules: until others were looked for, none there is its
    # own.
    mine = FenceState(
        run=run, attempt=1, id=me, plan=plan.hash, revision=plan.revision, owner=me, max_fence_s=0.0, kind=fence.kind,
        name=fence.kind, intent=replace(intent, pending=True).value(), phase=OPENED,
    )  # fmt: skip
    # Decided before the name: dies behind it, nothing is there, and the next try goes on from this record.
    raised = Raised.of(on, name, stand_behind_open(ledger, name, mine, failed_over), fence, None)
    if not raised.intent.pending or raised.state.phase != OPENED:
        return raised  # somebody was faster; what was described may be rules of another process that stands by
    try:
        if raised.state.owner != me:
            # Begun by a call before, which may only be slow: it would raise rules by its own look for others, while this
            # one has taken back the name by which those step back. With its owner gone from the record its permits
            # refuse.
            raised.state = go_on_opening(ledger, name, raised.state, me, {})
        # Dies behind it: a name. The next try names it again, which does nothing, and looks for others anew.
        raised.claim(others, permit(ledger, name, raised.state))
        # Before the first rule: whoever lifts it from here on finds all of them in what is decided.
        raised.intent, raised.state = intent, change_intent(ledger, name, raised.state, intent.value())
    except CutoverTakenOver:  # by another process that stands by as well, or by whoever lifts
        return _decided(on, plan, failed_over, fence)
    except FencedByAnother:
        if isinstance(fence, AclFence):
            # The name is what the other one may step back for; while this one waits it needs none. Dies before it: the
            # name stands until a later try raises this fence. Frozen before its bytes: by then another process may have
            # raised it, or goes on with that name, and is who takes it back.
            with suppress(CutoverTakenOver):
                fence.forget(raised.name, permit(ledger, name, raised.state))
        raise
    return raised


def _begun(plan: Plan, raised: Raised, cut: Cut, store: ReportStore) -> CutoverReport:
    """Keep the fence's report, with the cut in the place of the fenced ends."""
    by, now = ACLS if raised.fence.kind == AclFence.kind else CHECK, time.time()
    record = FenceRecord(
        kind=raised.fence.kind, name=raised.state.name, intent=as_recorded(raised.intent), requested=now,
        proof={"by": by, "why": _WHY}, opened=now, kept=True,
    )  # fmt: skip
    ends = [{"topic": tp.topic, "partition": tp.partition, "end": end} for tp, end in sorted(cut.offsets.items())]
    report = CutoverReport(
        mirror=plan.mirror.name, plan_hash=plan.hash, id=raised.state.id, outcome=DONE, state=CUT_OVER, fence=record,
        ends=ends,
    )  # fmt: skip
    # Dies before it: the decision has all that a lifting needs, and the next try writes it before it raises a rule.
    store.save(report)
    return report


def _prove(on: Platform, plan: Plan, raised: Raised, store: ReportStore, limits: Limits, log: Log) -> None:
    """Prove the fence as a cutover does, of the topics that are there. Its own report keeps the cut as its ends."""
    there = topics_there(on.source.admin, plan)
    topics = (t for t in plan.topics if t.source_topic in there)
    found = replace(plan, topics=tuple(replace(t, partitions=there[t.source_topic].partitions) for t in topics))
    report = raised.report
    assert report is not None and report.fence is not None
    run = Attempt(
        request=CutoverRequest(plan=found, limits=limits), store=store, log=log, up=raised.state, intent=raised.intent,
        clusters=Clusters(on=on, fence=raised.fence, verify=lambda _: []), stop=on.event(),
        report=CutoverReport(mirror=plan.mirror.name, plan_hash=plan.hash, fence=report.fence),
    )  # fmt: skip
    # Looked for with each try: until the report is saved it says that nobody has looked, on which no way back is armed.
    report.fence.unseen = look_for_unseen(run)
    prove_ends(run)
    report.fence.proven = report.fence.proven or time.time()


def _groups(source: ClusterAdmin, plan: Plan) -> list[GroupRecord]:
    """Return where groups stand behind the fence: whoever moves from there reads on the source."""
    found = read_positions(source, plan.mirror, [t.source_topic for t in plan.topics])
    return [
        GroupRecord(
            group=group, settled="as it was found", source_state="",
            positions=[
                {"topic": tp.topic, "partition": tp.partition, "source_offset": position.offset,
                 "target_topic": plan.topic(tp.topic).target_topic, "target_offset": position.offset}
                for tp, position in sorted(its.items())
            ],
        )
        for group, its in sorted(found.items())
        if its
    ]  # fmt: skip
