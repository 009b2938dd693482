"""Move producers and consumers to the target, or roll back; and what that would meet, before it is done."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.signals import set_in_handler
from airflow_mirror.cutover.limits import GIVEN, Limits
from airflow_mirror.hooks.assets import tell_events, tell_lineage
from airflow_mirror.hooks.home import alarm, report_dir, report_key
from airflow_mirror.operators.base import (
    PlannedOperator,
    flag,
    is_retry,
    names,
    number,
    pulled_from,
    upstream_results,
)
from airflow_mirror.operators.fencing_once import fencing_once, require_never_fenced
from airflow_mirror.operators.lift_fence import BEGUN
from airflow_mirror.operators.links import ReportLink, show_links
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow.sdk import BaseOperator, Context

    from airflow_mirror.cutover.report_store import ReportStore
    from airflow_mirror.cutover.request import Clusters, CutoverRequest
    from airflow_mirror.cutover.signing import Signer
    from airflow_mirror.mirror import Mirror

__all__ = ["CutoverOperator", "PreviewCutoverOperator"]


def approval_of(task: PlannedOperator, context: Context) -> dict[str, str] | None:
    """Return the last answer of the ApprovalOperators upstream, for the report; None: nobody was asked."""
    answers = [a for a in pulled_from(task, "APPROVE", context) if a.get("chosen_options") and a.get("responded_at")]
    if not answers:
        return None
    last = max(answers, key=lambda a: str(a["responded_at"]))
    user = last.get("responded_by_user") or {"name": "nobody: the default answer"}
    return {"answer": ", ".join(last["chosen_options"]), "by": str(user["name"]), "at": str(last["responded_at"])}


class _OfACutover(PlannedOperator):
    """What a cutover and its preview are given alike."""

    template_fields: Sequence[str] = (
        *PlannedOperator.template_fields,
        "fence",
        "open_by_default",
        *GIVEN,
        "level",
        "allow_rewind",
        "accept_still_groups",
        "leave_out_groups",
        "accept_ledger_writers",
    )

    def __init__(
        self,
        *,
        fence: str = "acl",
        open_by_default: bool | str | None = None,
        max_fence_s: float | str = Limits.max_fence_s,
        drain_timeout_s: float | str = Limits.drain_timeout_s,
        quiet_s: float | str = Limits.quiet_s,
        transactions_timeout_s: float | str = Limits.transactions_timeout_s,
        wait_groups_s: float | str = Limits.wait_groups_s,
        group_quiet_s: float | str = Limits.group_quiet_s,
        level: str = "batches",
        allow_rewind: bool | str = False,
        accept_still_groups: Sequence[str] | str = (),
        leave_out_groups: Sequence[str] | str = (),
        accept_ledger_writers: Sequence[str] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.open_by_default, self.accept_ledger_writers = open_by_default, accept_ledger_writers
        self.accept_still_groups, self.leave_out_groups = accept_still_groups, leave_out_groups
        self.max_fence_s = max_fence_s
        self.fence, self.level, self.allow_rewind = fence, level, allow_rewind
        self.drain_timeout_s, self.quiet_s, self.transactions_timeout_s = drain_timeout_s, quiet_s, transactions_timeout_s
        self.wait_groups_s, self.group_quiet_s = wait_groups_s, group_quiet_s
        self._stop = threading.Event()

    def _request(self, mirror: Mirror, context: Context) -> CutoverRequest:
        """Return what is wanted, by the rendered fields. Nothing was asked of a cluster but the plan."""
        from airflow_mirror.cutover.request import CutoverRequest

        plan = self.stored_plan(mirror)
        results = upstream_results(self, "compares_plan", mirror, context)
        return CutoverRequest(
            plan=plan,
            mirror=mirror,
            fence=self.fence,
            open_by_default=None if self.open_by_default is None else flag("open_by_default", self.open_by_default),
            level=self.level,
            limits=Limits(**{name: number(name, getattr(self, name)) for name in GIVEN}),
            allow_rewind=flag("allow_rewind", self.allow_rewind),
            accept_still_groups=names(self.accept_still_groups),
            leave_out_groups=names(self.leave_out_groups),
            accept_ledger_writers=names(self.accept_ledger_writers),
            compared=[str(r["revision"]) for r in results if r.get("plan") == plan.hash],
        )

    @contextmanager
    def _connected(
        self, request: CutoverRequest, mirror: Mirror, context: Context
    ) -> Iterator[tuple[Clusters, ReportStore]]:
        """Yield the clusters for the block, and where the run of this DAG run is kept."""
        from airflow_mirror.cutover.report_store import ReportStore
        from airflow_mirror.cutover.request import connected
        from airflow_mirror.extras.schemas.proof import prover
        from airflow_mirror.hooks.kafka import configs_of
        from airflow_mirror.hooks.registries import registry_of

        configs, run_dir = configs_of(mirror), report_dir(mirror, context["ti"].run_id)
        prove = prover(mirror, registry_of)
        with connected(request, configs["source"], configs["target"], prove) as clusters:
            partitions = sum(t.partitions for t in request.plan.topics)
            self.log.info("%d of %d partitions were compared before", len(clusters.compared_to or ()), partitions)
            yield clusters, ReportStore(clusters.on.target.reports(mirror.name), mirror.name, run_dir.name, run_dir)

    def on_kill(self) -> None:
        """Make it stop, and a cutover back out, at its next step. Airflow calls this from a signal handler."""
        set_in_handler(self._stop)


class PreviewCutoverOperator(_OfACutover):
    """Looks at what a cutover would meet, and how long its fence would last. Changes nothing, and takes some ten seconds.

    Give it the same arguments as the CutoverOperator behind it, which refuses what was seen more than
    ``approval_valid_s`` ago, or of another revision of the plan. Every line is in the log with its verdict and remedy,
    and in ``preview.json`` in the run's directory. If anything blocks, the task fails with all of it, which
    the ledger keeps for who looks at the mirror. Returns the lines, for the text of an approval, and why there will
    be no way back (``no_way_back``, empty if there will be one).

    :param fence: as for CutoverOperator, and so are all other parameters (templated).
    """

    previews_cutover = True

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Look; see the class.

        :raises CutoverBlocked: lists everything that keeps the mirror from being cut over.
        """
        from airflow_mirror.cutover.rollback.foresee import with_way_back
        from airflow_mirror.cutover.run import preview_cutover
        from airflow_mirror.jobs.runner.directory import write_json
        from airflow_mirror.operators.refusals import Refusals
        from airflow_mirror.plan.findings import PASS, passed
        from airflow_mirror.plan.refused import PREVIEW

        request = self._request(mirror, context)
        with self._connected(request, mirror, context) as (clusters, kept):
            found = preview_cutover(request, clusters, kept, stop=self._stop)
            found = with_way_back(found, request.plan, clusters)
            Refusals(self, context, mirror, clusters.on.target.admin).keep(PREVIEW, found.blocks)
        path = report_dir(mirror, context["ti"].run_id) / "preview.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found.to_dict())
        if found.forecast is not None:
            self.log.info("predicted length of the fence: %s", found.forecast)
        for one in (one for one in found.findings if one.level != PASS):
            self.log.log(one.severity, "%s", one.lines)
        self.log.info("%s", passed(found.findings))
        found.raise_if_blocked()
        predicted = None if found.forecast is None else round(found.forecast.seconds, 1)
        known = {"mirror": mirror.name, "plan": found.plan, "revision": found.revision, "at": found.at}
        foreseen = {"predicted_seconds": predicted, "no_way_back": found.no_way_back}
        return compact({**known, **foreseen, "lines": found.lines(), "path": str(path)}, full=str(path))


