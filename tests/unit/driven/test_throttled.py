"""A broker that throttles a client (KIP-219): what it says is heard on every way, and nothing is sent meanwhile."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest

from airflow_mirror.common import signals
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError
from airflow_mirror.kafka import tried
from airflow_mirror.kafka.session import AdminSession, Reply
from airflow_mirror.plan import holes
from airflow_mirror.wire import connection, fetch, requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import StoppedByQuota
from airflow_mirror.wire.routing import pipelined
from airflow_mirror.wire.single import fetch_one, produce_one, read_batches
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import row
from tests.driven.script import WAIT_S, Fault

T0 = TopicPartition("t", 0)
THROTTLE_S = 0.3


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster("target") as cluster:
        cluster.create("t", 1)
        yield cluster


@pytest.fixture
def wire(cluster: DrivenCluster) -> Iterator[WireCluster]:
    with WireCluster(cluster.config, timeout_s=WAIT_S) as wire:
        yield wire


def batch() -> memoryview:
    return memoryview(bytearray(records.encode([row(0), row(1)])))


def fetched(wire: WireCluster) -> object:
    return fetch_one(wire, T0, 0, isolation=fetch.READ_UNCOMMITTED)


def asked_for_ends(wire: WireCluster) -> object:
    return requests.metadata(wire.connection(wire.leader(T0).node_id), ["t"])


def looked_up(wire: WireCluster) -> object:
    """Two groups' coordinators, in requests without a pause between them; of both answers the first is throttled."""
    asked = [FindCoordinatorRequest(key="g", key_type=0, version=3)] * 2
    return list(pipelined(wire.connection(wire.leader(T0).node_id), asked, 3))


WAYS: dict[str, Callable[[WireCluster], object]] = {
    "Fetch": fetched,
    "Produce": lambda wire: produce_one(wire, T0, batch()),
    "Metadata": asked_for_ends,
    "FindCoordinator": looked_up,
}


@pytest.mark.parametrize("api", WAYS)
def test_nothing_is_sent_before_the_throttle_is_over(cluster: DrivenCluster, wire: WireCluster, api: str) -> None:
    leader = wire.connection(wire.leader(T0).node_id)
    cluster.script.on(api, Fault(throttle_ms=int(THROTTLE_S * 1000)))
    WAYS[api](wire)
    began = time.monotonic()
    requests.metadata(leader, ["t"])
    assert time.monotonic() - began > THROTTLE_S * 0.9


def empty_at_first(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let a broker answer that often with no partition, as it does while a quota is exceeded."""
    really, throttled = fetch.answer, iter([40] * times)

    def answer(at: connection.Connection, asked: int) -> tuple[int, int, list[fetch.FetchedPartition]]:
        heard = really(at, asked)
        if (ms := next(throttled, 0)) == 0:
            return heard
        at.throttle(ms)
        return ms, 0, []

    monkeypatch.setattr(fetch, "answer", answer)


def test_answers_without_partitions_are_asked_again_however_long_the_quota_holds(
    cluster: DrivenCluster, wire: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker whose quota for requests is exceeded answers a fetch with nothing at all, and no error."""
    produce_one(wire, T0, batch())
    empty_at_first(monkeypatch, times=3)
    read = read_batches(wire, T0, 0, 2, isolation=fetch.READ_UNCOMMITTED, timeout_s=0.02)
    assert [raw.next_offset for raw, _ in read] == [2]


def test_a_sample_and_a_trial_of_a_right_are_asked_for_until_the_quota_lets_them_through(
    cluster: DrivenCluster, wire: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no hole would be found and no right be missing: a plan would pass because nobody was heard."""
    produce_one(wire, T0, batch())
    empty_at_first(monkeypatch, 2)
    found = list(holes._fetch(wire, wire.leader(T0).node_id, [holes.Part(T0, 0, 2)], fetch.READ_UNCOMMITTED))
    assert [part.tp for part, _ in found] == [T0]
    empty_at_first(monkeypatch, 2)
    with AdminSession(cluster.config) as session:
        assert list(tried._read(session, ["t"])) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_what_an_answer_leaves_out_is_a_failure(cluster: DrivenCluster) -> None:
    def ask(some: list[str]) -> Iterator[Reply[str, None]]:
        yield Reply("said", 0, None, None)

    with AdminSession(cluster.config) as session:
        found, errors = session.each_apart(lambda key: f"read {key!r}", ["said", "unsaid"], ask, "Read", patience_s=0.1)
    assert list(found) == ["said"]
    assert isinstance(errors["unsaid"], BrokerError) and "the broker's answer leaves it out" in str(errors["unsaid"])


def test_a_connection_that_is_throttled_as_it_opens_sends_nothing_before_that_is_over(
    cluster: DrivenCluster, wire: WireCluster
) -> None:
    cluster.script.on("ApiVersions", Fault(throttle_ms=int(THROTTLE_S * 1000)))
    began = time.monotonic()
    requests.metadata(wire.connection(wire.leader(T0).node_id), ["t"])
    assert time.monotonic() - began > THROTTLE_S * 0.9


def test_a_quota_for_changes_of_topics_is_waited_out_and_told(
    cluster: DrivenCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """One change is accepted in each round, and for the others the controller's quota is a wait (KIP-599)."""
    with AdminSession(cluster.config, timeout_s=1.0) as session, caplog.at_level(logging.WARNING):

        def create(some: list[int]) -> Iterator[Reply[int, None]]:
            controller = session.controller()
            requests.metadata(controller, ["t"])
            controller.throttle(500)
            yield Reply(some[0], 0, None, None)
            yield from (Reply(one, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None, None) for one in some[1:])

        made = session.each(lambda key: f"create topic {key}", range(5), create, "Create")
    assert sorted(made) == [0, 1, 2, 3, 4]
    told = [one for one in caplog.messages if "throttled by quota" in one]
    assert told[0] == "target cluster: throttled by quota: 4 changes wait 0.5 s"


def test_a_wait_that_lasts_is_told_once(
    cluster: DrivenCluster, wire: WireCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_told", {})
    monkeypatch.setattr(connection, "_LONG_S", 0.1)
    leader = wire.connection(wire.leader(T0).node_id)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            leader.throttle(200)
            fetched(wire)
    (told,) = (one for one in caplog.messages if "throttles" in one)  # a thread of another test may say something
    assert told == f"target cluster: broker {leader.address} throttles this client (quota): it waits 0.2 s"


def test_a_stop_ends_the_wait_and_nothing_is_sent(
    cluster: DrivenCluster, wire: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, checked = threading.Event(), list[str]()
    monkeypatch.setattr(signals, "_asked_to_stop", stop)
    leader = wire.connection(wire.leader(T0).node_id)
    leader.throttle(3_600_000)
    threading.Timer(0.1, stop.set).start()
    with pytest.raises(StoppedByQuota, match=r"target cluster's broker .* throttled this client \(quota\) for 3600"):
        leader.send(0, 3, [batch()], check=lambda: checked.append("permit"))
    assert not leader._in_flight and not checked
