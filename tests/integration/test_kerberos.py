"""Logins by Kerberos on real brokers and KDCs: who gets in, how often, and what is said to who does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.sasl import SaslHandshakeResponse

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import AuthenticationFailed, InputError, InvalidField, MirrorError, TryAgain
from airflow_mirror.kafka.principal import own_principal
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.kerberos import tickets as tickets_module
from airflow_mirror.wire.login import log_in
from airflow_mirror.wire.settings import WireSettings
from sandbox.kdc import SERVICE, Realm
from sandbox.ports import HOST
from tests.integration.copying import wait_until
from tests.integration.realms import OWN, SESSION_S, Side, World

pytestmark = pytest.mark.kerberos

ROOT = Path(__file__).parents[2]
API_VERSIONS = 18


@pytest.fixture(autouse=True)
def _nothing_cached() -> None:
    """Each test asks the KDC anew."""
    tickets_module._forget()


@pytest.fixture
def gone(realms: World) -> Iterator[Realm]:
    """The source's realm, whose KDC the test may kill or freeze."""
    yield realms.source.realm
    realms.source.realm.resume_or_restart()


def opened(side: Side, settings: dict[str, str], timeout_s: float = 30.0) -> Connection:
    host, port = side.cluster.bootstrap_sasl.split(":")
    return Connection.open(host, int(port), WireSettings.from_config(ClientConfig(settings, side.role)), timeout_s)


def fails(side: Side, settings: dict[str, str], error: type[MirrorError], *said: str, timeout_s: float = 30.0) -> None:
    with pytest.raises(error) as caught:
        opened(side, settings, timeout_s)
    print(caught.value)  # shown when the test fails
    assert [part for part in said if part not in str(caught.value)] == []


# --- who gets in --------------------------------------------------------------------------------------------------------


def test_keytabs_of_two_realms_open_two_clusters_in_one_process(realms: World) -> None:
    """Eight threads that alternate: no login takes the other cluster's ticket."""
    settings = [WireSettings.from_config(side.config()) for side in (realms.source, realms.target)]
    addresses = [side.cluster.bootstrap_sasl.split(":") for side in (realms.source, realms.target)]

    def log_in(number: int) -> None:
        for i in range(20):
            one = (number + i) % 2
            host, port = addresses[one]
            with Connection.open(host, int(port), settings[one], 60) as connection:
                assert len(connection.roundtrip(API_VERSIONS, 0, b"")) > 100

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(log_in, range(8)))
    assert len(tickets_module._registry) == 2


def test_a_principal_is_known_where_brokers_have_no_rules_and_demanded_where_they_have(realms: World) -> None:
    with realms.source.admin() as source, realms.target.admin() as target:
        assert own_principal(source, {}) == OWN["source"]
        with pytest.raises(InvalidField, match="own_principals.*target's connection.*principal.to.local.rules"):
            own_principal(target, {})
        assert own_principal(target, OWN) == OWN["target"]


def test_a_ticket_cache_logs_in_until_it_ends_and_again_when_it_was_renewed(realms: World, tmp_path: Path) -> None:
    side, cache = realms.source, tmp_path / "krb5cc"
    settings = side.settings(sasl_kerberos_keytab="", sasl_kerberos_principal="", sasl_kerberos_ccache=str(cache))
    nothing = ("source", side.cluster.bootstrap_sasl, f"ticket cache {cache}", "there is no such cache", "kinit")
    fails(side, settings, InputError, *nothing)
    side.realm.log_in("mirror", cache, life_s=4)
    opened(side, settings).close()
    opened(side, settings | {"sasl.kerberos.principal": f"mirror@{side.realm.name}"}).close()
    wait_until(lambda: refused(side, settings), "the ticket ends", 60, 0.5)
    expired = ("source", f"ticket cache {cache}", "the ticket has expired", "Get another (kinit)", "k5start")
    fails(side, settings, InputError, *expired)
    side.realm.log_in("mirror", cache)
    opened(side, settings).close()


def refused(side: Side, settings: dict[str, str]) -> bool:
    try:
        opened(side, settings).close()
    except InputError:
        return True
    return False


