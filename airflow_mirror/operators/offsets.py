"""TranslateConsumerOffsetsOperator: where each consumer group goes on, exactly."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_mirror.hooks.home import report_dir
from airflow_mirror.jobs.directory import write_json
from airflow_mirror.operators.base import MirrorOperator
from airflow_mirror.operators.summaries import compact
from airflow_mirror.partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror


class TranslateConsumerOffsetsOperator(MirrorOperator):
    """Translates the positions of the mirror's groups; commits them on the target, or only says what it would commit.

    Committing the same positions twice changes nothing. A group with members on the target is refused; a group that has
    gone further there is left where it is. All rows go to ``groups.json`` in the run's directory.

    :param dry_run: True only reports (templated).
    :param allow_rewind: commit also where the group is further on the target already (templated).
    """

    template_fields: Sequence[str] = ("mirror", "only_report", "allow_rewind")

    def __init__(self, *, dry_run: bool | str = True, allow_rewind: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # BaseOperator has a method `dry_run`; an attribute of that name would hide it.
        self.only_report, self.allow_rewind = dry_run, allow_rewind

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Read, translate, commit, read back.

        :raises GroupActive: when a group has members on the target; none was touched.
        :raises OffsetOutOfRange: when the target does not hold a position yet.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.sync.groups import commit_groups, read_positions, translate

        plan = self.stored_plan(mirror)
        source, target = admins_of(mirror)
        positions = read_positions(source, mirror, [t.source_topic for t in plan.topics])
        here = [
            TopicPartition(i.name, p)
            for i in source.topics([t.source_topic for t in plan.topics]).values()
            for p in range(i.partitions)
        ]
        there = [
            TopicPartition(i.name, p)
            for i in target.topics([t.target_topic for t in plan.topics]).values()
            for p in range(i.partitions)
        ]
        translated = translate(
            positions,
            plan.topics,
            source.offsets(here, "earliest"),
            target.offsets(there, "earliest"),
            target.offsets(there, "latest"),
            strict=not self.only_report,
        )
        report = commit_groups(target, translated, allow_rewind=bool(self.allow_rewind), dry_run=bool(self.only_report))
        directory = report_dir(mirror, context["ti"].run_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / ("groups.dry-run.json" if self.only_report else "groups.json")
        write_json(path, report.to_dict())
        for problem in report.problems:
            self.log.warning("%s", problem)
        return compact({
            "groups": len({m.group for m in report.moves}), "positions": dict(Counter(m.action for m in report.moves)),
            "committed": report.committed, "problems": list(report.problems), "active": list(report.active),
            "without_positions": list(report.without_positions), "path": str(path),
        }, full=str(path))  # fmt: skip
