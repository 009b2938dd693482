"""Plans that were refused of mirrors that no ledger knows yet: their tasks have left it to Airflow's database.

A refused first plan writes nothing to the target, so no look at its ledger finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import func, select

from airflow_mirror.plan.refused import PLANNING, UNKEPT, Refusal

_MOST, _EACH = 1000, 20  # in all, and of one task: a form may name another mirror in each run
_FOR = timedelta(days=7)  # who has not come back to it by then will not


@dataclass(frozen=True, kw_only=True)
class FirstPlan:
    """A mirror whose first plan was refused.

    :param source: connection id; ``target`` likewise.
    """

    dag: str
    run: str
    task: str
    map_index: int
    mirror: str
    source: str
    target: str
    refusal: Refusal

    def to_dict(self) -> dict[str, Any]:
        """Return what the page is told: as a row of the list, as far as there is anything to say."""
        told = {key: value for key, value in asdict(self).items() if key != "refusal"}
        return told | {"target_id": self.target, "refused": [{"kind": PLANNING, **asdict(self.refusal)}]}


def refused() -> list[FirstPlan]:
    """Return the last one of each mirror of each DAG, newest first."""
    # A DAG that plans every five minutes leaves one each time, and must not push those of others out.
    number = func.row_number().over(
        partition_by=(XComModel.dag_id, XComModel.task_id, XComModel.map_index), order_by=XComModel.timestamp.desc()
    )
    numbered = (
        select(
            XComModel.dag_id, XComModel.run_id, XComModel.task_id, XComModel.map_index, XComModel.value,
            XComModel.timestamp, number.label("number"),
        )
        .where(XComModel.key == UNKEPT, XComModel.timestamp > datetime.now(UTC) - _FOR)
        .subquery()
    )  # fmt: skip
    asked = select(numbered).where(numbered.c.number <= _EACH).order_by(numbered.c.timestamp.desc()).limit(_MOST)
    with create_session() as session:
        rows = session.execute(asked).all()
    found: dict[tuple[str, str, str], FirstPlan] = {}
    for dag, run, task, index, value, *_ in rows:
        # Any task may push any value under any key, and a site's own backend something else in its place.
        with suppress(Exception):
            plan = _read(value if isinstance(value, Mapping) else json.loads(value))
            one = FirstPlan(dag=dag, run=run, task=task, map_index=index, **plan)
            found.setdefault((dag, one.target, one.mirror), one)
    return [*found.values()]


def _read(value: Mapping[str, Any]) -> dict[str, Any]:
    refusal = value["refusal"]
    findings = tuple({key: str(part) for key, part in one.items()} for one in refusal["findings"])
    read = Refusal(by=str(refusal["by"]), at=float(refusal["at"]), findings=findings, left=int(refusal["left"]))
    return {key: str(value[key]) for key in ("mirror", "source", "target")} | {"refusal": read}


def unknown_to(
    looked: Iterable[Mapping[str, Any]], plans: Iterable[FirstPlan], sees: Callable[[str], bool]
) -> list[FirstPlan]:  # fmt: skip
    """Return those of mirrors that their target's ledger does not know by now, of DAGs that the user sees.

    :param looked: what each target said last. One that was never heard may know them all.
    """
    said = {one["target_id"]: one for one in looked}

    def is_unknown(plan: FirstPlan) -> bool:
        look = said.get(plan.target, said.get(""))  # of no id: nobody knows yet which targets there are
        return look is None or (look.get("at") is not None and plan.mirror not in look["planned"])

    return [one for one in plans if is_unknown(one) and sees(one.dag)]
