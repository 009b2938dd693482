"""CreateTargetTopicsOperator and SyncTopicConfigsOperator: what has to be there before records, and stays after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.hooks.home import life_of
from airflow_mirror.operators.base import PlannedOperator
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror


class CreateTargetTopicsOperator(PlannedOperator):
    """Creates the plan's missing topics and reads everything back. An existing topic is compared, never assumed.

    Returns the names of created, grown and existing topics, and how the existing ones differ from the plan.
    """

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Create, grow, compare.

        :raises TargetTopicsDiffer: when a topic that is not this mirror's has too few partitions; nothing was created.
        :raises MirrorCutOver: when target topics were handed over to applications.
        """
        from airflow_mirror.hooks.kafka import MirrorKafkaHook
        from airflow_mirror.plan.life import require_active
        from airflow_mirror.sync.topics import create_target_topics

        plan = self.stored_plan(mirror)
        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            require_active(life_of(mirror), plan, target)
            report = create_target_topics(plan, target)
        for line in report.differences:
            self.log.info("differs from the plan, left to SyncTopicConfigs: %s", line)
        return compact(report.to_dict())


class SyncTopicConfigsOperator(PlannedOperator):
    """Brings the target's topic configs in line with the source's, and reads them back.

    :param hold: True while the mirror writes: retention, compaction and time rules are held open. False afterwards: the
        source's own settings go into force (templated).
    :param dry_run: only report what differs (templated).
    """

    template_fields: Sequence[str] = (*PlannedOperator.template_fields, "hold", "only_report")

    def __init__(self, *, hold: bool | str = True, dry_run: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # BaseOperator has a method `dry_run`; an attribute of that name would hide it.
        self.hold, self.only_report = hold, dry_run

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Compare and apply.

        :raises NotKept: when a change does not show when read back.
        :raises MirrorCutOver: when topics are to be held open that were handed over to applications.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.plan.life import require_active
        from airflow_mirror.sync.configs import sync_configs

        plan = self.stored_plan(mirror)
        with admins_of(mirror) as (source, target):
            if self.hold and not self.only_report:
                require_active(life_of(mirror), plan, target)
            report = sync_configs(plan, source, target, hold=bool(self.hold), dry_run=bool(self.only_report))
        for line in report.drift:
            self.log.info("%s %s", "set" if report.applied else "would set", line)
        return compact({**report.to_dict(), "changes": len(report.drift)})
