"""TLS from the client's side: a broker that dies is lost, a broker that refuses has said so."""

from __future__ import annotations

import datetime
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from airflow_mirror.errors import InputError, InvalidField, MirrorError, TryAgain
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ConnectionLost, TlsRefused
from airflow_mirror.wire.settings import WireSettings
from sandbox.certificates import Authority, Issued
from tests.unit.peer import Peer, Talk, settings, whole
from tests.unit.wire.test_connection import wait_until_gone

PRODUCE, FETCH = 0, 1
_RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("test authority")


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    """A broker's side, with a certificate for 127.0.0.1."""
    issued = authority.issue("broker", ("127.0.0.1",))
    (tmp_path / "broker.pem").write_text(issued.key + issued.certificate)
    (tmp_path / "ca.pem").write_text(authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "broker.pem")
    context.load_verify_locations(tmp_path / "ca.pem")
    return context


def trusting(authority: Authority, client: Issued | None = None, **more: str) -> WireSettings:
    own = {"ssl_certificate_pem": client.certificate, "ssl_key_pem": client.key} if client else {}
    return settings(security_protocol="SSL", ssl_ca_pem=authority.certificate, **own, **more)


def encrypted(server: ssl.SSLContext, script: Callable[[Talk], object]) -> Callable[[Talk], None]:
    """Return a peer's script that begins behind the handshake."""

    def run(talk: Talk) -> None:
        talk.socket = server.wrap_socket(talk.socket, server_side=True)
        script(talk)

    return run


def refused(server: ssl.SSLContext, own: WireSettings) -> str:
    """Open a connection that must end in a refusal; return what it says."""

    def script(talk: Talk) -> None:
        talk.greet()
        talk.read()

    with (
        Peer(encrypted(server, script)) as peer,
        pytest.raises(TlsRefused, match="^source cluster, broker 127.0.0.1:.*: TLS failed: ") as caught,
    ):
        Connection.open("127.0.0.1", peer.port, own, 60.0)
    return str(caught.value)


def reset(plain: socket.socket) -> None:
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    plain.close()


def cut_off(plain: socket.socket) -> None:
    """End the TCP connection without TLS's own goodbye, as the death of a process does."""
    plain.shutdown(socket.SHUT_RDWR)


def say_goodbye(plain: socket.socket) -> None:
    assert isinstance(plain, ssl.SSLSocket)
    plain.settimeout(0.05)  # our side does not answer it
    try:
        plain.unwrap()
    except OSError:
        pass
    plain.close()


def break_a_record(plain: socket.socket) -> None:
    """Send what no TLS peer would: the rest of a record that was cut in the middle, as a proxy may."""
    raw = socket.socket(fileno=plain.detach())
    raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
    raw.close()


ENDS = [reset, cut_off, say_goodbye, break_a_record]


@pytest.mark.parametrize("end", ENDS)
def test_a_broker_that_dies_instead_of_answering_is_lost(
    authority: Authority, server: ssl.SSLContext, end: Callable[[socket.socket], None]
) -> None:
    def script(talk: Talk) -> None:
        talk.greet()
        talk.read()
        end(talk.socket)

    with Peer(encrypted(server, script)) as peer:
        connection = Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0)
        with connection, pytest.raises(ConnectionLost, match="asked: Fetch"):
            connection.roundtrip(FETCH, 11, b"")
        assert connection.closed


@pytest.mark.parametrize("end", ENDS)
def test_a_connection_that_a_broker_ended_while_it_was_idle_is_gone(
    authority: Authority, server: ssl.SSLContext, end: Callable[[socket.socket], None]
) -> None:
    go_on = threading.Event()

    def script(talk: Talk) -> None:
        talk.greet()
        talk.answer(talk.read()[2], b"an answer")
        assert go_on.wait(240)
        end(talk.socket)

    with (
        Peer(encrypted(server, script)) as peer,
        Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0) as connection,
    ):
        assert not connection.gone
        assert bytes(connection.roundtrip(FETCH, 11, b"")) == b"an answer"
        assert not connection.gone
        go_on.set()
        wait_until_gone(connection)


@pytest.mark.parametrize("end", ENDS)
def test_broker_dying_inside_a_large_request_is_lost(
    authority: Authority, server: ssl.SSLContext, end: Callable[[socket.socket], None]
) -> None:
    def script(talk: Talk) -> None:
        talk.greet()
        talk.socket.recv(100)
        end(talk.socket)

    with Peer(encrypted(server, script)) as peer:
        connection = Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0)
        with connection, pytest.raises(ConnectionLost, match="asked: Fetch"):
            connection.roundtrip(FETCH, 11, [b"x" * (16 << 20)])
        assert connection.closed


