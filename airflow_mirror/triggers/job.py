"""JobTrigger: listens for a job whose driver runs on a cluster, by what it says in the target's state."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_mirror.errors import MirrorError
from airflow_mirror.hooks.gauges import tell_copy
from airflow_mirror.jobs.progress.wording import progress_line
from airflow_mirror.jobs.runner.state import FINAL
from airflow_mirror.mirror import Mirror
from airflow_mirror.triggers.base import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["JobTrigger"]

_SILENT_S = 120.0  # then the task looks itself: it can ask the cluster's manager, which a triggerer may not reach
_SAY_EVERY_S = 30.0
_MARKED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class JobTrigger(BaseTrigger):
    """Fires when the job has ended, or says nothing for two minutes. The task judges, as it resumes.

    A user who marks the waiting task ends the job, as a kill of a task does that waits in its slot. A cleared one goes on
    with it.

    :param mirror: a Mirror as a dict. :param spark_conn_id: by which the job was submitted.
    :param handle: of :class:`.local.LocalRunner`. :param interval_s: seconds between two looks.
    """

    def __init__(
        self, mirror: dict[str, Any], spark_conn_id: str | None, handle: dict[str, Any], interval_s: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mirror, self.spark_conn_id, self.handle, self.interval_s = mirror, spark_conn_id, handle, interval_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = ("mirror", "spark_conn_id", "handle", "interval_s")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Listen until the job has ended, or is silent; yield one event."""
        # Operators import this wherever a DAG file is parsed, which must not need a Kafka client library.
        from airflow_mirror.hooks.job_reports import JobReports

        mirror, probe = Mirror.from_dict(self.mirror), None
        updated, heard, said, away = None, time.monotonic(), 0.0, ""
        try:
            while True:
                try:
                    probe = probe or await in_thread(JobReports, mirror, self.handle)
                    report, away = await in_thread(probe.look), ""
                except MirrorError as e:  # a target that is away is silence; the job waits for it, too
                    if str(e) != away:
                        away = str(e)
                        self.log.warning("the job is not heard: %s", e)
                    report = {}
                now = time.monotonic()
                if report.get("state") in FINAL:
                    yield _event(f"the job said {report['state']}")
                    return
                if report and report.get("updated") != updated:
                    updated, heard = report.get("updated"), now
                    tell_copy(mirror.name, report)
                if now - heard > _SILENT_S:
                    yield _event(f"the job has said nothing for {_SILENT_S:.0f} s")
                    return
                if report and now - said > _SAY_EVERY_S:
                    said = now
                    self.log.info("%s", progress_line(report))
                await asyncio.sleep(self.interval_s)
        finally:
            if probe is not None:
                probe.close()

    async def on_kill(self) -> None:
        """End the job, if a user has marked its task.

        Airflow 3.3 calls this for each trigger that this triggerer no longer has: also where another one took it over,
        or the task has gone on. Then the job is somebody's who waits for it.
        """
        from airflow_mirror.hooks.job_reports import end_job

        state = await in_thread(self._state_of_the_task)
        if state in _MARKED:
            await in_thread(end_job, Mirror.from_dict(self.mirror), self.spark_conn_id, self.handle)
        else:
            self.log.info("the job goes on: its task is %s", state or "unknown")

    def _state_of_the_task(self) -> str | None:
        """Return it; None: nobody knows."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        ti: Any = self.task_instance
        try:
            found = RuntimeTaskInstance.get_task_states(
                dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=ti.map_index
            )  # fmt: skip
            return next(iter(found[ti.run_id].values()), None)
        except Exception as e:  # Airflow's: a job that is not ended can be ended by hand
            self.log.warning("what became of the task is not known: %s: %s", type(e).__name__, e)
            return None


def _event(said: str) -> TriggerEvent:
    return TriggerEvent({"said": said})  # type: ignore[no-untyped-call]
