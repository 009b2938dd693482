"""Let a task of a drill stand back where another Airflow's drill of the same target runs.

See :mod:`airflow_mirror.extras.drill.turn`. A drill has a name that OpenDrillOperator makes, and hands to the tasks
behind it as an XCom: no run id tells two Airflows apart that have one schedule.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from airflow_mirror.operators.base import mirror_from

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_mirror.kafka.admin import ClusterAdmin

_KEY = "drill"


def name_of(task: BaseOperator, context: Context) -> str:
    """Return the name of the drill that this task or one upstream has begun in this DAG run; "": none has."""
    upstream = task.get_flat_relatives(upstream=True) if task.has_dag() else []  # type: ignore[no-untyped-call]
    tasks = [task, *upstream]
    opened = [t.task_id for t in tasks if getattr(t, "opens_drill", False)]
    pulled = (context["ti"].xcom_pull(task_ids=task_id, key=_KEY) for task_id in sorted(opened))
    return next((one for one in pulled if isinstance(one, str)), "")


def begin(task: BaseOperator, context: Context, target: ClusterAdmin, mirror: str, run: str) -> None:
    """Begin a drill, or go on with that of a task upstream. The target has a ledger.

    :raises AirflowSkipException: another one's runs.
    """
    from airflow_mirror.extras.drill import turn
    from airflow_mirror.ledger.decisions import Ledger

    # A next try has the XComs of the tasks before it alone, and what it has stored.
    store: Any = context.get("task_state_store")
    stored = None if store is None else store.get(_KEY)
    name = name_of(task, context) or stored or uuid.uuid4().hex
    if store is not None:
        store.set(_KEY, name)
    context["ti"].xcom_push(key=_KEY, value=name)  # before the decision: whatever ends this task, the clean-up knows it
    if found := turn.begin(Ledger(target), mirror, run, name, time.time()):
        raise AirflowSkipException(found)


def stand_back(task: BaseOperator, context: Context, target: ClusterAdmin, mirror: str) -> None:
    """Return unless another one's drill runs: its tail, its topics and what is kept of it are not this task's.

    :raises AirflowSkipException: it does.
    """
    from airflow_mirror.extras.drill import turn
    from airflow_mirror.ledger.decisions import Ledger

    ledger = Ledger(target)
    if found := turn.another(ledger, ledger.peek(), mirror, name_of(task, context), time.time()):
        raise AirflowSkipException(found)


def end(task: BaseOperator, context: Context, target: ClusterAdmin, mirror: str) -> None:
    """Say that the drill that a task upstream has begun is over: another one may begin."""
    from airflow_mirror.extras.drill import turn
    from airflow_mirror.ledger.decisions import Ledger

    if name := name_of(task, context):
        turn.end(Ledger(target), mirror, name)


def own_drill_only(context: Context) -> None:
    """Skip a task while another one's drill of its mirror runs. For ``pre_execute``, of any operator of a mirror."""
    from airflow_mirror.hooks.kafka import MirrorKafkaHook

    task: Any = context["task"]
    mirror = mirror_from(task.mirror)
    with MirrorKafkaHook(mirror.target, "target").admin() as target:
        stand_back(task, context, target, mirror.name)
