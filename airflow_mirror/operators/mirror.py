"""StartMirrorOperator and StopMirrorOperator: the copy itself, as a bulk job or as a tail that goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InvalidField, JobFailed
from airflow_mirror.hooks.home import mirror_home, poll_interval_s
from airflow_mirror.hooks.spark import runner_for
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.jobs.runner.spec import WRITERS
from airflow_mirror.operators.base import MirrorOperator
from airflow_mirror.operators.spark_job import SparkJobOperator, bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

KIND_OF_MODE = {"bulk": "bulk_copy", "tail": "streaming_tail"}


class StartMirrorOperator(SparkJobOperator):
    """Copies (``bulk``), or makes sure that a tail is copying (``tail``).

    ``bulk`` runs until every partition is where the source's log ended at the start, and holds its slot meanwhile. Killed
    and retried, it finds its job again. ``tail`` returns once the tail copies; StopMirrorOperator ends the tail.

    :param mode: ``bulk`` or ``tail``.
    :param start: overrides the Mirror's ``start`` for this copy: ISO 8601, ``earliest`` or ``latest`` (templated).
    :param end: bulk only: where to stop, an ISO 8601 time (exclusive) or ``latest`` (templated).
    :param late_s: with an ``end`` that is a time: how late the window's last records may come, in seconds (default: 300).
    :param start_timeout_s: tail only: how long the tail may take until it copies.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "start", "end")

    def __init__(
        self,
        *,
        mode: str = "bulk",
        start: str | None = None,
        end: str | None = None,
        late_s: float | None = None,
        start_timeout_s: float = 300.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in KIND_OF_MODE:
            raise InvalidField("mode", mode, "no such mode", "Use 'bulk' or 'tail'.")
        for name, value in (("end", end), ("late_s", late_s)):
            if mode == "tail" and value is not None:
                raise InvalidField(name, value, "a tail has no end", "Leave it out, or use mode='bulk'.")
        self.mode, self.start, self.end, self.late_s, self.start_timeout_s = mode, start, end, late_s, start_timeout_s
        self.kind = KIND_OF_MODE[mode]

    def job_args(self, mirror: Mirror) -> tuple[str, ...]:
        """Return the plan, the offset map's directory and the bounds."""
        return (*super().job_args(mirror), *bounds(self.start, self.end, self.late_s))

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Copy, or make sure that the tail does."""
        if self.mode == "tail":
            return self._run_tail(mirror)
        return super().run(mirror, context)

    def _run_tail(self, mirror: Mirror) -> dict[str, Any]:
        self._prepare(mirror)
        # self._job stays None: the tail is meant to outlive this task, so killing the task must not stop it.
        handle = self.runner.ensure_started(TAIL, self.spec(mirror, self.stored_plan(mirror)), self.secrets(mirror))
        self.log.info("tail %s, log %s/log.txt", handle["generation"], handle["dir"])
        deadline = time.monotonic() + self.start_timeout_s
        while self.runner.progress(handle).get("phase") != "copying":
            if not state.is_active(self.runner.status(handle)):
                self.runner.raise_for(handle)
                raise JobFailed(TAIL, self.runner.status(handle), "it ended at once", f"{handle['dir']}/log.txt")
            if time.monotonic() > deadline:
                cause = f"it does not copy after {self.start_timeout_s:.0f} s and is left running"
                raise JobFailed(TAIL, state.RUNNING, cause, f"{handle['dir']}/log.txt")
            time.sleep(min(1.0, poll_interval_s()))
        return {"job": TAIL, "generation": handle["generation"], "job_dir": handle["dir"]}


class StopMirrorOperator(MirrorOperator):
    """Stops what writes for a mirror: lets the tail finish what it has in flight, then ends all its processes.

    Safe to repeat, and right as a teardown. Returns the tail's summary.

    :param spark_conn_id: as given to StartMirrorOperator (templated).
    :param grace_s: how long the tail may take to finish.
    """

    template_fields: Sequence[str] = ("mirror", "spark_conn_id")

    def __init__(self, *, spark_conn_id: str | None = None, grace_s: float = 60.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id, self.grace_s = spark_conn_id, grace_s

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Stop the mirror's writers.

        :raises JobElsewhere: when one runs on another host.
        """
        runner = runner_for(mirror, self.spark_conn_id)
        handles = [h for h in runner.running() if h["kind"] in WRITERS]
        tail = runner.find(TAIL)
        for handle in handles:
            if runner.cancel(handle, self.grace_s):
                self.log.info("stopped %s/%s", handle["name"], handle["generation"])
            else:
                self.log.warning("%s/%s had to be killed", handle["name"], handle["generation"])
        if tail is None:
            self.log.info("no tail was ever started below %s", mirror_home(mirror))
            return {"stopped": len(handles)}
        runner.cancel(tail, grace_s=0.0)  # what a killed tail left running
        summary = {k: v for k, v in runner.summary(tail).items() if isinstance(v, (int, float, str))}
        return {**summary, "stopped": len(handles), "tail": runner.status(tail)}
