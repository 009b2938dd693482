"""StartMirrorOperator and StopMirrorOperator: the copy, as a bulk job or as a tail."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import (
    InputError,
    InvalidField,
    LedgerLost,
    LedgerMissing,
    MirrorCutOver,
    MirrorError,
    MirrorPaused,
    WriterRuns,
)
from airflow_mirror.hooks.assets import tell_events, tell_lineage
from airflow_mirror.hooks.gauges import tell_lag
from airflow_mirror.hooks.home import poll_interval_s
from airflow_mirror.hooks.spark import runner_for
from airflow_mirror.hooks.tail import TailView, log_of
from airflow_mirror.jobs.runner import process, state
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.jobs.runner.spec import WRITERS
from airflow_mirror.operators.base import MirrorOperator, flag, number
from airflow_mirror.operators.links import show_links
from airflow_mirror.operators.spark_job import SparkJobOperator, bounds
from airflow_mirror.operators.tail import TailRun, differences, handle_of, is_of, result_of, stop_tail
from airflow_mirror.sync.lag import CatchUp, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_mirror.common.partition import TopicPartition
    from airflow_mirror.config import ClientConfig
    from airflow_mirror.jobs.runner.active import ActiveTail
    from airflow_mirror.jobs.runner.local import Handle, LocalRunner
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan
    from airflow_mirror.sync.lag import PartitionLag

__all__ = ["StartMirrorOperator", "StopMirrorOperator"]

_REPLACE_GRACE_S = 30.0
_STUCK_AFTER_S = 300.0  # for as long WaitForCatchUpSensor lets a partition stand still
_STARTED = "mirror_tail"  # in the task's state store; renaming it breaks retries in flight
KIND_OF_MODE = {"bulk": "bulk_copy", "tail": "streaming_tail"}


class StartMirrorOperator(SparkJobOperator):
    """Copies (``bulk``), or makes sure that a tail is copying (``tail``).

    ``bulk`` holds its slot until every partition has reached the log end offset that the source had at the start. The
    retry of a killed task finds its job again. ``tail`` returns once the tail copies; StopMirrorOperator ends the tail.

    The mirror's tail may already be running, from a run whose cutover was rejected. A tail that copies the planned topics
    continues; a bulk copy then waits until the tail has reached the source's log end offset. A tail with other topics, or
    other fields of the Mirror, is an error that says what differs.

    :param mode: ``bulk`` or ``tail``.
    :param start: overrides the Mirror's ``start`` for this copy: a time, ``earliest`` or ``latest`` (templated).
        Times are datetimes or ISO 8601, and UTC without a zone, as ``{{ ds }}`` is.
    :param end: bulk only: where to stop, a time (exclusive) or ``latest`` (templated).
    :param late_s: if ``end`` is a time: how late the window's last records may arrive, in seconds (default: 300;
        templated).
    :param start_timeout_s: tail only: how long the tail may take until it copies (templated).
    :param replace: stop a running tail that executes another plan, instead of failing (templated).
    :param replaces: tail only: the tail that an earlier task of the run has found to be lost, as
        :func:`airflow_mirror.hooks.tail.replicates` returns it: it is not listened for again, unless it has given a sign
        since (templated).
    :param give_up_after_s: how long a partition may make no progress before it is given up, in seconds; ``inf``: never. A
        tail tries it again in any case (default: 120; templated).
    :param abort_on_send_failure: end the job with the first partition that stops, instead of copying the others; in a
        tail one that was given up counts if ``give_up_after_s`` is set (templated).
    :param accept_open_transactions: bulk only: succeed although an open transaction of the source keeps records from
        being copied; a tail copies them later (templated).
    :param attached: tail only: stay and supervise it, for executors whose host ends with the task (Kubernetes). The task
        shows its figures, starts it again when it fails, with growing pauses, or on this host when its own is lost, and
        ends when it is stopped or cut over. A task that is killed ends the tail that it started, also in an earlier try,
        but none of another task (templated).
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields, "start", "end", "late_s", "start_timeout_s", "replace", "replaces", "attached",
        "give_up_after_s", "abort_on_send_failure", "accept_open_transactions",
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
        replaces: str = "",
        attached: bool | str = False,
        give_up_after_s: float | str | None = None,
        abort_on_send_failure: bool | str = False,
        accept_open_transactions: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if attached is not False and mode != "tail":
            raise InvalidField(
                "attached", attached, "a bulk copy is always attached", "Leave it out, or use mode='tail'."
            )
        if mode not in KIND_OF_MODE:
            raise InvalidField("mode", mode, "no such mode", "Use 'bulk' or 'tail'.")
        for name, value in (("end", end), ("late_s", late_s)):
            if mode == "tail" and value is not None:
                raise InvalidField(name, value, "a tail has no end", "Leave it out, or use mode='bulk'.")
        self.mode, self.start, self.end, self.late_s, self.start_timeout_s = mode, start, end, late_s, start_timeout_s
        self.replace, self.replaces, self.attached, self.kind = replace, replaces, attached, KIND_OF_MODE[mode]
        self.give_up_after_s, self.abort_on_send_failure = give_up_after_s, abort_on_send_failure
        self.accept_open_transactions = accept_open_transactions
        self._store: Any = None
        self._ask_to_stop: Callable[[], object] | None = None  # the tail of an earlier try, which runs elsewhere

    def job_options(self) -> dict[str, Any]:
        """Return the bounds, and when it gives up."""
        switches = ("abort_on_send_failure", *(("accept_open_transactions",) if self.mode == "bulk" else ()))
        on = {name: True for name in switches if flag(name, getattr(self, name))}
        bound = {} if self.give_up_after_s is None else {"give_up_after_s": _bound_s(self.give_up_after_s)}
        return {**bounds(self.start, self.end, self.late_s), **bound, **on}

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Copy, or make sure that the tail copies.

        :raises MirrorCutOver: target topics were handed over to applications.
        :raises InputError: a tail of another plan runs and may not be replaced.
        :raises MirrorPaused: the mirror is paused, and this is a bulk copy.
        """
        from airflow_mirror.hooks.kafka import MirrorKafkaHook
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.plan.requirements import require_active

        plan, patience_s = self.stored_plan(mirror), number("start_timeout_s", self.start_timeout_s)
        stays = flag("attached", self.attached)
        self._store = context.get("task_state_store") if stays else None
        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            require_active(Ledger(target), plan, target)
            self._prepare(mirror)
            view = TailView(target, mirror.name, self.replaces)
            if self.mode == "bulk":
                self._require_not_paused(view)
            tail = view.living()
            run = TailRun(view, self.runner, mirror, plan, self._launch, partial(self._attach, target), patience_s)
            if tail is not None and not run.copies(tail):
                self._replace(run, tail)
                tail = None
            tell_lineage(mirror, plan)
            if self.mode == "tail":
                started = run.start(tail)
                show_links(self, context, started["job_dir"])
                return run.stay(lambda: self._is_over(target, plan), lambda: self._is_killed) if stays else started
            if tail is not None and self.end in (None, "latest"):
                show_links(self, context, tail.directory)
                waited = self._wait_for(run, tail)
                tell_events(self, context, mirror, plan, "copy")
                return waited
            if tail is not None:
                raise WriterRuns(TAIL, f"{tail.directory} on host {tail.host}", KIND_OF_MODE["tail"], self.kind)
        return super().run(mirror, context)

    def tell(self, mirror: Mirror, context: Context) -> None:
        """Give events of what was copied."""
        tell_events(self, context, mirror, partial(self.stored_plan, mirror), "copy")

    def _launch(self, mirror: Mirror, plan: Plan, replaces: str) -> Handle:
        before = self.runner.find(TAIL)
        handle = self.runner.ensure_started(
            TAIL, dataclasses.replace(self.spec(mirror, plan), replaces=replaces), self.secrets(mirror)
        )
        # Not attached, the tail outlives this task by design, so killing the task must not stop it. Nor one that another
        # task has just started.
        ours = handle != before or handle == self._started()
        self._job = handle if flag("attached", self.attached) and ours else None
        if self._job is not None and self._store is not None:
            self._store.set(_STARTED, handle)
        if self._is_killed:  # before there was a handle
            super().on_kill()
        assert self._context is not None
        show_links(self, self._context, handle["dir"])  # of each start, where a task attends its tail
        return handle

    def _started(self) -> Handle | None:
        """Return the handle of the tail that this task, in whichever try, has started last."""
        return None if self._store is None else self._store.get(_STARTED)

    def _attach(self, target: ClusterAdmin, tail: ActiveTail) -> None:
        """Have a kill of this task end a tail that an earlier try of it has started, wherever it runs."""
        started = self._started()
        if started is not None and is_of(started, tail):
            self._job = handle_of(self.runner, tail)
            self._ask_to_stop = partial(_ask_to_stop, target.config, tail) if self._job is None else None

    def on_kill(self) -> None:
        """Stop the job, or the tail that this task has started; one that runs on another host is asked to stop."""
        super().on_kill()
        if self._job is None and self._ask_to_stop is not None:
            self._ask_to_stop()

    def _replace(self, run: TailRun, tail: ActiveTail) -> None:
        """Stop the mirror's tail of another plan, if requested.

        :raises InputError: it copies between other clusters, so it belongs to another mirror of the same name.
        :raises InputError: it copies something else and may not be replaced.
        """
        theirs, ours = (tail.mirror.get("source"), tail.mirror.get("target")), (run.mirror.source, run.mirror.target)
        if theirs != ours:
            raise InputError(
                f"the name {run.mirror.name!r} is taken",
                f"its tail ({log_of(tail)}) copies from {theirs[0]!r} to {theirs[1]!r}, this mirror goes from "
                f"{ours[0]!r} to {ours[1]!r}. Nothing was touched",
                "Give this one another name, or stop that tail (StopMirrorOperator) if it is over.",
            )
        if not flag("replace", self.replace):
            run.require_same(tail)
        self.secrets(run.mirror)  # fail before stopping a tail that can't be replaced
        found = "; ".join(map(str, differences(tail, run.mirror, run.plan)))
        self.log.warning("the mirror's tail is stopped, because it carries out another plan: %s", found)
        stop_tail(run.view, self.runner, tail, _REPLACE_GRACE_S)

    def _require_not_paused(self, view: TailView) -> None:
        """Return if a copy may begin, or one of an earlier try has ended: it rests in a pause, and its task waits for it.

        :raises MirrorPaused: neither.
        """
        try:
            view.require_not_paused()
        except MirrorPaused:
            assert self._mirror is not None
            if not self._saw_out(self._mirror):
                raise

    def _wait_for(self, run: TailRun, tail: ActiveTail) -> dict[str, Any]:
        """Wait until the running tail has reached the source's current log end offsets.

        :raises NeedsHuman: names the partitions that do not move: a tail that has given one up copies the others.
        """
        from airflow_mirror.hooks.lag import LagProbe

        self.log.info("the mirror's tail is copying: waiting for it, %s", log_of(tail))
        with closing(LagProbe(run.mirror, run.plan)) as probe:
            ends = {lag.source: lag.end for lag in probe.lags()}
            lags, judge = probe.lags(), CatchUp(max_lag_records=0, samples=1, stuck_after_s=_STUCK_AFTER_S)
            while not judge.look(left := _up_to(ends, lags), time.monotonic()):
                tell_lag(run.mirror.name, summary(lags))
                run.require_running(tail, "it ended too early")
                run.view.require_not_paused()
                self.log.info("%d offsets to go", sum(lag.records for lag in left))
                time.sleep(poll_interval_s())
                lags = probe.lags()
            probe.require_planned_topics()
        for held in filter(None, (lag.held for lag in lags)):
            self.log.warning("%s: the tail copies them once it has ended", held)
        return {**result_of(tail), "partitions": len(ends)}

    def _is_over(self, target: ClusterAdmin, plan: Plan) -> bool:
        """Return whether a cutover has ended the mirror's writing, and opened its topics."""
        from airflow_mirror.ledger.decisions import Ledger
        from airflow_mirror.plan.requirements import require_active

        try:
            require_active(Ledger(target), plan, target)
        except MirrorCutOver as e:
            self.log.info("%s", e)
            return True
        except MirrorError as e:
            self.log.warning("whether the mirror was cut over is not known: %s", e)
        return False


