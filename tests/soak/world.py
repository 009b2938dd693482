"""One pair of clusters under soak: topics, live traffic, the copier of now, and what was counted."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from airflow_mirror.errors import TryAgain
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config, wait_until
from tests.soak import topics
from tests.soak.referee import Referee, Unequal
from tests.soak.topics import MAPPED, TOPICS, Topic
from tests.soak.traffic import Traffic
from tests.soak.victims import Copier, Flow, Graveyard, SparkJob, Victim, as_json

_LATE = 3  # copies at most, until nothing comes to the source any more


class World:
    """Clusters with everything around them.

    :param stage: a word for the table: what kind of clusters these are.
    :param directory: for logs and evidence.
    :ivar main: the flow with identical offsets, that all rounds are about but one.
    """

    def __init__(self, stage: str, source: Cluster, target: Cluster, seed: int, directory: Path, replicas: int) -> None:
        self.stage, self.source, self.target, self.directory = stage, source, target, directory
        self.rng = random.Random(seed)
        self.main = Flow(f"soak-{seed}", TOPICS, {})
        self.mapped = [Flow(f"soak-{seed}-{t.name}", (t,), self._mapped_options(t)) for t in MAPPED]
        self.kills: Counter[tuple[str, str]] = Counter()  # (situation, victim)
        self.events: Counter[str] = Counter()  # what happened to brokers and networks
        self.graveyard = Graveyard()
        self.referee = Referee(source, target)
        self.begun = time.monotonic()
        self._numbers = 0
        self._victims: list[Victim] = []
        topics.make(source, target, replicas, self.rng)
        self.traffic = Traffic(source, seed)
        self._wire = WireCluster(config(target), "soak", 60)

    # --- copiers ------------------------------------------------------------------------------------------------------

    def copier(self, flow: Flow | None = None, *, follow: bool = True, wait: bool | None = None) -> Copier:
        """Start a plain copier."""
        flow = flow or self.main
        must_wait = not flow.clean_end if wait is None else wait
        copier = Copier(self.source, self.target, flow, self._log("copier"), follow=follow, wait=must_wait)
        self._victims.append(copier)
        return copier

    def spark_job(self, script: str, *extra: str) -> SparkJob:
        """Start a Spark job; it waits for older copiers by itself."""
        job = SparkJob(script, self.source, self.target, self.main.mirror, self._log(script), extra)
        self._victims.append(job)
        self.main.clean_end = False
        return job

    def await_move(self, victim: Victim, flow: Flow | None = None, timeout_s: float = 240.0) -> bool:
        """Wait until the target's log ends move; False when the victim ended first.

        Long, because partitions wait out failing brokers, and Spark starts slowly on a busy machine.
        """
        at, deadline = self.copied(flow), time.monotonic() + timeout_s
        while self.copied(flow) <= at:
            if victim.ended:
                return False
            if time.monotonic() > deadline:
                raise Unequal(f"nothing was copied for {timeout_s:.0f} s", {"log": victim.said()})
            time.sleep(0.01)
        return True

    def await_lease(self, copier: Copier, timeout_s: float = 240.0) -> None:
        """Wait until a copier has the writer lease."""
        wait_until(lambda: "lease taken" in copier.log.read_text(errors="replace"), "a copier takes the lease", timeout_s)

    def copied(self, flow: Flow | None = None) -> int:
        """The sum of the target's log ends, as far as it can be told now."""
        topics = (flow or self.main).topics
        try:
            return sum(self._wire.log_ends([tp for t in topics for tp in t.all_partitions()]).values())
        except TryAgain:
            return -1

    def killed(self, situation: str, victim: str) -> None:
        """Count a kill."""
        self.kills[situation, victim] += 1

    # --- proofs -------------------------------------------------------------------------------------------------------

    def must_have_lost(self, loser: Copier, timeout_s: float = 60.0) -> None:
        """The loser must end by itself, and say why."""
        rows = loser.results(timeout_s)
        if not any("writer lease" in str(row.error) for row in rows):
            raise Unequal("the loser did not say that it lost", {"results": as_json(rows), "log": loser.said()})
        self.events["losers that said so"] += 1

    def must_not_have_failed(self, copier: Copier) -> None:
        """A copier that ended before it was killed: only a lost lease is a reason."""
        rows = copier.results(5)
        failed = [row for row in rows if row.error and "writer lease" not in row.error]
        if failed:
            self.stopped(failed, copier)

    def stopped(self, failed: list[Any], victim: Victim) -> None:
        """A partition stopped loudly: as bad as a difference, but with the engine's own words.

        :raises Unequal: always.
        """
        evidence = {"topic": failed[0].topic, "errors": as_json(failed), "log": victim.said()}
        raise Unequal(f"{failed[0].topic}-{failed[0].partition} stopped: {failed[0].error}", evidence)

    def checkpoint(self, full: bool = False) -> None:
        """Rest the traffic, copy to the end, compare.

        :raises Unequal: with evidence.
        """
        begun = time.monotonic()
        self.traffic.pause()
        rested = time.monotonic()
        # A producer that was given up may have a batch on its way to a broker that comes back: it arrives later.
        for _ in range(_LATE):
            before = self.traffic.ends()
            for flow in (self.main, *self.mapped):
                self._finish(flow)
            if self.traffic.ends() == before:
                break
            self._say("records came to the source behind its rest: copied once more")
        copied = time.monotonic()
        self.referee.check(full)
        if full:
            for flow in self.mapped:
                self.referee.check_mapped(flow)
        self.traffic.resume()
        times = (
            f"{rested - begun:.0f} s to rest, {copied - rested:.0f} to copy, {time.monotonic() - copied:.0f} to compare"
        )
        self._say(f"equal: check {self.referee.checks}, {self.referee.records:,} records so far ({times})")

    def _finish(self, flow: Flow) -> None:
        copier = self.copier(flow, follow=False)
        rows = copier.results(240)
        failed = [row for row in rows if not row.done]
        if failed:
            self.stopped(failed, copier)
        flow.clean_end = True

    def _mapped_options(self, topic: Topic) -> dict[str, Any]:
        return {
            "delivery": topic.delivery,
            "transaction_bytes": 20_000,
        }  # fmt: skip

    # --- life ---------------------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        """A line of progress."""
        self._say(f"{sum(self.kills.values()):4} kills  {what}")

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self.begun:6.0f} s  {self.stage:12} {what}", flush=True)

    def _log(self, name: str) -> Path:
        self._numbers += 1
        directory = self.directory / f"{self.stage.replace(' ', '-')}-{self._numbers:03}-{name}"
        directory.mkdir(parents=True)
        return directory / "log"

    def close(self) -> list[str]:
        """End what runs; return the command lines of orphans that did not end by themselves."""
        self.traffic.close()
        for victim in self._victims:
            if not victim.ended:
                victim.kill()
        self._wire.close()
        return self.graveyard.clear(60)
