"""Lift what a cutover that was killed has left up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException

from airflow_mirror.errors import InvalidField, MirrorError
from airflow_mirror.hooks.home import report_dir
from airflow_mirror.operators.base import (
    MirrorOperator,
    flag,
    states_of,
)
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.cutover.platform import Side
    from airflow_mirror.ledger.decisions import Values
    from airflow_mirror.mirror import Mirror

__all__ = ["LiftFenceOperator"]

_NEVER_BEGUN = (None, "upstream_failed", "skipped", "removed")  # states of a task
BEGUN = "begun"  # the XCom of a task that may have raised a fence; Airflow keeps it until that starts again


class LiftFenceOperator(MirrorOperator):
    """Lifts a fence that a killed cutover of this DAG run left up. A finished cutover's fence stays. Use as a teardown.

    :param raised_by: id of the task of this DAG that raises it. Where no try of it began in this run, and this host has
        no report of it, the clusters are asked all the same; but if they can't be, it is said in the log alone: a wrong
        connection has failed its own task.
    :param any_run: that of whichever run of the mirror (templated).
    :param fence: the same value as for CutoverOperator.
    :param include_retained: also lift a fence that was kept on purpose: the source accepts writes again (templated). The
        writer lease is taken first, so that no tail copies them.
    """

    template_fields: Sequence[str] = ("mirror", "fence", "include_retained", "any_run", "raised_by")

    def __init__(
        self, *, fence: str = "acl", include_retained: bool | str = False, any_run: bool | str = False,
        raised_by: str = "", **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.fence, self.include_retained, self.any_run = fence, include_retained, any_run
        self.raised_by, self._is_sure = raised_by, False

    def execute(self, context: Context) -> Any:
        """See :class:`.MirrorOperator`."""
        try:
            return super().execute(context)
        except AirflowException as e:
            # Once the ledger answers, or where this host has a report of the run, whatever is wrong is told.
            if not self.raised_by or self._is_sure or _has_begun(self.raised_by, context):
                raise
            self.log.warning("%s has not begun in this run, and no cluster was asked for a fence: %s", self.raised_by, e)
            return compact({"lifted": []})

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Lift the fence if it is up.

        :raises InvalidField: ``any_run``, and neither the target nor this host knows a cutover of the mirror.
        :raises MirrorError: see :func:`airflow_mirror.cutover.lifting.lift_leftover_fence`.
        """
        from airflow_mirror.cutover.fence import fence_of
        from airflow_mirror.cutover.lifting import lift_leftover_fence, told
        from airflow_mirror.cutover.platform import Platform
        from airflow_mirror.cutover.report import JSON_NAME
        from airflow_mirror.hooks.kafka import admins_of

        run_dir = report_dir(mirror, context["ti"].run_id)
        self._is_sure = (run_dir / JSON_NAME).exists()
        with admins_of(mirror) as (source, target):
            fence = fence_of(self.fence, source)
            on, include_retained = Platform.of(source, target), flag("include_retained", self.include_retained)
            run = "" if flag("any_run", self.any_run) else run_dir.name
            try:
                values = on.target.ledger.peek()
            except MirrorError as e:  # the names at the source tell then; where they can't, this is raised again
                self.log.info("whether the target knows the mirror is not known: %s", e)
            else:
                self._is_sure = True
                if not run and not run_dir.parent.is_dir():
                    _require_known(on.target, mirror.name, values)
            lifted = lift_leftover_fence(
                on, mirror.name, fence, run=run, include_retained=include_retained, runs=run_dir.parent
            )
        for line in lifted:
            self.log.warning("%s", told(line))
        return compact({"lifted": lifted})


def _has_begun(task_id: str, context: Context) -> bool:
    """Return whether a cutover's task has begun in this run, as far as Airflow knows; of a mapped one, any of them."""
    ti: Any = context["ti"]
    return states_of(ti).get(task_id) not in _NEVER_BEGUN or bool(ti.xcom_pull(task_ids=task_id, key=BEGUN))


def _require_known(target: Side, name: str, values: Values) -> None:
    """Fail unless a target knows of a cutover of a mirror. :raises InvalidField: names those of which it has reports.

    :param values: what is decided. A process may have died between that its fence is up and its first report.
    """
    from airflow_mirror.cutover.decision import fence_state
    from airflow_mirror.ledger.records import REPORT

    if fence_state(values, name) is not None or target.reports(name).read():
        return
    known = ", ".join(sorted(REPORT.under(target.state(REPORT.below()).read()))) or "none"
    raise InvalidField(
        "name", name, f"the target has no report of a cutover of it; it has of: {known}",
        "Correct the name: a fence of this one is not known.",
    )  # fmt: skip
