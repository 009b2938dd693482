"""A disaster-recovery drill on a topic of its own: write canaries, lose the source, continue on the target, measure.

**RPO** is what the source had acknowledged and the target does not have: counted in records, and in seconds from the
oldest lost acknowledgement to the disaster (0 when nothing is lost). **RTO** is the time from the disaster until a
consumer group reads at its position on the target and a producer's record is acknowledged there, whichever is later.

The disaster is no polite stop: the tail is killed while canaries are being written, and nothing is asked of the source
afterwards. Values travel between the steps of a drill as JSON files in the run's directory.
"""

from __future__ import annotations

import html
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import BrokerError, ClusterUnreachable, DrillMissed, TryAgain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_mirror.config import ClientConfig

_POLL_S = 0.2


@dataclass
class Canaries:
    """What was acknowledged by the source until the disaster.

    :param acked: ``[partition, offset, id, acknowledged at (epoch ms)]`` per record.
    :param positions: next offset to read of the drill's group, by partition, as its last checkpoint says.
    :param disaster_ms: when the source was lost, epoch ms.
    """

    topic: str
    group: str
    acked: list[tuple[int, int, str, int]] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    disaster_ms: int = 0

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Canaries:
        """Read what ``save`` wrote."""
        values = json.loads(path.read_text(encoding="utf-8"))
        values["positions"] = {int(p): o for p, o in values["positions"].items()}
        values["acked"] = [tuple(row) for row in values["acked"]]
        return cls(**values)


