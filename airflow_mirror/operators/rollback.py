"""Keep a way back after a cutover, or after a failover whose source has returned, and take it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow_mirror.hooks.assets import tell_events, tell_lineage
from airflow_mirror.hooks.home import alarm, report_dir
from airflow_mirror.operators.base import MirrorOperator, flag, names
from airflow_mirror.operators.cutover import CutoverOperator, approval_of, report_signer, tell_assets
from airflow_mirror.operators.fencing_once import fencing_once
from airflow_mirror.operators.links import show_links
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["ArmReverseMirrorOperator", "PrepareFailbackOperator", "RollbackCutoverOperator"]


def reached_from_here(reverse: Mirror, mirror: Mirror) -> Mirror:
    """Return a reverse mirror with the connections of this Airflow.

    Whoever armed the way back may have had others: by hand, or in the Airflow that is lost.

    :param mirror: the one that was cut over, as this Airflow names its clusters.
    """
    # Later tasks take these fields as their own, so no class that a stored plan names may be among them.
    return replace(reverse, source=mirror.target, target=mirror.source, policy="identity")


class PrepareFailbackOperator(MirrorOperator):
    """Says what became of the topics of a source that returned after a failover; exports, and makes room for a copy.

    It stands before :class:`ArmReverseMirrorOperator`. A mirror that was cut over has nothing to prepare, and neither has
    one whose way back is armed. Returns what there is to say, as values and as ``text``.

    :param mirror: that was failed over; only its ``name``, ``source`` and ``target`` are used.
    :param export_to: directory on the worker for what diverged topics have too much; None exports nothing (templated).
    :param recreate: diverged topics to delete once they are exported: a yes for each of them (templated).
    """

    template_fields: Sequence[str] = ("mirror", "export_to", "recreate")

    def __init__(
        self, *, export_to: str | None = None, recreate: Sequence[str] | str = (), **kwargs: Any
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.export_to, self.recreate = export_to, recreate

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Prepare.

        :raises NoWayBack: the source's fence is not proven. :raises ExportBroken: nothing was deleted.
        """
        from pathlib import Path

        from airflow_mirror.cutover.platform import Platform, Side
        from airflow_mirror.cutover.rollback.failback import failback, is_to_prepare
        from airflow_mirror.hooks.kafka import admins_of

        with admins_of(mirror) as (source, target):
            if not is_to_prepare(mirror.name, Side(target)):
                self.log.info("nothing to prepare: it was cut over, or its way back is armed")
                return {"text": []}
            found = failback(
                mirror.name, Platform.of(source, target), export_to=Path(str(self.export_to)) if self.export_to else None,
                recreate=names(self.recreate), log=cast("Any", self.log),
            )  # fmt: skip
        for line in found.lines():
            self.log.info("%s", line)
        return compact(found.to_dict())


