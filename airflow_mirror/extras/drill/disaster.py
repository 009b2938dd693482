"""Write canaries, let a group read some of them, and lose the source."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import ClusterUnreachable, DrillMissed
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.reading import POLL_S, consume, partitions_of

_FIRST_ACK_S = 60.0
_NEXT_ACK_S = 60.0  # an election takes nine seconds; a source that takes nothing for longer is another disaster


def warm_up(source: ClientConfig, target: ClientConfig, topic: str, timeout_s: float = 120.0) -> float:
    """Write one record to each partition and wait until the target has all of them; return the seconds that took.

    A drill measures a running mirror, not one that has just been started.

    :raises DrillMissed: the mirror does not copy them within ``timeout_s``, or the target has no such topic.
    """
    from confluent_kafka import Producer

    from airflow_mirror.kafka.admin import ClusterAdmin

    with ClusterAdmin(target) as admin:
        partitions = partitions_of(admin, topic)
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


class _Writer:
    """A producer that writes ``per_s`` canaries per second, in its own thread, until the block ends."""

    def __init__(self, source: ClientConfig, topic: str, per_s: float) -> None:
        self._source, self._topic, self._pause_s = source, topic, 1 / per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canaries", daemon=True)
        self.acked: list[tuple[int, int, str, int]] = []
        self._sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self._source.common(), "acks": "all", "linger.ms": 0, "message.timeout.ms": 30_000})
        due = time.monotonic()
        while not self._stop.is_set():
            number = self._sent
            self._sent += 1  # first: a canary counts as sent before anybody can see that it was acknowledged
            producer.produce(self._topic, key=f"{number}".encode(), value=b"canary", on_delivery=self._delivered)
            due = max(due + self._pause_s, time.monotonic())  # never a burst for what a slow moment left out
            # A poll returns with the first acknowledgement.
            while producer.poll(max(0.0, due - time.monotonic())) or time.monotonic() < due:
                pass
        producer.purge()  # a record that was not acknowledged does not count as lost

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acked.append((message.partition(), message.offset(), message.key().decode(), _now_ms()))

    def wait_for_another(self, when: str) -> int:
        """Wait until a canary that is sent from now on was acknowledged; return when that was, epoch ms.

        :raises DrillMissed: none is: a tail that is killed while nobody writes loses nothing, and that proves nothing.
        """
        sent, began = self._sent, time.monotonic()
        while True:
            if self.acked and int(self.acked[-1][2]) >= sent:
                return self.acked[-1][3]
            if time.monotonic() - began > _NEXT_ACK_S:
                stopped = f"no canary was acknowledged for {_NEXT_ACK_S:.0f} s {when}, so nothing was measured"
                raise DrillMissed([stopped], "the source's brokers")
            time.sleep(POLL_S)


def write_canaries(
    source: ClientConfig, topic: str, group: str, seconds: float, per_s: float, disaster: Callable[[], object]
) -> Canaries:
    """Write canaries for ``seconds``, let a group read about half of them, then call ``disaster`` while still writing.

    Every record that the source acknowledged before ``disaster`` returned counts. That writing went on all the time is
    not assumed: a canary is sent and acknowledged right before ``disaster`` is called, and another one after it.

    :param disaster: ends the mirror; returns once no part of it runs any more.
    :raises ClusterUnreachable: the source acknowledges nothing.
    :raises DrillMissed: writing stopped before the disaster, or with it.
    """
    with _Writer(source, topic, per_s) as writer, ThreadPoolExecutor(1) as readers:
        began = time.monotonic()
        # The group reads while the producer writes: joining a group takes seconds, and the canaries must not pause.
        while not writer.acked or time.monotonic() - began < seconds / 3:
            if time.monotonic() - began > max(seconds, _FIRST_ACK_S):
                raise ClusterUnreachable(source.role, source.bootstrap, "no canary was acknowledged")
            time.sleep(POLL_S)
        reading = readers.submit(_read_and_commit, source, topic, group, max(1, len(writer.acked) // 2))
        while time.monotonic() - began < seconds or not reading.done():
            time.sleep(POLL_S)
        writer.wait_for_another("before the tail was killed")
        disaster()
        disaster_ms = _now_ms()
        written_on_ms = writer.wait_for_another("after the tail was killed")
        acked = [row for row in list(writer.acked) if row[3] <= disaster_ms]
    return Canaries(
        topic=topic, group=group, acked=acked, positions=reading.result(), disaster_ms=disaster_ms,
        written_on_ms=written_on_ms,
    )  # fmt: skip


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _read_and_commit(cluster: ClientConfig, topic: str, group: str, count: int) -> dict[int, int]:
    """Read ``count`` records with the group, commit, leave; return the committed positions."""
    return consume(cluster, topic, group, lambda read: len(read.rows) >= count, 20.0, "earliest").reached
