"""Which schedules of a scenario are tried: all with one deviation, pairs that concern each other, and random ones.

*Complete* means: each deviation that can make a difference, at each step of the undisturbed schedule. One can't make a
difference where the same comes of it at another step: whoever is killed between two reads might as well have been killed
before the second one. Pairs are tried where the second event touches what the first one's operation touches (one key of
the ledger, an ACL, a group, a lease), or belongs to the same actor: the rest is left to chance.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.explore.deviations import Deviation, Told, freeze, hang, kill, late, lost, stop, switch, written
from tests.explore.scenario import Outcome, Scenario, run
from tests.explore.scheduler import Scheduler
from tests.explore.turns import Step

_LIKELY = 0.06  # that something happens at a step of a random schedule
_MOST_DEVIATIONS, _MOST_FAULTS = 4, 2  # of a random schedule


class Finding(NamedTuple):
    """A schedule in which an invariant fails."""

    scenario: str
    sentence: str
    wrong: str
    events: tuple[Told, ...]

    @property
    def kind(self) -> tuple[str, ...]:
        """What findings have in common that are shown once: what fails, and what happens to whom."""
        return (self.scenario, self.sentence, *(f"{actor} {deviation.kind}" for actor, _, _, deviation in self.events))

    def __str__(self) -> str:
        return f"{self.sentence}: {self.wrong}\n{written(self.events, self.scenario)}"


class Tried(NamedTuple):
    """What came of some schedules.

    :ivar count: how many. :ivar reached: the actors that had the effect for which they are there.
    """

    count: int
    findings: tuple[Finding, ...]
    reached: frozenset[str]


def deviations(scenario: Scenario, scheduler: Scheduler, step: Step) -> Iterator[Deviation]:
    """Yield what may happen at a step and can make a difference there."""
    return (one for one in _possible(scenario, scheduler, step) if not scenario.accepts(one, step.asked))


def _possible(scenario: Scenario, scheduler: Scheduler, step: Step) -> Iterator[Deviation]:
    actor, asked = scheduler.actor(step.actor), step.asked
    if step.is_again and all(one.startswith("state:") for one in asked.touches):
        return  # what was there before the first of several writings in a row is enough
    yield from (switch(other) for other in step.others)
    if not actor.fragile:
        return
    yield lost()
    yield hang()
    yield from map(freeze, scenario.freezes)
    yield from (freeze(cut=role) for role in scenario.cuts)
    if actor.stop is not None:
        yield stop()
    if asked.effect or step.is_first:
        yield kill()
    if asked.effect and asked.may_be_late:
        yield from (late(seconds) for seconds in scenario.freezes)


def base(scenario: Scenario) -> Outcome:
    """Run the undisturbed schedule, from which all others deviate."""
    return run(scenario, recording=True)


def children(outcome: Outcome, *, related: bool = False) -> Iterator[tuple[Told, ...]]:
    """Yield the stories that go on from a schedule: its own events, and one more behind them.

    :param related: only events that touch what an event of its story touches, or that concern the same actor.
    """
    scheduler = outcome.scheduler
    before = tuple(scheduler.happened)
    beyond, touched, actors = -1, frozenset[str](), set[str]()
    left = list(before)
    for step in scheduler.steps:
        if left and step.event == left[0][:3]:
            beyond, touched = step.number, touched | step.asked.touches
            actors.add(step.actor)
            left.pop(0)
    for step in scheduler.steps[beyond + 1 :]:
        if related and step.actor not in actors and not share(touched, step.asked.touches):
            continue
        for deviation in deviations(outcome.scenario, scheduler, step):
            yield (*before, (*step.event, deviation))


def share(these: frozenset[str], those: frozenset[str]) -> bool:
    """Return whether two operations touch one thing; ``acl:*`` stands for every ACL."""
    if these & those:
        return True
    kinds = {one.partition(":")[0] for one in these if one.endswith(":*")}
    other = {one.partition(":")[0] for one in those if one.endswith(":*")}
    return any(one.partition(":")[0] in kinds for one in those) or any(one.partition(":")[0] in other for one in these)


def try_story(scenario: Scenario, events: Sequence[Told], *, recording: bool = False) -> Outcome:
    """Run one schedule."""
    return run(scenario, events, recording=recording)


def findings(outcome: Outcome) -> tuple[Finding, ...]:
    """Return what a schedule broke."""
    events = tuple(outcome.scheduler.happened)
    return tuple(Finding(outcome.scenario.name, *broken, events) for broken in outcome.broken.items())


def tried(outcomes: Iterable[Outcome]) -> Tried:
    """Return what came of schedules."""
    count, found, reached = 0, list[Finding](), set[str]()
    for one in outcomes:
        count, found = count + 1, [*found, *findings(one)]
        reached |= one.reached
    return Tried(count, tuple(found), frozenset(reached))


def unreached(scenario: Scenario, reached: Iterable[str]) -> list[Finding]:
    """Return a finding for each actor that had its effect in no schedule: with it the scenario shows nothing."""
    return [
        Finding(scenario.name, "each actor comes to what it is there for", f"{actor} never did `{what}`", ())
        for actor, what in sorted(scenario.reaches.items()) if actor not in reached
    ]  # fmt: skip


def below(scenario: Scenario, events: tuple[Told, ...]) -> list[tuple[Told, ...]]:
    """Return the related stories of one event more."""
    outcome = try_story(scenario, events, recording=True)
    return [] if outcome.broken else list(children(outcome, related=True))


def at_random(scenario: Scenario, seed: int) -> Outcome:
    """Run the schedule that a seed decides."""
    rng, faults, count = random.Random(seed), 0, 0

    def choose(scheduler: Scheduler, step: Step) -> Deviation | None:
        nonlocal faults, count
        if count == _MOST_DEVIATIONS or rng.random() >= _LIKELY:
            return None
        some = [one for one in deviations(scenario, scheduler, step) if faults < _MOST_FAULTS or not one.is_fault]
        if not some:
            return None
        chosen = rng.choice(some)
        count, faults = count + 1, faults + chosen.is_fault
        return chosen

    return run(scenario, choose=choose)


def shortest(all_findings: Sequence[Finding]) -> list[Finding]:
    """Return one finding of each kind, and of those that fail alike the ones with the fewest events first."""
    by_kind: dict[tuple[str, ...], Finding] = {}
    for one in sorted(all_findings, key=lambda f: (len(f.events), str(f))):
        by_kind.setdefault(one.kind, one)
    return list(by_kind.values())
