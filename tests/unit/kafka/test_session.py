"""The first contact: its time, its error, and what it never shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataResponse

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InvalidField
from airflow_mirror.kafka import session
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.settings import WireSettings
from tests.unit.kafka.test_acls import described
from tests.unit.kafka.world import DESCRIBE_ACLS, METADATA, world

T0 = TopicPartition("orders", 0)


class Dialled:
    """Who was connected to, and within which time; ``fails`` raises what comes of it, or returns: then it is done."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.asked, self.within_s = list[str](), list[float]()
        self.fails: Callable[[str], None] = self.refuse
        self._open = Connection.open
        patch.setattr(Connection, "open", self._opens)

    def _opens(self, host: str, port: int, settings: WireSettings, timeout_s: float) -> Connection:
        self.asked.append(f"{host}:{port}")
        self.within_s.append(timeout_s)
        self.fails(self.asked[-1])
        return self._open(host, port, settings, timeout_s)

    def refuse(self, address: str) -> None:
        raise ConnectionLost("source", address, "connect", "Connection refused")

    def deny(self, address: str) -> None:
        raise AuthenticationFailed("source", address, "no")


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> Dialled:
    return Dialled(monkeypatch)


def admin(*addresses: str) -> ClusterAdmin:
    return ClusterAdmin(ClientConfig({"bootstrap.servers": ",".join(addresses)}, "source"), timeout_s=300)


def test_silent_servers_share_the_time_of_the_first_contact(dialled: Dialled, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def silent(address: str) -> None:
        now[0] += dialled.within_s[-1]
        raise ConnectionLost("source", address, "connect", "no answer")

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda s: None)
    dialled.fails = silent
    with pytest.raises(ClusterUnreachable, match="no broker at a:1,b:2,c:3,d:4.*no answer"):
        admin("a:1", "b:2", "c:3", "d:4").cluster_id()
    assert now[0] < session.CONNECT_TIMEOUT_S + 1 and dialled.within_s[:4] == [2.0, 2.0, 2.0, 2.0]


def test_server_that_is_starting_is_waited_for(dialled: Dialled) -> None:
    dialled.fails = lambda address: dialled.refuse(address) if len(dialled.asked) == 1 else None
    with world() as w:
        assert w.admin.cluster_id() == "the-cluster" and len(dialled.asked) == 2


def test_refused_credentials_are_not_tried_again(dialled: Dialled) -> None:
    dialled.fails = dialled.deny
    with pytest.raises(AuthenticationFailed):
        admin("a:1", "b:2").cluster_id()
    assert len(dialled.asked) == 1


def test_administration_may_have_addresses_of_its_own(dialled: Dialled) -> None:
    dialled.fails = dialled.deny
    config = ClientConfig({"bootstrap.servers": "data:1", "admin.bootstrap.servers": "admin:2"}, "source")
    with pytest.raises(AuthenticationFailed):
        ClusterAdmin(config).cluster_id()
    assert dialled.asked == ["admin:2"]
    assert config.common() == {"bootstrap.servers": "data:1"}  # librdkafka does not know the other one


def test_setting_that_can_not_be_honoured_shows_no_secret() -> None:
    kerberos = {"security.protocol": "SASL_SSL", "sasl.kerberos.principal": "a@B", "sasl.kerberos.keytab": "/hunter2"}
    settings = {"bootstrap.servers": "a:1", **kerberos, "sasl.password": "hunter2"}
    with pytest.raises(InvalidField, match="target cluster: sasl.kerberos.keytab.*[*]{3}") as e:
        ClusterAdmin(ClientConfig(settings, "target"))
    assert "hunter2" not in str(e.value)


def test_closed_admin_connects_again_at_its_next_call() -> None:
    with world() as w:
        assert w.admin.broker_count() == 1
        w.admin.close()
        w.admin.close()
        assert w.admin.broker_count() == 1
        assert w.broker.connections == 2


def test_cluster_that_goes_away_between_two_calls_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as w:
        assert w.admin.broker_count() == 1
        w.broker.close()
        monkeypatch.setattr(w.admin, "timeout_s", 0.3)
        with pytest.raises(ClusterUnreachable, match=f"source cluster: no broker at 127.0.0.1:{w.broker.port}"):
            w.admin.broker_count()


def test_unreachable_cluster_is_tried_once_for_each_call(dialled: Dialled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.0)
    for call in (lambda a: a.delete_records({T0: 1}, unfenced), lambda a: a.offsets([T0]), lambda a: a.groups()):
        dialled.asked.clear()
        with pytest.raises(ClusterUnreachable):
            call(admin("a:1"))
        assert len(dialled.asked) == 1


@pytest.mark.parametrize(
    "ask",
    [
        lambda admin: admin.acls_by_broker(),
        lambda admin: admin.broker_configs(),
        lambda admin: admin.topics(),
        lambda admin: admin.topics(["orders"]),
        lambda admin: admin.broker_count(),
    ],
    ids=["rules", "settings", "topics", "a-topic", "brokers"],
)
def test_broker_that_knows_no_brokers_yet_is_not_believed(ask: Callable[[ClusterAdmin], Any]) -> None:
    """It has just started: what it does not know would be proven by nobody, and found nowhere."""

    def just_started(request: Any) -> Any:
        topic = MetadataResponse.MetadataResponseTopic
        unknown = [topic(error_code=3, name=one.name, partitions=[]) for one in request.topics or []]
        return MetadataResponse(brokers=[], cluster_id=None, controller_id=-1, topics=unknown)

    with world() as w:
        w.topics["orders"], w.topics["1"] = (1, {}), (1, {})
        w.answer(DESCRIBE_ACLS, described())
        known = ask(w.admin)
        assert known
        w.answer(METADATA, just_started, w.broker.answers[METADATA])
        assert ask(w.admin) == known
        w.answer(METADATA, just_started)
        w.admin.timeout_s = 0.1
        with pytest.raises(ConnectionLost, match="it lists no brokers: it has just started"):
            ask(w.admin)