@pytest.mark.parametrize("end", ENDS)
def test_a_broker_that_dies_before_its_first_answer_is_lost(
    authority: Authority, server: ssl.SSLContext, end: Callable[[socket.socket], None]
) -> None:
    def script(talk: Talk) -> None:
        talk.read()
        end(talk.socket)

    with Peer(encrypted(server, script)) as peer, pytest.raises(ConnectionLost, match="asked: ApiVersions"):
        Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0)


@pytest.mark.parametrize(("end", "heard"), [(reset, 1), (reset, 64), (cut_off, 0), (cut_off, 1), (cut_off, 64)])
def test_broker_dying_in_the_handshake_hints_at_tls(
    authority: Authority, end: Callable[[socket.socket], None], heard: int
) -> None:
    def script(talk: Talk) -> None:
        if heard:
            talk._exactly(heard)
        end(talk.socket)

    with Peer(script) as peer, pytest.raises(ConnectionLost, match=r"TLS handshake.* security.protocol") as caught:
        Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0)
    assert isinstance(caught.value, TryAgain)


@pytest.mark.parametrize(
    ("alert", "error", "said"),
    [
        (40, InputError, "handshake failure"),
        (42, InputError, "bad certificate"),
        (45, InputError, "certificate expired"),
        (46, InputError, "certificate unknown"),
        (48, InputError, "unknown ca"),
        (49, InputError, "access denied"),
        (70, InputError, "protocol version"),
        (71, InputError, "insufficient security"),
        (112, InputError, "unrecognized name"),
        (80, ConnectionLost, r"internal error .*If this repeats, check the certificates"),
        (90, ConnectionLost, "user cancelled"),
    ],
)
def test_handshake_alerts_say_whether_they_are_final(
    authority: Authority, alert: int, error: type[MirrorError], said: str
) -> None:
    def script(talk: Talk) -> None:
        talk._exactly(64)
        talk.socket.sendall(b"\x15\x03\x03\x00\x02\x02" + bytes([alert]))
        talk.socket.settimeout(60)
        while talk.socket.recv(1 << 16):
            pass

    with Peer(script) as peer, pytest.raises(error, match=said):
        Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0)


def test_text_around_the_certificates_of_authorities_does_not_matter(
    authority: Authority, server: ssl.SSLContext
) -> None:
    """Bundles name each authority above its certificate, in its own language."""
    pem = f"# Főtanúsítvány\n{Authority('somebody else').certificate}# Česká autorita\n{authority.certificate}"
    with Peer(encrypted(server, Talk.greet)) as peer:
        Connection.open("127.0.0.1", peer.port, settings(security_protocol="SSL", ssl_ca_pem=pem), 60.0).close()
    with pytest.raises(InvalidField, match=r"ssl.ca.pem.*no usable PEM certificates"):
        _ = settings(security_protocol="SSL", ssl_ca_pem="# Főtanúsítvány\n").ssl_context


def test_a_certificate_of_another_authority_is_not_trusted(server: ssl.SSLContext) -> None:
    assert "ssl.ca.location" in refused(server, trusting(Authority("somebody else")))


