"""Promote a target whose source is gone, from the target's ledger alone.

The order makes every beginning of it safe, and the next call, of whatever process, completes it:

1. The tail is asked to stop, and the writer lease is taken from it for good. A call that dies here has stopped a tail;
   it can be started again.
2. The cut is noted: where the copy ended. Afterwards applications write, and nobody could tell any more.
3. One decision: direction, no tail, topics in production. Until here nothing was promised, from here on nothing is
   taken back. Whoever takes the lease later reads the decisions after that, and ends. So the lease is looked at once
   more: somebody who took it before the decision has ended a few seconds later. Who completes another call's decision
   waits that long in any case: that call may have died in its wait.
4. What makes the target usable: group positions inside its log, settings off hold, rules of writers. Each step is noted
   when it is done; one that died in between is done again, and finds less to do. Settings that the target refuses keep
   nobody waiting: they are noted, and tried again by each later call.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow_mirror.copy.writer.lease import HANDOVER_S, LeaseToken
from airflow_mirror.cutover.attempt import Log
from airflow_mirror.cutover.failover import check as checks
from airflow_mirror.cutover.failover.decision import promote, require_no_cutover
from airflow_mirror.cutover.failover.groups import groups_of, positions_of, require_unmoved
from airflow_mirror.cutover.failover.record import Beyond, Cut, Record
from airflow_mirror.cutover.failover.report import FailoverReport, Found
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError, LeaseLost, MirrorError, NoAuthorizer, TryAgain
from airflow_mirror.jobs.runner.active import ActiveTail, active_tail, ask_to_stop
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.kafka.permit import Permit, recently
from airflow_mirror.ledger.records import ACTIVE, CUT, SIGN
from airflow_mirror.plan.direction import FAILOVER, Direction, direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import kept_topics, openings, owned_topics, require_listed, target_ids
from airflow_mirror.plan.requirements import require_exclusive_topics, target_topics
from airflow_mirror.sync import seen_acls, seen_configs
from airflow_mirror.sync.acl_rules import grantable
from airflow_mirror.sync.acls import create_rules, read_scope
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.holding import end_hold
from airflow_mirror.sync.mm2_topics.last import has_checkpoints, leave_found

_LOG = logging.getLogger("airflow_mirror.cutover.failover")


def run(
    on: Side, mirror: str, *, force: bool = False, unattended: bool = False, shown_at: float | None = None,
    approval_valid_s: float = 3600.0, log: Log = _LOG,
) -> FailoverReport:  # fmt: skip
    """Fail a mirror over; see the module. A call for a finished one returns its report, and changes nothing but settings
    that the target refused.

    :param on: the mirror's target.
    :param force: also if a tail has just seen the source, a cutover is at work, or rights are missing: what needs these
        fails behind the decision, and a call with the rights completes it.
    :param unattended: nobody has approved it: refused as well, without ``force``, unless a tail has missed the source.
    :param shown_at: when was seen what a person has approved, in seconds since the epoch; None: nobody has.
    :param approval_valid_s: how old that may be, unless ``force`` is given, or the failover is decided.
    :raises InputError: without ``force``: the source was seen, rights are missing, what was approved is too old, or a
        cutover has left a fence.
    :raises MirrorCutOver: its topics were cut over: there is nothing to fail over. :raises TopicsShared: they are others'
        as well. :raises InputError: the target knows no such mirror.
    :raises TryAgain: the target does not answer, a broker of it does not list topics that are there, or, without
        ``force``, a cutover is at work; call it again.
    """
    begun, ledger = on.clock.monotonic(), on.ledger
    before = direction(ledger.values(), mirror)  # first: a failover that is decided meanwhile must not count as that
    plan, decided, tail, others = checks.mirror_of(on, mirror)
    require_exclusive_topics(plan, "be failed over")
    state = on.state(CUT.below(mirror))
    # Nothing is decided: everything anew, whatever a call that died has left. It left a stopped tail, a lease, a note
    # at most.
    if decided is None:
        _require_recent(mirror, None if force else shown_at, on.clock.time(), approval_valid_s)
        plan, decided, held, others = _decide(on, plan, tail, before, force, unattended, log)
    else:
        held = None
        log.info("the failover of %s is decided; what it lacks is completed", decided.at)
        # More topics than a record holds: the one that died had opened the first of them, and no job may write to any.
        decided = promote(ledger, plan, _ids(on, plan, decided), decided, decided)

    # A rollback, or a way back that was armed, has turned the direction since: groups and settings are their owners'
    # then. The lease says nothing here, a failover keeps none.
    def ours() -> None:
        if direction(ledger.values(), mirror) != decided:
            raise TryAgain(
                f"mirror {mirror!r}", "another direction was decided meanwhile, and nothing more was changed",
                "See 'airflow-mirror status' for what stands.",
            )  # fmt: skip

    record = Record(state, mirror, decided.attempt)
    # A later failover's cut is among the others, and nobody could find it again: this call may have slept for days.
    ours()
    # Behind the decision alone: before it the cut of the one that wins could be removed by one that loses.
    record.forget_others(ours)
    # What was lost is read from the cut, not found anew: applications write by now.
    cut = record.cut()
    noted = record.done()
    report = FailoverReport(mirror=mirror, direction=decided, lost=dict(cut.lost), steps=dict(noted), others=others)
    # Another process may fence the source that returns at this moment: its note has a key of its own, and neither
    # waits.
    report.returned = record.returned()
    # Looked at by each call: it is lifted behind the failover.
    report.fenced_by = checks.fenced_by(ledger.values(), mirror)

    # Two calls complete one failover, and the slower one may have slept since the other did a step: groups have read on
    # since, and settings and rights are their owners' by then.
    def undone(step: str) -> None:
        ours()
        if record.done().get(step) != noted.get(step):
            raise TryAgain(f"mirror {mirror!r}", f"another call has done the step {step!r} meanwhile", "Call it again.")

    def permit(step: str) -> Permit:
        return recently(partial(undone, step), on.clock.monotonic)

    # In this order: nobody writes beside applications; then groups, which they start from; settings and rights after
    # that.
    steps: dict[str, Callable[[Side, Plan], Found]] = {
        "writing": partial(_end_writing, held=held, permit=partial(undone, "writing")),
        "groups": partial(_groups, beyond=cut.beyond, permit=partial(undone, "groups")),
        "settings": partial(_settings, permit=permit("settings")),
        "grants": partial(_grants, before=decided.generation - 1, fenced=bool(report.fenced_by), permit=permit("grants")),
    }
    if has_checkpoints(plan.mirror, ledger.values()):
        steps["checkpoints"] = partial(_checkpoints, beyond=cut.beyond, permit=permit("checkpoints"))
    for name, step in steps.items():
        before = noted.get(name)
        # Done by a call before, as is noted, and perhaps not all of it; one that died between its step and the note does
        # it again, and finds less to do.
        if before is None or before.get("again"):
            found = step(on, plan)
            for line in [*found.left, *found.done]:
                log.info("%s: %s", name, line)
            report.steps[name] = found.note(before)
            # Behind the step: the other way round a death in between would leave it undone for ever.
            if report.steps[name] != before:
                record.write_done(name, report.steps[name])
    report.took_s = on.clock.monotonic() - begun
    return report


def _require_recent(mirror: str, shown_at: float | None, now: float, valid_s: float) -> None:
    # By the clocks of two hosts, perhaps: a minute between them has a person look once more.
    if shown_at is not None and now - shown_at > valid_s:
        seen = datetime.fromtimestamp(shown_at, UTC).isoformat(timespec="seconds")
        raise InputError(
            f"mirror {mirror!r}: what was shown before its failover is too old",
            f"it was seen at {seen}, more than {valid_s:.0f} s ago (approval_valid_s), and the source may have been back "
            "since. Nothing was changed",
            "Clear 'check' with all tasks after it, an approval included.",
        )


def _decide(
    on: Side, plan: Plan, judged: ActiveTail | None, before: Direction | None, force: bool, unattended: bool, log: Log
) -> tuple[Plan, Direction, LeaseToken, dict[str, str]]:
    """Return what is decided, of which plan as it is by then, the lease that this call had, and topics of others.

    :param judged: the tail whose plan this is, as it stood before anybody listened for it.
    """
    name = plan.mirror.name
    # Up to half a minute of listening, in which another tail may begin.
    found = checks.check(on, name, unattended=unattended)
    if found.refusal is not None and not force:
        raise found.refusal
    values = on.ledger.values()
    # Asked here so that nothing is stopped for nothing; the decision asks it again in its own record.
    require_no_cutover(values, plan, target_ids(plan, on.admin), force=force)
    # Read before the tail is asked to stop: one that was decided behind this refuses the promotion.
    looked_at = ACTIVE.at(values, name)
    # What was heard, and refused nothing, was of the tail before: this one lives, and may see the source. By force it
    # need not be heard: one that is started again and again would keep everybody from a failover. One of another plan
    # copies other topics than those that would be opened here.
    tail = active_tail(values, name)
    if tail is not None and tail != judged and (not force or tail.plan != plan.hash):
        raise TryAgain(
            f"mirror {name!r}", "another tail began while the one before was listened for. Nothing was changed",
            "Call it again: it listens for this one.",
        )  # fmt: skip
    for line in found.lines():
        log.info("%s", line)
    if tail is not None and found.tail.status == RUNNING:
        # A courtesy: it ends in order, and gives the last it has. That it can't write is the lease's doing. Dies behind
        # it: a tail has stopped, and a person, or the next call, sees a mirror without one.
        ask_to_stop(on.state(SIGN.below(name)), name, tail.job, "a failover")
    # Dies behind it: nobody copies, and whoever starts a tail takes it back. Nothing was promised to anybody.
    held = on.take_lease(name, to_end=True)
    # Tasks that nobody can hear write until then: the cut would be too low by that.
    on.clock.sleep(held.wait_s)
    # With the topics that have joined until the tail was ended: it has copied them. Those that join later nobody has.
    plan, others = checks.own_part(on, on.plan(name, plan.hash), on.ledger.values())
    at_ms = int(on.clock.time() * 1000)
    # Read only once: with the decision applications may write, and nobody could tell any more where the copy ended.
    offsets = checks.copied_to(on.admin, plan)
    lost = checks.lost(on, plan, at_ms)
    # So are positions beyond it: once applications have written there, they look like any other.
    beyond = groups_of(on.admin, plan).beyond
    attempt = uuid.uuid4().hex[:12]
    # Under a name that no other call has, and before the decision which names it. Dies in between: a note that nobody
    # reads.
    cut = Cut(at_ms=at_ms, offsets=offsets, lost=lost.to_dict(), beyond=beyond)
    Record(on.state(CUT.below(name)), name, attempt).write_cut(cut)
    wanted = Direction(
        generation=1 if before is None else before.generation + 1, primary=plan.target_cluster_id, by=FAILOVER,
        attempt=attempt, plan=plan.hash, at=datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    ids = _ids(on, plan, wanted)  # before the lease: where a topic is missing it may take half a minute
    try:
        # Whoever took it since waits seven seconds before it writes; so up to now the cut is whole.
        on.confirm_lease(held)
    except LeaseLost as e:
        what, cause = f"mirror {name!r}", f"another job took its writer lease meanwhile, and nothing was decided: {e}"
        raise TryAgain(what, cause, "Call it again.") from e
    # Frozen before this for however long: direction, tail and fence are compared where the record is appended. A job
    # that has taken the lease by then reads the decision when it has it, and ends; what it wrote until then is beyond
    # the noted cut.
    decided = promote(on.ledger, plan, ids, wanted, before, looked_at, force=force)
    return plan, decided, held, others


def _ids(on: Side, plan: Plan, one: Direction) -> dict[str, str]:
    """Return the present ids of the plan's target topics, by name; of those that the failover has opened some may lack.

    :raises TryAgain: a broker does not list some that are there.
    """
    ids, owned = target_ids(plan, on.admin), owned_topics(on.ledger)
    # By the word of one broker that has just started nothing would be opened, and a job that is run again would copy
    # into what applications use. What is open stays so, there or not.
    still = {t for t in target_topics(plan) if t not in owned or owned[t].opened_by != one.opened_by}
    require_listed(still, ids, on.admin)
    return ids


def _end_writing(on: Side, plan: Plan, *, held: LeaseToken | None, permit: Permit) -> Found:
    """Take the lease once more if somebody holds it: a job that was not told of the decision in time.

    :param held: the lease that this call has taken, and waited for, before the decision; None: it was decided before.
    """
    with suppress(LeaseLost):
        if held is not None:
            on.confirm_lease(held)
            return Found()
    if on.is_writing_ended(plan.mirror.name):
        # The mark says that somebody took it to end writing, not that they have waited: that call may have died in its
        # wait, and a task that nobody can hear writes for so long.
        on.clock.sleep(HANDOVER_S)
        return Found()
    # Asked anew: this call may have slept since, and who has it now is the tail that copies back.
    permit()
    # A bulk copy that looked before the decision, and took the lease behind it. Dies in the wait: see above.
    on.end_writing(plan.mirror.name)
    return Found(done=["a job had taken the writer lease; it was taken from it"])


def _groups(on: Side, plan: Plan, *, beyond: Beyond | None, permit: Permit) -> Found:
    """Set positions that lay beyond the cut: consumers would jump by auto.offset.reset, or skip what is written there."""
    target = on.admin
    found = groups_of(target, plan, beyond)
    wanted = {
        group: {tp: replace(position, offset=stable) for tp, (position, stable) in its.items()}
        for group, its in found.beyond.items()
        if group not in found.active
    }
    done, left = list[str](), list[str]()
    # Only positions beyond the copy's end, to that end: whoever reads them afterwards has lost nothing by it. Done twice
    # it finds none. One by one, which are few: each is read again right before it is set, as its application may have
    # begun.
    for group, positions in wanted.items():
        unmoved = partial(require_unmoved, target, group, found.beyond[group], permit)
        commit = target.commit_groups({group: positions}, unmoved)[group]
        # The step is not noted then, and the next call does it again; groups that were set are no more among those
        # beyond.
        if commit.error is not None and not commit.active:
            raise commit.error
        done += [
            f"{group} at {tp}: {found.beyond[group][tp][0].offset} -> {wanted[group][tp].offset}" for tp in commit.done
        ]
        left += [_stays(group, found.beyond[group])] if commit.active else []
    left += [*(_stays(group, found.beyond[group]) for group in found.active), *found.moved]
    left += [] if plan.mirror.sync_groups else [checks.UNMOVED]
    left += [f"{group}: no position; its consumers start by auto.offset.reset" for group in found.without]
    return Found(done=done, left=left)


def _checkpoints(on: Side, plan: Plan, *, beyond: Beyond | None, permit: Permit) -> Found:
    """Leave the last checkpoints where the groups stand. The groups are right without them, so that nothing waits."""
    try:
        _, positions, stable = positions_of(on.admin, plan)
        # Groups that were set back stand where the copy ended, and not where the log ends by now.
        stable |= {tp: goal for its in (beyond or {}).values() for tp, (_, goal) in its.items()}
        noted = on.state(notes.prefix(plan.mirror.name)).read()
        found = leave_found(plan, on.admin, positions, stable, noted, int(on.clock.time() * 1000), permit)
    except MirrorError as e:
        permit()  # refused by it, this step is not this call's any more, and is not noted as done
        # Noted as done all the same: nobody waits for it, and no later call tries it again, when applications have read
        # on.
        return Found(left=[f"not all of the last ones are written; Java clients that go by them read again: {e}"])
    return Found(done=[f"{one.group} at {one.tp}: {one.downstream}" for one in found])


def _stays(group: str, its: Any) -> str:
    return f"{group}: has members and stays beyond the end of {len(its)} partitions, as {min(its)}"


def _settings(on: Side, plan: Plan, permit: Permit) -> Found:
    """End the hold: what the source's settings were last applies."""
    target = on.admin
    there = target.topics([t.target_topic for t in plan.topics])
    missing = [t.target_topic for t in plan.topics if t.target_topic not in there]
    plan = replace(plan, topics=tuple(t for t in plan.topics if t.target_topic in there))
    # As of the tail's last pass as well: what was set at the source behind that stays as it was.
    state = on.state(seen_configs.prefix(plan.mirror.name))
    # Dies amid it: some topics are off hold. Harmless for as long as nobody copies, and the next call finds the rest.
    report = end_hold(plan, None, target, state, permit, openings(owned_topics(on.ledger), plan))
    # What is refused stays on hold. It keeps the failover from nothing, and is tried again once the target's policy takes
    # it: left undone for ever it would fill disks.
    refused = [f"refused, tried again by the same command: {line}" for line in report.refused]
    left = [*refused, *(f"{topic}: it is not there" for topic in missing), *replace(report, refused=()).remarks]
    return Found(done=[*report.drift], left=left, again=bool(refused))


