"""PlanMirrorOperator: inventory both clusters, decide, and fail if a check blocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.hooks.home import plans_of
from airflow_mirror.operators.base import MirrorOperator, flag, names, number
from airflow_mirror.operators.links import NightLink, show_file
from airflow_mirror.plan.model import blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan

__all__ = ["PlanMirrorOperator"]


class PlanMirrorOperator(MirrorOperator):
    """Inventory, preflight checks, mode per topic, estimate.

    Writes a scratch topic on the target, and the first time the target's ledger, unless a check blocks.

    :param probe_target: test on the scratch topic what the principal may do; it is deleted again. False: not (templated).
    :param night: look at what the night of a cutover needs as well (templated): page, Markdown and JSON beside the plan.
        What it finds to block, blocks. It takes some seconds more, and only reads.
    :param trial_s: for the night: copy for so many seconds to the scratch topic, and tell how long each topic will take,
        and because of what; 0 tries nothing (templated).
    :param fence: of the cutover to come, as for CutoverOperator: what that would refuse whenever it came is a check of
        the plan, so that nobody hears of it after the copy; None asks nothing (templated).
    :param open_by_default: as for CutoverOperator; ``accept_ledger_writers`` likewise (templated).
    :param cutover_wanted: False: the cutover may come one day, and what it would refuse only warns (templated).
    :param parts: as for the SyncAclsOperator to come: where nobody says which rights are the mirror's own, the plan is
        refused; none asks nothing (templated).
    :param tasks: of the copy to come, for what the trial tells (templated).

    The plan is stored under its hash, on the target and as a file on this host, with a readable ``.md`` next to it. A
    check that blocks fails the task, with every block in the message, which the ledger keeps for who looks at the mirror;
    an XCom does, if it was never planned before. Returns counts, the plan's hash and its path; the
    tasks downstream execute the plan with that hash and no other, on whichever worker.
    """

    operator_extra_links = (NightLink(),)
    template_fields: Sequence[str] = (
        "mirror",
        "probe_target",
        "night",
        "trial_s",
        "tasks",
        "fence",
        "open_by_default",
        "accept_ledger_writers",
        "cutover_wanted",
        "parts",
    )
    makes_plan = True

    def __init__(
        self, *, probe_target: bool | str = True, night: bool | str = False, trial_s: float | str = 0.0,
        tasks: int | str = 1, fence: str | None = None, open_by_default: bool | str | None = None,
        accept_ledger_writers: Sequence[str] | str = (), cutover_wanted: bool | str = True,
        parts: Sequence[str] | str = (), **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.fence, self.open_by_default, self.accept_ledger_writers = fence, open_by_default, accept_ledger_writers
        self.cutover_wanted, self.parts = cutover_wanted, parts
        self.probe_target, self.night, self.trial_s, self.tasks = probe_target, night, trial_s, tasks

    def _foreseen(self, plan: Plan, mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin) -> Plan:
        """Return the plan with what the cutover to come would refuse, if there is one."""
        from airflow_mirror.cutover.foreseen import with_foreseen
        from airflow_mirror.cutover.request import CutoverRequest
        from airflow_mirror.extras.schemas.proof import prover
        from airflow_mirror.hooks.registries import registry_of

        if self.fence is None:
            return plan
        request = CutoverRequest(
            plan=plan, mirror=mirror, fence=self.fence,
            open_by_default=None if self.open_by_default is None else flag("open_by_default", self.open_by_default),
            accept_ledger_writers=names(self.accept_ledger_writers),
        )  # fmt: skip
        prove, is_wanted = partial(prover, mirror, registry_of), flag("cutover_wanted", self.cutover_wanted)
        return with_foreseen(request, source, target, prove, is_wanted=is_wanted)

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Make and store the plan.

        :raises InputError: lists every block.
        :raises InvalidField: rights are to follow, and nobody says which ones are the mirror's own.
        :raises MirrorCutOver: target topics were handed over to applications.
        :raises TopicsOwned: target topics belong to another mirror.
        :raises LedgerMissing: target topics hold data, and there is no ledger.
        """
        from airflow_mirror.extras.readiness.build import night_plan
        from airflow_mirror.extras.readiness.sections import write
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.jobs.planning import planned
        from airflow_mirror.kafka.principal import own_principal
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.operators.refusals import Refusals
        from airflow_mirror.plan.findings import BLOCK, PASS, passed
        from airflow_mirror.plan.ledger_store import keep_on
        from airflow_mirror.plan.ownership import begin
        from airflow_mirror.plan.refused import PLANNING
        from airflow_mirror.plan.requirements import require_active

        trial_s, tasks = number("trial_s", self.trial_s), int(number("tasks", self.tasks, least=1))
        with admins_of(mirror) as (source, target):
            if names(self.parts):  # before a plan, and a copy, are made in vain
                for cluster in (source, target):
                    own_principal(cluster, mirror.own_principals)
            # Without an earlier one, and unless nothing was begun, the plan is refused in the end.
            probe = flag("probe_target", self.probe_target)
            plan, _ = planned(mirror, source, target, Ledger(target), probe=probe, told=self.log.warning)
            plan = self._foreseen(plan, mirror, source, target)
            is_night = flag("night", self.night) and not plan.blocks
            night = night_plan(plan, source, target, trial_s=trial_s, tasks=tasks) if is_night else None
            findings = [*plan.findings, *(night.findings if night else [])]
            blocking = [f for f in findings if f.level == BLOCK]
            if not blocking:
                ledger = begin(plan, target)
                require_active(ledger, plan, target)
                keep_on(target, plan, ledger, dag=context["ti"].dag_id)
            Refusals(self, context, mirror, target).keep(PLANNING, blocking)
        path = plans_of(mirror).save(plan)
        shown = {}
        if night is not None:
            page = write(night, path)
            shown = {"night": str(page), "waves": len(night.waves)}
            show_file(self, context, page)
            self.log.info("plan for the night, with %d waves: %s", len(night.waves), page)
        for finding in (one for one in findings if one.level != PASS):
            self.log.log(finding.severity, "%s", finding.lines)
        self.log.info("%s", passed(findings))
        self.log.info("plan %s: %s; %s lists every check", plan.hash[:12], path, path.with_suffix(".md"))
        if blocking:
            raise blocked([str(f) for f in blocking])
        return {**plan.summary(), "path": str(path), **shown}