@dataclass(frozen=True)
class DrillReport:
    """The figures of one drill. Times in seconds.

    :param lost: canaries that the source had acknowledged and the target does not hold.
    :param skipped: canaries at or after the group's position that are on the target and that the group did not get.
    :param reread: canaries before its position that it got again.
    """

    topic: str
    acknowledged: int
    on_target: int
    lost: int
    rpo_s: float
    rto_s: float
    first_read_s: float
    first_write_s: float
    skipped: int
    reread: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)

    def failures(self, max_rpo_s: float, max_rto_s: float) -> list[str]:
        """Return what is not within the limits, a line each."""
        lines = []
        if self.rpo_s > max_rpo_s:
            lines.append(f"RPO {self.rpo_s:.2f} s ({self.lost} records lost), allowed {max_rpo_s:g} s")
        if self.rto_s > max_rto_s:
            lines.append(f"RTO {self.rto_s:.2f} s, allowed {max_rto_s:g} s")
        if self.skipped or self.reread:
            lines.append(f"the group skipped {self.skipped} and re-read {self.reread} records")
        return lines

    def write(self, directory: Path) -> Path:
        """Write ``drill.json`` and ``drill.html``; return the JSON file."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "drill.json"
        path.write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")
        rows = "".join(
            f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>" for k, v in self.to_dict().items()
        )
        head = "<!doctype html><meta charset=utf-8><title>Drill</title><h1>Disaster-recovery drill</h1>"
        (directory / "drill.html").write_text(f"{head}<table>{rows}</table>", encoding="utf-8")
        return path


def warm_up(source: ClientConfig, target: ClientConfig, topic: str, timeout_s: float = 120.0) -> float:
    """Write one record to each partition and wait until the target has all of them; return the seconds that took.

    A mirror that has only just been started is not what a disaster would meet.

    :raises DrillMissed: when the mirror does not copy them within ``timeout_s``.
    """
    from confluent_kafka import Producer

    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.partition import TopicPartition

    with ClusterAdmin(target) as admin:
        partitions = [TopicPartition(topic, p) for p in range(admin.topics([topic])[topic].partitions)]
        began = time.monotonic()
        producer = Producer({**source.common(), "acks": "all", "linger.ms": 0})
        for tp in partitions:
            producer.produce(topic, key=f"warm-up-{tp.partition}".encode(), value=b"", partition=tp.partition)
        if producer.flush(timeout_s):
            raise ClusterUnreachable(source.role, source.bootstrap, "the first canary was not acknowledged")
        while any(end == 0 for end in admin.offsets(partitions, "latest").values()):
            if time.monotonic() - began > timeout_s:
                late = f"the mirror did not copy the first canaries within {timeout_s:.0f} s"
                raise DrillMissed([late], "the tail's log")
            time.sleep(_POLL_S)
    return time.monotonic() - began


def write_canaries(
    source: ClientConfig, topic: str, group: str, seconds: float, per_s: float, disaster: Callable[[], object]
) -> Canaries:
    """Write canaries for ``seconds``, let a group read about half of them, then call ``disaster`` while still writing.

    Only what was acknowledged before the disaster counts.

    :raises ClusterUnreachable: when the source does not acknowledge at all.
    """
    from confluent_kafka import Producer

    found = Canaries(topic, group)

    def acked(error: Any, message: Any) -> None:
        if error is None:
            now_ms = time.time_ns() // 1_000_000
            found.acked.append((message.partition(), message.offset(), message.key().decode(), now_ms))

    producer = Producer({**source.common(), "acks": "all", "linger.ms": 0, "message.timeout.ms": 30_000})
    number, began = 0, time.monotonic()
    with ThreadPoolExecutor(1) as readers:
        # The group reads beside the producer: joining a group takes seconds, and the canaries must not pause for it.
        reading = None
        while time.monotonic() - began < seconds or (reading is not None and not reading.done()):
            producer.produce(topic, key=f"canary-{number}".encode(), value=f"{number}".encode(), on_delivery=acked)
            producer.poll(0)
            number += 1
            if reading is None and time.monotonic() - began > seconds / 3 and found.acked:
                reading = readers.submit(_read_and_commit, source, topic, group, max(1, len(found.acked) // 2))
            time.sleep(1 / per_s)
    found.positions = reading.result() if reading is not None else {}
    producer.flush(0.2)
    if not found.acked:
        raise ClusterUnreachable(source.role, source.bootstrap, "no canary was acknowledged")
    disaster()
    found.disaster_ms = time.time_ns() // 1_000_000
    found.acked = [row for row in found.acked if row[3] <= found.disaster_ms]
    producer.purge()
    return found


def _read_and_commit(cluster: ClientConfig, topic: str, group: str, count: int) -> dict[int, int]:
    """Read ``count`` records with the group, commit, leave; return the committed positions."""
    seen = _consume(cluster, topic, group, lambda records: len(records) >= count, 20.0, "earliest")
    return {p: max(o for q, o, _ in seen if q == p) + 1 for p in {p for p, _, _ in seen}}


def _consume(
    cluster: ClientConfig,
    topic: str,
    group: str,
    enough: Callable[[list[tuple[int, int, str]]], bool],
    timeout_s: float,
    reset: str,
    on_first: Callable[[], None] = lambda: None,
) -> list[tuple[int, int, str]]:
    """Read ``[partition, offset, key]`` as a member of ``group`` until ``enough``; commit what was read."""
    from confluent_kafka import Consumer

    settings = {"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer({**cluster.common(), **settings})
    consumer.subscribe([topic])
    seen: list[tuple[int, int, str]] = []
    deadline = time.monotonic() + timeout_s
    try:
        while not enough(seen) and time.monotonic() < deadline:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is not None:
                raise BrokerError(f"read {topic}", message.error().code(), message.error().name())
            if not seen:
                on_first()
            seen.append((message.partition(), message.offset(), message.key().decode()))
        if seen:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return seen


def fail_over(target: ClientConfig, canaries: Canaries, timeout_s: float = 60.0) -> DrillReport:
    """Set the group's positions on the target, let it go on there, write one record; then count what is lost.

    Offsets are identical, so a checkpoint of the source is right as it is; one beyond the target's end is what was lost.
    """
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.model import GroupPosition
    from airflow_mirror.partition import TopicPartition

    with ClusterAdmin(target) as admin:
        count = admin.topics([canaries.topic])[canaries.topic].partitions
        partitions = [TopicPartition(canaries.topic, p) for p in range(count)]
        ends = {tp.partition: end for tp, end in admin.offsets(partitions, "latest").items()}
        positions = {p: min(canaries.positions.get(p, 0), ends[p]) for p in ends}
        wanted = {TopicPartition(canaries.topic, p): GroupPosition(o) for p, o in positions.items()}
        _patiently(lambda: admin.commit_group_offsets(canaries.group, wanted), timeout_s)
    waiting = {p for p in ends if positions[p] < ends[p]}
    moments: dict[str, float] = {}

    def enough(seen: list[tuple[int, int, str]]) -> bool:
        return waiting <= {p for p, o, _ in seen if o >= ends[p] - 1}

    def first() -> None:
        moments["read"] = time.time()

    got = _consume(target, canaries.topic, canaries.group, enough, timeout_s, "latest", first)
    if waiting and not got:
        raise ClusterUnreachable(target.role, target.bootstrap, f"group {canaries.group!r} read nothing")
    _write_one(target, canaries.topic, timeout_s)
    moments["write"] = time.time()
    held = _everything(target, canaries.topic, ends, timeout_s)
    return _report(canaries, held, positions, got, moments)


def _patiently(call: Callable[[], object], timeout_s: float) -> None:
    """Call until it succeeds: the first group of a cluster waits for its coordinator to be elected."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            call()
            return
        except TryAgain:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)


