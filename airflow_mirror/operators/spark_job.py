"""The base of operators that run one Spark job to its end: start it, find it again, wait, return its summary, stop it."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import ResumableJobMixin, conf
from airflow.sdk.exceptions import TaskDeferralTimeout

from airflow_mirror.errors import InputError, InvalidField, MirrorError, TryAgain, WriterRuns
from airflow_mirror.hooks.gauges import tell_copy
from airflow_mirror.hooks.home import alarm, metrics_file, plans_of, poll_interval_s
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.hooks.spark import master_of, runner_for
from airflow_mirror.jobs.progress.wording import progress_line
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.directory import job_name
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.jobs.runner.spec import WRITERS, JobSpec
from airflow_mirror.mirror import COPY_IGNORES
from airflow_mirror.operators.base import PlannedOperator, is_retry, mirror_from, number, plan_hash
from airflow_mirror.operators.links import JobLogLink, LiveStateLink, show_links
from airflow_mirror.operators.summaries import compact
from airflow_mirror.triggers.job import JobTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_mirror.config import ClientConfig
    from airflow_mirror.jobs.runner.local import Handle, LocalRunner
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan

__all__ = ["SparkJobOperator"]

_SAY_EVERY_S = 5.0


class SparkJobOperator(ResumableJobMixin, PlannedOperator):
    """Runs a Spark job of the mirror's plan until it ends. A retry finds the running job and waits for it.

    :param spark_conn_id: Airflow connection of type ``spark``; None runs Spark here, with all cores (templated).
    :param spark_conf: Spark settings, for example ``{"spark.driver.memory": "4g"}`` (templated).
    :param durable: False finds a running job of an earlier try by its name alone, not by the handle that Airflow stores.
    :param deferrable: wait in the triggerer, without a slot, for a job whose driver runs on a cluster (deploy mode
        ``cluster``). One whose driver is a process of this worker is waited for here.
    """

    template_fields: Sequence[str] = (*PlannedOperator.template_fields, "spark_conf", "spark_conn_id")
    operator_extra_links = (JobLogLink(), LiveStateLink())
    external_id_key = "mirror_job"  # renaming it breaks retries in flight
    kind: str

    def __init__(
        self, *, spark_conn_id: str | None = None, spark_conf: Mapping[str, str] | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False), **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.deferrable = deferrable
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf or {}
        self._mirror: Mirror | None = None
        self._runner: LocalRunner | None = None
        self._job: Handle | None = None
        self._until: float | None = None
        self._is_killed = False

    def job_options(self) -> dict[str, Any]:
        """Return the fields of the job's request besides mirror, clusters and plan."""
        return {}

    def execute(self, context: Context) -> Any:
        """Run the task; see :class:`MirrorOperator`."""
        with closing(self):
            return super().execute(context)

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Run the job to its end and return its summary.

        :raises TaskDeferred: it is waited for in the triggerer; :meth:`resume` goes on.
        :raises InputError: somebody has cleared the task, and a job of it still runs that was asked for something else.
        """
        self._prepare(mirror)
        self._forget_other(mirror, context)
        return self._ended(mirror, context, self.execute_resumable(context))

    def resume(
        self, context: Context, event: Mapping[str, Any], external_id: Any, plan: str, until: float | None
    ) -> Any:  # fmt: skip
        """Go on behind the triggerer's wait, on any worker: the job has ended, or is silent, and is judged here.

        :param event: of :class:`.JobTrigger`. :param external_id: the job's handle. :param plan: the hash of its plan:
            the task that made it may have been cleared since. :param until: when the task's time is over, in seconds
            since the epoch; None: it has no limit. Errors as of :meth:`run`.
        """
        self._context, self.plan, self._until = context, plan, until
        with task_outcome(), closing(self):
            self.log.info("%s", event["said"])
            mirror = mirror_from(self.mirror)
            self._prepare(mirror)
            return self._ended(mirror, context, self.poll_until_complete(external_id, context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """See BaseOperator. Where the time is over in the triggerer the job is ended, as if the task had its slot."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            with closing(self):
                self._prepare(mirror_from(self.mirror))
                self._job = next(self._earlier_jobs(context), None)
                self.on_kill()
            raise

    def stored_plan(self, mirror: Mirror) -> Plan:
        """See :class:`PlannedOperator`. A retry that can't have it ends no earlier than its task's job."""
        try:
            return super().stored_plan(mirror)
        except MirrorError:
            # The Mirror was edited, say, or the target is away: a task that failed now would leave the job to nobody.
            if not self._saw_out(mirror):
                raise
        return super().stored_plan(mirror)

    def close(self) -> None:
        """Give up connections."""
        if self._runner is not None:
            self._runner.close()

    def tell(self, mirror: Mirror, context: Context) -> None:
        """Tell Airflow of what the job has done, once it has ended well."""

    def _ended(self, mirror: Mirror, context: Context, result: Any) -> Any:
        self.tell(mirror, context)
        # Clearing a finished task means "run it again". Airflow 3.3 keeps the store on clear, and the mixin would
        # return the old result.
        store = context.get("task_state_store")
        if store is not None:
            store.delete(self.external_id_key)
        return result

    def _forget_other(self, mirror: Mirror, context: Context) -> None:
        """Let a task that somebody has cleared run its job again, also where it failed behind a job that had succeeded.

        One that Airflow tries again goes on with that job; so does any with one that still runs. The mixin would also
        take one for the task's own that was asked for something else, before its DAG was edited.
        """
        store: Any = context.get("task_state_store")
        if not self.durable or store is None or not (job := store.get(self.external_id_key)):
            return
        is_same, again = job["spec"] == self.spec(mirror, self.stored_plan(mirror)).hash, is_retry(self, context)
        if self.is_job_active(self.get_job_status(job, context)):
            if is_same:
                return
            if not again:
                raise InputError(
                    f"job {job['name']!r} still runs ({job['dir']})",
                    "an earlier try of this task has started it, for another plan or with other arguments",
                    "Clear the task once that job has ended, or with what it was asked for: the task waits for it then.",
                )
            self._see_out(job, context)
        if not (is_same and again):
            store.delete(self.external_id_key)

    def _see_out(self, job: Handle, context: Context) -> None:
        """Wait for the end of an earlier try's job that was asked for something else; how it ends says nothing here.

        Nobody need have edited the DAG: a newer release may know more fields, or a template render otherwise. A task that
        failed for good would leave the job to nobody.
        """
        self.log.warning(
            "an earlier try's job still runs, and may have been asked for something else: %s is waited for", job["dir"]
        )
        self._wait(job, context, may_defer=False)  # whoever resumes takes what has ended for the task's own
        self._job = None

    def _saw_out(self, mirror: Mirror) -> bool:
        """Wait for the end of a job that an earlier try has started, whatever it was asked for; False: none runs."""
        context = self._context
        if context is None or self._job is not None or self.kind == "streaming_tail" or not is_retry(self, context):
            return False
        if self._runner is None:
            self._prepare(mirror)
        running = (j for j in self._earlier_jobs(context) if self.is_job_active(self.get_job_status(j, context)))
        if (job := next(running, None)) is None:
            return False
        self._see_out(job, context)
        return True

    def _prepare(self, mirror: Mirror) -> None:
        self._mirror, self._runner = mirror, runner_for(mirror, self.spark_conn_id)

    @property
    def runner(self) -> LocalRunner:
        """The runner of the mirror's jobs; set once the task runs."""
        assert self._runner is not None
        return self._runner

    def secrets(self, mirror: Mirror) -> dict[str, ClientConfig]:
        """Return the settings of both clusters, for the job's environment; for a tail those of registries that follow."""
        # Operators are imported whenever a DAG file is parsed, which must not need a Kafka client library.
        from airflow_mirror.hooks.kafka import configs_of
        from airflow_mirror.hooks.registries import with_registries

        found = configs_of(mirror)
        return with_registries(found, mirror) if self.kind == "streaming_tail" else found

    def spec(self, mirror: Mirror, plan: Plan) -> JobSpec:
        """Return the job's specification; the same for every try of a task."""
        ignored = mirror.tail_ignores if self.kind == "streaming_tail" else COPY_IGNORES
        return JobSpec(
            kind=self.kind,
            mirror={key: value for key, value in mirror.to_dict().items() if key not in ignored},
            options=self.job_options(),
            spark_conf={str(k): str(v) for k, v in (self.spark_conf or {}).items()},
            master=master_of(self.spark_conn_id),
            inputs=plan.digest,
            plan=str(plans_of(mirror).path(plan.hash)),
            metrics=metrics_file(mirror) if self.kind in WRITERS else "",
            alarm=alarm() if self.kind == "streaming_tail" else "",
        )

    # --- the mixin's questions ---

    def submit_job(self, context: Context) -> Any:
        """Start the job, or find it running. Its name is that of this task instance, so no try starts a second one.

        Waits while another task copies for the mirror, because runs of several windows start together.

        :raises TryAgain: the task was killed, and no job was started.
        """
        assert self._mirror is not None
        name = self._job_name(context)
        spec = self.spec(self._mirror, self.stored_plan(self._mirror))
        secrets, said = self.secrets(self._mirror), ""
        self._see_out_unstored(name, spec, context)
        while self._job is None:
            # Airflow's handler of SIGTERM ends no task, and whoever goes on would start what nobody stops.
            if self._is_killed:
                raise TryAgain(f"job {name!r} is not started", "its task was killed")
            try:
                self._own(self.runner.ensure_started(name, spec, secrets))
            except WriterRuns as e:
                if e.name == TAIL:
                    raise  # a tail does not end by itself
                if said != e.name:
                    said = e.name
                    self.log.info("waiting for the mirror's other copy, %s", e.job_dir)
                time.sleep(poll_interval_s())
        self.log.info("job %s/%s, log %s/log.txt", name, self._job["generation"], self._job["dir"])
        return self._job

    def _own(self, job: Handle) -> None:
        """Have a kill of the task end a job; one that came before there was its handle ends it now."""
        self._job = job
        if self._is_killed:
            self.on_kill()

    def _see_out_unstored(self, name: str, spec: JobSpec, context: Context) -> None:
        """Wait as :meth:`_forget_other` does, where no store has the handle.

        The task is not durable, or its try was killed before the handle was stored: the job is there by its name.
        """
        if not is_retry(self, context) or (job := self.runner.find(name)) is None or job["spec"] == spec.hash:
            return
        if self.is_job_active(self.get_job_status(job, context)):
            self._see_out(job, context)

    def _earlier_jobs(self, context: Context) -> Iterator[Handle]:
        """Yield the jobs that this task has started before: the one that is stored, which any worker knows, and the last.

        They differ where a try was killed before it stored its handle.
        """
        store: Any = context.get("task_state_store")
        if store is not None and (kept := store.get(self.external_id_key)):
            yield kept
        if (last := self.runner.find(self._job_name(context))) is not None:
            yield last

    def _job_name(self, context: Context) -> str:
        ti = context["ti"]
        return job_name(self.kind, ti.dag_id, ti.task_id, ti.run_id, ti.map_index if ti.map_index is not None else -1)

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the job's state."""
        return self.runner.status(external_id)

    def is_job_active(self, status: str) -> bool:
        """Return whether the job still runs."""
        return state.is_active(status)

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether the job succeeded."""
        return state.is_succeeded(status)

    def poll_until_complete(self, external_id: Any, context: Context) -> Any:
        """Wait until the job ends.

        :raises JobFailed: or InputError, JobNeedsHuman, depending on the cause. :raises TaskDeferred: as :meth:`run`.
        """
        self._wait(external_id, context, may_defer=self.deferrable)
        self.runner.raise_for(external_id)
        return self.get_job_result(external_id, context)

    def _wait(self, job: Handle, context: Context, *, may_defer: bool) -> None:
        self._own(job)  # again after a reconnect
        show_links(self, context, job["dir"])
        said = time.monotonic()
        while self.is_job_active(self.get_job_status(job, context)):
            if may_defer and self.runner.is_away(job):
                self._defer(job, context)
            time.sleep(poll_interval_s())
            progress = self.runner.progress(job)
            if self._mirror is not None:
                tell_copy(self._mirror.name, progress)
            if time.monotonic() - said > _SAY_EVERY_S:
                said = time.monotonic()
                self.log.info("%s", progress_line(progress))

    def _defer(self, external_id: Any, context: Context) -> None:
        assert self._mirror is not None
        # Also with durable=False, which keeps none: where the time is over in the triggerer Airflow drops what it was
        # given here, and the job would copy on.
        if (store := context.get("task_state_store")) is not None:
            store.set(self.external_id_key, external_id)
        if self._until is None and self.execution_timeout is not None:
            self._until = time.time() + self.execution_timeout.total_seconds()
        trigger = JobTrigger(self._mirror.to_dict(), self.spark_conn_id, external_id, poll_interval_s())
        left = None if self._until is None else timedelta(seconds=max(1.0, self._until - time.time()))
        # Not the plan itself: the job survives a target that is away, and so must the wait for it.
        plan = plan_hash(self, self.plan, self._mirror, context)
        kwargs = {"external_id": external_id, "plan": plan, "until": self._until}
        self.defer(trigger=trigger, method_name="resume", kwargs=kwargs, timeout=left)

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        """Return the job's summary, reduced to what an XCom should hold."""
        directory = external_id["dir"]
        return compact({**self.runner.summary(external_id), "job_dir": directory}, full=f"{directory}/status.json")

    def on_kill(self) -> None:
        """Stop the job, which runs in its own session, so nothing else stops it."""
        self._is_killed = True
        if self._job is not None and self._runner is not None:
            self._runner.cancel(self._job, grace_s=2.0)


