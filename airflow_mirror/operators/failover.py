"""FailoverOperator: promote the target of a mirror whose source is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator

from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.operators.base import flag
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

__all__ = ["FailoverOperator"]


class FailoverOperator(BaseOperator):
    """Promotes the target of a mirror whose source is gone, from what the target's own ledger knows.

    It takes no Mirror and no source: an Airflow that has never seen the mirror can run it. What an earlier try, or
    another host, left unfinished is completed; a finished failover changes nothing. Returns the report, as values and as
    ``text``.

    :param target: connection (type ``kafka``) of the cluster that is promoted (templated).
    :param mirror_name: the mirror's name (templated).
    :param check_only: only say what would be lost and done (templated).
    :param force: also if a tail has just seen the source, or a cutover is at work: what the source takes from then on is
        lost (templated).
    """

    template_fields: Sequence[str] = ("target", "mirror_name", "check_only", "force")

    def __init__(
        self, *, target: str, mirror_name: str, check_only: bool | str = False, force: bool | str = False, **kwargs: Any
    ) -> None:
        kwargs.setdefault("render_template_as_native_obj", True)
        super().__init__(**kwargs)
        self.target, self.mirror_name, self.check_only, self.force = target, mirror_name, check_only, force

    def execute(self, context: Context) -> dict[str, Any]:
        """Check, or fail over; a refusal fails the task without a retry."""
        with task_outcome():
            return self._run()

    def _run(self) -> dict[str, Any]:
        from airflow_mirror.failover.check import check
        from airflow_mirror.failover.run import run
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        name, force = str(self.mirror_name), flag("force", self.force)  # native rendering makes a number of "7"
        with MirrorKafkaHook(str(self.target), "target").admin() as target:
            if flag("check_only", self.check_only):
                checked = check(target, name)
                for line in checked.lines():
                    self.log.info("%s", line)
                return compact(checked.to_dict())
            report = run(target, name, force=force, log=cast("Any", self.log))
        for line in report.lines():
            self.log.info("%s", line)
        return compact(report.to_dict())
