"""What a copier may use: memory whatever the sizes, the rate that it was given, and what brokers grant."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from airflow_mirror.copy.loop import loop
from airflow_mirror.copy.loop.limits import Pace
from airflow_mirror.copy.loop.loop import CopyLoop
from airflow_mirror.copy.loop.source_side import SourceSide
from airflow_mirror.copy.loop.target_side import TargetSide
from airflow_mirror.wire import fetch, produce
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from sandbox import Cluster
from tests.integration.copying import (
    assert_equal,
    config,
    copier_process,
    copy,
    create,
    ranges_of,
    results_of,
    write,
)

LARGEST_RSS = 256 << 20
MEGABYTE = 1 << 20


def fill(cluster: Cluster, topic: str, partitions: int, values: int, size: int, **conf: object) -> None:
    rng = random.Random(size)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 64 * MEGABYTE, **conf})
    for number in range(values):
        producer.produce(topic, rng.randbytes(size - rng.randint(0, size // 3)), partition=number % partitions)
        if number % 50 == 0:
            producer.poll(0)
        if len(producer) * size > 64 * MEGABYTE:
            producer.flush()
    assert producer.flush(240) == 0


def peaks(process: subprocess.Popen[str]) -> Iterator[int]:
    """Yield a process's largest resident memory so far, in bytes, until it has ended."""
    while process.returncode is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return
        # A process that has ended and was not waited for has no memory any more.
        yield next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("partitions", "values", "size"),
    [(3, 12, 16 * MEGABYTE), (8, 1200, 200_000), (150, 30_000, 600)],
    ids=["batches-of-16-MB", "240-MB", "150-partitions"],
)
def test_a_tasks_memory_is_bounded_at_any_size(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, partitions: int, values: int, size: int
) -> None:
    limits = {"max_message_bytes": str(32 * MEGABYTE), "segment_bytes": str(128 * MEGABYTE)}
    create(source_cluster, topic_name, partitions, **limits)
    create(target_cluster, topic_name, partitions, **limits)
    fill(source_cluster, topic_name, partitions, values, size)
    process = copier_process(
        source_cluster, target_cluster, ranges_of(source_cluster, topic_name, partitions), mirror=topic_name,
        max_batch_bytes={topic_name: 32 * MEGABYTE},
    )  # fmt: skip
    seen = [0]
    watching = threading.Thread(target=lambda: seen.extend(peaks(process)))
    watching.start()
    assert [r.error for r in results_of(process, timeout_s=240)] == [None] * partitions
    watching.join()
    assert 0 < max(seen) < LARGEST_RSS, f"{max(seen) >> 20} MB"


def test_a_byte_rate_is_not_exceeded_and_nothing_is_lost(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(source_cluster, topic_name, 3)
    create(target_cluster, topic_name, 3)
    fill(source_cluster, topic_name, 3, 900, 9000)
    rate = 1_500_000
    rates: list[float | None] = []
    spent: list[int] = []

    class Noting(Pace):
        def __init__(self, bytes_per_s: float | None, clock: Callable[[], float]) -> None:
            super().__init__(bytes_per_s, clock)
            rates.append(bytes_per_s)

        def spend(self, size: int) -> None:
            super().spend(size)
            spent.append(size)

    monkeypatch.setattr(loop, "Pace", Noting)
    begun = time.monotonic()
    results = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name, 3), max_bytes_per_second=rate)
    seconds = time.monotonic() - begun
    sent = sum(r.bytes for r in results)
    assert sent > 4 * rate, "too little to tell"
    # The last request is not waited for, and half a second's worth may be saved up. A slow machine only lowers a rate.
    assert (sent - rate) / seconds < 1.1 * rate
    # Nor is it a fraction of the rate, however slow the machine: no byte is waited for twice. What a pace makes of that
    # is told by tests/unit/copy/test_limits.py.
    assert rates == [rate] and sent <= sum(spent) < 1.2 * sent
    assert_equal(source_cluster, target_cluster, topic_name, 3)


def test_a_copy_with_nothing_to_do_sleeps(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop wakes for answers and four times a second; a pause that is over must not keep it awake."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    write(source_cluster, topic_name, 20, 1)
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), mirror=topic_name)
    turns = 0
    step = CopyLoop._step

    def counting(self: CopyLoop) -> None:
        nonlocal turns
        turns += 1
        step(self)

    monkeypatch.setattr(CopyLoop, "_step", counting)
    ranges = [replace(r, end_offset=None) for r in ranges_of(source_cluster, topic_name)]
    (result,) = copy(source_cluster, target_cluster, ranges, mirror=topic_name, duration_s=4.0)
    assert (result.error, result.position) == (None, 20)
    assert turns < 80  # an awake one makes thousands