def test_a_host_that_the_certificate_does_not_name_is_refused(authority: Authority, server: ssl.SSLContext) -> None:
    with Peer(encrypted(server, Talk.greet)) as peer, pytest.raises(InputError, match="ssl.endpoint.identification"):
        Connection.open("localhost", peer.port, trusting(authority), 60.0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("whose", ["nobody's", "somebody else's"])
def test_untrusted_or_missing_client_certificate_is_reported(
    authority: Authority, server: ssl.SSLContext, version: ssl.TLSVersion, whose: str
) -> None:
    """With TLS 1.3 the refusal comes behind the handshake, in place of the first answer."""
    server.verify_mode, server.maximum_version = ssl.CERT_REQUIRED, version
    own = None if whose == "nobody's" else Authority("somebody else").issue("client")
    assert "client certificate" in refused(server, trusting(authority, own))


@pytest.mark.parametrize("setting", ["ssl.key.location", "ssl.key.pem"])
def test_key_without_its_certificate_is_refused(authority: Authority, tmp_path: Path, setting: str) -> None:
    """Brokers that only ask for a certificate would take the connection, as User:ANONYMOUS. librdkafka refuses it too."""
    client = authority.issue("client")
    (tmp_path / "both.pem").write_text(client.key + client.certificate)
    given = str(tmp_path / "both.pem") if setting.endswith("location") else client.key
    with pytest.raises(InvalidField, match=rf"^{setting}='\(set\)': has no effect.*ssl\.certificate\.location"):
        _ = settings(security_protocol="SSL", **{setting.replace(".", "_"): given}).ssl_context


def p12(path: Path, issued: Issued | None, *trusted: str) -> str:
    """Write a PKCS12 store."""
    key = serialization.load_pem_private_key(issued.key.encode(), None) if issued else None
    own = x509.load_pem_x509_certificate(issued.certificate.encode()) if issued else None
    others = [x509.load_pem_x509_certificate(one.encode()) for one in trusted]
    kept = serialization.BestAvailableEncryption(b"p12-secret")
    path.write_bytes(pkcs12.serialize_key_and_certificates(None, key, own, others, kept))  # type: ignore[arg-type]
    return str(path)


def test_a_java_truststore_and_keystore_are_used(authority: Authority, server: ssl.SSLContext, tmp_path: Path) -> None:
    server.verify_mode = ssl.CERT_REQUIRED
    named = {
        "ssl_truststore_location": p12(
            tmp_path / "t", None, Authority("somebody else").certificate, authority.certificate
        ),
        "ssl_keystore_location": p12(tmp_path / "k", authority.issue("client")),
    }
    passwords = dict.fromkeys(("ssl_truststore_password", "ssl_keystore_password"), "p12-secret")
    own = settings(security_protocol="SSL", **named, **passwords)
    assert own.principal == "User:<subject of the certificate>"
    with Peer(encrypted(server, Talk.greet)) as peer:
        Connection.open("127.0.0.1", peer.port, own, 60.0).close()
    with pytest.raises(InvalidField, match=r"ssl.keystore.location.*another password.*ssl.keystore.password") as caught:
        _ = settings(security_protocol="SSL", **named, **passwords | {"ssl_keystore_password": "wr0ng"}).ssl_context
    assert "wr0ng" not in str(caught.value)


def test_a_key_that_openssl_refuses_is_told_of_a_store_too(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "weak")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    weak = Issued(pem, key.private_bytes(serialization.Encoding.PEM, *plain).decode())
    own = {"ssl_keystore_location": p12(tmp_path / "k", weak), "ssl_keystore_password": "p12-secret"}
    with pytest.raises(InvalidField, match="no usable certificate and key: .*TOO_SMALL"):
        _ = settings(security_protocol="SSL", **own).ssl_context


def test_a_java_truststore_may_hold_the_brokers_own_certificate(
    authority: Authority, server: ssl.SSLContext, tmp_path: Path
) -> None:
    """To Java each certificate in it is trusted; OpenSSL would ask for the issuer's."""
    (pem,) = re.findall(r"-----BEGIN CERT[^§]*", (tmp_path / "broker.pem").read_text())
    own = {"ssl_truststore_location": p12(tmp_path / "t", None, pem), "ssl_truststore_password": "p12-secret"}
    with Peer(encrypted(server, Talk.greet)) as peer:
        Connection.open("127.0.0.1", peer.port, settings(security_protocol="SSL", **own), 60.0).close()


def test_no_cipher_in_common_is_refused(authority: Authority, server: ssl.SSLContext) -> None:
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    assert "ciphers" in refused(server, trusting(authority, ssl_cipher_suites="ECDHE-ECDSA-CHACHA20-POLY1305"))


def test_a_listener_without_tls_that_answers_is_refused(authority: Authority) -> None:
    with (
        Peer(lambda talk: talk.socket.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as peer,
        pytest.raises(InputError, match="the port"),
    ):
        Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0)


def test_request_and_answer_in_pieces_arrive_unchanged_over_tls(authority: Authority, server: ssl.SSLContext) -> None:
    """Several MB: the peer reads when the connection has given up to wait. A part of a TLS record is offered again."""
    pieces = [bytes([n % 251]) * (1 + 70_001 * (n % 3)) for n in range(180)]
    read = threading.Event()

    def echo(talk: Talk) -> None:
        talk.greet()
        assert read.wait(240)
        for _ in range(2):
            _key, _version, correlation_id, body = talk.read()
            talk.answer(correlation_id, body)

    with (
        Peer(encrypted(server, echo)) as peer,
        Connection.open("127.0.0.1", peer.port, trusting(authority), 60.0) as connection,
    ):
        first = connection.send(PRODUCE, 8, pieces, wait=False)
        assert connection.unsent and not connection.arrived(first)
        connection.flush()
        read.set()
        assert whole(connection, first) == b"".join(pieces) and not connection.unsent
        second = connection.send(PRODUCE, 8, [b"behind it"])
        assert bytes(connection.receive(second)) == b"behind it"
