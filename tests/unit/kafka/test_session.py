"""The first contact: its time, its error, and what it never shows."""

from __future__ import annotations

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InvalidField
from airflow_mirror.kafka import session
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.settings import WireSettings
from tests.unit.kafka.world import world

T0 = TopicPartition("orders", 0)


def admin(*addresses: str) -> ClusterAdmin:
    return ClusterAdmin(ClientConfig({"bootstrap.servers": ",".join(addresses)}, "source"), timeout_s=300)


def test_silent_servers_share_the_time_of_the_first_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    now, given = [0.0], []

    def silent(host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        given.append(timeout_s)
        now[0] += timeout_s
        raise ConnectionLost("source", f"{host}:{port}", "connect", "no answer")

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda s: None)
    monkeypatch.setattr(Connection, "open", silent)
    with pytest.raises(ClusterUnreachable, match="no broker at a:1,b:2,c:3,d:4.*no answer"):
        admin("a:1", "b:2", "c:3", "d:4").cluster_id()
    assert now[0] < session.CONNECT_TIMEOUT_S + 1 and given[:4] == [2.0, 2.0, 2.0, 2.0]


def test_server_that_is_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = [], Connection.open

    def refused_at_first(host: str, port: int, settings: WireSettings, timeout_s: float) -> Connection:
        opened.append(port)
        if len(opened) == 1:
            raise ConnectionLost("source", f"{host}:{port}", "connect", "Connection refused")
        return real(host, port, settings, timeout_s)

    monkeypatch.setattr(Connection, "open", refused_at_first)
    with world() as w:
        assert w.admin.cluster_id() == "the-cluster" and len(opened) == 2


def test_refused_credentials_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def refuse(host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        opened.append(port)
        raise AuthenticationFailed("source", f"{host}:{port}", "no")

    monkeypatch.setattr(Connection, "open", refuse)
    with pytest.raises(AuthenticationFailed):
        admin("a:1", "b:2").cluster_id()
    assert len(opened) == 1


def test_administration_may_have_addresses_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def refuse(host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        opened.append(f"{host}:{port}")
        raise AuthenticationFailed("source", f"{host}:{port}", "no")

    monkeypatch.setattr(Connection, "open", refuse)
    config = ClientConfig({"bootstrap.servers": "data:1", "admin.bootstrap.servers": "admin:2"}, "source")
    with pytest.raises(AuthenticationFailed):
        ClusterAdmin(config).cluster_id()
    assert opened == ["admin:2"]
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


def test_unreachable_cluster_is_tried_once_for_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def refuse(host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        opened.append(port)
        raise ConnectionLost("source", f"{host}:{port}", "connect", "Connection refused")

    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Connection, "open", refuse)
    for call in (lambda a: a.delete_records({T0: 1}, unfenced), lambda a: a.offsets([T0]), lambda a: a.groups()):
        opened.clear()
        with pytest.raises(ClusterUnreachable):
            call(admin("a:1"))
        assert len(opened) == 1
