"""Read-only checks: what must hold before a cutover starts, and what must still hold after it has finished."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from airflow_mirror import __version__
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decision import FenceState, require_ended
from airflow_mirror.cutover.drain import verify
from airflow_mirror.cutover.drift import drift
from airflow_mirror.cutover.foreseen import require_alone_in_ledger, require_possible
from airflow_mirror.cutover.groups import require_free_groups
from airflow_mirror.cutover.opening import require_fits
from airflow_mirror.cutover.other_fences import described
from airflow_mirror.cutover.quiet import moves
from airflow_mirror.cutover.report import CutoverReport, StepRecord
from airflow_mirror.cutover.writers import require_tail
from airflow_mirror.errors import (
    CutoverBlocked,
    InputError,
    MirrorCutOver,
    PlanAmended,
    PlanOutdated,
    PreviewTooOld,
    VerificationFailed,
)
from airflow_mirror.plan.amendment import added_since
from airflow_mirror.plan.direction import ARMED, Direction
from airflow_mirror.plan.findings import Checks, Finding, worst_first
from airflow_mirror.plan.requirements import require_active
from airflow_mirror.wire.served import release_of


def precheck(attempt: Attempt) -> None:
    """Check everything that can be checked before the fence is raised, because afterwards every second counts.

    Notes in the report which versions take part.

    :raises InputError: the mirror is a way back, and this is no rollback.
    :raises FenceStands: another run's cutover left a fence up.
    :raises LedgerOpen: others may write to the target's ledger, and nobody has accepted them.
    :raises MirrorCutOver: the target topics are already in production.
    :raises TopicsShared: others write to them.
    :raises OpeningTooLarge: the target's ledger would refuse the record that opens them.
    :raises PreviewTooOld: what was shown before is.
    :raises PlanOutdated: lists all changes since the plan, and matching topics that the plan lacks.
    :raises PlanAmended: the plan got topics since it was compared.
    :raises GroupActive: a group already consumes on the target.
    :raises GroupAhead: a group is further on the target than on the source.
    :raises InputError: the functions for mapped topics were not passed.
    :raises JobNotRunning: the target is behind and no tail copies.
    :raises NoAuthorizer, OpenByDefaultUnknown, MissingRight, FencedByAnother: the fence can't be raised, or not lifted.
    """
    # By the clocks of two hosts, perhaps. A minute between them has a person look once more, or go by what is a minute
    # older; what a cutover rests on is looked at again in any case.
    if attempt.request.shown_at is not None and time.time() - attempt.request.shown_at > attempt.limits.approval_valid_s:
        seen = datetime.fromtimestamp(attempt.request.shown_at, UTC).isoformat(timespec="seconds")
        raise PreviewTooOld(attempt.mirror.name, seen, attempt.limits.approval_valid_s)
    # Nothing is changed here, and nothing pinned: each of these may be otherwise a second later. What the opening rests
    # on is looked at again behind the fence, or is in its decision.
    for row in CHECKS.rows.values():
        if said := list(row.judge(attempt) or ()):
            raise CutoverBlocked(attempt.mirror.name, list(map(str, said)))
    attempt.report.versions = _versions(attempt)


def refusals(attempt: Attempt) -> list[Finding]:
    """Return a finding for each check of :func:`precheck`, blocks first, instead of raising the first error.

    :raises TryAgain: a cluster does not answer.
    """
    return worst_first(CHECKS.run({}, attempt))


# Each raises what keeps a cutover from beginning, so that programs can tell it apart.
CHECKS = Checks[Attempt](lambda attempt: f"mirror {attempt.mirror.name!r}")


def require_forward(mirror: str, turned: Direction | None) -> None:
    """Return if a mirror is no way back.

    :param turned: what is decided about its direction.
    :raises InputError: it is one.
    """
    if turned is not None and turned.by == ARMED:
        raise InputError(
            f"mirror {mirror!r}", "it is a way back: a cutover of it would leave both clusters shut",
            "Use 'airflow-mirror rollback', or 'kafka_failback', with the name of the mirror that was cut over.",
        )  # fmt: skip


def require_own_fence(
    mirror: str, fence: FenceState | None, run: str, report: CutoverReport | None = None
) -> None:  # fmt: skip
    """Return unless a run is what names the fence of a source that returned after a failover: nothing was cut over by it.

    Its report is kept as that of a finished cutover is, and would be taken for one.

    :param fence: what is decided about the mirror's. :param report: of the run, if there is one.
    :raises MirrorCutOver: it is, so the mirror was failed over.
    """
    # Not by the direction: once the way back is armed, or the mirror was retired without its source, that says nothing
    # of a failover. Once another fence was decided about, the report alone tells.
    its = fence is not None and fence.run == run and fence.is_of_returned
    if its or (report is not None and report.is_of_returned):
        raise MirrorCutOver(mirror, [], "by a failover")


@CHECKS.check("mirror", "can be cut over", first=True)
def _possible(attempt: Attempt) -> None:
    # By the direction as it was when the attempt began: the same value refuses its `up`, should one be armed since.
    if not attempt.request.is_rollback:
        require_forward(attempt.mirror.name, attempt.turned)
    require_possible(attempt.plan)
    mapped = [t.source_topic for t in attempt.plan.topics if t.mode != "identical"]
    if mapped and (attempt.clusters.tail_positions is None or attempt.clusters.translate_offset is None):
        raise InputError(
            f"topics with mapped offsets ({', '.join(mapped[:5])})",
            "nothing is given that translates them",
            "Pass tail_positions and translate_offset as well.",
        )


# By what was decided when the attempt began: the same value refuses its `up`, should somebody be faster.
CHECKS.check("fences", "none stands")(lambda attempt: require_ended(attempt.mirror.name, attempt.before))


@CHECKS.check("ledger_writers", "nobody else may write to the target's ledger")
def _alone_in_ledger(attempt: Attempt) -> None:
    require_alone_in_ledger(attempt.mirror, attempt.target, attempt.request.accept_ledger_writers)


# In production by another run, or by a failover: the decision to open is refused by that as well.
CHECKS.check("topics", "they are the mirror's, and not in production")(
    lambda attempt: require_active(attempt.ledger, attempt.plan, attempt.target)
)


CHECKS.check("opening", "it fits into a record of the target's ledger")(
    lambda attempt: require_fits(attempt.plan, attempt.target)
)


@CHECKS.check("plan", "both sides are as planned, and as compared")
def _planned(attempt: Attempt) -> None:
    # Once more behind the fence (`quiet.prove_fence`): ten seconds pass until then, in which somebody may add a topic.
    if changes := drift(attempt):
        raise PlanOutdated(changes)
    for revision in attempt.request.compared:
        if revision != attempt.plan.revision:
            since = added_since(attempt.plan, revision)
            raise PlanAmended(attempt.mirror.name, since, revision, attempt.plan.revision)


# Looked at again with the commit, behind the fence: a consumer may start on the target at any moment.
CHECKS.check("group_positions", "no group is alive, or further, on the target")(require_free_groups)
# Its last task may die a second later: the drain finds that by what does not arrive, and backs out.
CHECKS.check("tail_runs", "it copies, or nothing is left to copy")(require_tail)


@CHECKS.check("fence_rights", "the fence can be raised and lifted")
def _fence(attempt: Attempt) -> None:
    described(attempt)  # which tries the rights to raise and to lift it


def _versions(attempt: Attempt) -> dict[str, str]:
    """Return the versions of what takes part. A broker tells its release by what it serves, and so only a lower bound."""
    found = {side: release_of(log) for side, log in (("source", attempt.source_log), ("target", attempt.target_log))}
    at_least = {f"{side} brokers": f"{'.'.join(map(str, release))} or later" for side, release in found.items()}
    return {"airflow-mirror": __version__, **at_least}


def reverify(attempt: Attempt) -> None:
    """Compare again after the cutover, up to the fenced ends; applications now write after them.

    Appends a step ``verify_again`` to the report. A source that was written to, or a missing fence, is reported there
    and is not an error: after the cutover the owner of the source decides about it.

    :raises VerificationFailed: records or group positions have changed since the cutover.
    """
    started = time.time()
    # Only reads, but for its own report: a task of a finished cutover may be cleared at any time.
    evidence: dict[str, Any] = verify(attempt)
    ends = attempt.ends
    moved = moves(ends, attempt.source_log.log_ends(ends))
    if moved:
        evidence["source_moved_since"] = {tp: list(ends) for tp, ends in moved.items()}
        attempt.log.warning("the source was written since the cutover: %s", ", ".join(moved))
    fence = attempt.report.fence
    if fence is not None and fence.is_kept:
        # What is decided says more: who lifted it may not have been able to say so in the report.
        evidence["fence_is_up"] = is_up = attempt.up is not None and attempt.fence.is_up(attempt.intent)
        if not is_up:
            attempt.log.warning("the fence that was kept is not up any more: applications may write to the source")
    # Ahead is fine: applications have read on. Behind is what a late request of a frozen process does, or a person.
    if lost := _groups_behind(attempt):
        raise VerificationFailed(lost)
    attempt.read_again()  # the comparison took its time
    # Once all was looked at: what raises above leaves the report and its link as they are. Behind this save it has no
    # link until `_seal` adds the next one; dies in between, and the run's next call does.
    attempt.report.steps.append(
        StepRecord(name="verify_again", status="done", started=started, seconds=time.time() - started, evidence=evidence)
    )
    attempt.save()


def _groups_behind(attempt: Attempt) -> list[str]:
    """Return the groups that are behind the position that the cutover committed; groups that moved on are fine."""
    lines = []
    found = attempt.target.groups_offsets([record.group for record in attempt.report.groups])
    for record in attempt.report.groups:
        now = found[record.group]
        for tp, offset in record.on_target.items():
            if tp not in now or now[tp].offset < offset:
                at = now[tp].offset if tp in now else "nothing"
                lines.append(f"group {record.group!r} at {tp}: was set to {offset}, has {at}")
    return lines
