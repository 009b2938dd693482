"""Let windows be copied oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["PreviousWindowSensor"]


class PreviousWindowSensor(BaseSensorOperator):
    """Waits until the window of the DAG's run before is copied: nothing can be inserted before a later one.

    A run with another ``name`` is of another mirror, and one whose window does not begin earlier is what this run
    repeats, with a form that was corrected perhaps: neither is waited for.

    Not ``depends_on_past``: where a task has it, Airflow refuses a backfill's default, which leaves out what has run.

    :param copy: id of the task that copies a window.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, copy: str, **kwargs: Any) -> None:
        super().__init__(
            **{"poke_interval": 10.0, "mode": "reschedule", "timeout": timedelta(days=7).total_seconds(), **kwargs}
        )
        self.copy = copy

    def poke(self, context: Context) -> bool:
        """Return whether it is, or there is none.

        :raises AirflowFailException: its copy failed, or was skipped.
        """
        ti: Any = context["ti"]
        before = ti.get_previous_dagrun()
        if before is None or not _is_earlier(before, context):
            return True
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[self.copy], run_ids=[before.run_id])
        state = states.get(before.run_id, {}).get(self.copy)
        if state in ("failed", "upstream_failed", "skipped"):
            raise AirflowFailException(
                f"the window of run {before.run_id} was not copied (its task {self.copy!r} is {state}), and nothing can "
                "be inserted before a later one. Clear that run first, then this one. If that window is to be left out, "
                "mark that task as success."
            )
        self.log.info("the window of run %s is %s", before.run_id, state or "not begun")
        return bool(state == "success")


def _is_earlier(before: Any, context: Context) -> bool:
    """Return whether a run is of this one's mirror, and of an earlier window."""
    here: Any = context["dag_run"]
    default = {"name": context["dag"].params["name"]}  # what is not in a run's conf is the form's default
    name, other = (({**default, **(run.conf or {})})["name"] for run in (here, before))
    if name != other:
        return False
    starts = _start_of(before), _start_of(here)
    return None in starts or starts[0] < starts[1]


def _start_of(run: Any) -> Any:
    """Return when a run's window begins; None: nobody knows."""
    given = (run.conf or {}).get("from")
    try:
        return pendulum.parse(given) if given else run.data_interval_start
    except ValueError:  # its plan has refused that
        return None
