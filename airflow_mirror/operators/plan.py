"""PlanMirrorOperator: look at both clusters, decide, and stop here if something is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InputError
from airflow_mirror.hooks.home import plan_path
from airflow_mirror.operators.base import MirrorOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror


class PlanMirrorOperator(MirrorOperator):
    """Inventory, preflight checks, mode per topic, estimate. Writes nothing but a scratch topic on the target.

    :param probe_target: find out on that topic what the principal may do; it is deleted again. False writes nothing.

    The plan is stored as ``plan.json`` and ``plan.md`` in the mirror's directory. A check that blocks fails the task,
    with every block in the message. Returns counts, the plan's hash and its path.
    """

    def __init__(self, *, probe_target: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.probe_target = probe_target

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Make and store the plan.

        :raises PlanBlocked: listing every block.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.plan import build

        source, target = admins_of(mirror)
        path = plan_path(mirror)
        known = self._known_topics(mirror, source, target)
        plan = build(mirror, source, target, known, probe_target=self.probe_target)
        plan.save(path)
        for finding in plan.findings:
            self.log.log({"block": 40, "warn": 30}.get(finding.level, 20), "%s %s", finding.level, finding)
        self.log.info("plan %s: %s", plan.hash[:12], path)
        plan.raise_if_blocked()
        return {**plan.summary(), "path": str(path)}

    def _known_topics(self, mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin) -> Mapping[str, str]:
        """Return the target topics that this mirror may fill because it did so before."""
        try:
            last = self.stored_plan(mirror)
        except InputError as e:
            self.log.info("no plan to go on from: %s", e)
            return {}
        if (last.source_cluster_id, last.target_cluster_id) != (source.cluster_id(), target.cluster_id()):
            self.log.warning("the stored plan is for other clusters; it says nothing about these")
            return {}
        return last.known_topics
