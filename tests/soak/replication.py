"""The soak of a replication: drivers, workers, brokers and whole hosts are killed while everything follows.

    python -m tests.soak.replication [--minutes 60] [--seed S] [--kills-every 60]

Two hosts (namespaces of processes, each with a disk of its own) run the tasks of the DAG ``kafka_replication``. Topics
are written, appear, grow and are made anew; groups move in both directions. In the end the source rests, the tail is
stopped in order and starts once more, and everything is compared. Exit status 0: all is equal, nothing was owned twice,
and enough has happened to prove it. The last line on stdout is one JSON object. Needs root, for the namespaces.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.runner.active import ask_to_stop
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import SIGN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.wire.cluster import WireCluster
from demo.clients import Partition, group_positions
from demo.referee import compare_topics
from demo.verdict import GroupResult
from sandbox import Cluster
from sandbox.cluster import start_all, stop_all
from tests.integration.copying import config, ends, read
from tests.soak.life import GROUP, PREFIX, SHORT, Life, first_topics
from tests.soak.observer import Observer, decisions_of, ledger_figures
from tests.soak.sites import Site

PATIENCE_S = 900.0  # for one thing to happen: the machine may be busy, and brokers may just come back
_LOOK_EVERY_S = 0.5
# A broker that is killed forgets what it deleted since it last wrote it down. The target has to cope with that.
_SOURCE = {"log.flush.start.offset.checkpoint.interval.ms": "500"}
_DECK = ("host", "host", "driver", "worker", "source broker", "target broker")
_ENDED = "the streaming query ended"
_AGAIN = 0.25  # chance that the next kill does not wait until the last one is got over

# What has to have happened, or the run has proven nothing: (figure, at least).
_PROOF = {
    "kills of host": 2, "kills of driver": 1, "kills of worker": 1, "kills of source broker": 1,
    "kills of target broker": 1, "tails": 4, "topics that appeared": 1, "partitions added": 1,
    "topics made anew": 1, "rivals refused": 1, "group moves": 30, "rewinds": 2, "group passes": 5,
    "positions equal": 5, "records equal": 1000, "aborted transactions": 3, "log start moved by": 1,
}  # fmt: skip


class Failed(Exception):
    """What the soak was to show is not so."""


class Soak:
    """One run.

    :ivar took: by victim, seconds from a kill to the first record that was copied after it.
    """

    def __init__(
        self, source: Cluster, target: Cluster, arguments: argparse.Namespace, seed: int, directory: Path
    ) -> None:
        self._source, self._target = source, target
        self._minutes, self._every_s, self._directory = arguments.minutes, arguments.kills_every, directory
        self._rng, self._begun, self._count = random.Random(seed), time.monotonic(), 0
        self._sites: list[Site] = []
        self.kills: Counter[str] = Counter()
        self.took: dict[str, list[float]] = defaultdict(list)
        self.figures: dict[str, Any] = {}
        self.failures: list[str] = []
        self._mirror = Mirror(
            name="replication", source="src", target="dst", topics=[f"{PREFIX}.*"], groups=[f"{PREFIX}.*"],
            topic_interval_s=5, log_start_delay_s=60, replication_factor=3,
        )  # fmt: skip
        topics = first_topics(self._minutes)
        self._watched = [tp for topic in topics for tp in topic.all_partitions()]
        self._observer = Observer(target, self._mirror.name)
        self._life = Life(
            source, target, self._mirror, topics, seed, max(15.0, self._minutes * 1.5), self._observer,
            lambda: list(self._sites),
        )  # fmt: skip
        self._wire = WireCluster(config(target), "soak", 60)

    def run(self) -> None:
        """Kill for so many minutes, then compare.

        :raises Failed: or AssertionError, when something does not happen in time.
        """
        try:
            self._life.start()
            self._observer.start()
            self._fill_up()
            self._wait(lambda: self._copied() > 0, "the first tail copies")
            self._say("a tail copies")
            self._kill_for(self._minutes * 60)
            self._compare()
        finally:
            self._life.traffic.close()
            self._observer.close()
            self._wire.close()
            for site in self._sites:
                site.lose()

    # --- kills --------------------------------------------------------------------------------------------------------

    def _kill_for(self, seconds: float) -> None:
        """Go on until the time is over, and every kind had its turn."""
        until, deck = time.monotonic() + seconds, self._rng.sample(_DECK, len(_DECK))
        while deck or time.monotonic() < until:
            deck = deck or self._rng.sample(_DECK, len(_DECK))
            victim = deck.pop()
            time.sleep(self._every_s * (0.5 + self._rng.random()))
            job, killed = self._observer.job, self._kill(victim)
            if killed is None:
                deck.insert(0, victim)  # there was none at the moment
                continue
            if deck and self._rng.random() < _AGAIN:
                time.sleep(self._rng.random() * 20)
                if self._kill(deck[-1]) is not None:
                    victim = f"{victim}, then {deck.pop()}"
            self._got_over(victim, *killed)
            if victim == "worker":
                self._outlived(job)
            self._fill_up()

    def _kill(self, victim: str) -> tuple[float, str] | None:
        """Kill; return when, and the job that must not be the tail any more; None if there was nobody to kill."""
        killed = self._kill_now(victim)
        if killed is not None:
            self.kills[victim] += 1
            self._say(f"{victim} killed")
        return killed

    def _kill_now(self, victim: str) -> tuple[float, str] | None:
        job, begun = self._observer.job, time.monotonic()
        if victim.endswith("broker"):
            cluster = self._source if victim.startswith("source") else self._target
            node = self._rng.randint(1, cluster.node_count)
            cluster.kill(node)
            time.sleep(self._rng.uniform(0, 10))
            cluster.restart(node)
            return begun, ""
        active = self._observer.active
        site = next((one for one in self._sites if active is not None and one.name == active.host), None)
        if site is None:
            return None
        if victim == "host":
            self._sites.remove(site)
            begun = time.monotonic()
            site.lose()
            return begun, job
        ports = {int(address.rsplit(":", 1)[1]) for address in self._target.bootstrap.split(",")}
        if not site.kill_one(victim, ports, self._rng):
            return None
        return begun, job if victim == "driver" else ""

    def _got_over(self, victim: str, begun: float, lost: str) -> None:
        """Wait until a record is copied, by another job than the one that was lost."""
        self._wait(lambda: self._observer.job != lost, f"another tail, after the loss of a {victim}")
        self._wait(lambda: self._copied() >= 0, "the target's brokers answer")
        at = self._copied()
        self._wait(lambda: self._copied() > at, f"a record is copied, after the loss of a {victim}")
        self.took[victim].append(time.monotonic() - begun)
        self._say(f"{victim}: copied again after {self.took[victim][-1]:.1f} s")

    def _outlived(self, job: str) -> None:
        """The loss of a worker is no reason for the tail to end: wait until it has given signs after that."""
        before = self._number()
        self._wait(lambda: self._observer.job != job or self._number() > before + 2, "the tail gives signs")
        if _ENDED in (error := self._observer.errors.get(job, "")):  # not: a topic that was made anew, meanwhile
            self.failures.append(f"a tail ended when one of its workers was killed: {error[:500]}")

    def _number(self) -> int:
        return self._observer.sign.number if self._observer.sign else 0

    def _fill_up(self) -> None:
        """Have two hosts: for one that was lost another one comes, with an empty disk."""
        while len(self._sites) < 2:
            self._count += 1
            mirror = self._mirror.to_dict()
            self._sites.append(Site(f"host-{self._count}", self._directory, mirror, self._source, self._target))

    def _copied(self) -> int:
        """Return the sum of the target's log ends, as far as it can be told now."""
        try:
            return sum(self._wire.log_ends(self._watched).values())
        except MirrorError:
            return -1

    # --- the end ------------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        life = self._life
        life.close()
        short = TopicPartition(SHORT, 0)
        life.traffic.pause()
        with ClusterAdmin(config(self._source), 120) as source, ClusterAdmin(config(self._target), 120) as target:
            self._say("the source rests")
            last = self._observer.job
            self._wait(lambda: self._observer.sign is not None, "the tail gives a sign")
            ask_to_stop(state_of(target, SIGN.below(self._mirror.name)), self._mirror.name, last, "the soak")
            self._wait(lambda: self._observer.job != last, "a tail that knows all topics")
            topics = {n: info.partitions for n, info in source.topics().items() if self._mirror.selects_topic(n)}
            self._wait(lambda: self._is_copied(topics), "all is copied")
            self._say("all is copied")
            self._compare_short()
            topics.pop(SHORT)
            results = compare_topics(self._source.properties(), self._target.properties(), sorted(topics))
            self.failures += [problem for result in results for problem in result.problems]
            self.failures += [f"{one.topic}: no record, which proves nothing" for one in results if not one.records]
            self._compare_groups(source, topics)
            self._say("all is compared")
            self._wait(lambda: source.wire.log_starts([short])[short] > 0, "retention deletes at the source")
            moved_to = source.wire.log_starts([short])[short]
            self._wait(lambda: target.wire.log_starts([short])[short] >= moved_to, "the log start follows")
            there, here = target.wire.log_starts([short])[short], source.wire.log_starts([short])[short]
            if there > here:
                self.failures.append(f"{short}: the target's log starts at {there}, the source's at {here}")
        self.figures |= {"topics": len(results), "records equal": sum(one.records for one in results),
                         "log start moved by": moved_to}  # fmt: skip
        decided = decisions_of(self._target, self._mirror.name)
        self.failures += decided.double
        strangers = self._observer.hosts.keys() - set(decided.tails)
        self.failures += [f"job {job} gave signs and was never decided to be the tail" for job in strangers]
        self.figures |= {"tails": len(decided.tails), "decisions refused": decided.refused}
        self.figures |= {f"ledger {key}": value for key, value in ledger_figures(self._target).items()}

    def _is_copied(self, topics: dict[str, int]) -> bool:
        try:
            return all(
                [end[1:] for end in ends(self._source, name, count).values()]
                == [end[1:] for end in ends(self._target, name, count).values()]
                for name, count in topics.items()
            )
        except MirrorError:
            return False

    def _compare_short(self) -> None:
        """Compare the records that the source may delete at any moment: what it still has, when asked."""
        there = {row[0]: row for row in read(self._target, SHORT)}
        rows = read(self._source, SHORT)
        wrong = [row[0] for row in rows if there.get(row[0]) != row]
        if wrong:
            self.failures.append(f"{SHORT}: {len(wrong)} of {len(rows)} records differ, the first at offset {wrong[0]}")
        self.figures[f"records of {SHORT} equal"] = len(rows)

    def _compare_groups(self, source: ClusterAdmin, topics: dict[str, int]) -> None:
        """Positions must be the source's, wherever its topic was not made anew."""
        groups = sorted(one.group_id for one in source.groups() if one.group_id.startswith(GROUP))
        wanted = {group: _kept(group_positions(self._source.properties(), group), topics) for group in groups}

        def results() -> list[GroupResult]:
            there = self._target.properties()
            return [
                GroupResult(group, its, _kept(group_positions(there, group), topics)) for group, its in wanted.items()
            ]

        deadline = time.monotonic() + PATIENCE_S
        while any(one.problems for one in results()) and time.monotonic() < deadline:
            time.sleep(1)
        self.failures += [problem for one in results() for problem in one.problems]
        self.figures |= {"groups": len(groups), "positions equal": sum(len(its) for its in wanted.values())}

    # --- what is said -------------------------------------------------------------------------------------------------

    def _wait(self, question: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not question():
            if time.monotonic() > deadline:
                raise Failed(f"not within {PATIENCE_S:.0f} s: {what}")
            time.sleep(_LOOK_EVERY_S)

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._begun:6.0f} s  {self.kills.total():3} kills  {what}", flush=True)

    def report(self) -> dict[str, Any]:
        """Print the tables; return the figures."""
        passes = self._observer.passes.values()
        figures: dict[str, Any] = {f"kills of {victim}": count for victim, count in self.kills.items()}
        figures |= {**self._life.events, **self.figures, "group passes": sum(map(len, passes))}
        figures |= {"records written": self._life.traffic.written, "aborted transactions": self._life.traffic.aborted}
        self.failures += self._life.failures
        lacking = {name: least for name, least in _PROOF.items() if figures.get(name, 0) < least}
        if not self.failures:
            self.failures += [
                f"{name}: {figures.get(name, 0)}, and nothing is proven below {n}" for name, n in lacking.items()
            ]
        print("\nseconds from a kill to the first record that was copied after it")
        for victim, times in sorted(self.took.items()):
            print(f"  {victim:34} {len(times):3} times  median {statistics.median(times):6.1f}  max {max(times):6.1f}")
        for name, value in sorted(figures.items()):
            print(f"  {name:34} {value:>14,}")
        return figures


