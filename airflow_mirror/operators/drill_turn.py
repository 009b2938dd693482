"""Let a task of a drill stand back where another Airflow's drill of the same target runs.

See :mod:`airflow_mirror.extras.drill.turn`. A drill has a name that OpenDrillOperator makes, and hands to the tasks
behind it as an XCom: no run id tells two Airflows apart that have one schedule.
"""

from __future__ import annotations

import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.jobs.runner.directory import job_name
from airflow_mirror.operators.base import mirror_from

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.ledger.decisions import Decisions

log = logging.getLogger(__name__)

_KEY = "drill"
_KILLED_WITHIN_S = 420.0  # Airflow gives a task whose worker is gone five minutes, and our own tasks ten
_LOOK_AGAIN_S = 2.0


def name_of(task: BaseOperator, context: Context) -> str:
    """Return the name of the drill that a task of this chain has begun in this DAG run; "": none has.

    Also one downstream, in an earlier try of the run: its XCom stays until it is run again.
    """
    ways = (True, False) if task.has_dag() else ()  # type: ignore[no-untyped-call]
    related = (t for way in ways for t in task.get_flat_relatives(upstream=way))
    tasks = [task, *related]
    opened = [t.task_id for t in tasks if getattr(t, "opens_drill", False)]
    pulled = (context["ti"].xcom_pull(task_ids=task_id, key=_KEY) for task_id in sorted(opened))
    return next((one for one in pulled if isinstance(one, str)), "")


def begin(task: BaseOperator, context: Context, target: ClusterAdmin, mirror: str) -> str:
    """Begin a drill, or go on with that of a task upstream; return the name of its run. The target has a ledger.

    Errors as :func:`stand_back`.
    """
    from airflow_mirror.extras.drill import turn
    from airflow_mirror.ledger.decisions import Ledger

    _until_none_is_killed(context)
    # A next try has the XComs of the tasks before it alone, and what it has stored.
    store: Any = context.get("task_state_store")
    stored = None if store is None else store.get(_KEY)
    name = name_of(task, context) or stored or uuid.uuid4().hex
    if store is not None:
        store.set(_KEY, name)
    context["ti"].xcom_push(key=_KEY, value=name)  # before the decision: whatever ends this task, the clean-up knows it
    ledger, run = Ledger(target), job_name(context["ti"].run_id)
    if found := turn.begin(ledger, mirror, run, name, time.time()):
        raise _standing_back(found, context, ledger, mirror)
    return run


def _until_none_is_killed(context: Context) -> None:
    """Return once no task of this run is being ended, as all are whose run was cleared while they ran.

    Seen with Airflow 3.3: if a task fails meanwhile, and all behind it with it, the scheduler takes the run for
    deadlocked and ends it, without its teardowns; the drill's tail and topic would stay.
    """
    ti: Any = context["ti"]
    if not getattr(context.get("dag_run"), "clear_number", 0):
        return
    deadline = time.monotonic() + _KILLED_WITHIN_S
    while time.monotonic() < deadline:
        try:
            states = ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id])[ti.run_id]
        except Exception as e:  # Airflow's: it is asked again, since a failure is what must not happen now
            log.warning("whether the try before has ended is not known: %s: %s", type(e).__name__, e)
        else:
            if not (killed := [name for name, state in states.items() if state == "restarting"]):
                return
            log.info("waiting until the try before has ended: %s", ", ".join(sorted(killed)))
        time.sleep(_LOOK_AGAIN_S)
    log.warning("the try before has not ended: should this task fail, look for what the drill has left")


def stand_back(task: BaseOperator, context: Context, target: ClusterAdmin, mirror: str) -> None:
    """Return unless another one's drill runs: its tail, its topics and what is kept of it are not this task's.

    :raises AirflowSkipException: it does. :raises InputError: it may be this run's own, which was cleared.
    """
    from airflow_mirror.extras.drill import turn
    from airflow_mirror.ledger.decisions import Ledger

    ledger = Ledger(target)
    if found := turn.another(ledger, ledger.peek(), mirror, name_of(task, context), time.time()):
        raise _standing_back(found, context, ledger, mirror)


def _standing_back(found: str, context: Context, ledger: Decisions, mirror: str) -> Exception:
    """Return how a task ends where another drill runs. A person has cleared it, and must not be told by a green run."""
    from airflow_mirror.extras.drill import turn

    # What tells two Airflows apart is gone with what Airflow has kept of the try before. An earlier try may still be
    # alive, so nobody takes its turn over by the run's name: a person says that nothing of it runs.
    cleared = getattr(context.get("dag_run"), "clear_number", 0)
    error = turn.unrecognised(ledger.values(), mirror, job_name(context["ti"].run_id)) if cleared else None
    return error or AirflowSkipException(found)


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
    with task_outcome(), MirrorKafkaHook(mirror.target, "target").admin() as target:
        stand_back(task, context, target, mirror.name)
