"""Kerberos without a KDC: who logs in, what errors mean, and moments that a real KDC does not show on request.

A fake of the library stands in for a KDC that hangs, refuses or answers late. Real ones: integration/test_kerberos*.py.
"""

from __future__ import annotations

import base64
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig, Handover, load
from airflow_mirror.errors import AuthenticationFailed, InputError, InvalidField, TryAgain
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost
from airflow_mirror.wire.kerberos import tickets as tickets_module
from airflow_mirror.wire.kerberos.causes import explain, no_ticket
from airflow_mirror.wire.kerberos.identity import Identity, identity_of
from airflow_mirror.wire.kerberos.mechanism import KerberosLogin
from airflow_mirror.wire.kerberos.tickets import Tickets, Unavailable, tickets_of
from airflow_mirror.wire.settings import WireSettings
from tests.waiting import wait_until

MIRROR = Identity(
    principal="mirror@ONE.TEST", service="kafka", keytab="FILE:/etc/mirror.keytab", proof="keytab /etc/mirror.keytab"
)
_BASE = 2**32 - 1765328384  # of Kerberos's numbers, as the library gives them


class GSSError(Exception):
    def __init__(self, number: int, text: str = "said so") -> None:
        self.min_code, self.text = (_BASE + number) % 2**32, text

    def gen_message(self) -> str:
        return (
            f"Major (851968): Unspecified GSS failure.  Minor code may provide more information, Minor (1): {self.text}"
        )


class ExpiredCredentialsError(GSSError):
    def __init__(self) -> None:
        super().__init__(0, "Success")
        self.maj_code, self.min_code = 720896, 100001


class Library:
    """As much of gssapi as is used. ``caches``: name -> (when its ticket ends, its hosts).

    :ivar kdc: a function of what is asked ("as" for a ticket, or a host); it may block or raise.
    """

    exceptions = SimpleNamespace(GSSError=GSSError, ExpiredCredentialsError=ExpiredCredentialsError)
    NameType = SimpleNamespace(kerberos_principal=1, hostbased_service=2)
    MechType = SimpleNamespace(kerberos=1)
    RequirementFlag = SimpleNamespace(out_of_sequence_detection=1)

    def __init__(self, life_s: float) -> None:
        self.life_s = life_s
        self.caches: dict[str, tuple[float, set[str]]] = {}
        self.asked: list[str] = []
        self.threads: set[str] = set()
        self.kdc: Any = lambda _: None
        self._tickets: list[Tickets] = []

    def tickets(self, identity: Identity) -> Tickets:
        self._tickets.append(Tickets(identity))
        return self._tickets[-1]

    def close(self) -> None:
        """End the threads: one that goes on renewing writes into the log of whatever test comes next."""
        for tickets in (*self._tickets, *tickets_module._registry.values()):
            with tickets._changed:
                tickets._used_at = 0.0
                tickets._changed.notify_all()
            wait_until(lambda tickets=tickets: not tickets._works)

    def ask(self, what: str) -> None:
        self.asked.append(what)
        self.threads.add(threading.current_thread().name)
        self.kdc(what)

    def Name(self, text: str, _kind: int) -> str:
        return text

    def Credentials(self, name: str | None, usage: str, mechs: list[int], store: dict[str, str]) -> Any:
        cache = store["ccache"]
        ends, _ = self.caches.get(cache, (0.0, set()))
        if "client_keytab" in store and ends - time.time() < self.life_s / 2:
            try:
                self.ask("as")
                self.caches[cache] = (time.time() + self.life_s, set())
            except GSSError:
                if cache not in self.caches:
                    raise
                if ends <= time.time():
                    raise ExpiredCredentialsError from None
        if cache not in self.caches:
            raise GSSError(195, "No credentials cache found")
        return SimpleNamespace(cache=cache, lifetime=self.caches[cache][0] - time.time())

    def SecurityContext(self, name: str, creds: Any, mech: int, usage: str, flags: int | None) -> Any:
        host = name.partition("@")[2]

        def step(_token: bytes | None = None) -> bytes:
            ends, hosts = self.caches[creds.cache]
            if ends <= time.time():
                raise GSSError(32, "Ticket expired")
            if host not in hosts:
                self.ask(host)
                hosts.add(host)
            return b"token"

        return SimpleNamespace(step=step, lifetime=self.caches[creds.cache][0] - time.time(), complete=False, host=host)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    fake = Library(life_s=3600)
    monkeypatch.setitem(sys.modules, "gssapi", fake)  # type: ignore[arg-type]
    tickets_module._forget()
    yield fake
    fake.close()


# --- who ----------------------------------------------------------------------------------------------------------------


