"""What DAGs that ask a person share: what moves applications runs only if the form, and who was asked, have said so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.utils.skipmixin import XCOM_SKIPMIXIN_KEY

from airflow_mirror.errors import NotApproved
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.operators.base import states_of

if TYPE_CHECKING:
    from airflow.sdk import Context


def only_if_approved(asked: str, mode: str = "") -> Callable[[Context], None]:
    """Return what a task has to run before its work, in each try: it fails for good unless it is wanted and approved.

    Trigger rules don't hold that: a task that was skipped counts as little to them as one that was not needed, and
    somebody may clear, skip or mark any.

    :param asked: id of the ApprovalOperator, which the parameter ``approval`` turns on. :param mode: what the parameter
        ``mode`` has to be.
    """

    def require(context: Context) -> None:
        task_id, params = context["task"].task_id, context["params"]
        with task_outcome():
            if mode and params["mode"] != mode:
                raise NotApproved(
                    task_id, f"its form says mode={params['mode']!r}",
                    f"Trigger the DAG again with mode={mode!r}, under the same name: what is copied stays.",
                )  # fmt: skip
            if params["approval"] and (why_not := _why_not(asked, context["ti"])):
                raise NotApproved(
                    task_id, f"approval is on, and {asked!r} {why_not}",
                    f"Clear {asked!r} with what comes after it, to be asked; or mark it as success, which is a yes.",
                )  # fmt: skip

    return require


def _why_not(asked: str, ti: Any) -> str:
    """Return why an answer is none that a task may go on with; empty: it is a yes."""
    state = states_of(ti).get(asked)
    if state != "success":
        return f"is {state or 'not asked yet'}"
    return "was answered by a no" if has_said_no(asked, state, ti) else ""


def has_said_no(asked: str, state: str | None, ti: Any) -> bool:
    """Return whether somebody has answered an approval of a task's run by a no.

    A no leaves what it skips, and never the answer itself: Airflow's operator skips by an exception. Of a task that was
    cleared and has not asked again an earlier answer is still there.

    :param state: of the approval's task.
    """
    return state == "success" and bool(ti.xcom_pull(task_ids=asked, key=XCOM_SKIPMIXIN_KEY))
