"""What anybody who can read the target knows of a replication while it runs; and what its decisions were, afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, MAPS, STATE
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.runner.active import ActiveTail, Sign, Watch, active_tail
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import SIGN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config, read

_LOOK_EVERY_S = 1.0


class Observer(threading.Thread):
    """Looks at the tail of a mirror until closed. Writes nothing.

    :ivar active: the tail that is decided to copy. :ivar sign: its last sign.
    :ivar passes: of each job, the times of its passes over groups, as far as its signs told them.
    :ivar hosts: of each job that gave a sign. :ivar errors: with which jobs ended, as far as they said so.
    """

    def __init__(self, target: Cluster, mirror: str) -> None:
        super().__init__(name="observer", daemon=True)
        self._target, self._mirror, self._closed = target, mirror, threading.Event()
        self.active: ActiveTail | None = None
        self.sign: Sign | None = None
        self.passes: dict[str, set[float]] = defaultdict(set)
        self.hosts: dict[str, str] = {}
        self.errors: dict[str, str] = {}

    def run(self) -> None:
        """See :class:`Observer`."""
        with ClusterAdmin(config(self._target)) as admin:
            ledger, state = Ledger(admin), state_of(admin, SIGN.below(self._mirror))
            watch = Watch(state)
            while not self._closed.wait(_LOOK_EVERY_S):
                try:
                    self.active = active_tail(ledger.values(), self._mirror)
                    self.sign = None if self.active is None else watch.sign(self.active)
                except MirrorError:
                    continue  # no ledger yet, or no broker
                self._note()

    def _note(self) -> None:
        if self.active is None or self.sign is None:
            return
        self.hosts[self.active.job] = self.active.host
        if self.sign.error:
            self.errors[self.active.job] = self.sign.error
        if (groups := self.sign.follows.get("groups")) and not groups.get("error"):
            self.passes[self.active.job].add(groups["at"])

    @property
    def job(self) -> str:
        """The job that is decided to copy; empty for none."""
        return "" if self.active is None else self.active.job

    def says(self, topic: str) -> bool:
        """Whether the tail says something about a topic that it does not copy."""
        sign = self.sign
        if sign is None:
            return False
        found = sign.follows.get("topics", {})
        lines = [line for key in ("gone", "again", "left_out") for line in found.get(key, {}).get("first", [])]
        return any(topic in line for line in (*lines, *sign.notes, sign.error or ""))

    def close(self) -> None:
        """End."""
        self._closed.set()
        self.join(60)


@dataclass
class Decided:
    """What the decisions were, replayed from the log by nobody of the product.

    :param tails: jobs that were the mirror's tail, in order.
    :param owners: of each topic id, the mirrors that it ever belonged to.
    :param refused: decisions that came too late: somebody else had decided.
    :param double: what only one may have, and two had.
    """

    tails: list[str] = field(default_factory=list)
    owners: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    refused: int = 0
    double: list[str] = field(default_factory=list)


def decided(values: list[bytes | None], mirror: str) -> Decided:
    """Replay the records of the log of decisions: one counts if all versions that it expects are the newest."""
    found, claims = Decided(), set[str]()
    versions: dict[str, int] = defaultdict(int)
    of_version: dict[tuple[str, int], set[str]] = defaultdict(set)
    for value in values:
        one: dict[str, Any] = json.loads(value or b"{}")
        if one["claim"] in claims:
            continue
        claims.add(one["claim"])
        if any(versions[key] != version for key, version in one["expects"].items()):
            found.refused += 1
            continue
        for key, new in one["sets"].items():
            versions[key] += 1
            if key == f"active/{mirror}" and new:
                found.tails.append(new["job"])
                of_version[key, versions[key]].add(new["job"])
            if key.startswith("topic/") and new:
                found.owners[new["topic_id"]].add(new["mirror"])
    found.double += [f"{key} at version {at}: {jobs}" for (key, at), jobs in of_version.items() if len(jobs) > 1]
    found.double += [f"tail {job} began twice" for job in {j for j in found.tails if found.tails.count(j) > 1}]
    found.double += [f"topic {topic}: {mirrors}" for topic, mirrors in found.owners.items() if len(mirrors) > 1]
    return found


def decisions_of(target: Cluster, mirror: str) -> Decided:
    """Read and replay what was decided on a target."""
    return decided([record[3] for record in read(target, DECISIONS)], mirror)


def ledger_figures(target: Cluster) -> dict[str, float]:
    """Return how large the ledger is, and how long it takes somebody who knows nothing to read it all."""
    with WireCluster(config(target)) as wire, ClusterAdmin(config(target)) as admin:
        there = admin.topics([DECISIONS, STATE, MAPS])
        tps = [TopicPartition(name, p) for name, info in there.items() for p in range(info.partitions)]
        size = sum(wire.log_sizes(tps).values())
        begun, records = time.monotonic(), 0
        for tp in tps:
            log = TopicLog(wire, tp.topic, tp.partition)
            records += sum(1 for _ in log.read(log.start()))
        return {"bytes": size, "records": records, "read_s": round(time.monotonic() - begun, 2)}
