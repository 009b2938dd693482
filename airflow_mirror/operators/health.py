"""CheckMirrorOperator: is the mirror that replicates well?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from airflow_mirror.errors import JobNotRunning, LedgerMissing, MirrorUnhealthy
from airflow_mirror.hooks.gauges import tell_lag
from airflow_mirror.hooks.health import facts_of
from airflow_mirror.hooks.remembered import last_plan
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.operators.base import MirrorOperator, flag, names, number
from airflow_mirror.operators.summaries import compact
from airflow_mirror.plan.findings import BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.jobs.health.judging import Facts, Limits
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan

__all__ = ["CheckMirrorOperator"]

_START = "Run the task that starts it (StartMirrorOperator, mode='tail')."


class CheckMirrorOperator(MirrorOperator):
    """Looks at a mirror whose tail replicates, and fails with everything that is wrong. Changes nothing.

    Both clusters are asked and nothing else, so it runs on any worker, beside a tail on any host. It looks at the topics
    of the mirror's last plan, as amended. Returns a summary with the warnings.

    :param max_lag_s: how old a record may be that the target still lacks; None: any age (templated).
    :param max_lag_records: how many offsets a partition may be behind; None: any number (templated).
    :param min_headroom_s: how long it must be at least until the source deletes a record that the target lacks; of topics
        that keep less than twice that: half of what they keep (templated).
    :param min_free_bytes: what each broker of the target must have free, where it tells (templated).
    :param warn_only: checks whose findings are warnings (templated).
    :param begins_beside: the tail is started by a DAG that is turned on together with this one: where it was never
        started, the DAG's first run skips instead of failing, if it has a logical date (templated).
    """

    template_fields: Sequence[str] = (
        "mirror", "max_lag_s", "max_lag_records", "min_headroom_s", "min_free_bytes", "warn_only", "begins_beside",
    )  # fmt: skip

    def __init__(
        self,
        *,
        max_lag_s: float | str | None = 300.0,
        max_lag_records: int | str | None = None,
        min_headroom_s: float | str = 6 * 3600.0,
        min_free_bytes: int | str = 10_000_000_000,
        warn_only: Sequence[str] | str = ("paused", "transactions", "left_out", "notes", "fence"),
        begins_beside: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_lag_s, self.max_lag_records = max_lag_s, max_lag_records
        self.min_headroom_s, self.min_free_bytes, self.warn_only = min_headroom_s, min_free_bytes, warn_only
        self.begins_beside = begins_beside

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Look, and judge.

        :raises MirrorUnhealthy: lists every finding that is no warning.
        :raises JobNotRunning: the mirror has no plan yet.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.jobs.health.judging import judge
        from airflow_mirror.sync import lag

        limits = self._limits()
        with admins_of(mirror) as (source, target):
            plan = _plan_of(mirror, target)
            if plan is None:
                self._let_it_begin(context)
                raise JobNotRunning(TAIL, "never started", _START)
            facts = facts_of(mirror, plan, source, target, limits, self.log.info)
        if facts.tail.active is None:
            self._let_it_begin(context)
        found = judge(facts, limits)
        is_measured = not facts.other_source and "lag" not in facts.unknown
        tell_lag(mirror.name, lag.summary(list(facts.lags)) if is_measured else {})
        for one in found:
            self.log.log(one.severity, "%s", one)
        if wrong := [str(one) for one in found if one.level == BLOCK]:
            raise MirrorUnhealthy(mirror.name, wrong)
        return compact({**_summary(facts), "warnings": [str(one) for one in found]})

    def _let_it_begin(self, context: Context) -> None:
        if not flag("begins_beside", self.begins_beside):
            return
        # Of a run without a logical date Airflow knows no run before: each of them would be the first.
        if context["dag_run"].logical_date is not None and context["ti"].get_previous_dagrun() is None:
            raise AirflowSkipException("the tail was never started, and this is the first look; the next one judges")

    def _limits(self) -> Limits:
        from airflow_mirror.jobs.health.judging import Limits

        most = _number_or_none("max_lag_records", self.max_lag_records)
        return Limits(
            max_lag_s=_number_or_none("max_lag_s", self.max_lag_s),
            max_lag_records=None if most is None else int(most),
            min_headroom_s=number("min_headroom_s", self.min_headroom_s),
            min_free_bytes=int(number("min_free_bytes", self.min_free_bytes)),
            warn_only=names(self.warn_only),
        )


def _plan_of(mirror: Mirror, target: ClusterAdmin) -> Plan | None:
    """Return the mirror's last plan; None: it has none yet. The first plan on a target creates its ledger."""
    try:
        return last_plan(mirror, target)
    except LedgerMissing:
        return None


def _number_or_none(name: str, value: object) -> float | None:
    return None if str(value) in ("None", "") else number(name, value)


def _summary(facts: Facts) -> dict[str, Any]:
    from airflow_mirror.sync import lag

    tail = facts.tail.active
    free = [one for one in facts.free_bytes.values() if one is not None]
    return {
        "host": tail.host if tail else None,
        "phase": facts.tail.said.phase,
        **lag.summary(list(facts.lags)),
        "least_free_bytes": min(free, default=None),
    }
