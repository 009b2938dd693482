"""CreateTargetTopicsOperator and SyncTopicConfigsOperator: topics before the copy, their settings during and after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.operators.base import PlannedOperator, flag
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["CreateTargetTopicsOperator", "SyncTopicConfigsOperator"]


class CreateTargetTopicsOperator(PlannedOperator):
    """Creates the plan's missing topics and reads everything back. An existing topic is compared, never assumed.

    Returns the names of created, grown and existing topics, and how the existing ones differ from the plan.
    """

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Create, grow, compare.

        :raises InputError: a topic that is not this mirror's has too few partitions, or one was created again behind
            the plan; nothing was created. Or one deals keys out among another count of partitions than planned, or a
            connection leads to another cluster than the plan's.
        :raises MirrorCutOver: target topics were handed over to applications.
        :raises TopicsOwned: they belong to another mirror.
        :raises NeedsHuman: records would return to the target that they come from.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.plan.ownership import claim
        from airflow_mirror.plan.requirements import require_active, require_planned_clusters, require_planned_ids
        from airflow_mirror.plan.standing import since_decided
        from airflow_mirror.plan.upstream import upstream_of
        from airflow_mirror.sync.topics import create_target_topics

        plan = self.stored_plan(mirror)
        with admins_of(mirror) as (source, target):
            ledger = Ledger(target)
            permit = since_decided(ledger, lambda: require_active(ledger, plan, target))
            permit()
            # Once: what is created below has another id than the ledger knows of a topic that was deleted.
            require_planned_ids(ledger, plan, target)
            require_planned_clusters(plan, source, target)
            upstream = upstream_of(plan, Ledger(source).peek())
            report = create_target_topics(plan, target, permit)
            claim(ledger, plan, target, upstream.of)
        for line in report.differences:
            self.log.info("differs from the plan, left to SyncTopicConfigs: %s", line)
        return compact(report.to_dict())


class SyncTopicConfigsOperator(PlannedOperator):
    """Brings the target's topic settings in line with the source's, and reads them back.

    :param hold: True while the mirror writes: retention, compaction and time rules are off. False afterwards: the
        source's own settings are applied (templated).
    :param dry_run: only report what differs (templated).
    :param source_lost: don't ask the source: apply what a tail of this mirror saw last of it, or else the plan's
        (templated).
    """

    template_fields: Sequence[str] = (*PlannedOperator.template_fields, "hold", "dry_run", "source_lost")

    def __init__(
        self, *, hold: bool | str = True, dry_run: bool | str = False, source_lost: bool | str = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        # It shadows BaseOperator's method of that name, which prints rendered templates and which Airflow never calls.
        self.dry_run: bool | str = dry_run  # type: ignore[assignment]
        self.hold, self.source_lost = hold, source_lost

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Compare and apply.

        :raises InputError: a connection leads to another cluster than the plan's.
        :raises NotKept: a change is not visible when read back.
        :raises MirrorCutOver: ``hold`` is set for topics that were handed over to applications.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.sync.holding import sync_plan

        plan = self.stored_plan(mirror)
        hold, dry_run, lost = (flag(name, getattr(self, name)) for name in ("hold", "dry_run", "source_lost"))
        with admins_of(mirror) as (source, target):
            report = sync_plan(plan, source, target, hold=hold, dry_run=dry_run, source_lost=lost)
        for line in report.drift:
            self.log.info("%s %s", "set" if report.applied else "would set", line)
        for line in report.remarks:
            self.log.warning("%s", line)
        return compact({**report.to_dict(), "changes": len(report.drift)})
