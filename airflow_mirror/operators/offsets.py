"""TranslateConsumerOffsetsOperator: the exact position of each consumer group on the other cluster."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_mirror.hooks.home import report_dir
from airflow_mirror.jobs.runner.directory import write_json
from airflow_mirror.operators.base import PlannedOperator, flag
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["TranslateConsumerOffsetsOperator"]


class TranslateConsumerOffsetsOperator(PlannedOperator):
    """Translates the positions of the mirror's groups; commits them on the target, or only reports them.

    Committing the same positions twice changes nothing. A group with members on the target is refused; a group that is
    already further on the target keeps its position. Identical offsets stay the same; mapped ones are translated by the
    offset map, which is completed first. ``groups.json`` in the run's directory gets all rows, with how each offset was
    found.

    :param dry_run: True only reports (templated).
    :param allow_rewind: also commit where the group is already further on the target (templated).
    :param back: the reverse direction, for a group that returns: reads its positions on the target and commits them on
        the source. A position after the last mirrored record has no counterpart on the source and is refused (templated).
    :param allow_production: a person's word that positions are set although a cutover has opened the target: the groups
        are its applications' own by then. Without it the task, cleared at any time, sets none (templated).
    """

    template_fields: Sequence[str] = (
        *PlannedOperator.template_fields, "dry_run", "allow_rewind", "back", "allow_production",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dry_run: bool | str = True,
        allow_rewind: bool | str = False,
        back: bool | str = False,
        allow_production: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # It shadows BaseOperator's method of that name, which prints rendered templates and which Airflow never calls.
        self.dry_run: bool | str = dry_run  # type: ignore[assignment]
        self.allow_rewind, self.back, self.allow_production = allow_rewind, back, allow_production

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Read, translate, commit, read back.

        :raises GroupActive: a group has members where its positions are to be set; no group was changed.
        :raises InputError: the topics are in production, and ``allow_production`` does not say that it is meant.
        :raises OffsetOutOfRange: the other side does not hold a position (yet), or the source's topic was created again.
        """
        from airflow_mirror.hooks.kafka import configs_of
        from airflow_mirror.sync.groups import translate_groups

        dry_run = flag("dry_run", self.dry_run)
        rewind, back = flag("allow_rewind", self.allow_rewind), flag("back", self.back)
        plan, configs = self.stored_plan(mirror), configs_of(mirror)
        report = translate_groups(
            plan, configs["source"], configs["target"], commit=not dry_run, allow_rewind=rewind, back=back,
            allow_production=flag("allow_production", self.allow_production),
        )  # fmt: skip
        directory = report_dir(mirror, context["ti"].run_id)
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / ("groups.dry-run.json" if dry_run else "groups.json")
        write_json(path, report.to_dict())
        for problem in report.problems:
            self.log.warning("%s", problem)
        return compact({
            "groups": len({m.group for m in report.moves}), "positions": dict(Counter(m.action for m in report.moves)),
            "found": dict(Counter(m.found for m in report.moves)),
            "committed": report.committed, "problems": list(report.problems), "active": list(report.active),
            "without_positions": list(report.without_positions), "path": str(path),
        }, full=str(path))  # fmt: skip
