"""Let windows be copied oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.hooks.runs import param_of, runs_before

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["PreviousWindowSensor"]


class PreviousWindowSensor(BaseSensorOperator):
    """Waits until the window of the DAG's run before is copied: nothing can be inserted before a later one.

    A run with another ``name`` is of another mirror, and one whose window does not begin earlier is what this run
    repeats, with a form that was corrected perhaps: neither is waited for. The window of the run before those is.

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

        :raises AirflowFailException: its copy failed, or was skipped; or this run has no logical date.
        :raises AirflowException: it has not begun, and may have to wait for this one's end.
        """
        require_logical_date(context)
        ti: Any = context["ti"]
        # Not the last one alone: behind another mirror's run a window of this one that failed would be passed over, and
        # refused for ever.
        before = next((run for run in runs_before(ti) if _is_earlier(run, context)), None)
        if before is None:
            return True
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[self.copy], run_ids=[before.run_id])
        state = states.get(before.run_id, {}).get(self.copy)
        if state in ("failed", "upstream_failed", "skipped"):
            raise AirflowFailException(
                f"the window of run {before.run_id} was not copied (its task {self.copy!r} is {state}), and nothing can "
                "be inserted before a later one. Clear that run first, then this one. If that window is to be left out, "
                "mark that task as success."
            )
        if state != "success" and before.state == "queued":
            # Where active runs are limited each would wait for the other one, until the timeout.
            raise AirflowException(
                f"the window of run {before.run_id} comes before this one, and that run is queued: it may not begin "
                "before this one has ended. Clear this run once that one is done. Let a backfill run forwards, or with "
                "enough active runs for all its windows."
            )
        self.log.info("the window of run %s is %s", before.run_id, state or "not begun")
        return bool(state == "success")


def require_logical_date(context: Context) -> None:
    """Fail a run that has no logical date: Airflow finds the run before by it. :raises AirflowFailException: says so."""
    if context["dag_run"].logical_date is None:
        raise AirflowFailException(
            "this run has no logical date, by which the window before it is found: it would wait for none, and behind a "
            "window that was copied too early the older ones are refused for ever. Trigger it with a logical date "
            "(logical_date in a request, --logical-date on the command line), now for instance."
        )


def _is_earlier(before: Any, context: Context) -> bool:
    """Return whether a run is of this one's mirror, and of an earlier window."""
    here: Any = context["dag_run"]
    name, other = (param_of(run, context["dag"], "name") for run in (here, before))
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
