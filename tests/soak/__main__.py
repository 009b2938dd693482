"""The soak: kill copiers a hundred times at random moments over hostile topics, and compare. ``make soak``.

    python -m tests.soak [--kills N] [--seed S] [--stage single|three|both]

Not part of ``make test``: it takes about a quarter of an hour. Exit status 0: equal at every check. 1: not; the first
difference is printed, and logs and the target's files of that partition are kept. The last line on stdout is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox import Cluster
from sandbox.cluster import start_all, stop_all
from tests.faults import ProxiedCluster
from tests.soak import referee, rounds
from tests.soak.referee import Unequal
from tests.soak.rounds import Round
from tests.soak.world import World

# A producer whose newest record is older than a day is forgotten at the next check: within a second here, so that the
# continued sequences can't hide a mistake of the lease or of the padding. Not with the fault proxy: against requests that
# it delivers late, after their connection broke, the sequences are all there is.
_FORGETFUL = {"producer.id.expiration.check.interval.ms": "1000"}
# A broker that is killed within a minute forgets what DeleteRecords did. The target has to cope with that; the source is
# what the target is compared with.
_SOURCE = {"log.flush.start.offset.checkpoint.interval.ms": "500"}

# What a stage is made of: (round, weight). Weights are shares of the kills, not of the time.
_SINGLE: tuple[tuple[Round, float], ...] = (
    (rounds.alone, 38), (rounds.burst, 3), (rounds.twin, 3), (rounds.frozen, 4), (rounds.spark, 13), (rounds.broker, 5),
    (rounds.freeze_broker, 2), (rounds.network, 8), (rounds.mapped, 5),
)  # fmt: skip
_THREE: tuple[tuple[Round, float], ...] = (
    (rounds.alone, 3),
    (rounds.broker, 6),
    (rounds.leaders, 3),
    (rounds.freeze_broker, 1),
)
_CHECK_EVERY = 12  # kills


def main() -> int:
    """Run the stages; see the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, metavar="N", help="how many kills in all (default: 100)")
    parser.add_argument(
        "--seed", type=int, default=None, metavar="S", help="makes the same choices again (default: random)"
    )
    parser.add_argument(
        "--stage",
        choices=("single", "three", "both"),
        default="both",
        help="one node a side, three nodes a side, or both in turn (default)",
    )
    parser.add_argument("--only", metavar="ROUND", help="only rounds of this name, to look closer at one")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    directory = Path(tempfile.mkdtemp(prefix=f"soak-{seed}-"))
    print(f"seed {seed}, {arguments.kills} kills; logs in {directory}", flush=True)
    soak = Soak(arguments, seed, directory)
    try:
        soak.run()
    except Unequal as e:
        soak.failure = str(e)
    except KeyboardInterrupt:
        soak.failure = "interrupted"
    soak.report()
    if soak.failure is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if soak.failure is None else 1


class Soak:
    """The whole run, and what it counted."""

    def __init__(self, arguments: argparse.Namespace, seed: int, directory: Path) -> None:
        self._arguments, self._seed, self._directory = arguments, seed, directory
        self.kills: Counter[tuple[str, str]] = Counter()
        self.events: Counter[str] = Counter()
        self.checks = self.records = 0
        self.orphans: list[str] = []
        self.failure: str | None = None
        self._begun = time.monotonic()

    def run(self) -> None:
        """Run the stages in turn.

        :raises Unequal: at the first difference.
        """
        both = self._arguments.stage == "both"
        share = 0.86 if both else 1.0
        kills = round(self._arguments.kills * share)
        if self._arguments.stage in ("single", "both"):
            proxied = [ProxiedCluster(n, c, ready_timeout_s=180) for n, c in (("source", _SOURCE), ("target", {}))]
            self._stage("one node", proxied[0], proxied[1], _SINGLE, kills)
        if self._arguments.stage in ("three", "both"):
            kills = max(1, self._arguments.kills - sum(self.kills.values()))
            three = [
                Cluster(name, 3, settings, heap_mb=384, ready_timeout_s=180)
                for name, settings in (("source3", _SOURCE), ("target3", _FORGETFUL))
            ]
            self._stage("three nodes", three[0], three[1], _THREE, kills)

    def _stage(
        self, name: str, source: Cluster, target: Cluster, mix: tuple[tuple[Round, float], ...], kills: int
    ) -> None:
        with _running(source, target):
            world = World(name, source, target, self._seed, self._directory, min(3, source.node_count))
            try:
                self._rounds(world, mix, kills)
            except Unequal as e:
                referee.keep(e.evidence, target, self._directory)
                raise
            finally:
                self.orphans += world.close()
                self.kills += world.kills
                self.events += world.events
                self.checks += world.referee.checks
                self.records += world.referee.records

    def _rounds(self, world: World, mix: tuple[tuple[Round, float], ...], kills: int) -> None:
        if self._arguments.only:
            mix = tuple(one for one in mix if one[0].__name__ == self._arguments.only)
        next_check = _CHECK_EVERY
        for one in _in_random_order(world.rng, mix, kills):
            one(world)
            if world.kills.total() >= next_check:
                world.checkpoint()
                next_check = world.kills.total() + _CHECK_EVERY
            if world.kills.total() >= kills:
                break
        world.checkpoint()
        world.checkpoint(full=True)

    def report(self) -> None:
        """Print the table and the JSON line."""
        print("\nkills by situation and victim")
        for (situation, victim), count in sorted(self.kills.items()):
            print(f"  {situation:16} {victim:16} {count:4}")
        print(f"  {'all':33} {self.kills.total():4}")
        print("what else happened")
        for event, count in sorted(self.events.items()):
            print(f"  {event:33} {count:4}")
        print(f"compared equal: {self.checks} times, {self.records:,} records")
        for line in self.orphans:
            print(f"orphan that did not end by itself: {line}")
        if self.failure is not None:
            print(f"FAILED: {self.failure}\nevidence and logs: {self._directory}")
        summary = {
            "seed": self._seed, "equal": self.failure is None, "kills": self.kills.total(),
            "by_victim": _sum_by(self.kills, 1), "by_situation": _sum_by(self.kills, 0), "events": dict(self.events),
            "checks": self.checks, "records": self.records, "orphans": len(self.orphans),
            "seconds": round(time.monotonic() - self._begun, 1), "failure": self.failure,
        }  # fmt: skip
        print(json.dumps(summary), flush=True)


def _in_random_order(rng: random.Random, mix: tuple[tuple[Round, float], ...], kills: int) -> Iterator[Round]:
    """Yield rounds for ever: first each kind in its share of ``kills``, shuffled, so that none is left to chance."""
    total = sum(weight for _, weight in mix)
    while True:
        drawn = [one for one, weight in mix for _ in range(max(1, round(weight / total * kills)))]
        rng.shuffle(drawn)
        yield from drawn


def _sum_by(kills: Counter[tuple[str, str]], index: int) -> dict[str, int]:
    found: Counter[str] = Counter()
    for key, count in kills.items():
        found[key[index]] += count
    return dict(found)


@contextmanager
def _running(*several: Cluster) -> Iterator[None]:
    try:
        start_all(list(several))
        yield
    finally:
        stop_all(list(several))


if __name__ == "__main__":
    sys.exit(main())
