"""Runs of the shipped DAGs by Airflow's own scheduler code, in a database in memory; each task is over at once.

What decides is run for real: branches, what a task runs before its work, and the last task. Others do nothing, and
succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from airflow.api.common.mark_tasks import set_dag_run_state_to_failed, set_dag_run_state_to_success
from airflow.dag_processing.dagbag import sync_bag_to_db
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.providers.standard.utils.skipmixin import XCOM_SKIPMIXIN_KEY
from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import create_engine, delete, update
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from airflow_mirror.example_dags.ending import FollowOnOperator
from airflow_mirror.operators.cutover import CutoverOperator
from airflow_mirror.operators.lift_fence import BEGUN

# States that a task which skips others leaves alone.
_BEGUN = ("running", "success", "failed")


class Scheduler(AbstractContextManager["Scheduler"]):
    """Airflow's database with some DAGs of a bag."""

    def __init__(self, bag: Any, *dag_ids: str) -> None:
        import_all_models()
        # Another one than that of AIRFLOW_HOME, in which other tests have DAGs of these names.
        self._engine = create_engine("sqlite://", poolclass=StaticPool)
        Base.metadata.create_all(self._engine)
        self.dags, self.session = {dag_id: bag.dags[dag_id] for dag_id in dag_ids}, Session(self._engine)
        self.session.add(DagBundleModel(name="b"))
        self.session.flush()
        parsed: Any = SimpleNamespace(dags=self.dags, import_errors={}, bundle_path=None, dag_warnings=set())
        sync_bag_to_db(parsed, "b", None, session=self.session)

    def __exit__(self, *_: object) -> None:
        self.session.close()
        self._engine.dispose()

    def run(self, dag_id: str, **conf: Any) -> Run:
        """Create a run, of which nothing has run."""
        return Run(self, dag_id, conf)