def test_the_environments_ticket_cache_is_the_default(
    realms: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "krb5cc"
    realms.target.realm.log_in("mirror", cache)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    opened(realms.target, realms.target.settings(sasl_kerberos_keytab="", sasl_kerberos_principal="")).close()


LOG_IN = """
import json, os, sys
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.admin import ClusterAdmin
with ClusterAdmin(ClientConfig(json.loads(sys.stdin.read()), "source"), timeout_s=60) as admin:
    print(admin.cluster_id())
"""


@pytest.mark.parametrize("kind", ["keytab", "ccache"])
def test_a_process_without_the_file_logs_in_with_its_content(realms: World, tmp_path: Path, kind: str) -> None:
    """It gets the bytes in memory, as executors do, and keeps them there."""
    side, path = realms.source, tmp_path / "proof"
    if kind == "keytab":
        path.write_bytes(side.realm.keytab("mirror").read_bytes())
    else:
        side.realm.log_in("mirror", path)
    config = side.config(**({"sasl_kerberos_keytab": ""} | {f"sasl_kerberos_{kind}": str(path)}))
    handed = config.with_files().dump()
    path.unlink()
    done = subprocess.run(
        [sys.executable, "-c", LOG_IN], input=handed, cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    with realms.source.admin() as admin:
        assert done.stdout.strip() == admin.cluster_id(), done.stderr
    assert list(tmp_path.iterdir()) == []


class OldBroker:
    """A broker before 1.0, as far as a login goes: bare tokens, and no answer to the last one.

    It accepts with the keytab of the real ones. A real one needs a Java of its time that has GSSAPI's module.
    """

    host, address, timeout_s = HOST, f"{HOST}:9092", 30.0
    offer = b"\x01\x00\x00\x00"

    def __init__(self, keytab: Path) -> None:
        import gssapi

        credentials = gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{keytab}"})
        self.context = gssapi.SecurityContext(creds=credentials, usage="accept")
        self.chosen: bytes | None = None

    def serves(self, _api_key: int, _version: int) -> bool:
        return False

    def newest(self, api_key: int, lowest: int, highest: int) -> int:
        raise AssertionError("old brokers know no SaslAuthenticate")

    def request(self, message: Any, version: int) -> Any:
        return SaslHandshakeResponse(version=version, error_code=0, mechanisms=[message.mechanism])

    def exchange_token(self, token: bytes, *, last: bool = False) -> bytes:
        if last:
            self.chosen = self.context.unwrap(token).message
            return b""
        if not self.context.complete:
            return bytes(self.context.step(token) or b"")
        assert token == b""
        return bytes(self.context.wrap(self.offer, False).message)


def test_brokers_before_1_0_get_bare_tokens_and_do_not_answer_the_last(realms: World) -> None:
    broker = OldBroker(realms.source.realm.keytab(SERVICE, "of-an-old-broker"))
    assert log_in(broker, WireSettings.from_config(realms.source.config())) == 0
    assert broker.chosen == b"\x01\x00\x00\x00"
    assert str(broker.context.initiator_name) == "mirror@ONE.TEST"


def test_a_broker_that_demands_a_layer_of_sasl_is_refused(realms: World) -> None:
    """Kafka has none: what follows would be sent in the open to who expects it encrypted."""
    broker = OldBroker(realms.source.realm.keytab(SERVICE, "of-a-strange-broker"))
    broker.offer = b"\x06\x00\xff\xff"
    with pytest.raises(AuthenticationFailed, match="wants a security layer"):
        log_in(broker, WireSettings.from_config(realms.source.config()))


# --- sessions -----------------------------------------------------------------------------------------------------------


def test_a_session_is_renewed_with_tickets_that_are_at_hand(realms: World, gone: Realm) -> None:
    """The broker demands a new login every ten seconds; the KDC is dead, and nobody notices."""
    connection = opened(realms.source, realms.source.settings())
    gone.kill()
    until, first = time.monotonic() + 2 * SESSION_S + 1, connection._ends_at
    while time.monotonic() < until:
        assert len(connection.roundtrip(API_VERSIONS, 0, b"")) > 100
        time.sleep(0.2)
    assert connection._ends_at > first + SESSION_S
    connection.close()


def test_a_kdc_that_hangs_holds_up_no_session_until_that_ends(realms: World, gone: Realm) -> None:
    """No request waits for the KDC while the session lasts; when it ends the wait has the connection's own limit."""
    connection = opened(realms.source, realms.source.settings(), timeout_s=2.0)
    tickets_module._registry.clear()  # as if the tickets had ended
    connection.settings.__dict__.pop("kerberos")
    gone.pause()
    longest, ends_at = 0.0, connection._ends_at
    with pytest.raises(ConnectionLost, match="source cluster, .* no Kerberos ticket for principal 'mirror' of realm ONE"):
        while True:
            began = time.monotonic()
            connection.roundtrip(API_VERSIONS, 0, b"")
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.05)
    assert ends_at - 1.5 < began and time.monotonic() - began < SESSION_S
    assert longest < 1.0, longest
    assert connection.closed
    gone.resume_or_restart()
    opened(realms.source, realms.source.settings()).close()


def test_a_hung_kdc_of_one_realm_delays_no_login_of_the_other(realms: World, gone: Realm) -> None:
    gone.pause()
    waited = threading.Thread(target=lambda: refused_or_lost(realms.source), daemon=True)
    waited.start()
    opened(realms.target, realms.target.settings(), timeout_s=20).close()
    waited.join(60)
    assert not waited.is_alive()


def refused_or_lost(side: Side) -> None:
    with pytest.raises(TryAgain):
        opened(side, side.settings(), timeout_s=5)


# --- what is said -------------------------------------------------------------------------------------------------------


def test_a_kdc_that_is_down_is_named_and_may_come_back(realms: World, gone: Realm) -> None:
    side, settings = realms.source, realms.source.settings()
    gone.kill()
    said = ("principal 'mirror' of realm ONE.TEST", settings["sasl.kerberos.keytab"], "Cannot contact any KDC for realm")
    fails(side, settings, TryAgain, "source cluster", side.cluster.bootstrap_sasl, "(asked: login)", *said)
    gone.resume_or_restart()
    opened(side, settings).close()


def test_a_kdc_that_hangs_ends_a_login_at_its_limit(realms: World, gone: Realm) -> None:
    side, settings = realms.source, realms.source.settings()
    gone.pause()
    began = time.monotonic()
    fails(side, settings, TryAgain, "no answer from the KDC within 1 s", "ONE.TEST", "mirror.keytab", timeout_s=1.0)
    assert time.monotonic() - began < 20  # Kerberos itself takes 25
    gone.resume_or_restart()
    opened(side, settings).close()


def _old_key(side: Side) -> dict[str, str]:
    side.realm.add("old-key")
    settings = side.settings("old-key")
    side.realm.change_key("old-key")
    return settings


def _removed(side: Side) -> dict[str, str]:
    side.realm.add("removed")
    settings = side.settings("removed")
    side.realm.remove("removed")
    return settings


def _another(side: Side) -> dict[str, str]:
    return side.settings(sasl_kerberos_keytab=str(side.realm.keytab(SERVICE, "of-brokers")))


def _no_keytab(side: Side) -> dict[str, str]:
    broken = side.realm.directory / "broken.keytab"
    broken.write_bytes(b"no keytab at all")
    return side.settings(sasl_kerberos_keytab=str(broken))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (_old_key, ["'old-key' of realm ONE.TEST", "old-key.keytab", "write the keytab again"]),
        (
            _removed,
            ["Client 'removed@ONE.TEST' not found in Kerberos database", "removed.keytab", "Create the principal"],
        ),
        (
            _another,
            [
                "'mirror' of realm ONE.TEST",
                "of-brokers.keytab",
                "No key table entry found for mirror@ONE.TEST",
                "klist -k",
            ],
        ),
        (_no_keytab, ["'mirror' of realm ONE.TEST", "broken.keytab", "Unsupported key table format", "klist -k"]),
        (
            lambda side: side.settings(sasl_kerberos_service_name="confluent"),
            ["Server confluent/127.0.0.1@ONE.TEST not found", "as confluent/127.0.0.1", "sasl.kerberos.service.name"],
        ),
        (
            lambda side: side.settings(sasl_kerberos_principal="mirror@NOWHERE.TEST"),
            ["'mirror' of realm NOWHERE.TEST", "mirror.keytab", "No key table entry found", "klist -k"],
        ),
    ],
    ids=["old-key", "unknown-principal", "another-keytab", "broken-keytab", "unknown-service", "unknown-realm"],
)
def test_each_refusal_names_principal_realm_keytab_and_cause(
    realms: World, settings: Callable[[Side], dict[str, str]], said: list[str]
) -> None:
    side = realms.source
    fails(side, settings(side), InputError, "source cluster", side.cluster.bootstrap_sasl, *said)


def test_a_broker_that_cant_read_the_ticket_refuses_and_the_identity_is_named(realms: World) -> None:
    """The ticket is of another realm, whose KDC knows a service of the same name."""
    settings = realms.target.settings() | {"bootstrap.servers": realms.source.cluster.bootstrap_sasl}
    fails(realms.source, settings, AuthenticationFailed, "GSSAPI as principal 'mirror' of realm TWO.TEST", "broker's log")


def test_a_missing_keytab_is_named_before_anything_is_sent(realms: World) -> None:
    settings = realms.source.settings(sasl_kerberos_keytab="/nowhere/mirror.keytab")
    with pytest.raises(InvalidField, match="sasl.kerberos.keytab='/nowhere/mirror.keytab': the file is not on this host"):
        WireSettings.from_config(ClientConfig(settings, "source"))


def test_no_error_shows_a_key(realms: World) -> None:
    content: Any = json.loads(realms.source.config().with_files().dump())["sasl.kerberos.keytab.base64"]
    with pytest.raises(InputError) as caught:
        opened(realms.source, _removed(realms.source) | {"sasl.kerberos.keytab.base64": content})
    assert content not in str(caught.value)