class ArmReverseMirrorOperator(MirrorOperator):
    """Arms the way back of a finished cutover: a mirror in the other direction may copy what applications write.

    The cutover's kept fence is swapped for one that spares the mirror, both ends of every log are compared, and the old
    source's topics become the reverse mirror's. Returns the summary of its plan, with the Mirror as ``fields``: start its
    tail downstream. A call for a way back that is armed changes nothing.

    :param mirror: that was cut over; only its ``name``, ``source`` and ``target`` are used.
    :param exclude_topics: topics that the reverse mirror leaves out (templated).
    :param check_only: only say what would be changed, or why there is no way back (templated).
    """

    template_fields: Sequence[str] = ("mirror", "exclude_topics", "check_only")
    makes_plan = True

    def __init__(
        self, *, exclude_topics: Sequence[str] | str = (), check_only: bool | str = False, **kwargs: Any
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.exclude_topics, self.check_only = exclude_topics, check_only

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Arm, or check.

        :raises NoWayBack: with every reason.
        """
        from airflow_mirror.cutover.platform import Platform
        from airflow_mirror.cutover.rollback.arm import arm, cutover_of
        from airflow_mirror.hooks.kafka import admins_of

        with admins_of(mirror) as admins:
            on = Platform.of(*admins)
            report_of, plan = cutover_of(mirror.name, on.target)
            armed = arm(
                on, report_of, plan, exclude_topics=names(self.exclude_topics),
                check_only=flag("check_only", self.check_only),
                connections=(mirror.source, mirror.target), dag=context["ti"].dag_id,
            )  # fmt: skip
        for line in armed.lines():
            self.log.info("%s", line)
        return compact({**armed.to_dict(), "fields": reached_from_here(armed.plan.mirror, mirror).to_dict()})


_NOT_ASKED = ("plan", "keep_fence", "approval_valid_s", "release_registry")  # of CutoverOperator


class RollbackCutoverOperator(CutoverOperator):
    """Takes the way back that was armed: fence the target, drain the reverse mirror, move the groups, open the source.

    It is a cutover of the reverse mirror: the same steps, guards and report, with the clusters swapped. What was written
    since the opening is counted per partition and logged first. The reverse mirror's tail must be running, unless the old
    source holds everything already. After any failure the target is open again, and the old source fenced for
    applications as before. A finished one that is run again compares once more. Returns the report's summary.

    :param mirror: that was cut over; only its ``name``, ``source`` and ``target`` are used. These are connections of this
        Airflow, whatever ids those had by which the way back was armed.
    :param accept_groups: groups whose positions on the target count although they have members there, or have committed
        on both sides since the opening (templated).
    :param check_only: only count and say what would be refused (templated).
    """

    template_fields: Sequence[str] = (
        *(name for name in CutoverOperator.template_fields if name not in _NOT_ASKED), "accept_groups", "check_only",
    )  # fmt: skip

    def __init__(
        self, *, accept_groups: Sequence[str] | str = (), check_only: bool | str = False, **kwargs: Any
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.accept_groups, self.check_only = accept_groups, check_only

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Count, or roll back.

        :raises NoWayBack: none was armed. :raises RollbackRefused: before anything was touched.
        :raises MirrorError: after backing out; see :func:`airflow_mirror.cutover.rollback.run.roll_back`.
        """
        from airflow_mirror.cutover.platform import Platform
        from airflow_mirror.cutover.request import Additions
        from airflow_mirror.cutover.rollback.run import counted, roll_back, way_back
        from airflow_mirror.extras.clients.inventory import clients_of
        from airflow_mirror.hooks.kafka import admins_of

        accepted = names(self.accept_groups)
        again, signer = flag("fence_again", self.fence_again), report_signer()
        with admins_of(mirror) as (source, target):
            way = way_back(mirror.name, Platform.of(source, target), accepted)
            reverse = reached_from_here(way.plan.mirror, mirror)
            name = {"mirror": reverse.name, "hash": way.plan.hash, "fields": reverse.to_dict()}
            if flag("check_only", self.check_only):
                found = counted(way, source, target)
                for line in found.lines():
                    self.log.info("%s", line)
                return compact({**found.to_dict(), **name})
        self.plan = way.plan.hash
        request = replace(self._request(reverse, context), alarm=alarm(), approved=approval_of(self, context))
        run_dir = report_dir(reverse, context["ti"].run_id)
        with self._connected(request, reverse, context) as (clusters, kept), fencing_once(run_dir, again):
            show_links(self, context, run_dir)
            tell_lineage(reverse, way.plan)
            way = way_back(mirror.name, clusters.on.turned(), accepted)  # by connections that live
            report = roll_back(
                way, request, clusters, kept, log=cast("Any", self.log), stop=self._stop, signer=signer,
                additions=Additions(require=self._refuses(kept, context, again), clients=clients_of(way.plan, clusters)),
            )  # fmt: skip
        path = str(run_dir / "report.json")
        summary = compact({**report.summary(), **name, "report": path}, full=path)
        tell_assets(self, context, summary)
        tell_events(self, context, reverse, way.plan, "rollback")
        return summary
