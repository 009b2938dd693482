"""What goes on at the source of a replication: groups read, topics appear, grow, and are made anew."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from confluent_kafka import KafkaException

from airflow_mirror.errors import MirrorError, TopicsOwned
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.ownership import claim
from demo.clients import Partition, commit_positions, group_positions
from sandbox import Cluster
from tests.integration.copying import config, create, ends, read, wait_until, write
from tests.soak.observer import Observer
from tests.soak.sites import Site
from tests.soak.topics import Topic
from tests.soak.traffic import Traffic

PREFIX = "soak."
SHORT = f"{PREFIX}short"
MORTAL = f"{PREFIX}mortal-"  # topics that are deleted and made again
GROUP = f"{PREFIX}group-"
PATIENCE_S = 600.0
_GROUPS_EVERY_S = 2.0


def first_topics(minutes: int) -> tuple[Topic, ...]:
    """Return the topics that are there from the start of a soak of so many minutes."""
    # Longer than nothing is copied on a busy machine: what retention deletes before that is lost, as it must be.
    short = {"retention_ms": str(max(10, minutes // 2) * 60_000), "segment_ms": "10000"}
    return (
        Topic(f"{PREFIX}plain", 2), Topic(f"{PREFIX}committed", 2, transactional=True),
        Topic(f"{PREFIX}entries", 1, transactional=True), Topic(SHORT, 1, configs=short),
    )  # fmt: skip


class Life:
    """Two threads that go on until closed.

    :param topics: those that are there from the start.
    :param every_s: seconds between two things that happen to topics, about.
    :param sites: returns the hosts of now.
    :ivar events: how often what has happened.
    :ivar failures: what must not have happened.
    """

    def __init__(
        self, source: Cluster, target: Cluster, mirror: Mirror, topics: Sequence[Topic], seed: int, every_s: float,
        observer: Observer, sites: Callable[[], list[Site]],
    ) -> None:  # fmt: skip
        self._source, self._target, self._mirror, self._every_s = source, target, mirror, every_s
        self._rng, self._group_rng = random.Random(seed), random.Random(seed + 1)
        self._observer, self._sites = observer, sites
        self.events: Counter[str] = Counter()
        self.failures: list[str] = []
        self._closed = threading.Event()
        for topic in topics:
            create(source, topic.name, topic.partitions, **topic.configs)
        self.traffic = Traffic(source, seed, topics)
        self.traffic.pace_s = 0.6
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._groups, self._topics)]

    def start(self) -> None:
        """Begin, beside the writing, which has begun."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """End what happens to groups and topics.

        :raises AssertionError: a step did not end in time.
        """
        self._closed.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), "what happens to topics did not come to an end"

    # --- groups -------------------------------------------------------------------------------------------------------

    def _groups(self) -> None:
        while not self._closed.wait(_GROUPS_EVERY_S):
            try:
                self._move_a_group()
            except (KafkaException, MirrorError):
                self.events["group moves failed"] += 1  # its coordinator was killed

    def _move_a_group(self) -> None:
        rng, settings = self._group_rng, self._source.properties()
        topic = rng.choice([t for t in self.traffic.topics if t.name != SHORT])
        at = Partition(topic.name, rng.randrange(topic.partitions))
        group = f"{GROUP}{rng.randrange(3 + self.events['group moves'] // 20)}"
        start, _, end = ends(self._source, at.topic, at.number + 1)[at.number]
        now = group_positions(settings, group).get(at, start)
        back = rng.random() < 0.15 and now > start
        commit_positions(settings, group, {at: rng.randint(start, now - 1) if back else rng.randint(now, end)}, "soak")
        self.events["group moves"] += 1
        self.events["rewinds"] += back

    # --- topics -------------------------------------------------------------------------------------------------------

    def _topics(self) -> None:
        steps = (self._appear, self._grow, self._remake, self._rival)
        drawn: list[Callable[[], None]] = []
        with ClusterAdmin(config(self._source), 120) as source, ClusterAdmin(config(self._target), 120) as target:
            self._admins = source, target
            while not self._closed.wait(self._every_s * (0.5 + self._rng.random())):
                drawn = drawn or self._rng.sample(steps, len(steps))
                step = drawn.pop()
                try:
                    step()
                except MirrorError as e:
                    self.events["steps cut short"] += 1  # by a broker that was killed
                    print(f"{step.__name__}: {e}", flush=True)
                except Exception as e:
                    self.failures.append(f"{step.__name__}: {e!r}")

    def _appear(self) -> None:
        number = self.events["topics that appeared"]
        topic = Topic(f"{PREFIX}new-{number}", self._rng.randint(1, 3), transactional=self._rng.random() < 0.5)
        create(self._source, topic.name, topic.partitions)
        self.traffic.topics = (*self.traffic.topics, topic)
        self.events["topics that appeared"] += 1

    def _grow(self) -> None:
        topic = self._rng.choice([t for t in self.traffic.topics if t.name != SHORT])
        grown = replace(topic, partitions=topic.partitions + 1)
        self._admins[0].grow_partitions(topic.name, grown.partitions, unfenced)
        self.traffic.topics = tuple(grown if t is topic else t for t in self.traffic.topics)
        self.events["partitions added"] += 1

    def _rival(self) -> None:
        """Another mirror wants the topics."""
        source, target = self._admins
        rival = replace(self._mirror, name="rival")
        try:
            claim(Ledger(target), build(rival, source, target, probe_target=False), target)
        except TopicsOwned:
            self.events["rivals refused"] += 1
            return
        self.failures.append("a second mirror was given the topics of the first")

    def _remake(self) -> None:
        """Delete a topic and create it again. It stops, alone, and that is said; then a person makes room.

        A plan that is made in between is refused, or does not have the topic; that says as much.
        """
        source, target = self._admins
        name = f"{MORTAL}{self.events['topics made anew']}"
        self._until(lambda: self._is_made(source, name), f"{name} is made")
        write(self._source, name, 300, seed=self._rng.getrandbits(30))
        was = read(self._source, name)
        self._until(lambda: ends(self._target, name)[0][2] == len(was), f"{name} is copied")
        began = time.time()
        self._delete(source, name)
        self._until(lambda: self._is_made(source, name), f"{name} is made anew")
        write(self._source, name, self._rng.choice([20, 300, 900]), seed=self._rng.getrandbits(30))
        self._until(lambda: self._is_said(name, began), f"it is said what became of {name}")
        if read(self._target, name) != was:
            self.failures.append(f"{name}: records of another topic of that name were mixed in")
        self._delete(target, name)
        self.events["topics made anew"] += 1

    def _until(self, question: Callable[[], bool], what: str) -> None:
        """Wait until it is so, whatever brokers are killed meanwhile: nothing may be left half way."""

        def answer() -> bool:
            try:
                return question()
            except MirrorError:
                return False

        wait_until(answer, what, PATIENCE_S, 0.5)

    def _is_made(self, admin: ClusterAdmin, name: str) -> bool:
        if name not in admin.topics([name]):
            create(self._source, name)
        return True

    def _delete(self, admin: ClusterAdmin, name: str) -> None:
        """Delete a topic; not the next one of its name, which a tail may create at once."""
        ids = set[str]()

        def is_gone() -> bool:
            there = admin.topics([name]).get(name)
            ids.update({there.topic_id} if there and not ids else ())
            if there is None or there.topic_id not in ids:
                return True
            admin.delete_topics([name], unfenced)
            return False

        self._until(is_gone, f"{name} is gone from the {admin.role}")

    def _is_said(self, name: str, since: float) -> bool:
        """Whether the tail, or a host that could not start one, names the topic."""
        return self._observer.says(name) or any(name in text for site in self._sites() for text in site.errors(since))