def _up_to(ends: Mapping[TopicPartition, int], lags: Sequence[PartitionLag]) -> list[PartitionLag]:
    """Return the lag of each partition up to where it ended once; one that has come since has none."""
    return [dataclasses.replace(lag, end=ends.get(lag.source, 0)) for lag in lags]


def _bound_s(value: float | str) -> float:
    try:
        return float(str(value))  # inf, too; what makes no sense the request refuses
    except ValueError:
        remedy = "Give seconds above 0, or inf."
        raise InvalidField("give_up_after_s", value, "not a number", remedy) from None


def _ask_to_stop(target: ClientConfig, tail: ActiveTail) -> None:
    """Ask with connections of its own: a signal may have interrupted a request of the others."""
    from airflow_mirror.kafka.admin import ClusterAdmin

    with ClusterAdmin(target) as admin:
        TailView(admin, tail.name).ask_to_stop(tail, f"a task on host {process.hostname()}, which was killed")


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
        """Stop the mirror's writers: those that this host has started, and its tail on any host.

        :raises TryAgain: the tail runs on another host and still gives signs of life.
        :raises LedgerLost: whether one does is not known; what this host has started is stopped.
        """
        grace_s = number("grace_s", self.grace_s)
        with closing(runner_for(mirror, self.spark_conn_id)) as runner:
            return self._stop_writers(mirror, runner, grace_s)

    def _stop_writers(self, mirror: Mirror, runner: LocalRunner, grace_s: float) -> dict[str, Any]:
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        handles = [h for h in runner.running() if h["kind"] in WRITERS and runner.reaches(h)]
        for handle in handles:
            self._say(runner.cancel(handle, grace_s), f"{handle['name']}/{handle['generation']}")
        left = runner.find(TAIL)
        if left is not None and runner.reaches(left):
            runner.cancel(left, grace_s=0.0)  # what a killed tail left running
        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            stopped, summary = self._stop_tail(TailView(target, mirror.name), runner, grace_s)
        return {**summary, "stopped": len(handles) + stopped}

    def _stop_tail(self, view: TailView, runner: LocalRunner, grace_s: float) -> tuple[int, dict[str, Any]]:
        """Stop the tail that the ledger names, if it still runs. Return whether it did (0 or 1), and its summary.

        :raises LedgerLost: which one that is, nobody knows.
        """
        try:
            tail = view.tail()
        except LedgerMissing as e:
            self.log.warning("a tail on another host can't be found: %s", e)
            return 0, {}
        except LedgerLost as e:
            e.add_note("What this host has started is stopped; whether a tail runs on another one, nobody knows.")
            raise
        if tail is None:
            self.log.info("the mirror never had a tail")
            return 0, {}
        runs = state.is_active(view.status(tail))
        if runs:
            self._say(stop_tail(view, runner, tail, grace_s), f"the tail on host {tail.host}")
        handle, sign = handle_of(runner, tail), view.sign(tail)
        if handle is not None:  # its files say more than a sign that it may not have been able to give
            found, status = runner.summary(handle), runner.status(handle)
        else:
            found, status = {} if sign is None else dict(sign.summary), view.status(tail)
        return int(runs), {**{k: v for k, v in found.items() if isinstance(v, (int, float, str))}, "tail": status}

    def _say(self, clean: bool, what: str) -> None:
        if clean:
            self.log.info("stopped %s", what)
        else:
            self.log.warning("%s had to be killed", what)