class CutoverOperator(_OfACutover):
    """Fence, prove the fence, drain, verify the rest, end the tail's writing, commit the groups, open the target.

    The tail must be running, unless the target already holds everything. After any failure, or if the task is asked to
    stop, groups get their positions back and the fence is lifted. A task that was killed with SIGKILL leaves the fence
    up; its next try, or LiftFenceOperator, lifts it, on whichever worker. Clearing a finished task changes nothing and
    compares once more. Topics that joined the plan after its upstream comparison are refused before anything is touched:
    nobody has compared or approved them. The report is kept on the target, and for people in ``report.json`` and
    ``report.html`` in the run's directory; returns its summary.

    :param fence: ``acl``, or the dotted path of a function that takes the source's ClusterAdmin and returns a Fence
        (templated).
    :param open_by_default: for an ACL fence: whether source topics without any ACL are open to everybody
        (``allow.everyone.if.no.acl.found``). Required if there are such topics and brokers hide the setting (templated).
    :param keep_fence: leave the source fenced afterwards, so that nobody writes where nobody reads (templated).
    :param max_fence_s: how long producers may be kept out before the target is open. It caps all limits below by what is
        left of it; when it is over the cutover backs out. No fence is raised that would last longer (templated).
    :param drain_timeout_s: how long the tail may take to reach the fenced log end offsets (templated).
    :param quiet_s: how long log end offsets must not move, to prove the fence; longer, up to 10, where the pauses between
        two writes to a partition are (templated).
    :param transactions_timeout_s: how long transactions that were open at the fence may take to end (templated).
    :param wait_groups_s: how long consumer groups may take until their positions no longer move (templated).
    :param group_quiet_s: how long a group that has lag must have committed nothing; longer than its consumers take
        between two commits, which is 5 s by default (templated).
    :param level: level of the comparison while the source is fenced: ``offsets``, ``batches`` or ``records`` (templated).
        Ranges that VerifyMirrorOperator has compared are not compared again.
    :param allow_rewind: also commit positions that are below the group's current ones on the target (templated).
    :param accept_still_groups: groups whose positions count although they have members and lag, once they have stood
        still for ``group_quiet_s`` (templated). Without this yes the cutover backs out. Groups of Kafka Streams and
        Connect must be empty in any case.
    :param leave_out_groups: selected groups that don't move, for instance because one can't be read (templated). Preview
        and report say what that means for each.
    :param accept_ledger_writers: principals who may write to the topics of the target's ledger beside the mirror's own,
        and are trusted with that; ``User:*``: everybody, also where nobody can tell (templated). Others are refused.
    :param approval_valid_s: how old it may be what a PreviewCutoverOperator upstream has seen (templated).
    :param fence_again: let a retry fence again after the cutover backed out behind its fence (templated). Otherwise that
        ends the task, whatever its ``retries`` are, until somebody clears it.
    :param release_registry: once the target is open, let everybody register schemas at its registry again, which a
        MoveSchemasOperator holds (templated).
    """

    operator_extra_links = (ReportLink(),)
    template_fields: Sequence[str] = (
        *_OfACutover.template_fields, "keep_fence", "approval_valid_s", "fence_again", "release_registry",
    )  # fmt: skip

    def __init__(
        self,
        *,
        keep_fence: bool | str = True,
        approval_valid_s: float | str = Limits.approval_valid_s,
        fence_again: bool | str = False,
        release_registry: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep_fence, self.approval_valid_s, self.fence_again = keep_fence, approval_valid_s, fence_again
        self.release_registry = release_registry

    def execute(self, context: Context) -> Any:
        """See :class:`.MirrorOperator`."""
        # Before anything is asked of a cluster: where somebody marks the run between two tries the task becomes skipped,
        # as one that never began, and the fence of the first try may stand.
        context["ti"].xcom_push(key=BEGUN, value=True)
        return super().execute(context)

    def _refuses(self, store: ReportStore, context: Context, again: bool) -> Callable[[], object]:
        """Return what a retry is refused by whose attempt before was killed behind its fence.

        :param again: it may raise another one.
        """
        return partial(require_never_fenced, store) if is_retry(self, context) and not again else lambda: None

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Cut over; see the class.

        :raises FencedOnce: it backed out behind its fence for a temporary cause.
        :raises MirrorError: after backing out; see :func:`airflow_mirror.cutover.run.run_cutover`.
        """
        from airflow_mirror.cutover.request import Additions
        from airflow_mirror.cutover.run import run_cutover
        from airflow_mirror.extras.clients.inventory import clients_of
        from airflow_mirror.extras.schemas.release import with_release
        from airflow_mirror.hooks.registries import registry_of
        from airflow_mirror.operators.refusals import Refusals

        signer = report_signer()
        again = flag("fence_again", self.fence_again)
        keep_fence, valid_s = flag("keep_fence", self.keep_fence), number("approval_valid_s", self.approval_valid_s)
        request = self._request(mirror, context)
        previews = upstream_results(self, "previews_cutover", mirror, context)
        shown = [r for r in previews if r.get("plan") == request.plan.hash]
        request = replace(
            request, keep_fence=keep_fence, limits=replace(request.limits, approval_valid_s=valid_s), alarm=alarm(),
            compared=[*request.compared, *(str(r["revision"]) for r in shown)], approved=approval_of(self, context),
            shown_at=min((float(r["at"]) for r in shown), default=None),
            course=next((r["course"] for r in reversed(upstream_results(self, "samples_lag", mirror, context))), ()),
        )  # fmt: skip
        run_dir = report_dir(mirror, context["ti"].run_id)
        with self._connected(request, mirror, context) as (clusters, kept):
            show_links(self, context, run_dir)
            tell_lineage(mirror, request.plan)
            additions = Additions(require=self._refuses(kept, context, again), clients=clients_of(request.plan, clusters))
            if flag("release_registry", self.release_registry):
                additions = with_release(additions, mirror, registry_of, self.log.info)
            refusals = Refusals(self, context, mirror, clusters.on.target.admin)
            with fencing_once(run_dir, again), refusals.of_cutover(additions) as additions:
                report = run_cutover(request, clusters, kept, stop=self._stop, signer=signer, additions=additions)
        summary = compact({**report.summary(), "report": str(run_dir / "report.json")}, full=str(run_dir / "report.json"))
        tell_assets(self, context, summary)
        tell_events(self, context, mirror, request.plan, "cutover")
        return summary


def tell_assets(task: BaseOperator, context: Context, summary: dict[str, Any]) -> None:
    """Give the events of a task's assets a summary, for whoever is started by them."""
    for asset in task.outlets:
        context["outlet_events"][asset].extra = summary


def report_signer() -> Signer | None:
    """Return what signs reports; None if nothing is configured to. :raises InputError: it can't be read."""
    from airflow_mirror.cutover.signing import load_signer

    key = report_key()
    return load_signer(key) if key else None
