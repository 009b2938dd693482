"""Which runs wait for a person about which mirror: Airflow's required actions, as its database has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow.models.dag import DagTag
from airflow.models.dagrun import DagRun
from airflow.models.hitl import HITLDetail
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import State
from sqlalchemy import exists, or_, select

_MOST = 200
TAG = "kafka-mirror"  # of the package's DAGs, under whatever id: a form of theirs may name a mirror of another DAG


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A task that waits for an answer.

    :param since: seconds since 1970. :param conf: with which its run was triggered.
    :param ours: its DAG is one of the package's.
    """

    dag: str
    run: str
    task: str
    map_index: int
    subject: str
    since: float
    conf: Mapping[str, Any]
    ours: bool

    def to_dict(self) -> dict[str, Any]:
        """Return what the page is told. What else a run was triggered with is nobody's who may not read its DAG."""
        return {key: value for key, value in asdict(self).items() if key not in ("conf", "ours")}


def waiting(dags: Iterable[str | None]) -> list[Approval]:
    """Return what waits for an answer now, of these DAGs and of the package's; the oldest first."""
    ours = exists().where(DagTag.dag_id == TaskInstance.dag_id, DagTag.name == TAG)
    asked = (
        select(
            TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index,
            HITLDetail.subject, HITLDetail.created_at, DagRun.conf, ours,
        )
        .select_from(HITLDetail)
        .join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
        .join(DagRun, (DagRun.dag_id == TaskInstance.dag_id) & (DagRun.run_id == TaskInstance.run_id))
        # Here, and not of what comes back: what nobody answered in time stays for ever, and would take all places; so
        # would what is asked by DAGs that have nothing to do with mirrors.
        .where(
            or_(TaskInstance.dag_id.in_({dag for dag in dags if dag is not None}), ours),
            HITLDetail.responded_at.is_(None),
            or_(TaskInstance.state.is_(None), TaskInstance.state.not_in([*State.finished])),
        )
        .order_by(HITLDetail.created_at)
        .limit(_MOST)
    )  # fmt: skip
    with create_session() as session:
        rows = session.execute(asked).all()
    return [
        Approval(
            dag=dag, run=run, task=task, map_index=index, subject=subject, since=at.timestamp(),
            conf=conf if isinstance(conf, dict) else {}, ours=is_ours,
        )
        for dag, run, task, index, subject, at, conf, is_ours in rows
    ]  # fmt: skip


def by_mirror(
    approvals: Iterable[Approval], rows: Iterable[Mapping[str, Any]], sees: Callable[[str], bool]
) -> dict[tuple[str, str], list[Approval]]:
    """Return what waits, by the mirror that it is about: target's connection id, and name.

    That is the mirror that the run's form names, of those of its DAG; all of these if it names none of them. On another
    target than the form's a mirror of that name is another one: the one that is meant may be hidden from this user.

    :param rows: of the list. :param sees: whether the user may see what a DAG asks.
    """
    every = [*rows]
    found: dict[tuple[str, str], list[Approval]] = {}
    for one in approvals:
        for row in _about(one, every) if sees(one.dag) else ():
            found.setdefault((row["target_id"], row["mirror"]), []).append(one)
    return found


def _about(one: Approval, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    name, target = one.conf.get("name"), one.conf.get("target")
    of_dag = [row for row in rows if row["dag"] == one.dag]
    named = [row for row in (rows if one.ours else of_dag) if row["mirror"] == name]
    # A target may be looked at by another connection (`[mirror] targets`) than the one that its mirrors' plans name.
    return [
        row for row in named or of_dag if not (name and target) or target in (row["target_id"], row["target"])
    ]  # fmt: skip