def _kept(positions: dict[Partition, int], topics: dict[str, int]) -> dict[Partition, int]:
    return {at: offset for at, offset in positions.items() if at.topic in topics}


@contextmanager
def _running(*several: Cluster) -> Iterator[None]:
    try:
        start_all(several)
        yield
    finally:
        stop_all(several)


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.replication", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=60, metavar="N", help="how long to kill (default: 60)")
    parser.add_argument("--seed", type=int, metavar="S", help="makes the same choices again (default: random)")
    parser.add_argument(
        "--kills-every", type=float, default=45.0, metavar="S", help="seconds between kills, about (default: 45)"
    )
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory = Path(tempfile.mkdtemp(prefix=f"soak-replication-{seed}-"))
    print(f"seed {seed}, {arguments.minutes} minutes; logs in {directory}", flush=True)
    source = Cluster("soak-source", 1, _SOURCE, ready_timeout_s=PATIENCE_S)
    target = Cluster("soak-target", 3, heap_mb=384, ready_timeout_s=PATIENCE_S)
    with _running(source, target):
        soak = Soak(source, target, arguments, seed, directory)
        try:
            soak.run()
        except Exception as e:
            traceback.print_exc()
            soak.failures.append(f"{type(e).__name__}: {e}")
        except KeyboardInterrupt:
            soak.failures.append("interrupted")
    figures = soak.report()
    for failure in soak.failures:
        print(f"FAILED: {failure}")
    if soak.failures:
        print(f"logs: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)
    took = {victim: [round(one, 1) for one in times] for victim, times in soak.took.items()}
    print(json.dumps({"seed": seed, "failures": soak.failures, "took_s": took, **figures}), flush=True)
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
