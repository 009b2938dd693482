"""Which runs wait for a person about which mirror: Airflow's required actions, as its database has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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

    That is the mirror that the run's form names, of those of its DAG; all of these if it names none of them.

    :param rows: of the list. :param sees: whether the user may see what a DAG asks.
    """
    every = [(row["target_id"], row["mirror"], row["dag"]) for row in rows]
    found: dict[tuple[str, str], list[Approval]] = {}
    for one in approvals:
        name, target = one.conf.get("name"), one.conf.get("target")
        named = [(t, m) for t, m, dag in every if m == name and (dag == one.dag or one.ours)]
        exact = [(t, m) for t, m in named if t == target] or named
        about = exact or [(t, m) for t, m, dag in every if dag == one.dag]
        for key in about if sees(one.dag) else ():
            found.setdefault(key, []).append(one)
    return found
