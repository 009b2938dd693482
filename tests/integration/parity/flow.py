"""A mirror under test: its tail, and both clusters, with names that no other test uses.

The tail is ``airflow-mirror follow``, or the Spark job in a Spark that runs already: the same driver, with other hands.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from sandbox import Cluster
from tests.integration import plain
from tests.integration.copying import EncryptedCluster, config, create, wait_until
from tests.integration.parity import applications as apps
from tests.integration.warm_jobs import WarmJobs

PARTITIONS = 10
# What MirrorMaker 2's own scenarios wait for, in seconds. Ours have the same limits.
TRANSFER_S, GROUPS_S, SYNC_S, TOPICS_S = 30.0, 30.0, 30.0, 60.0  # see `within`


def client(cluster: Cluster) -> dict[str, str]:
    """Return what an application connects with: as a user where there are some."""
    return cluster.settings if isinstance(cluster, EncryptedCluster) else {"bootstrap.servers": cluster.bootstrap}


def within(limit_s: float, question: Callable[[], bool], what: str) -> None:
    """Wait until ``question`` is true, for as long as MirrorMaker 2's scenarios do.

    Their limits are those of a quiet machine: one that has more to run than it has cores is given more time, up to three
    times as much. A tail that is as slow as that is no better than theirs.
    """
    begun = time.monotonic()
    while not question():
        crowd = min(3.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
        assert time.monotonic() - begun < limit_s * crowd, f"not within {limit_s:.0f} s, {crowd:.1f} times: {what}"
        time.sleep(0.1)


class Flow:
    """One mirror and its tail, in a ``with`` block.

    :param clusters: source and target.
    :param jobs: the Spark in which the tail runs; None: plain processes.
    :param name: what the names of its topics and groups begin with; the mirror is called so, too, or ``mirror``.
    :param transactions: whether applications write in transactions, of which some are aborted.
    :param fields: of the Mirror.
    """

    def __init__(
        self, clusters: tuple[Cluster, Cluster], directory: Path, jobs: WarmJobs | None = None, *, name: str = "",
        mirror: str = "", transactions: bool = False, **fields: Any,
    ) -> None:  # fmt: skip
        self.name = name or f"p{uuid.uuid4().hex[:8]}"
        self.clusters, self.jobs, self.directory, self.transactions = clusters, jobs, directory, transactions
        self.source, self.target = client(clusters[0]), client(clusters[1])
        self.fields: dict[str, Any] = {
            "name": mirror or self.name, "source": "primary", "target": "backup", "topics": [f"{self.name}-.*"],
            "groups": [f"{self.name}-.*"], "topic_interval_s": 0.5, "group_interval_s": 0.5, "config_interval_s": 1,
            "exclude_configs": ["delete\\.retention\\..*"], **fields,
        }  # fmt: skip
        self.mirror = Mirror.from_dict(self.fields)
        self.seeds, self.runs, self.running = iter(range(1, 10_000)), 0, False
        self.before = set[str]()  # topics of the source when the tail was not there yet
        self._follow: plain.Follow | None = None
        self._close = ExitStack()

    def __enter__(self) -> Self:
        here, there = (self._close.enter_context(ClusterAdmin(config(c), 120)) for c in self.clusters)
        self.admins = here, there
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if self.running:
                self.stop()
        finally:
            if self._follow is not None:
                self._follow.__exit__()
            self._close.close()

    # --- the tail ------------------------------------------------------------------------------------------------------

    def start(self, until: str = "following") -> None:
        """Start the tail, and wait until all of its partitions have nothing left to copy, or only until it copies."""
        self.runs += 1
        self.directory.mkdir(exist_ok=True)
        run = f"{self.fields['name']}-{self.runs}"
        self.log, self.job_dir, self.figures = (self.directory / f"{run}{end}" for end in (".log", "", ".prom"))
        file = self.directory / "mirror.json"
        file.write_text(json.dumps(self.fields))
        own = ["--mirror", str(file), "--job-dir", str(self.job_dir), "--metrics-file", str(self.figures), "--no-probe"]
        if self.jobs is None:
            self._follow = plain.Follow(*self.properties(), *own, "--processes", "1", log=self.log)
        else:
            self.jobs.start("tail", *self.properties(), *own, log=self.log)
        self.running = True
        wait_until(lambda: self._is(until), f"the tail is {until}", poll_s=0.1)

    def _is(self, what: str) -> bool:
        status = self.status()
        ended = self._follow is not None and self._follow.process.poll() is not None
        assert status.get("state", "RUNNING") == "RUNNING" and not ended, self.log.read_text()[-3000:]
        states = [partition["state"] for partition in status.get("partitions", ())]
        return status.get("phase") == "copying" and (set(states) == {"following"} or what == "copying")

    def stop(self) -> None:
        """Stop the tail as its user would; it ends cleanly."""
        self.running = False
        if self._follow is not None:
            self._follow.stop(within_s=apps.PATIENCE_S)
        elif self.jobs is not None:
            assert self.jobs.stop() == 0, self.log.read_text()[-3000:]

    def kill(self) -> None:
        """Kill the tail with all of its processes."""
        self.running = False
        assert self._follow is not None
        self._follow.kill()

    def status(self) -> dict[str, Any]:
        """Return what the tail says of itself."""
        file = self.job_dir / "status.json"
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def follows(self, what: str) -> dict[str, Any]:
        """Return the last report of what follows the data."""
        return dict(self.status().get("follows", {}).get(what, {}))

    def properties(self) -> list[str]:
        """Write a file of client settings for each cluster; return the arguments that name them."""
        arguments = []
        for role, cluster in zip(("source", "target"), self.clusters, strict=True):
            settings = dict(config(cluster).properties)
            if isinstance(cluster, EncryptedCluster):
                authority = self.directory / f"{role}.pem"
                authority.write_text(settings.pop("ssl.ca.pem"))
                settings["ssl.ca.location"] = str(authority)
            file = self.directory / f"{role}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            arguments += [f"--{role}", str(file)]
        return arguments

    # --- what it is for ------------------------------------------------------------------------------------------------

    def there(self, topic: str) -> str:
        """Return a topic's name on the target."""
        return self.mirror.naming.target_topic(topic)

    def create(self, topic: str, partitions: int = PARTITIONS, **configs: str) -> str:
        """Create a topic on the source."""
        name = f"{self.name}-{topic}"
        create(self.clusters[0], name, partitions, **configs)
        return name

    def append(self, topic: str, counts: Sequence[int], *, keyed: bool = False) -> None:
        """Let an application write to the source."""
        apps.append(self.source, topic, counts, next(self.seeds), keyed=keyed, transactions=self.transactions)

    def arrives(self, topic: str, count: int) -> tuple[apps.Log, apps.Log]:
        """Wait until exactly so many records are on both sides; return them. They are the same, in the same order.

        With identical offsets the offsets are the same, too.
        """
        here = apps.log_of(self.source, topic)
        assert sum(map(len, here.values())) == count
        there: apps.Log = {}

        def arrived() -> bool:
            nonlocal there
            if self.there(topic) in self.admins[1].topic_names():
                there = apps.log_of(self.target, self.there(topic))
            return sum(map(len, there.values())) >= count

        within(TRANSFER_S, arrived, f"{count} records of {topic} arrive")
        if self.keeps_offsets:
            assert there == here
        assert {p: [record for _, record in log] for p, log in there.items()} == {
            p: [record for _, record in log] for p, log in here.items()
        }
        return here, there

    @property
    def keeps_offsets(self) -> bool:
        """Whether its offsets stay identical."""
        return self.mirror.may_keep_offsets

    def group_arrives(self, group: str, topic: str) -> dict[int, int]:
        """Wait until a group stands on the target where it stands on the source; return its positions there.

        That is exact: as many records lie before it, in every partition. With identical offsets the numbers are equal.
        """
        places = apps.positions(self.source, group, topic)
        wanted = apps.passed(apps.log_of(self.source, topic), places)
        log = apps.log_of(self.target, self.there(topic))
        found: dict[int, int] = {}

        def arrived() -> bool:
            nonlocal found
            found = apps.positions(self.target, group, self.there(topic))
            return apps.passed(log, found) == wanted and (found == places or not self.keeps_offsets)

        within(GROUPS_S, arrived, f"{group} stands on the target where it stands on the source")
        return found

    def passed(self, group: str, topic: str) -> list[int]:
        """Return how many records of each partition lie before a group's positions on the target.

        The marker that ends a transaction is none: a group may stand before it or behind it.
        """
        places = apps.positions(self.target, group, self.there(topic))
        return [count for _, count in sorted(apps.passed(apps.log_of(self.target, self.there(topic)), places).items())]

    def group(self, name: str) -> str:
        """Return the name of a group that follows."""
        return f"{self.name}-{name}"

    def setting(self, topic: str, key: str, side: int = 1) -> str | None:
        """Return a topic's setting: on the target, or with 0 on the source."""
        name = self.there(topic) if side else topic
        return self.admins[side].topic_configs([name])[name][key].value

    def mentions(self, what: str, key: str, words: str) -> bool:
        """Return whether a list of a report has a line of which a pattern matches some part."""
        return any(re.search(words, line) for line in self.follows(what).get(key, {"first": []})["first"])