def _write_one(cluster: ClientConfig, topic: str, timeout_s: float) -> None:
    from confluent_kafka import Producer

    producer = Producer({**cluster.common(), "acks": "all", "linger.ms": 0})
    producer.produce(topic, key=b"after-failover", value=b"")
    if producer.flush(timeout_s):
        raise ClusterUnreachable(cluster.role, cluster.bootstrap, f"a record for {topic!r} was not acknowledged")


def _everything(cluster: ClientConfig, topic: str, ends: dict[int, int], timeout_s: float) -> set[tuple[int, int, str]]:
    """Read the whole topic up to ``ends`` without a group."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({**cluster.common(), "group.id": "airflow-mirror-drill-reader", "enable.auto.commit": False})
    todo = {p for p, end in ends.items() if end}
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in todo])
    held: set[tuple[int, int, str]] = set()
    deadline = time.monotonic() + timeout_s
    try:
        while todo and time.monotonic() < deadline:
            message = consumer.poll(_POLL_S)
            # What was written after the failover lies behind `ends` and is no canary.
            if message is not None and message.error() is None and message.offset() < ends[message.partition()]:
                held.add((message.partition(), message.offset(), message.key().decode()))
            reached = consumer.position(list(consumer.assignment()))
            todo -= {tp.partition for tp in reached if tp.offset >= ends[tp.partition]}
    finally:
        consumer.close()
    return held


def _report(
    canaries: Canaries,
    held: set[tuple[int, int, str]],
    positions: dict[int, int],
    got: list[tuple[int, int, str]],
    moments: dict[str, float],
) -> DrillReport:
    disaster_s = canaries.disaster_ms / 1000
    # Same partition, same offset, same key: a canary elsewhere would be a copy that moved it.
    lost = [row for row in canaries.acked if row[:3] not in held]
    due = {row for row in held if row[1] >= positions[row[0]]}
    read_s = max(0.0, moments.get("read", moments["write"]) - disaster_s)
    write_s = max(0.0, moments["write"] - disaster_s)
    return DrillReport(
        topic=canaries.topic,
        acknowledged=len(canaries.acked),
        on_target=len(canaries.acked) - len(lost),
        lost=len(lost),
        rpo_s=round(max((canaries.disaster_ms - row[3]) / 1000 for row in lost) if lost else 0.0, 3),
        rto_s=round(max(read_s, write_s), 3),
        first_read_s=round(read_s, 3),
        first_write_s=round(write_s, 3),
        skipped=len(due - set(got)),
        reread=len({row for row in got if row[1] < positions[row[0]]}),
    )


def clean_up(clusters: list[ClientConfig], topic: str, group: str) -> list[str]:
    """Delete the drill's topic and group wherever they are; return what could not be deleted, a line each."""
    from airflow_mirror.errors import MirrorError
    from airflow_mirror.kafka.admin import ClusterAdmin

    left = []
    for config in clusters:
        try:
            _delete_group(config, group)
            with ClusterAdmin(config) as admin:
                admin.delete_topics(admin.topics([topic]))
        except MirrorError as e:
            left.append(f"{config.role}: {e}")
    return left


def _delete_group(config: ClientConfig, group: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(config.common())  # kept: collected too early, it would take its answers with it
    for future in client.delete_consumer_groups([group], request_timeout=15).values():
        try:
            future.result(timeout=30)
        except KafkaException as e:
            if e.args[0].name() not in ("GROUP_ID_NOT_FOUND", "COORDINATOR_NOT_AVAILABLE"):
                raise BrokerError(f"delete group {group!r}", e.args[0].code(), e.args[0].name()) from e
