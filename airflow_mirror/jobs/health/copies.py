"""What a target knows of the bulk copy of a mirror. One that ends takes its leave, whether it ended well or not: its task
says which. What is found is at work, or was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.jobs.runner.active import SILENCE_S, JobId, Sign, Watch
from airflow_mirror.jobs.runner.state import LOST, RUNNING, SUCCEEDED
from airflow_mirror.plan.findings import BLOCK, Finding

LISTENING = "listening"


@dataclass(frozen=True, kw_only=True)
class BulkCopy:
    """A bulk copy.

    :param status: RUNNING, FAILED or LOST. :param sign: its last one; None: it never gave one.
    :param is_sure: see :meth:`.Watch.is_sure`.
    """

    host: str
    status: str
    sign: Sign | None
    is_sure: bool

    @property
    def state(self) -> str:
        """How it is, as of a tail: ``running``, ``listening``, ``failed`` or ``lost``."""
        return LISTENING if self.status == RUNNING and not self.is_sure else self.status.lower()

    @property
    def summary(self) -> Mapping[str, Any]:
        """What it said of itself while it lived, or may live."""
        return self.sign.summary if self.status == RUNNING and self.sign is not None else {}

    @property
    def findings(self) -> list[Finding]:
        """What is wrong with it."""
        if self.status == RUNNING:
            return []
        why = f"no sign of life from host {self.host} for {SILENCE_S:.0f} s: the process or the host is lost"
        if self.status != LOST:
            error = self.sign.error if self.sign is not None else None
            why = f"it ended with an error on host {self.host}: {error or 'it does not say why'}"
        remedy = "Run its task again (clear it): it goes on where the target's logs end."
        return [Finding(BLOCK, "bulk copy", "", why, remedy)]


def bulk_copy(jobs: Iterable[JobId], watch_of: Callable[[JobId], Watch]) -> BulkCopy | None:
    """Return what is known by now of a mirror's bulk copy: one that lives, if there are several; None: there is none.

    :param jobs: as :func:`.active.said` returns them. :param watch_of: returns what has observed one so far.
    """
    found = list[BulkCopy]()
    for job in jobs:
        watch = watch_of(job)
        if (status := watch.status(job)) != SUCCEEDED:
            sign = watch.sign(job)
            found.append(BulkCopy(host=job.host, status=status, sign=sign, is_sure=watch.is_sure(job)))
    return min(found, key=lambda one: (one.status != RUNNING, not one.is_sure), default=None)
