"""Write canaries, let a group read some of them, and lose the source."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from airflow_mirror.drill.canaries import Canaries
from airflow_mirror.drill.reading import POLL_S, consume
from airflow_mirror.errors import ClusterUnreachable, DrillMissed

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_mirror.config import ClientConfig


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
            time.sleep(POLL_S)
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
    seen = consume(cluster, topic, group, lambda records: len(records) >= count, 20.0, "earliest")
    return {p: max(o for q, o, _ in seen if q == p) + 1 for p in {p for p, _, _ in seen}}
