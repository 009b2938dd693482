"""WatchCutoverSensor: looks after a cutover for some minutes, and says how its groups and its old source are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_mirror.hooks.home import report_dir
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.base import NativeOperator, mirror_from, number
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_mirror.cutover.platform import Platform
    from airflow_mirror.cutover.report import CutoverReport

__all__ = ["WatchCutoverSensor"]


class WatchCutoverSensor(NativeOperator, BaseSensorOperator):
    """Looks after the cutover of this DAG run until ``watch_s`` after its opening, then says what became of it.

    Fails at once, and without a retry, when the old source is written to, or its kept fence is gone. A group that does
    not read on is no failure: its application may be switched tomorrow. The log names it at each look, and so does the
    result. The last look also names who else has not come to the target, and who is still on the source. Nothing is
    remembered between looks, so it frees its slot meanwhile (``mode="reschedule"``).

    :param mirror: a Mirror, a dict of its fields, or a path (templated).
    :param watch_s: seconds since the opening of the target; 0 looks once (templated).
    """

    template_fields: Sequence[str] = ("mirror", "watch_s")
    template_fields_renderers = {"mirror": "json"}

    def __init__(self, *, mirror: Mirror | Mapping[str, Any] | str, watch_s: float | str = 600.0, **kwargs: Any) -> None:
        kwargs.setdefault("mode", "reschedule")
        kwargs.setdefault("poke_interval", 30.0)
        super().__init__(**kwargs)
        self.mirror = mirror.to_dict() if isinstance(mirror, Mirror) else mirror
        self.watch_s = watch_s

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once.

        :raises SourceNotSilent: names where the old source was written to, or that its fence is gone.
        """
        from airflow_mirror.cutover.after import look_after
        from airflow_mirror.cutover.platform import Platform
        from airflow_mirror.cutover.report_store import ReportStore
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.jobs.runner.directory import write_json

        with task_outcome():
            mirror, watch_s = mirror_from(self.mirror), number("watch_s", self.watch_s)
            directory = report_dir(mirror, context["ti"].run_id)
            with admins_of(mirror) as admins:
                on = Platform.of(*admins)
                report = ReportStore(on.target.reports(mirror.name), mirror.name, directory.name, None).load()
                found = look_after(on, report, time.time())
                waiting = self._waiting(on, report) if found.seconds >= watch_s else []
            for line in [*found.lines(), *(f"waited for: {one}" for one in waiting)]:
                self.log.info("%s", line)
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / "after.json"
            write_json(path, {**found.to_dict(), "waiting": waiting})
            found.raise_if_wrong()
        value = compact({**found.to_dict(), "waiting": waiting, "path": str(path)}, full=str(path))
        return PokeReturnValue(is_done=found.seconds >= watch_s, xcom_value=value)

    def _waiting(self, on: Platform, report: CutoverReport | None) -> list[str]:
        """Return who has not come to the target yet. What can't be read is no fault of the cutover, and is said."""
        from airflow_mirror.errors import MirrorError
        from airflow_mirror.extras.clients.inventory import look

        assert report is not None  # who has none has nothing to look after
        try:
            plan = on.target.plan(report.mirror, report.plan_hash)
            found = look(plan, on.source.admin, on.target.admin, report)
        except MirrorError as e:
            return [f"nobody knows: {e}"]
        return [*found.waiting, *(f"not seen: {line}" for line in found.unseen)]
