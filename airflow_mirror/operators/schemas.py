"""MoveSchemasOperator: what the target's schema registry lacks of the source's, with the same ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InputError
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.jobs.runner.directory import write_json
from airflow_mirror.operators.base import MirrorOperator, flag
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["MoveSchemasOperator"]


class MoveSchemasOperator(MirrorOperator):
    """Gives the target's schema registry what it lacks of the source's; run it again and again, and it follows.

    Nothing that the target has is overwritten: what differs is a warning, and in the result. All of it goes to
    ``schemas.json`` in the run's directory. Where the registry's store is a topic, mirror that topic instead.

    :param dry_run: only report (templated).
    :param hold: let nobody else register at the target's, until a CutoverOperator with ``release_registry`` has opened it
        (templated). Each run holds it anew: not for a schedule that goes on behind the cutover.
    :param complete: soft deletions, settings and modes come also where the target has the subject (templated): not once
        applications use it.
    """

    template_fields: Sequence[str] = ("mirror", "dry_run", "hold", "complete")

    def __init__(
        self, *, dry_run: bool | str = False, hold: bool | str = False, complete: bool | str = False, **kwargs: Any
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.hold, self.complete = hold, complete
        # It shadows BaseOperator's method of that name, which prints rendered templates and which Airflow never calls.
        self.dry_run: bool | str = dry_run  # type: ignore[assignment]

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Compare, and register what is missing.

        :raises InputError: the mirror names no registries. Errors as :func:`airflow_mirror.sync.schemas.move.move`.
        """
        from airflow_mirror.hooks.registries import registry_of
        from airflow_mirror.sync.schemas.move import move

        if mirror.source_registry is None or mirror.target_registry is None:
            raise InputError(
                f"mirror {mirror.name!r}", "it names no registries", "Set source_registry and target_registry."
            )
        source, target = registry_of("source", mirror.source_registry), registry_of("target", mirror.target_registry)
        dry_run = flag("dry_run", self.dry_run)
        found = move(
            source, target, dry_run=dry_run, keep_out=flag("hold", self.hold), complete=flag("complete", self.complete),
            say=lambda line: self.log.info("%s", line),
        )  # fmt: skip
        for line in (*found.conflicts, *found.left_out):
            self.log.warning("%s", line)
        path = report_dir(mirror, context["ti"].run_id) / "schemas.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found.to_dict())
        return compact({"mirror": mirror.name, "dry_run": dry_run, **found.to_dict(), "path": str(path)}, full=str(path))
