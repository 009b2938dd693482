"""VerifyMirrorOperator: proof that source and target hold the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InvalidField
from airflow_mirror.operators.spark_job import SparkJobOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_mirror.mirror import Mirror

LEVELS = ("offsets", "batches", "records")


class VerifyMirrorOperator(SparkJobOperator):
    """Compares every partition of the plan on Spark; a difference fails the task and names topic, partition and offset.

    :param level: ``offsets`` (log ends only), ``batches`` (checksums of batches, records where those differ) or
        ``records`` (templated).
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "level")
    kind = "verify"

    def __init__(self, *, level: str = "batches", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level = level

    def job_args(self, mirror: Mirror) -> tuple[str, ...]:
        """Return the plan and the level.

        :raises InvalidField: for an unknown level.
        """
        if self.level not in LEVELS:
            raise InvalidField("level", self.level, "unknown", f"Use one of {', '.join(LEVELS)}.")
        return (*super().job_args(mirror), "--level", self.level)
