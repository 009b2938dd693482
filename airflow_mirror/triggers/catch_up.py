"""CatchUpTrigger: takes the sensor's samples in the triggerer. It only reads, so two may run at the same time."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_mirror.errors import InputError, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.hooks.gauges import tell_lag
from airflow_mirror.hooks.lag import LagProbe
from airflow_mirror.hooks.remembered import plan_by_hash
from airflow_mirror.jobs.runner.status import blame
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.lag import CatchUp
from airflow_mirror.triggers.base import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["CatchUpTrigger"]

# The branches of an error, in the form in which an event carries them across the process boundary.
_BRANCHES: dict[str, type[MirrorError]] = {"input": InputError, "human": NeedsHuman, "retry": TryAgain}
_TRIES = 5  # consecutive samples for which a cluster may be unreachable before the sensor gives up


class CatchUpTrigger(BaseTrigger):
    """Fires when the mirror has caught up, or can't. Parameters are those of WaitForCatchUpSensor; none is a secret.

    :param plan: hash of the plan.
    :param interval_s: seconds between two samples.
    """

    def __init__(
        self,
        mirror: dict[str, Any],
        plan: str,
        max_lag_records: int,
        samples: int,
        stuck_after_s: float,
        require_tail: bool,
        interval_s: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.mirror, self.plan, self.max_lag_records, self.samples = mirror, plan, max_lag_records, samples
        self.stuck_after_s, self.require_tail, self.interval_s = stuck_after_s, require_tail, interval_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments."""
        names = ("mirror", "plan", "max_lag_records", "samples", "stuck_after_s", "require_tail", "interval_s")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Take samples until the mirror has caught up; yield one event."""
        try:
            event = {"status": "caught_up", "lag": await self._wait()}
        except MirrorError as e:
            event = {"status": "failed", "blame": blame(e), "error": f"{type(e).__name__}: {e}"}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def _wait(self) -> dict[str, Any]:
        judge = CatchUp(max_lag_records=self.max_lag_records, samples=self.samples, stuck_after_s=self.stuck_after_s)
        failures, mirror = 0, Mirror.from_dict(self.mirror)
        probe: LagProbe | None = None
        with ExitStack() as opened:
            while True:
                try:
                    # Each blocks on sockets, which must not block the triggerer's loop.
                    if probe is None:
                        probe = opened.enter_context(closing(await in_thread(self._probe, mirror)))
                    done, found = await in_thread(probe.look, judge, time.monotonic())
                    failures = 0
                except TryAgain:
                    failures += 1
                    if failures >= _TRIES:
                        raise
                    judge.interrupted()
                    done, found = False, {}
                self.log.info("%s", found)
                tell_lag(mirror.name, found)
                if done and probe is not None:
                    return {**found, **probe.seen}
                await asyncio.sleep(self.interval_s)

    def _probe(self, mirror: Mirror) -> LagProbe:
        return LagProbe(mirror, plan_by_hash(self.plan, mirror), self.require_tail)


def result_of(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lag from an event.

    :raises MirrorError: from the same branch as in the trigger.
    """
    if event["status"] == "caught_up":
        return dict(event["lag"])
    raise _BRANCHES[event["blame"]](event["error"])
