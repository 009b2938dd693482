"""StartMirrorOperator and StopMirrorOperator: the copy, as a bulk job or as a tail."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InvalidField, JobFailed, TailDiffers, WriterRuns
from airflow_mirror.hooks.home import mirror_home, poll_interval_s
from airflow_mirror.hooks.spark import runner_for
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.directory import read_json
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.jobs.runner.spec import WRITERS
from airflow_mirror.operators.base import MirrorOperator, flag, number
from airflow_mirror.operators.spark_job import SparkJobOperator, bounds, differences, digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.jobs.runner.local import Handle
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan

__all__ = ["StartMirrorOperator", "StopMirrorOperator"]

KIND_OF_MODE = {"bulk": "bulk_copy", "tail": "streaming_tail"}


class StartMirrorOperator(SparkJobOperator):
    """Copies (``bulk``), or makes sure that a tail is copying (``tail``).

    ``bulk`` holds its slot until every partition has reached the log end offset that the source had at the start. The
    retry of a killed task finds its job again. ``tail`` returns once the tail copies; StopMirrorOperator ends the tail.

    The mirror's tail may already be running, from a run whose cutover was rejected. A tail that copies the planned topics
    continues; a bulk copy then waits until the tail has reached the source's log end offset. A tail with other topics, or
    other fields of the Mirror, is an error that says what differs.

    :param mode: ``bulk`` or ``tail``.
    :param start: overrides the Mirror's ``start`` for this copy: ISO 8601, ``earliest`` or ``latest`` (templated).
    :param end: bulk only: where to stop, an ISO 8601 time (exclusive) or ``latest`` (templated).
    :param late_s: if ``end`` is a time: how late the window's last records may arrive, in seconds (default: 300;
        templated).
    :param start_timeout_s: tail only: how long the tail may take until it copies (templated).
    :param replace: stop a running tail that executes another plan, instead of failing (templated).
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields, "start", "end", "late_s", "start_timeout_s", "replace",
    )  # fmt: skip

    def __init__(
        self,
        *,
        mode: str = "bulk",
        start: str | None = None,
        end: str | None = None,
        late_s: float | str | None = None,
        start_timeout_s: float | str = 300.0,
        replace: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if mode not in KIND_OF_MODE:
            raise InvalidField("mode", mode, "no such mode", "Use 'bulk' or 'tail'.")
        for name, value in (("end", end), ("late_s", late_s)):
            if mode == "tail" and value is not None:
                raise InvalidField(name, value, "a tail has no end", "Leave it out, or use mode='bulk'.")
        self.mode, self.start, self.end, self.late_s, self.start_timeout_s = mode, start, end, late_s, start_timeout_s
        self.replace, self.kind = replace, KIND_OF_MODE[mode]

    def job_args(self, mirror: Mirror) -> tuple[str, ...]:
        """Return the plan, the offset map's directory and the bounds."""
        return (*super().job_args(mirror), *bounds(self.start, self.end, self.late_s))

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Copy, or make sure that the tail copies.

        :raises MirrorCutOver: target topics were handed over to applications.
        :raises TailDiffers: a tail of another plan runs and may not be replaced.
        """
        from airflow_mirror.hooks.kafka import MirrorKafkaHook
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.plan.life import require_active

        plan, patience_s = self.stored_plan(mirror), number("start_timeout_s", self.start_timeout_s)
        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            require_active(Ledger(target), plan, target)
        self._prepare(mirror)
        tail = self._running_tail()
        if tail is not None and not self._copies(tail, mirror, plan):
            self._replace(tail, mirror, plan)
            tail = None
        if self.mode == "tail":
            return self._run_tail(mirror, plan, patience_s)
        if tail is not None and self.end in (None, "latest"):
            return self._wait_for(tail, mirror, plan)
        return super().run(mirror, context)

    def _running_tail(self) -> Handle | None:
        tail = self.runner.find(TAIL)
        return tail if tail is not None and state.is_active(self.runner.status(tail)) else None

    def _copies(self, tail: Handle, mirror: Mirror, plan: Plan) -> bool:
        """Return whether a running tail copies what this plan says."""
        spec = read_json(Path(tail["dir"], "spec.json")) or {}
        return spec.get("inputs") == digest(plan) and spec.get("mirror") == mirror.to_dict()

    def _replace(self, tail: Handle, mirror: Mirror, plan: Plan) -> None:
        """Stop the mirror's tail of another plan, if requested.

        :raises WriterRuns: it copies between other clusters, so it belongs to another mirror of the same name.
        :raises TailDiffers: it copies something else and may not be replaced.
        """
        spec = read_json(Path(tail["dir"], "spec.json")) or {}
        theirs = spec.get("mirror", {})
        if (theirs.get("source"), theirs.get("target")) != (mirror.source, mirror.target):
            raise WriterRuns(TAIL, tail["dir"], tail["kind"], self.kind)
        found = differences(spec, mirror, plan)
        if not flag("replace", self.replace):
            raise TailDiffers(tail["dir"], Path(spec.get("plan", "")).stem, found)
        self.secrets(mirror)  # fail before stopping a tail that can't be replaced
        self.log.warning("the mirror's tail is stopped, because it carries out another plan: %s", "; ".join(found))
        self.runner.cancel(tail)

    def _wait_for(self, tail: Handle, mirror: Mirror, plan: Plan) -> dict[str, Any]:
        """Wait until the running tail has reached the source's current log end offsets."""
        from airflow_mirror.hooks.lag import LagProbe

        self.log.info("the mirror's tail is copying: waiting for it, %s", tail["dir"])
        with closing(LagProbe(mirror, plan)) as probe:
            ends = {lag.source: lag.end for lag in probe.lags()}
            while left := sum(max(0, ends.get(lag.source, 0) - lag.position) for lag in probe.lags()):
                if not state.is_active(self.runner.status(tail)):
                    self.runner.raise_for(tail)
                    raise JobFailed(TAIL, self.runner.status(tail), "it ended too early", f"{tail['dir']}/log.txt")
                self.log.info("%d offsets to go", left)
                time.sleep(poll_interval_s())
        return {"job": TAIL, "generation": tail["generation"], "job_dir": tail["dir"], "partitions": len(ends)}

    def _run_tail(self, mirror: Mirror, plan: Plan, patience_s: float) -> dict[str, Any]:
        # self._job stays None: the tail outlives this task by design, so killing the task must not stop it.
        handle = self.runner.ensure_started(TAIL, self.spec(mirror, plan), self.secrets(mirror))
        self.log.info("tail %s, log %s/log.txt", handle["generation"], handle["dir"])
        deadline = time.monotonic() + patience_s
        while self.runner.progress(handle).get("phase") != "copying":
            if not state.is_active(self.runner.status(handle)):
                self.runner.raise_for(handle)
                raise JobFailed(TAIL, self.runner.status(handle), "it ended at once", f"{handle['dir']}/log.txt")
            if time.monotonic() > deadline:
                cause = f"it does not copy after {patience_s:.0f} s and is left running"
                raise JobFailed(TAIL, state.RUNNING, cause, f"{handle['dir']}/log.txt")
            time.sleep(min(1.0, poll_interval_s()))
        return {"job": TAIL, "generation": handle["generation"], "job_dir": handle["dir"]}


class StopMirrorOperator(MirrorOperator):
    """Stops every writer of a mirror: lets the tail finish its requests in flight, then ends all its processes.

    Safe to repeat; use it as a teardown. Returns the tail's summary.

    :param spark_conn_id: the same value as for StartMirrorOperator (templated).
    :param grace_s: how long the tail may take to finish (templated).
    """

    template_fields: Sequence[str] = ("mirror", "spark_conn_id", "grace_s")

    def __init__(self, *, spark_conn_id: str | None = None, grace_s: float | str = 60.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id, self.grace_s = spark_conn_id, grace_s

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Stop the mirror's writers.

        :raises JobElsewhere: one of them runs on another host.
        """
        runner, grace_s = runner_for(mirror, self.spark_conn_id), number("grace_s", self.grace_s)
        handles = [h for h in runner.running() if h["kind"] in WRITERS]
        tail = runner.find(TAIL)
        for handle in handles:
            if runner.cancel(handle, grace_s):
                self.log.info("stopped %s/%s", handle["name"], handle["generation"])
            else:
                self.log.warning("%s/%s had to be killed", handle["name"], handle["generation"])
        if tail is None:
            self.log.info("no tail was ever started below %s", mirror_home(mirror))
            return {"stopped": len(handles)}
        runner.cancel(tail, grace_s=0.0)  # what a killed tail left running
        summary = {k: v for k, v in runner.summary(tail).items() if isinstance(v, (int, float, str))}
        return {**summary, "stopped": len(handles), "tail": runner.status(tail)}