def described(**settings: str) -> Identity:
    properties = {f"sasl.kerberos.{key.replace('_', '.')}": value for key, value in settings.items()}
    return identity_of(lambda key, default="": str(properties.get(key, default)), "source")


def test_a_keytab_file_comes_before_its_content(tmp_path: Path) -> None:
    path = tmp_path / "mirror.keytab"
    path.write_bytes(b"changed here")
    found = described(keytab=str(path), principal="m@R", keytab_base64=base64.b64encode(b"as it was").decode())
    assert found == Identity(principal="m@R", service="kafka", keytab=f"FILE:{path}", proof=f"keytab {path}")
    assert str(found) == f"principal 'm' of realm R (keytab {path})"
    assert described(keytab=f"FILE:{path}", principal="m@R").keytab == f"FILE:{path}"


def test_content_without_a_file_stays_in_memory(tmp_path: Path) -> None:
    def content() -> Identity:
        secret = base64.b64encode(b"key of mirror").decode()
        return described(keytab="/elsewhere/mirror.keytab", principal="m", keytab_base64=secret)

    found = content()
    assert Path(found.keytab.removeprefix("FILE:")).read_bytes() == b"key of mirror"
    assert (
        found.keytab.startswith("FILE:/proc/self/fd/") and content() == found
    )  # one file, however often it is asked for
    assert str(found) == "principal 'm' of the default realm (keytab /elsewhere/mirror.keytab)"


def test_a_keytab_that_is_not_here_is_named_with_host_and_remedy() -> None:
    with pytest.raises(
        InvalidField, match=r"sasl.kerberos.keytab='/no.keytab': the file is not on this host \(source, host"
    ):
        described(keytab="/no.keytab", principal="m@R")


def test_a_ticket_cache_is_the_settings_or_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", "FILE:/tmp/of-environment")
    assert described(ccache="/run/cc").cache == "/run/cc"
    assert described() == Identity(
        service="kafka", cache="FILE:/tmp/of-environment", proof="ticket cache FILE:/tmp/of-environment"
    )
    monkeypatch.delenv("KRB5CCNAME")
    assert str(described()) == "the owner of the default ticket cache"


def test_files_are_handed_over_by_content_and_shown_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keytab = tmp_path / "mirror.keytab"
    keytab.write_bytes(b"\x05\x02key")
    settings = tmp_path / "source.properties"
    settings.write_text(f"bootstrap.servers=b:1\nsasl.kerberos.keytab={keytab}\nsasl.kerberos.ccache=/nowhere\n")
    monkeypatch.setattr("airflow_mirror.config._handed", {})
    Handover.of(str(settings)).accept()
    keytab.unlink()
    handed = load(str(settings))
    content = handed.properties["sasl.kerberos.keytab.base64"]
    assert base64.b64decode(content) == b"\x05\x02key"
    assert handed.secrets() == [content] and content not in repr(handed)  # the path is no secret
    assert "sasl.kerberos.ccache.base64" not in handed.properties


# --- errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "remedy", "passes"),
    [
        (6, "Create the principal", False),
        (7, "as kafka/b1: .*sasl.kerberos.service.name", False),
        (24, "write the keytab again", False),
        (31, "write the keytab again", False),
        (37, "clocks", False),
        (154, "krb5.conf", False),
        (156, "check the realm's KDC", True),
        (29, "check the realm's KDC", True),
        (99, "kinit and kvno", False),
    ],
)
def test_each_error_has_its_cause_and_a_remedy(number: int, remedy: str, passes: bool) -> None:
    failure = explain(GSSError(number, "the very cause."), MIRROR, "b1")
    assert (failure.cause, failure.passes) == ("the very cause", passes)
    error = no_ticket("source", "b1:9092", MIRROR, failure)
    said = str(error)
    assert re.search(remedy, said)
    assert all(
        part in said for part in ("source", "b1:9092", "'mirror'", "realm ONE.TEST", "/etc/mirror.keytab", "cause")
    )
    assert isinstance(error, TryAgain if passes else InputError)


def test_expiry_is_said_although_the_library_says_success() -> None:
    of_cache = Identity(service="kafka", cache="/run/cc", proof="ticket cache /run/cc")
    failure = explain(ExpiredCredentialsError(), of_cache, "b1")
    assert failure.cause == "the ticket has expired" and "kinit" in failure.remedy and not failure.passes
    assert explain(GSSError(32), MIRROR, "b1").passes  # a keytab gets another one, once the KDC is back


