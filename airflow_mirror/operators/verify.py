"""VerifyMirrorOperator: proves that source and target hold the same records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InvalidField
from airflow_mirror.hooks.assets import tell_events, tell_lineage
from airflow_mirror.hooks.remembered import proofs_of
from airflow_mirror.operators.base import flag, number
from airflow_mirror.operators.spark_job import SparkJobOperator, bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["VerifyMirrorOperator"]

LEVELS = ("offsets", "batches", "records")


class VerifyMirrorOperator(SparkJobOperator):
    """Compares every partition of the plan on Spark; a difference fails the task and names topic, partition and offset.

    :param level: ``offsets`` (log ends only), ``batches`` (checksums of batches, records where those differ) or
        ``records`` (templated).
    :param only_new: compare only what no earlier comparison of the mirror has proven at this level, or at a stricter one
        (templated).
    :param start: compare from this time on; default: from where the plan begins (templated).
    :param end: compare up to this time (exclusive); default: up to the target's log end offset at the start, at level
        ``offsets`` the source's (templated).
    :param late_s: with an ``end`` that is a time: the same value as for StartMirrorOperator (templated).
    :param spot_checks: so many records, sampled at random, are read by confluent-kafka's client as well (templated).
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields, "level", "only_new", "start", "end", "late_s", "spot_checks",
    )  # fmt: skip
    kind = "verify"
    compares_plan = True

    def __init__(
        self, *, level: str = "batches", start: str | None = None, end: str | None = None,
        late_s: float | str | None = None, spot_checks: int | str = 50, only_new: bool | str = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(**kwargs)
        self.level, self.start, self.end, self.late_s, self.spot_checks = level, start, end, late_s, spot_checks
        self.only_new = only_new

    def job_options(self) -> dict[str, Any]:
        """Return the bounds, the level, and how many records are read by another client.

        :raises InvalidField: the level is unknown, or that is no number.
        """
        if self.level not in LEVELS:
            raise InvalidField("level", self.level, "unknown", f"Use one of {', '.join(LEVELS)}.")
        checks = int(number("spot_checks", self.spot_checks))
        new = {"only_new": True} if flag("only_new", self.only_new) else {}
        return {**bounds(self.start, self.end, self.late_s), "level": self.level, "spot_checks": checks, **new}

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Compare, and tell which topics."""
        tell_lineage(mirror, self.stored_plan(mirror), reads=("source", "target"), writes=())
        return super().run(mirror, context)

    def tell(self, mirror: Mirror, context: Context) -> None:
        """Give events of what was compared."""
        tell_events(self, context, mirror, partial(self.stored_plan, mirror), "verify")

    def get_job_result(self, external_id: Any, context: Context) -> Any:
        """Store the verified ranges, so that the cutover compares only the rest; return the summary.

        It has the revision of the plan that was compared: the cutover refuses a later one.
        """
        from airflow_mirror.hooks.kafka import MirrorKafkaHook

        assert self._mirror is not None
        summary = self.runner.summary(external_id)
        if unseen := summary.get("unseen"):
            self.log.warning(
                "%d offsets that the source has were not compared: the target's retention is on, and took them. They are "
                "not proven, and a cutover refuses that. sync_configs with hold=True keeps what is copied", unseen,
            )  # fmt: skip
        proven = {TopicPartition(topic, int(p)): (int(a), int(b)) for topic, p, a, b in summary.get("proven") or []}
        plan, target_ids = self.stored_plan(self._mirror), summary.get("target_topic_ids") or {}
        with MirrorKafkaHook(self._mirror.target, "target").admin() as target:
            # The job's own level: the DAG may have been edited since it began. Offsets alone prove nothing.
            proofs_of(self._mirror, target).add(plan, target_ids, str(summary.get("level", "offsets")), proven)
        return super().get_job_result(external_id, context)
