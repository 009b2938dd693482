"""ArmReverseMirrorOperator: the way back of a cutover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.operators.base import MirrorOperator, flag
from airflow_mirror.operators.summaries import compact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["ArmReverseMirrorOperator"]


class ArmReverseMirrorOperator(MirrorOperator):
    """Arms the way back of a finished cutover: a mirror in the other direction may copy what applications write.

    The cutover's kept fence is swapped for one that spares the mirror, both ends of every log are compared, and the old
    source's topics become the reverse mirror's. Returns the summary of its plan, with the Mirror as ``fields``: start its
    tail downstream. A call for a way back that is armed changes nothing.

    :param mirror: that was cut over; only its ``name``, ``source`` and ``target`` are used.
    :param check_only: only say what would be changed, or why there is no way back (templated).
    """

    template_fields: Sequence[str] = ("mirror", "check_only")
    makes_plan = True

    def __init__(self, *, check_only: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check_only = check_only

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Arm, or check.

        :raises NoWayBack: with every reason.
        """
        from airflow_mirror.hooks.kafka import admins_of
        from airflow_mirror.rollback.arm import arm, cutover_of

        with admins_of(mirror) as (source, target):
            report_of, plan = cutover_of(mirror.name, target)
            armed = arm(report_of, plan, source, target, check_only=flag("check_only", self.check_only))
        for line in armed.lines():
            self.log.info("%s", line)
        return compact(armed.to_dict())