def test_a_missing_library_is_named_with_the_extra_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    properties = {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.kerberos.ccache": "/run/cc"}
    for mechanism in ({"sasl.mechanism": "gssapi"}, {}):  # it is librdkafka's default
        with pytest.raises(InputError, match=r"pip install 'airflow-mirror\[kerberos\]'") as caught:
            WireSettings.from_config(ClientConfig(properties | mechanism, "source"))
        assert isinstance(caught.value, InputError)


# --- tickets ------------------------------------------------------------------------------------------------------------


def test_a_second_login_asks_no_kdc_and_no_login_asks_it_itself(library: Library) -> None:
    tickets = library.tickets(MIRROR)
    for _ in range(3):
        assert tickets.begin("b1", 10)[1] == b"token"
    assert library.asked == ["as", "b1"]
    tickets.begin("b2", 10)
    assert library.asked == ["as", "b1", "b2"]
    assert library.threads == {"kerberos"}


def test_a_kdc_that_hangs_delays_a_login_until_its_limit_and_is_asked_once(library: Library) -> None:
    goes_on = threading.Event()
    library.kdc = lambda _: goes_on.wait(60)
    tickets, login = library.tickets(MIRROR), ("b1", 0.05, "source", "b1:9092")
    for _ in range(3):
        with pytest.raises(ConnectionLost, match=r"source cluster, broker b1:9092: no Kerberos ticket .* within 0.05 s"):
            KerberosLogin(tickets, *login)
    assert library.asked == ["as"] and not tickets.is_at_hand("b1")
    goes_on.set()
    assert tickets.begin("b1", 30)[1] == b"token"


def test_tickets_are_renewed_at_half_of_their_life_behind_the_logins(library: Library) -> None:
    """While the KDC hangs then, logins use the old ones; the new ones come with all that the old ones had."""
    tickets, hung, goes_on = library.tickets(MIRROR), threading.Event(), threading.Event()
    for host in ("b1", "b2"):
        tickets.begin(host, 30)

    def hang(_what: str) -> None:
        hung.set()
        goes_on.wait(60)

    library.kdc = hang
    old = tickets._cache
    with tickets._changed:
        old.begun -= old.life_s / 2 + 1  # as if half of it was over
        tickets._changed.notify_all()
    assert hung.wait(30)
    assert tickets.is_at_hand("b1") and tickets.begin("b2", 0)[1] == b"token"
    library.asked.clear()
    goes_on.set()
    wait_until(lambda: tickets._cache is not old)
    assert tickets._cache.hosts.keys() == {"b1", "b2"} and tickets._spare == old.name
    asked = list(library.asked)
    assert tickets.begin("b1", 0)[1] == b"token" and library.asked == asked


def test_a_renewal_that_fails_keeps_what_is_there(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets_module, "_AGAIN_S", 0.02)
    tickets = library.tickets(MIRROR)
    tickets.begin("b1", 30)
    refusals = []

    def refuse(what: str) -> None:
        refusals.append(what)
        raise GSSError(156, "Cannot contact any KDC")

    library.kdc = refuse
    old = tickets._cache
    with tickets._changed:
        old.begun -= old.life_s / 2 + 1
        tickets._changed.notify_all()
    wait_until(lambda: len(refusals) > 2)
    assert tickets._cache is old and tickets.begin("b1", 0)[1] == b"token"
    library.kdc = lambda _: None
    wait_until(lambda: tickets._cache is not old)


def test_an_expired_cache_hides_no_cause(library: Library) -> None:
    """The library says "expired" of a cache that held something, whatever the KDC says."""
    tickets = library.tickets(MIRROR)
    tickets.begin("b1", 30)
    tickets._cache.begun = 0.0
    library.caches = dict.fromkeys([tickets._cache.name, tickets._spare], (1.0, {"b1"}))
    library.kdc = lambda _: (_ for _ in ()).throw(GSSError(6, "Client not found"))
    with tickets._changed:
        tickets._cache.hosts.clear()
    with pytest.raises(Unavailable) as caught:
        tickets.begin("b1", 30)
    assert caught.value.failure.cause == "Client not found"


def test_a_ticket_cache_that_was_written_again_is_read_again(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "cc"
    path.write_text("one")
    library.caches[str(path)] = (time.time() + 100, set())
    tickets = library.tickets(Identity(service="kafka", cache=str(path), proof=f"ticket cache {path}"))
    tickets.begin("b1", 30)
    assert tickets.is_at_hand("b1")
    path.write_text("another")
    library.caches[str(path)] = (time.time() + 100, set())
    assert not tickets.is_at_hand("b1")
    wait_until(lambda: tickets.is_at_hand("b1"))
    assert library.asked == ["b1", "b1"]


def test_nobody_renews_what_nobody_uses(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    tickets = library.tickets(MIRROR)
    tickets.begin("b1", 30)
    with tickets._changed:
        tickets._used_at -= tickets._cache.life_s * 3
        tickets._changed.notify_all()
    wait_until(lambda: not tickets._works)
    assert tickets.begin("b2", 30)[1] == b"token"  # and begins again
    assert tickets._works


def test_identities_share_no_cache_and_equal_ones_share_theirs(library: Library) -> None:
    other = Identity(principal="mirror@TWO.TEST", service="kafka", keytab=MIRROR.keytab, proof=MIRROR.proof)
    one, two = tickets_of(MIRROR), tickets_of(other)
    assert one is tickets_of(Identity(**vars(MIRROR))) and one is not two
    one.begin("b1", 30)
    two.begin("b1", 30)
    assert len(library.caches) == 2


# --- messages and sessions ----------------------------------------------------------------------------------------------


class Context:
    """A context that is complete after one answer of the broker; ``wrap`` and ``unwrap`` show what they were given."""

    complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"ours"
        if token == b"forged":
            raise GSSError(31, "Decrypt integrity check failed")
        self.complete = True
        return None

    def unwrap(self, token: bytes) -> Any:
        return SimpleNamespace(message=token.removeprefix(b"wrapped:"))

    def wrap(self, message: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped:" + message)


@pytest.fixture
def login(library: Library, monkeypatch: pytest.MonkeyPatch) -> KerberosLogin:
    monkeypatch.setitem(sys.modules, "gssapi.exceptions", Library.exceptions)  # type: ignore[arg-type]
    begun: Any = SimpleNamespace(identity=MIRROR, begin=lambda *_: (context := Context(), context.step()))
    return KerberosLogin(begun, "b1", 30, "source", "b1:9092")


def test_a_login_sends_token_nothing_and_the_layer_and_has_the_last_word(login: KerberosLogin) -> None:
    sent = [login.auth_bytes()]
    for answer in (b"theirs", b"wrapped:\x07\x00\xff\xff", b""):
        assert not login.is_done()
        login.receive(answer)
        sent.append(login.auth_bytes())
    assert sent[:3] == [b"ours", b"", b"wrapped:\x01\x00\x00\x00"]
    assert login.is_done() and login.is_authenticated() and login.has_last_word


def test_a_broker_that_cant_read_the_ticket_is_not_believed(login: KerberosLogin) -> None:
    said = r"b1:9092.*GSSAPI as principal 'mirror' of realm ONE.TEST .*proves nothing: .*integrity check"
    with pytest.raises(AuthenticationFailed, match=said):
        login.receive(b"forged")


@pytest.mark.parametrize("offer", [b"\x06\x00\xff\xff", b"\x01", b""])
def test_a_layer_of_sasl_is_refused(login: KerberosLogin, offer: bytes) -> None:
    login.receive(b"theirs")
    with pytest.raises(AuthenticationFailed, match="security layer"):
        login.receive(b"wrapped:" + offer)


@pytest.mark.parametrize(
    ("left_s", "at_hand", "renews"),
    [(60.0, True, True), (60.0, False, False), (0.5, False, True), (0.5, True, True)],
    ids=["tickets-are-here", "the-kdc-is-asked", "the-session-ends", "both"],
)
def test_a_session_is_renewed_at_once_unless_that_would_wait_for_the_kdc(
    left_s: float, at_hand: bool, renews: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = SimpleNamespace(
        client_id="m", uses_kerberos=True, role="source", uses_tls=False, uses_sasl=True,
        kerberos=SimpleNamespace(is_at_hand=lambda host: at_hand and host == "b1"),
    )  # fmt: skip
    connection = Connection("b1", 1, settings, 1.0)
    connection.api_versions = {18: (0, 3)}
    connection._renew_at, connection._ends_at = 0.0, time.monotonic() + left_s
    done: list[str] = []
    monkeypatch.setattr(connection, "_log_in", lambda: done.append("login"))
    monkeypatch.setattr(connection, "_send", lambda *_, **__: done.append("request"))
    connection.send(18, 0, [b""])
    assert done == (["login"] if renews else []) + ["request"]
    assert connection.ends_soon is renews  # else it asks again soon, not with each request


def test_a_login_that_fails_in_the_middle_of_a_session_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker waits for the rest of the login, and would take the next request for it.

    A refusal is final for the next connection, which looks for a newer password first.
    """
    ours, theirs = socket.socketpair()
    settings: Any = SimpleNamespace(client_id="m", uses_kerberos=False, role="source", uses_tls=False, uses_sasl=True)
    connection = Connection("b1", 1, settings, 1.0)
    connection.api_versions, connection._renew_at, connection._socket = {18: (0, 3)}, 0.0, ours

    def refuse() -> None:
        raise AuthenticationFailed("source", "b1:1", "PLAIN: no")

    monkeypatch.setattr(connection, "_log_in", refuse)
    with pytest.raises(ConnectionLost, match=r"PLAIN: no \(asked: login\)"):
        connection.send(18, 0, [b""])
    assert connection.closed
    theirs.close()
