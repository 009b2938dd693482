"""The scenarios of cutovers: who meets whom."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_mirror.cutover.decision import OPENED
from airflow_mirror.cutover.report import DONE
from airflow_mirror.failover.returned import RUN
from tests.explore import actors
from tests.explore.deviations import REST
from tests.explore.invariants import ALL
from tests.explore.scenario import Scenario
from tests.explore.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.explore.scheduler import Scheduler

# Shorter and longer than the silence after which an owner counts as dead (12 s), and than what is left of its fence.
FREEZES = (30.0, REST)


def retry(w: World) -> None:
    """A run's cutover, and its next try."""
    actors.owner(w, "A", "r1")
    actors.owner(w, "B", "r1", last=True)
    actors.lift(w, "L", last=True)


def final(w: World) -> None:
    """Do what is left to do once everybody rests: run an opening again, guard, lift."""
    fence, done = w.fence, {run for run, report in w.reports() if report.outcome == DONE}
    if fence is not None and fence.phase == OPENED and fence.run not in done and not fence.run.startswith(RUN):
        actors.owner(w, "Again", fence.run, last=True, fragile=False)
    actors.guard(w, "GZ", last=True, fragile=False)
    actors.lift(w, "LZ", last=True, fragile=False)


def _built(build: Callable[[World], None], scheduler: Scheduler, **given: bool) -> World:
    w = World(scheduler, **given)  # type: ignore[arg-type]
    build(w)
    scheduler.at_rest.append(partial(final, w))
    return w


def _scenario(build: Callable[[World], None], **given: bool) -> Scenario:
    made = partial(_built, build, **given)
    made.__doc__ = build.__doc__
    return Scenario(build.__name__, made, ALL, freezes=FREEZES, cuts=("target",))


SCENARIOS = (_scenario(retry),)