def bounds(start: object, end: object, late_s: float | str | None = None) -> dict[str, Any]:
    """Return the fields of a request for the given values, as they were rendered.

    :raises InvalidField: a bound is no point in time.
    """
    given = {name: iso(name, at) for name, at in (("start", start), ("end", end)) if at}
    return given if late_s is None else {**given, "late_s": number("late_s", late_s)}


def iso(name: str, at: object) -> str:
    """Return a rendered point in time as a job argument: ISO 8601 with a zone, ``earliest`` or ``latest``.

    Without a zone it is UTC, as in Airflow's own ``ds`` and ``ts_nodash``; a date is its midnight.

    :param name: of the operator's parameter.
    :raises InvalidField: it is none.
    """
    if at in ("earliest", "latest"):
        return str(at)
    try:
        found = pendulum.instance(at) if isinstance(at, datetime) else pendulum.parse(str(at), exact=True)
    except ValueError:
        found = None
    if isinstance(found, pendulum.Date) and not isinstance(found, pendulum.DateTime):
        found = pendulum.datetime(found.year, found.month, found.day)
    if not isinstance(found, pendulum.DateTime):  # a time of day or a duration would be another one in each run
        raise InvalidField(name, at, "not a point in time", "Give an ISO 8601 time, such as {{ data_interval_start }}.")
    return found.isoformat()