class Run:
    """A run of a DAG. ``ran``: tasks that a worker has run, but those that have skipped themselves.

    :param conf: what its form says.
    """

    def __init__(self, scheduler: Scheduler, dag_id: str, conf: dict[str, Any]) -> None:
        self.dag, self._session = scheduler.dags[dag_id], scheduler.session
        self._known: Any = SerializedDagModel.get(dag_id, session=self._session).dag  # type: ignore[union-attr]
        self.params = {**self.dag.params.dump(), **conf}
        now = timezone.utcnow()
        self._row: Any = self._known.create_dagrun(
            run_id=f"manual__{uuid4().hex}", run_after=now, logical_date=now, data_interval=(now, now), conf=conf,
            run_type=DagRunType.MANUAL, triggered_by=DagRunTriggeredByType.TEST, state=DagRunState.RUNNING,
            session=self._session,
        )  # fmt: skip
        self.ran: list[str] = []

    @property
    def states(self) -> dict[str, str | None]:
        """How each task stands."""
        self._session.expire_all()
        return {ti.task_id: ti.state for ti in self._row.get_task_instances(session=self._session)}

    def go(self, until: str = "", fails: Iterable[str] = ()) -> Run:
        """Let it run to its end, or until a task runs.

        :param fails: tasks that fail.
        """
        self.ran = []
        self._row.state = DagRunState.RUNNING
        while True:
            self._session.expire_all()
            self._row.dag = self._known
            ready, _ = self._row.update_state(session=self._session, execute_callbacks=False)
            for task_id in [ti.task_id for ti in ready]:
                self.set_state("running", task_id)
                self._started(task_id)
                if task_id == until:
                    return self
                self.set_state(self._end(task_id, task_id in fails), task_id)
            if not ready and self._row.state != DagRunState.RUNNING:
                return self

    def clear(self, task_id: str, downstream: bool = True) -> Run:
        """Clear a task, and what comes after it, as a person does: without the history that Airflow keeps."""
        after = self._known.get_task(task_id).get_flat_relative_ids(upstream=False) if downstream else ()
        return self.set_state(None, task_id, *after)

    def mark(self, state: str) -> Run:
        """Mark the run as failed, or as a success."""
        change = {"failed": set_dag_run_state_to_failed, "success": set_dag_run_state_to_success}[state]
        change(dag=self._known, run_id=self._row.run_id, commit=True, session=self._session)
        self._session.flush()
        return self

    def set_state(self, state: str | None, *task_ids: str) -> Run:
        """Give tasks a state, as a request may."""
        ours = TaskInstance.dag_id == self.dag.dag_id, TaskInstance.run_id == self._row.run_id
        self._session.execute(update(TaskInstance).where(*ours, TaskInstance.task_id.in_(task_ids)).values(state=state))
        return self

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Take back at the end of the block what has become of the run in it."""
        with self._session.begin_nested() as block:
            yield
            block.rollback()

    @property
    def state(self) -> str:
        """How the run stands."""
        return str(self._row.state)

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        """Return what a task has pushed in this run."""
        query = XComModel.get_many(task_ids=task_ids, key=key, run_id=self._row.run_id, dag_ids=self.dag.dag_id)
        row = self._session.scalars(query).first()
        return None if row is None else XComModel.deserialize_value(row)

    def push(self, task_id: str, key: str, value: Any) -> None:
        """Have a task push a value."""
        XComModel.set(
            key=key, value=value, dag_id=self.dag.dag_id, task_id=task_id, run_id=self._row.run_id, session=self._session
        )

    def _started(self, task_id: str) -> None:
        """Airflow deletes what an earlier try of a task has pushed; a cutover pushes that it has begun."""
        self._session.execute(delete(XComModel).where(XComModel.run_id == self._row.run_id, XComModel.task_id == task_id))
        if isinstance(self.dag.get_task(task_id), CutoverOperator):
            self.push(task_id, BEGUN, value=True)

    def _end(self, task_id: str, fails: bool) -> str:
        """Run a task; return how it has ended."""
        task = self.dag.get_task(task_id)
        ti = SimpleNamespace(
            dag_id=self.dag.dag_id, run_id="r", task_id=task_id, get_task_states=lambda **_: {"r": self.states},
            xcom_pull=self.xcom_pull, map_index=-1,
        )  # fmt: skip
        run = SimpleNamespace(conf=self._row.conf, logical_date=self._row.logical_date)
        context: Any = {"ti": ti, "dag": self.dag, "dag_run": run, "params": self.params, "task": task}
        try:
            if task._pre_execute_hook is not None:
                task._pre_execute_hook(context)
            if not fails:
                self._decide(task, context)
        except AirflowSkipException:
            return "skipped"
        except AirflowFailException:
            return "failed"
        self.ran.append(task_id)
        return "failed" if fails else "success"

    def _decide(self, task: Any, context: dict[str, Any]) -> None:
        """Run what a task decides by, and skip what it skips."""
        wants = getattr(task, "python_callable", None)
        if task.task_id == "outcome":
            wants(*task.op_args, context["ti"], self.dag, self.params)
        elif isinstance(task, ApprovalOperator):
            self.push(task.task_id, "return_value", {"chosen_options": ["Approve"]})
        elif isinstance(task, FollowOnOperator):
            if not task.is_wanted(context["ti"]):
                raise AirflowSkipException
        elif wants is None:
            self.push(task.task_id, "return_value", {})
        elif task.inherits_from_skipmixin:
            told = [one if isinstance(one, str) else {} for one in task.op_args]  # of what a task before it returned
            names = wants.__code__.co_varnames[len(told) : wants.__code__.co_argcount]
            self._skip(task, wants(*told, **{name: context[name] for name in names}))

    def _skip(self, task: Any, said: Any) -> None:
        after = task.get_direct_relatives(upstream=False)
        if isinstance(task, ShortCircuitOperator):
            if task.ignore_downstream_trigger_rules:
                after = task.get_flat_relatives(upstream=False)
            skipped = [] if said else [one.task_id for one in after if not one.is_teardown]
            pushed = {"skipped": skipped}
        else:
            followed = {said, *self.dag.get_task(said).get_flat_relative_ids(upstream=False)}
            names = {one.task_id for one in after}
            skipped, pushed = sorted(names - followed), {"followed": sorted(names & followed)}
        if skipped or "followed" in pushed:
            self.push(task.task_id, XCOM_SKIPMIXIN_KEY, pushed)
        self._session.flush()
        states = self.states
        self.set_state("skipped", *(one for one in skipped if states[one] not in _BEGUN))
