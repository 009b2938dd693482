"""WaitForCatchUpSensor: waits until the target has caught up with the source, within the allowed lag."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf

from airflow_mirror.errors import InvalidField
from airflow_mirror.hooks.gauges import tell_lag
from airflow_mirror.hooks.lag import LagProbe
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.base import NativeOperator, flag, load_plan, mirror_from, number, plan_hash
from airflow_mirror.sync.lag import CatchUp
from airflow_mirror.triggers.catch_up import CatchUpTrigger, result_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

__all__ = ["WaitForCatchUpSensor"]


class WaitForCatchUpSensor(NativeOperator, BaseSensorOperator):
    """Waits until every partition was within ``max_lag_records`` in ``samples`` samples in a row.

    Fails when the tail is not running, or when a partition that has lag does not move; the error names it.

    :param mirror: a Mirror, a dict of its fields, or a path (templated).
    :param plan: the plan's hash; default: the plan of this DAG run, as for the operators (templated).
    :param max_lag_records: largest lag that counts as caught up, per partition, in offsets (templated).
    :param samples: how many good samples in a row; a single one may be chance (templated).
    :param stuck_after_s: how long a partition that has lag may not move (templated).
    :param require_tail: False also waits when no tail runs (templated).
    :param deferrable: wait in the triggerer, without a slot.
    """

    template_fields: Sequence[str] = (
        "mirror", "plan", "max_lag_records", "samples", "stuck_after_s", "require_tail",
    )  # fmt: skip
    template_fields_renderers = {"mirror": "json"}
    samples_lag = True

    def __init__(
        self,
        *,
        mirror: Mirror | Mapping[str, Any] | str,
        plan: str | Mapping[str, Any] | None = None,
        max_lag_records: int | str = 0,
        samples: int | str = 3,
        stuck_after_s: float | str = 300.0,
        require_tail: bool | str = True,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("poke_interval", 2.0)
        super().__init__(**kwargs)
        if self.mode == "reschedule":
            raise InvalidField("mode", self.mode, "forgets between samples how many were good", "Use deferrable=True.")
        self.mirror = mirror.to_dict() if isinstance(mirror, Mirror) else mirror
        self.plan = plan
        self.max_lag_records, self.samples, self.stuck_after_s = max_lag_records, samples, stuck_after_s
        self.require_tail, self.deferrable = require_tail, deferrable
        self._judge: CatchUp | None = None
        self._probe: LagProbe | None = None
        self._hash = ""

    def execute(self, context: Context) -> Any:
        """Wait here, or take one sample and wait in the triggerer."""
        try:
            if not self.deferrable:
                return super().execute(context)
            result = self.poke(context)
        finally:
            if self._probe is not None:
                self._probe.close()
        if result.is_done:
            return result.xcom_value
        judge = self._judge
        assert judge is not None
        trigger = CatchUpTrigger(
            mirror=mirror_from(self.mirror).to_dict(),
            plan=self._hash,
            max_lag_records=judge.max_lag_records,
            samples=judge.samples,
            stuck_after_s=judge.stuck_after_s,
            require_tail=flag("require_tail", self.require_tail),
            interval_s=self.poke_interval,
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))

    def poke(self, context: Context) -> PokeReturnValue:
        """Take one sample."""
        with task_outcome():
            mirror = mirror_from(self.mirror)
            if self._judge is None or self._probe is None:
                self._judge = CatchUp(
                    max_lag_records=int(number("max_lag_records", self.max_lag_records)),
                    samples=int(number("samples", self.samples, least=1)),
                    stuck_after_s=number("stuck_after_s", self.stuck_after_s),
                )
                self._hash = plan_hash(self, self.plan, mirror, context)
                self._probe = LagProbe(mirror, load_plan(self._hash, mirror), flag("require_tail", self.require_tail))
            done, found = self._probe.look(self._judge, time.monotonic())
        tell_lag(mirror.name, found)
        self.log.info("%s", found)
        return PokeReturnValue(is_done=done, xcom_value=found | self._probe.seen)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the lag from the trigger's event, or raise its error."""
        with task_outcome():
            return result_of(event)