def _grants(on: Side, plan: Plan, before: int, fenced: bool, permit: Permit) -> Found:
    """Let writers write, by the rules last seen of the source, as far as the plan allows: first those that deny.

    :param before: the direction's generation until this failover: what was noted of an earlier one is of another round.
    :param fenced: the target is an old source, whose writers have their rules, and a fence denies them by name.
    """
    name = plan.mirror.name
    # As of the tail's last pass: who was granted or denied something at the source behind that is known to nobody here.
    noted = seen_acls.last_seen(name, on.state(seen_acls.prefix(name)), before)
    if noted is None and fenced:
        return Found()
    if noted is None:
        by_hand = "no rules of writers are known (sync_acls of the Mirror): where the target has ACLs, grant them by hand"
        return Found(left=[by_hand])
    try:
        kept = partial(kept_topics, on.ledger.values(), plan)
        scope = read_scope(plan, None, on.admin, frozenset(), plan.mirror.own_principals, kept)
    except NoAuthorizer as e:
        return Found(left=[str(e)])
    rules, left = grantable(noted, scope)
    # Who dies between the two leaves writers outside; the other way round it would let in whom the source kept out.
    for permission in ("DENY", "ALLOW"):
        create_rules(on.admin, [rule for rule in rules if rule.permission == permission], lambda: nullcontext(permit))
    why = "it is about no topic or group of the mirror's, or about its own; if it is meant, add it by hand"
    return Found(done=[f"+ {rule}" for rule in rules], left=[f"left out: {rule} ({why})" for rule in left])