def test_a_copy_never_waits_while_it_could_fetch(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aborted records are dropped without anything to wait for: the next fetch must be on its way by then."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    rng = random.Random(1)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "transactional.id": topic_name})
    producer.init_transactions()
    for aborted in (False, True) * 4:
        producer.begin_transaction()
        for _ in range(600 if aborted else 300):
            producer.produce(topic_name, rng.randbytes(10_000))
        producer.flush()
        producer.abort_transaction() if aborted else producer.commit_transaction()
    stalled = 0
    await_answers = CopyLoop._await_answers

    def watching(self: CopyLoop, timeout_s: float) -> None:
        nonlocal stalled
        under_way = self._out.busy or self._steps.busy
        asked = any(lane.busy or lane.dialling for lane in self._in._lanes.values())
        stalled += not under_way and not asked and any(p.wants_fetch for p in self.partitions)
        await_answers(self, timeout_s)

    monkeypatch.setattr(CopyLoop, "_await_answers", watching)
    (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), mirror=topic_name)
    assert (result.error, result.records) == (None, 1200)
    assert stalled == 0


class Throttled(NamedTuple):
    """How one side of a copy is throttled: the quota, what handles its answers, and the request."""

    quota: str
    side: type[SourceSide] | type[TargetSide]
    request: ModuleType


THROTTLED = {
    "source": Throttled("consumer_byte_rate", SourceSide, fetch),
    "target": Throttled("producer_byte_rate", TargetSide, produce),
}


@pytest.fixture(params=THROTTLED)
def throttled(request: pytest.FixtureRequest, source_cluster: Cluster, target_cluster: Cluster) -> Iterator[Throttled]:
    """A quota of 150 KB/s, over the broker's window of 11 s, for a client that nobody else is."""
    by = THROTTLED[request.param]
    cluster = source_cluster if by.side is SourceSide else target_cluster
    set_quota(cluster, by.quota, 150_000)
    yield by
    set_quota(cluster, by.quota, None)


def set_quota(cluster: Cluster, key: str, rate: float | None) -> None:
    from kafka.protocol.admin import AlterClientQuotasRequest as Request

    entry = Request.EntryData
    op = entry.OpData(key=key, value=rate or 0.0, remove=rate is None)
    who = [entry.EntityData(entity_type="client-id", entity_name="airflow-mirror.throttled")]
    request = Request(entries=[entry(entity=who, ops=[op])], validate_only=False)
    with WireCluster(config(cluster)) as wire:
        answer = wire.any_connection().request(request, 0)
    assert [e.error_code for e in answer.entries] == [0]


@pytest.mark.faults
def test_a_brokers_throttling_is_honoured(
    source_cluster: Cluster, target_cluster: Cluster, throttled: Throttled, topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    create(source_cluster, topic_name, 2)
    create(target_cluster, topic_name, 2)
    fill(source_cluster, topic_name, 2, 800, 3000, **{"batch.size": 20_000})
    pauses: list[float] = []
    early: list[float] = []
    pause_until: dict[int, float] = {}
    current: list[object] = []  # the connection whose answer is being handled
    receive, send, decode = throttled.side.receive, Connection.send, throttled.request.decode

    def receiving(self: object, lane: Any) -> None:
        current.append(lane.connection)
        receive(self, lane)  # type: ignore[arg-type]
        current.pop()

    def decoding(body: memoryview, *spoken: int) -> tuple[Any, ...]:
        answer = decode(body, *spoken)
        if current:
            pauses.append(answer[0] / 1000)
            if answer[0]:
                pause_until[id(current[0])] = time.monotonic() + pauses[-1]  # before the product looks at its clock
        return answer

    def sending(self: Connection, api_key: int, *arguments: object, **named: object) -> int:
        if api_key == throttled.request.API_KEY and id(self) in pause_until:
            early.append(pause_until[id(self)] - time.monotonic())
        return send(self, api_key, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(throttled.side, "receive", receiving)
    monkeypatch.setattr(throttled.request, "decode", decoding)
    monkeypatch.setattr(Connection, "send", sending)
    results = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name, 2), mirror="throttled")
    assert [r.error for r in results] == [None, None]
    assert max(pauses) > 0.1, "the broker never asked for a pause"
    assert max(early) <= 0, f"sent {max(early):.3f} s too early"
    assert_equal(source_cluster, target_cluster, topic_name, 2)
