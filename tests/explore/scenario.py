"""A scenario: who takes part in which world, and what must hold there; and how one schedule of it is run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.errors import MirrorError
from tests.explore.deviations import REST, Deviation, Told
from tests.explore.scheduler import Scheduler
from tests.explore.turns import Asked, Step


@dataclass(frozen=True)
class Invariant:
    """What must hold.

    :param sentence: what, in words.
    :param fails: returns what is wrong in a world; "" if nothing is.
    :param at_end: looked at once everybody rests; otherwise after each effect as well.
    """

    sentence: str
    fails: Callable[[Any], str]
    at_end: bool = False


@dataclass(frozen=True)
class Scenario:
    """See the module.

    :param build: adds actors to a scheduler and returns their world; its docstring says what happens.
    :param freezes: how long an actor may stand still, in seconds: shorter and longer than each time limit.
    :param cuts: roles of clusters that a frozen actor may not reach any more afterwards.
    :param accepts: what is not tried, because what comes of it is known and accepted: by deviation and operation.
    :param reaches: by actor how the effect begins for which it is there: one of the schedules has it. An actor that is
        always refused before shows nothing, and breaks nothing.
    """

    name: str
    build: Callable[[Scheduler], Any]
    invariants: Sequence[Invariant]
    freezes: Sequence[float] = (30.0, REST)
    cuts: Sequence[str] = ()
    accepts: Callable[[Deviation, Asked], bool] = lambda *_: False
    reaches: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What came of a schedule.

    :ivar broken: sentences of invariants, each with what was wrong, in the order in which it was seen.
    :ivar reached: the actors that had the effect for which they are there.
    """

    scenario: Scenario
    scheduler: Scheduler
    world: Any
    broken: dict[str, str] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """The numbered story of it."""
        return "\n".join(f"{number:4d} {line}" for number, line in enumerate(self.scheduler.lines, 1))

    def _look(self, invariant: Invariant, actor: str) -> None:
        if invariant.sentence not in self.broken and (wrong := invariant.fails(self.world)):
            self._add(invariant.sentence, f"{actor}: {wrong}" if actor else wrong)

    def _add(self, sentence: str, wrong: str) -> None:
        self.broken[sentence] = wrong
        at = [
            f"{frame.filename.rpartition('/airflow_mirror/')[2]}:{frame.lineno}"
            for frame in traceback.extract_stack(limit=60) if "/airflow_mirror/" in frame.filename
        ]  # fmt: skip
        self.scheduler.tell(f"!! {sentence}: {wrong}{'; at ' if at else ''}{' < '.join(reversed(at[-4:]))}")

    def _end(self) -> None:
        for wrong in self.scheduler.broken:
            self._add("every schedule ends", wrong)
        for actor in self.scheduler.actors:
            if actor.error is not None and not isinstance(actor.error, MirrorError):
                self._add("nobody fails with an error that has no name", f"{actor.name}: {actor.error!r}")
        if not self.scheduler.broken:
            for invariant in self.scenario.invariants:
                self._look(invariant, "")


def run(
    scenario: Scenario,
    events: Sequence[Told | tuple[int, Deviation]] = (),
    choose: Callable[[Scheduler, Step], Deviation | None] | None = None,
    *,
    recording: bool = False,
) -> Outcome:
    """Run one schedule of a scenario.

    :raises StoryUntold: an event never came.
    """
    scheduler = Scheduler(events, choose, recording=recording)
    outcome = Outcome(scenario, scheduler, scenario.build(scheduler))
    always = [one for one in scenario.invariants if not one.at_end]

    def look(actor: str, what: str) -> None:
        if (its := scenario.reaches.get(actor)) is not None and what.startswith(its):
            outcome.reached.add(actor)
        for invariant in always:
            outcome._look(invariant, actor)

    scheduler.after_effect.append(look)
    scheduler.run()
    outcome._end()
    return outcome
