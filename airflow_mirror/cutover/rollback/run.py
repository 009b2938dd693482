"""Roll a cutover back after its target was opened: cut its reverse mirror over.

The steps, their undoing, the guards and the report are those of any cutover (:mod:`airflow_mirror.cutover.steps`), with
the clusters swapped. Three things are its own:

- What was written since is counted and shown first, and groups are refused of which nobody knows which positions count.
- The record that opens the old source also decides the direction, one generation higher, and that no tail is the reverse
  mirror's any more.
- The fence that the first cutover left on the old source is lifted after that record, and not as a part of it: behind
  the decision nothing is undone, so a process that dies here leaves both clusters shut: guards call a person, and the
  next call goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from airflow_mirror.cutover.attempt import Log
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import ALONE, Additions, Clusters, CutoverRequest
from airflow_mirror.cutover.rollback.arm import armed, retired
from airflow_mirror.cutover.rollback.divergence import Divergence, divergence
from airflow_mirror.cutover.rollback.fence_copy import copy_fence
from airflow_mirror.cutover.run import run_cutover
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import NoWayBack, PlanNotKept, RollbackRefused
from airflow_mirror.jobs.runner.active import ended
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.plan.direction import ROLLBACK, Direction, reverse_name, turn
from airflow_mirror.plan.model import Plan

_LOG = logging.getLogger("airflow_mirror.cutover.rollback")


@dataclass(frozen=True, kw_only=True)
class WayBack:
    """An armed way back, as both clusters' ledgers tell it.

    :param mirror: the mirror that was cut over. :param plan: of its reverse. :param decided: when it was armed.
    :param store: of the cutover that is rolled back.
    :param accepted: groups whose positions on the target count in any case, also if they stand still with members and
        lag.
    """

    mirror: str
    plan: Plan
    decided: Direction
    report_of: ReportStore
    accepted: Collection[str] = ()

    def report(self) -> CutoverReport:
        """Return the report of the cutover. :raises NoWayBack: it is gone."""
        found = self.report_of.load()
        if found is None:
            raise NoWayBack(self.mirror, [f"the target has no report of cutover {self.report_of.run!r} any more"])
        return found


def way_back(mirror: str, on: Platform, accepted: Collection[str] = ()) -> WayBack:
    """Return a mirror's way back.

    :param on: its source and its target. :param accepted: as in :class:`WayBack`.
    :raises NoWayBack: none was armed, or the mirror that copied back was retired.
    """
    # What a person calls a rollback, of whichever process, starts from this record alone; what is armed anew since is
    # another.
    decided = armed(mirror, on.target.ledger.values())
    if decided is None:
        raise NoWayBack(mirror, ["none was armed"])
    try:
        plan = on.source.plan(reverse_name(mirror), decided.plan)
    except PlanNotKept:
        raise NoWayBack(mirror, [f"{retired(mirror, decided)}. Arm it again (airflow-mirror arm-reverse)"]) from None
    report_of = ReportStore(on.target.reports(mirror), mirror, decided.attempt, None)
    return WayBack(mirror=mirror, plan=plan, decided=decided, report_of=report_of, accepted=accepted)


def roll_back(
    way: WayBack, request: CutoverRequest, clusters: Clusters, store: ReportStore, *, log: Log = _LOG,
    stop: threading.Event | None = None, signer: Signer | None = None, additions: Additions = ALONE,
) -> CutoverReport:  # fmt: skip
    """Roll back; a call for a finished rollback compares once more, and completes it.

    :param request: of the reverse mirror's cutover, of the plan of ``way``; its fence is kept in any case.
    :param clusters: of the reverse mirror: its source is fenced, its target opened. :param store: of the reverse mirror.
    :param additions: its ``require`` is asked before what a rollback itself asks, and its ``clients``; the rest is ours.
    :raises RollbackRefused: before anything was touched. Other errors as :func:`run_cutover` and
        :func:`lift_leftover_fence`; after it the old source is still fenced, and the next call lifts that.
    """
    on = clusters.on.turned()
    still = {*way.accepted, *request.accept_still_groups}
    # Kept in any case: the cluster that is left must not be written to, or it would have records that the other lacks.
    request = replace(request, keep_fence=True, accept_still_groups=still, is_rollback=True)
    return run_cutover(
        request, clusters, store, log=log, stop=stop, signer=signer,
        additions=replace(
            additions,
            # Before its fence: what a person has to decide about costs no second of it.
            require=partial(_require, way, on.source.admin, on.target.admin, log, additions.require),
            # In the very record that opens the old source: in one of its own, a process that dies in between leaves an
            # open cluster that every ledger calls the old one, and a tail that may copy into it.
            decide_with=partial(turned, way, store.run),
            # Behind that record nothing is undone. Dies before this: both clusters are shut, guards call a person, and
            # the next call of the run comes here.
            afterwards=partial(_open_source, way, on, log),
        ),
    )  # fmt: skip


def _open_source(way: WayBack, on: Platform, log: Log) -> None:
    known = Assurance(ended=way.plan.mirror.name)
    # By the record of the first cutover's fence, on the cluster that was open until now. Dies amid it: `closing`, which
    # the next call takes over. What it has copied back was ended, and is held, by this rollback.
    for line in lift_leftover_fence(on, way.mirror, run=way.report_of.run, include_retained=True, known=known):
        log.info("lifted on the old source: %s", line)
    # Last: the old source's own ledger still says that the fence is kept, and is read should the other cluster be lost.
    copy_fence(on, way.report_of, on.target.plan(way.mirror, way.report().plan_hash))


def turned(way: WayBack, run: str, _values: Values) -> Values:
    """Return what is decided with the opening of the old source."""
    # One above the arming, as the old source's ledger has noted it. What was decided there since this attempt began is
    # pinned (`decision.open_behind`), and refuses the opening.
    one = Direction(
        generation=way.decided.generation + 1, primary=way.plan.target_cluster_id, by=ROLLBACK, attempt=run,
        plan=way.plan.hash, at=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    name = way.plan.mirror.name
    return {**turn(name, one), **ended(name)}


def counted(way: WayBack, source: ClusterAdmin, target: ClusterAdmin) -> Divergence:
    """Return what has happened on both sides since the opening."""
    return divergence(way.report(), way.plan, source, target, way.accepted)


def _require(
    way: WayBack, source: ClusterAdmin, target: ClusterAdmin, log: Log, also: Callable[[], object]
) -> None:  # fmt: skip
    also()
    # Of this moment: applications write and read on. What is written behind it is copied back, and groups that read on
    # are waited for behind the fence (`groups_at_rest`).
    found = counted(way, source, target)
    for line in found.lines():
        log.info("%s", line)
    # Nothing was touched: no fence of the rollback is up, and applications write on.
    if found.problems:
        raise RollbackRefused(way.mirror, found.problems)
