"""ApproveCutoverOperator: ask a person, with what was seen, before producers are kept out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.exceptions import HITLRejectException
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.operators.base import flag, number
from airflow_mirror.wording import plain

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow.sdk import Context

__all__ = ["ApproveCutoverOperator"]

_BODY = """Cutting over fences the source: its producers are refused until the target is open.

{% for line in ti.xcom_pull(task_ids=task.preview)['lines'] %}* {{ task.plain(line) }}
{% endfor %}

Reject changes nothing: the tail continues, and applications stay on the source."""


class ApproveCutoverOperator(ApprovalOperator):
    """Asks a person whether to cut over, with the predicted length of the fence and each finding before it.

    No answer in time is a no. A no skips what comes next, or fails the task.

    :param preview: id of the task with the PreviewCutoverOperator.
    :param fail_on_reject: a no fails the task, and is not asked for again by a retry (templated).
    :param valid_s: how long an answer is waited for; no longer than ``approval_valid_s`` of the CutoverOperator, which
        counts from the preview on (templated).
    """

    plain = staticmethod(plain)  # a line has names of groups and topics
    template_fields: Collection[str] = (*ApprovalOperator.template_fields, "fail_on_reject", "valid_s")

    def __init__(
        self, *, preview: str, fail_on_reject: bool | str = False, valid_s: float | str = 3600.0, **kwargs: Any
    ) -> None:
        super().__init__(body=_BODY, defaults=ApprovalOperator.REJECT, **kwargs)
        self.fail_on_reject: bool | str = fail_on_reject  # type: ignore[assignment]
        self.preview, self.valid_s = preview, valid_s

    def execute(self, context: Context) -> Any:
        """Ask. Wrong arguments fail before anybody is asked."""
        with task_outcome():
            flag("fail_on_reject", self.fail_on_reject)
            self.response_timeout = timedelta(seconds=number("valid_s", self.valid_s))
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Go on with the answer."""
        self.fail_on_reject = flag("fail_on_reject", self.fail_on_reject)  # text, without native rendering
        try:
            return super().execute_complete(context, event)
        except HITLRejectException as e:
            raise AirflowFailException(str(e)) from None  # a person's no is no fault of the code
