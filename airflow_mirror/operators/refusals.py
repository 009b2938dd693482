"""Keep in the ledger what refused a task, for who looks at the mirror and not at the task's log. Best effort.

Where no ledger knows the mirror of a plan yet, an XCom of the task holds it: Airflow removes it when the task runs again.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import (
    BrokerError,
    ClusterUnreachable,
    CutoverBlocked,
    CutoverCancelled,
    CutoverRunning,
    MirrorError,
)
from airflow_mirror.plan.findings import BLOCK, Finding
from airflow_mirror.plan.refused import CUTOVER, PLANNING, PREVIEW, UNKEPT, Refusal, keep_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow.sdk import BaseOperator, Context

    from airflow_mirror.cutover.request import Additions
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror

# Nobody has looked, or a person has stopped it, or it goes on elsewhere.
_NO_REFUSAL = (ClusterUnreachable, BrokerError, CutoverCancelled, CutoverRunning)


class Refusals:
    """What is kept of one task's mirror. Nothing here raises: the task has an outcome of its own."""

    def __init__(self, task: BaseOperator, context: Context, mirror: Mirror, target: ClusterAdmin) -> None:
        self._log, self._mirror, self._target = task.log, mirror, target
        self._ti = ti = context["ti"]
        self._by = f"{ti.dag_id}.{ti.task_id}, run {ti.run_id}"

    def keep(self, kind: str, findings: Sequence[Finding]) -> None:
        """Note what refused the task, or forget what refused the one before: no findings."""
        try:
            from airflow.sdk.log import redact  # type: ignore[attr-defined]  # not exported; without it nothing is kept

            shown = [Finding(*(str(redact(part)) for part in _parts(one))) for one in findings]
            refusal = Refusal.of(shown, self._by, time.time()) if shown else None
            is_kept = keep_on(self._target, self._mirror.name, kind, refusal)
            if kind == PLANNING and refusal is not None and not is_kept:
                self._ti.xcom_push(UNKEPT, self._told(refusal))
        except Exception:
            self._log.info("what refuses mirror %r could not be kept for others", self._mirror.name, exc_info=True)

    def _told(self, refusal: Refusal) -> dict[str, Any]:
        whose = {"mirror": self._mirror.name, "source": self._mirror.source, "target": self._mirror.target}
        return whose | {"refusal": asdict(refusal) | {"findings": [*refusal.findings]}}

    @contextmanager
    def of_cutover(self, additions: Additions) -> Iterator[Additions]:
        """Keep what refuses the block's cutover before its fence. Yields with which additions it is to be called."""
        passed = False

        def require() -> None:
            nonlocal passed
            additions.require()
            passed = True  # all that is checked before anything is asked at length

        try:
            yield replace(additions, require=require)
        except CutoverBlocked as e:  # also behind the checks, and before the fence: by what was asked first
            self.keep(CUTOVER, [Finding(BLOCK, CUTOVER, "", one) for one in e.findings])
            raise
        except MirrorError as e:
            if not passed and not isinstance(e, _NO_REFUSAL):
                self.keep(CUTOVER, [Finding(BLOCK, CUTOVER, e.what, e.cause.strip(), e.remedy)])
            raise
        for kind in (PREVIEW, CUTOVER):
            self.keep(kind, [])


def _parts(finding: Finding) -> tuple[str, ...]:
    return finding.level, finding.check, finding.object, finding.evidence, finding.remedy
