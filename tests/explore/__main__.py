"""Explore schedules: `python -m tests.explore --help`."""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import random
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tests.explore import deviations, search
from tests.explore.deviations import Told
from tests.explore.scenario import Scenario, run
from tests.explore.scenarios import SCENARIOS
from tests.explore.search import Finding, Tried
from tests.explore.strays import strays

_CHUNK = 20  # schedules of a job of a worker
_table: Mapping[str, Scenario] = SCENARIOS  # as workers see it: they are forked

T = TypeVar("T")
Story = tuple[Told, ...]


@dataclass
class Sum:
    """What was tried of a scenario.

    :ivar single, pairs: tried and possible. :ivar roots: first events whose pairs were all tried, and how many there are.
    """

    scenario: str
    steps: int = 0
    single: tuple[int, int] = (0, 0)
    pairs: tuple[int, int] = (0, 0)
    roots: tuple[int, int] = (0, 0)
    at_random: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    @property
    def count(self) -> int:
        """All schedules."""
        return 1 + self.single[0] + self.pairs[0] + self.roots[0] + self.at_random

    def __str__(self) -> str:
        parts = [f"{self.steps} steps", f"{self.single[0]} of {self.single[1]} with one deviation"]
        if self.roots[1]:
            parts.append(
                f"{self.pairs[0]} of {self.pairs[1]} related pairs behind {self.roots[0]} of {self.roots[1]} events"
            )
        if self.at_random:
            parts.append(f"{self.at_random} at random")
        rate = self.count / self.seconds if self.seconds else 0.0
        return f"{self.scenario}: {', '.join(parts)}; {rate:.0f} schedules/s"


def explore(
    names: Iterable[str], table: Mapping[str, Scenario], *, depth: int = 1, at_random: int = 0,
    seconds: float = float("inf"), seed: int = 1, workers: int = 2,
) -> Iterator[Sum]:  # fmt: skip
    """Search each scenario: all with one deviation, then related pairs (``depth=2``), then random ones.

    :param seconds: for each scenario, half of it for pairs; single deviations are tried completely all the same.
    """
    global _table
    _table = table
    for name in names:
        began = time.monotonic()
        until = began + seconds
        pairs_until = began + seconds / 2 if at_random else until
        outcome = search.base(table[name])
        found = Sum(name, outcome.scheduler.number, findings=list(search.findings(outcome)))
        reached = {*outcome.reached}
        stories = list(search.children(outcome)) if depth and not outcome.broken else []
        random.Random(seed).shuffle(stories)
        with multiprocessing.get_context("fork").Pool(workers, logging.disable, (logging.CRITICAL,)) as pool:
            jobs: list[tuple[str, list[Story]]] = [
                (name, stories[i : i + _CHUNK]) for i in range(0, len(stories), _CHUNK)
            ]
            for tried in pool.imap_unordered(_single, jobs):
                found.findings += tried.findings
                reached |= tried.reached
                found.single = found.single[0] + tried.count, len(stories)
            if depth > 1:
                for tried, possible in pool.imap_unordered(_pairs, [(name, story, pairs_until) for story in stories]):
                    found.findings += tried.findings
                    reached |= tried.reached
                    found.pairs = found.pairs[0] + tried.count, found.pairs[1] + max(possible, 0)
                    found.roots = found.roots[0] + (tried.count == possible), len(stories)
            seeds = range(seed * 1_000_000, seed * 1_000_000 + at_random)
            for tried in pool.imap_unordered(
                _random, [(name, seeds[i : i + _CHUNK], until) for i in range(0, at_random, _CHUNK)]
            ):
                found.findings += tried.findings
                reached |= tried.reached
                found.at_random += tried.count
        if depth and not outcome.broken:
            found.findings += search.unreached(table[name], reached)
        found.seconds = time.monotonic() - began
        yield found


def _single(job: tuple[str, list[Story]]) -> Tried:
    name, stories = job
    return search.tried(search.try_story(_table[name], story) for story in stories)


def _pairs(job: tuple[str, Story, float]) -> tuple[Tried, int]:
    """Try the pairs that begin with an event; return also how many there are, -1: there was no time to count."""
    name, story, until = job
    if time.monotonic() > until:
        return search.tried(()), -1
    stories = search.below(_table[name], story)
    return search.tried(search.try_story(_table[name], pair) for pair in _until(until, stories)), len(stories)


def _random(job: tuple[str, range, float]) -> Tried:
    name, seeds, until = job
    return search.tried(search.at_random(_table[name], seed) for seed in _until(until, seeds))


def _until(until: float, these: Iterable[T]) -> Iterator[T]:
    return itertools.takewhile(lambda _: time.monotonic() <= until, these)


def show(scenario: Scenario, text: str, *, events: bool = False) -> int:
    """Print the numbered story of one schedule, and what it breaks.

    :param events: first each of its events by the name that it has in stories, reads too, with what it touches.
    """
    outcome = run(scenario, deviations.read(text))
    if events:
        for step in outcome.scheduler.steps:
            print(f"{step.event}  {'changes' if step.asked.effect else 'reads'} {', '.join(sorted(step.asked.touches))}")
    print(outcome.text)
    for sentence, wrong in outcome.broken.items():
        print(f"BROKEN  {sentence}: {wrong}")
    return int(bool(outcome.broken))


def main(argv: list[str] | None = None, table: Mapping[str, Scenario] = SCENARIOS) -> int:
    """Return 1 if an invariant fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.add_argument("--scenario", action="append", choices=table, help="may be repeated; default: all")
    parser.add_argument("--depth", type=int, default=1, choices=(0, 1, 2), help="2: pairs as well; 0: only random ones")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="schedules at random, of each scenario")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for pairs and random ones of each scenario")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--show", metavar="STORY", help="run this one, as it was printed, and print what happens; '' for none"
    )
    parser.add_argument("--events", action="store_true", help="with --show: print also how each event is named")
    parser.add_argument(
        "--strays", action="store_true", help="print where code asks the machine for time, names or chance"
    )
    parser.add_argument("--list", action="store_true", help="print scenarios and invariants")
    given = parser.parse_args(argv)
    if given.list:
        for one in table.values():
            print(f"{one.name}: {(one.build.__doc__ or '').strip().splitlines()[0]}")
            print("".join(f"    {invariant.sentence}\n" for invariant in one.invariants), end="")
        return 0
    if given.strays:
        for name in given.scenario or table:
            print("".join(f"{name}: {place} ({count})\n" for place, count in strays(table[name]).items()), end="")
        return 0
    if given.show is not None:
        named = deviations.scenario_of(given.show) or (given.scenario or list(table))[0]
        return show(table[named], given.show, events=given.events)
    failed = False
    for found in explore(
        given.scenario or table, table, depth=given.depth, at_random=given.random, seconds=given.seconds,
        seed=given.seed, workers=given.workers,
    ):  # fmt: skip
        print(found, flush=True)
        for one in search.shortest(found.findings):
            print(f"\n{one}\n")
            failed = True
    return int(failed)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what actors warn of is no finding
    sys.exit(main())
