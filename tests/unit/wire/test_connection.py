"""What a connection does when the peer misbehaves, and when the network cuts things into pieces."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest
from kafka.protocol.metadata import ApiVersionsResponse

from airflow_mirror.wire import connection as module
from airflow_mirror.wire import stream
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.errors import ApiNotServed, ConnectionLost
from tests.unit.peer import Peer, Talk, connected, settings, whole

ROOT = Path(__file__).parents[3]
FETCH, PRODUCE = 1, 0


def hang_up(talk: Talk) -> None:
    """Read the next request and close."""
    talk.read()
    talk.socket.close()


def test_connection_closed_inside_a_frame_stays_closed() -> None:
    def script(talk: Talk) -> None:
        _, _, correlation_id, _ = talk.read()
        talk.socket.sendall(struct.pack(">ii", 104, correlation_id) + b"x" * 40)
        talk.socket.close()

    with connected(script) as (connection, _peer):
        with pytest.raises(
            ConnectionLost, match=r"127.0.0.1:\d+: it closed the connection in the middle of a response .*Fetch"
        ):
            connection.roundtrip(FETCH, 11, b"body")
        assert connection.closed and connection.fileno() == -1
        with pytest.raises(ConnectionLost, match="the connection is closed"):
            connection.roundtrip(FETCH, 11, b"body")


@pytest.mark.parametrize("sent", [0, 3, 8, 50])
def test_silence_inside_a_frame_ends_with_the_timeout(sent: int) -> None:
    def script(talk: Talk) -> None:
        _, _, correlation_id, _ = talk.read()
        talk.socket.sendall((struct.pack(">ii", 104, correlation_id) + b"x" * 100)[:sent])
        talk.read()

    def greet_first(talk: Talk) -> None:
        talk.greet()
        script(talk)

    with Peer(greet_first, connections=100) as peer, opened_at_last(peer, timeout_s=0.3) as connection:
        with pytest.raises(ConnectionLost, match=r"no answer within 0.3 s \(asked: Fetch\)"):
            connection.roundtrip(FETCH, 11, b"")
        assert connection.closed


def opened_at_last(peer: Peer, timeout_s: float) -> Connection:
    """Open a connection with a timeout so short that a busy machine's peer may not greet within it."""
    deadline = time.monotonic() + 240
    while True:
        try:
            return Connection.open("127.0.0.1", peer.port, settings(), timeout_s)
        except ConnectionLost:
            assert time.monotonic() < deadline


def test_slow_peer_that_keeps_sending_outlasts_the_timeout() -> None:
    timeout_s, sent = 0.4, list[float]()

    def script(talk: Talk) -> None:
        talk.greet()
        _, _, correlation_id, _ = talk.read()
        sent[:] = [time.monotonic()]
        frame = struct.pack(">ii", 1004, correlation_id) + bytes(range(250)) * 4
        for at in range(0, len(frame), 200):
            talk.socket.sendall(frame[at : at + 200])
            sent.append(time.monotonic())
            time.sleep(timeout_s / 4)

    with Peer(script, connections=100) as peer:
        while True:
            with opened_at_last(peer, timeout_s) as connection:
                try:
                    assert connection.roundtrip(FETCH, 11, b"") == bytes(range(250)) * 4
                    break
                except ConnectionLost:  # as it should where a busy machine kept the peer silent for so long
                    assert max(later - at for at, later in pairwise([*sent, time.monotonic()])) > 0.9 * timeout_s
    assert sent[-1] - sent[0] > timeout_s


@pytest.mark.parametrize("size", [256, 1 << 20], ids=["small", "large"])
def test_an_answer_is_writable_and_its_bytes_have_no_sign(size: int) -> None:
    content = bytes(range(256)) * (size // 256)
    with connected(lambda talk: talk.answer(talk.read()[2], content)) as (connection, _peer):
        body = connection.roundtrip(FETCH, 11, b"")
    assert (body.format, body.readonly, body[255]) == ("B", False, 255)
    assert body == content


def test_a_response_to_another_request_is_not_taken_for_ours() -> None:
    def script(talk: Talk) -> None:
        _, _, correlation_id, _ = talk.read()
        talk.answer(correlation_id + 7, b"somebody else's")

    with connected(script) as (connection, _peer):
        with pytest.raises(ConnectionLost, match=r"it answered request \d+ where \d+ was expected"):
            connection.roundtrip(FETCH, 11, b"")
        assert connection.closed


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (struct.pack(">i", 2_000_000_000), r"response of 2000000000 bytes .*receive.message.max.bytes"),
        (struct.pack(">i", -1), r"response of 4294967295 bytes"),
        (struct.pack(">i", 3), r"response of 3 bytes"),
        (b"\x15\x03\x03\x00", "it answered with TLS .*security.protocol"),
        (b"HTTP", "it answered with HTTP .*web server"),
    ],
)
def test_an_absurd_size_is_refused_before_memory_is_taken(first: bytes, said: str) -> None:
    def script(talk: Talk) -> None:
        talk.read()
        talk.socket.sendall(first + b"\0\0\0\1 and more")
        talk.read()

    with Peer(script) as peer, pytest.raises(ConnectionLost, match=said):
        Connection.open("127.0.0.1", peer.port, settings(), 60.0)


def test_tls_alert_shorter_than_a_frame_is_understood() -> None:
    def script(talk: Talk) -> None:
        talk.read()
        talk.socket.sendall(b"\x15\x03\x03\x00\x02\x02\x50")
        talk.socket.close()

    with Peer(script) as peer, pytest.raises(ConnectionLost, match="answered with TLS .*SASL_SSL"):
        Connection.open("127.0.0.1", peer.port, settings(), 60.0)


def test_close_before_any_answer_hints_at_tls_or_sasl() -> None:
    said = r"before it answered \(asked: ApiVersions\).*TLS or SASL .*security.protocol"
    with Peer(hang_up) as peer, pytest.raises(ConnectionLost, match=said):
        Connection.open("127.0.0.1", peer.port, settings(), 60.0)


def test_close_on_first_real_request_gives_the_same_hint() -> None:
    """Listeners with SASL greet anybody."""
    with connected(hang_up) as (connection, _peer), pytest.raises(ConnectionLost, match="TLS or SASL"):
        connection.roundtrip(FETCH, 11, b"")


def test_a_close_after_good_answers_does_not_blame_the_settings() -> None:
    def script(talk: Talk) -> None:
        talk.answer(talk.read()[2], b"fine")
        talk.read()
        talk.socket.close()

    with connected(script) as (connection, _peer):
        assert connection.roundtrip(FETCH, 11, b"") == b"fine"
        with pytest.raises(ConnectionLost) as caught:
            connection.roundtrip(FETCH, 11, b"")
        assert "TLS" not in str(caught.value)


def test_nobody_listens() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(ConnectionLost, match=rf"127.0.0.1:{port}: Connection refused \(asked: connect\)"):
        Connection.open("127.0.0.1", port, settings(), 60.0)


def test_unserved_version_is_refused_before_sending_a_byte() -> None:
    """The connection is still good."""
    with connected(lambda talk: talk.answer(talk.read()[2], b"ok")) as (connection, peer):
        with pytest.raises(ApiNotServed, match=r"needs Produce version 99, but this broker serves versions 3 to 13"):
            connection.send(PRODUCE, 99, [b"x"])
        with pytest.raises(
            ApiNotServed, match="DescribeTransactions version 0, but this broker does not serve it at all"
        ):
            connection.send(65, 0, [b"x"], True)
        assert connection.roundtrip(PRODUCE, 8, b"good") == b"ok"  # the connection is still good
        assert peer.talks[0].bodies[1:] == [b"good"]


def test_request_forbidden_by_its_check_is_not_sent() -> None:
    """The connection is still good."""

    def forbid() -> None:
        raise RuntimeError("not now")

    with connected(lambda talk: talk.answer(talk.read()[2], b"ok")) as (connection, peer):
        with pytest.raises(RuntimeError, match="not now"):
            connection.roundtrip(PRODUCE, 8, b"kept", check=forbid)
        assert connection.roundtrip(PRODUCE, 8, b"good") == b"ok"
        assert peer.talks[0].bodies[1:] == [b"good"]


def test_check_before_sending_comes_after_a_due_login(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    with connected(lambda talk: talk.read()) as (connection, _peer):
        monkeypatch.setattr(connection, "_log_in", lambda: done.append("login"))
        monkeypatch.setattr(connection, "_send", lambda *_, **__: done.append("bytes"))
        connection._renew_at = 0.0
        connection.send(PRODUCE, 8, [b""], check=lambda: done.append("check"))
    assert done == ["login", "check", "bytes"]


@pytest.mark.parametrize(("lifetime_s", "early_s"), [(900, 1.0), (2, 0.04)])
def test_session_is_over_before_a_request_could_come_too_late(
    lifetime_s: int, early_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "log_in", lambda *_: lifetime_s * 1000)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    connection = Connection("b1", 1, settings(), 1.0)
    connection._log_in()
    now[0] += lifetime_s - early_s - 0.01
    assert connection.ends_soon and not connection.is_over
    now[0] += 0.02
    assert connection.is_over


def test_old_broker_is_asked_again_in_its_own_version() -> None:
    """The broker is one from before flexible versions."""

    def script(talk: Talk) -> None:
        key, version, correlation_id, _ = talk.read()
        assert (key, version) == (18, 3)
        talk.answer(correlation_id, bytes(ApiVersionsResponse(error_code=35, api_keys=[]).encode(version=0)))
        assert talk.read()[:2] == (18, 0)
        keys = [ApiVersionsResponse.ApiVersion(api_key=1, min_version=0, max_version=11)]
        talk.answer(talk_id(talk), bytes(ApiVersionsResponse(error_code=0, api_keys=keys).encode(version=0)))

    def talk_id(talk: Talk) -> int:
        return 2  # the second request of the connection

    with Peer(script) as peer, Connection.open("127.0.0.1", peer.port, settings(), 60.0) as connection:
        assert connection.api_versions == {1: (0, 11)}
        assert connection.newest(1, 4, 18) == 11


@pytest.mark.parametrize("count", [1, 3, 1023, 1024, 1025, 5000])
def test_scattered_buffers_arrive_in_order_through_narrow_socket(count: int) -> None:
    """More buffers than IOV_MAX need several sendmsg; the small send buffer makes each of them wait for the reader."""
    random_of = random.Random(count)
    buffers = [random_of.randbytes(random_of.choice([0, 1, 17, 300, 3000])) for _ in range(count)]
    buffers[-1] = random_of.randbytes(300_000)
    views = [memoryview(bytearray(b)) if i % 2 else b for i, b in enumerate(buffers)]

    def script(talk: Talk) -> None:
        time.sleep(0.1)
        talk.answer(talk.read()[2], b"")

    with connected(script, socket_send_buffer_bytes="4096") as (connection, peer):
        connection.roundtrip(PRODUCE, 8, views)
        assert peer.talks[0].bodies[1] == b"".join(buffers)


def test_partial_sendmsg_continues_where_it_stopped() -> None:
    class Stingy:
        def __init__(self) -> None:
            self.taken = b""

        def sendmsg(self, buffers: list[bytes], *_: object) -> int:
            whole = b"".join(buffers)
            count = max(1, len(whole) // 3)
            self.taken += whole[:count]
            return count

    plain = Stingy()
    buffers = [bytes([i % 251]) * (i % 7) for i in range(3000)]
    stream._gather(plain, list(buffers))  # type: ignore[arg-type]
    assert plain.taken == b"".join(buffers)


def test_answers_may_be_collected_in_any_order() -> None:
    def script(talk: Talk) -> None:
        ids = [talk.read()[2] for _ in range(3)]
        for number, correlation_id in enumerate(ids):
            talk.answer(correlation_id, b"answer %d" % number)

    with connected(script) as (connection, _peer):
        sent = [connection.send(FETCH, 11, [b""]) for _ in range(3)]
        assert len(connection._in_flight) == 3
        assert [bytes(connection.receive(i)) for i in (sent[2], sent[0], sent[1])] == [
            b"answer 2",
            b"answer 0",
            b"answer 1",
        ]
        assert not connection._in_flight
        with pytest.raises(ValueError, match="no request with correlation id"):
            connection.receive(sent[0])
        assert not connection.closed


SENDER = """
import sys
from airflow_mirror.wire.connection import Connection
from tests.unit.peer import settings
Connection.open("127.0.0.1", int(sys.argv[1]), settings(), 60).send(1, 11, [b"x" * (16 << 20)])
"""


@pytest.mark.parametrize("ends", ["gives up", "is killed"])
def test_a_request_whose_sender_is_gone_is_not_delivered_afterwards(ends: str) -> None:
    """It is larger than what the kernels of both sides take: a part of it waits on the sender's."""
    sent, seen = threading.Event(), Queue[BaseException]()

    def script(talk: Talk) -> None:
        talk.greet()
        talk.socket.recv(1, socket.MSG_PEEK)
        sent.set()
        assert gone.wait(240)
        try:
            talk.read()
        except (EOFError, OSError) as e:
            seen.put(e)

    gone = threading.Event()
    with Peer(script, connections=100) as peer:
        if ends == "gives up":
            with pytest.raises(ConnectionLost, match=r"it accepted no data for 0.3 s"):
                opened_at_last(peer, timeout_s=0.3).send(FETCH, 11, [b"x" * (16 << 20)])
        else:
            sender = subprocess.Popen([sys.executable, "-c", SENDER, str(peer.port)], cwd=ROOT)
            assert sent.wait(240)
            sender.kill()
            sender.wait(60)
        gone.set()
        # An EOFError would say that all of what the kernel held has come.
        assert isinstance(seen.get(timeout=240), ConnectionResetError)


@pytest.mark.parametrize("tags", [b"\0", b"\2\0\3abc\1\0", b"\1\x81\1\2xy"])
def test_the_tags_of_a_flexible_response_header_are_skipped(tags: bytes) -> None:
    with connected(lambda talk: talk.answer(talk.read()[2], tags + b"body")) as (connection, peer):
        assert connection.roundtrip(3, 12, b"asked", flexible=True) == b"body"
        assert peer.talks[0].bodies[1] == b"\0asked"  # no tags of ours


def test_small_buffers_are_joined_and_large_ones_not_copied() -> None:
    """Those that are joined share a TLS record."""
    large = memoryview(bytes(50_000))
    chunks = stream._joined([b"head", b"a" * 100, large, b"b", b"c" * 20_000, b"d"])
    assert [len(chunk) for chunk in chunks] == [104, 50_000, 1, 20_000, 1]
    assert chunks[1] is large


def test_configured_client_id_overrides_the_default_name() -> None:
    assert settings().client_id == "airflow-mirror"
    assert settings(client_id="billing").client_id == "billing"


def test_a_connection_that_failed_to_open_leaves_no_socket_behind() -> None:
    ends: list[BaseException] = []

    def script(talk: Talk) -> None:
        _, _, correlation_id, _ = talk.read()
        talk.answer(correlation_id + 1, b"")
        try:
            talk.socket.recv(1)
        except ConnectionResetError as e:
            ends.append(e)

    with Peer(script) as peer:
        with pytest.raises(ConnectionLost):
            Connection.open("127.0.0.1", peer.port, settings(), 60.0)
        peer._thread.join(60)
    assert len(ends) == 1


# --- without waiting --------------------------------------------------------------------------------------------------


def test_request_and_answer_in_pieces_arrive_unchanged() -> None:
    """Several MB, more than the kernels hold: the peer reads when the connection has given up to wait."""
    pieces = [bytes([n % 251]) * (1 + 70_001 * (n % 3)) for n in range(90)]
    read = threading.Event()

    def echo(talk: Talk) -> None:
        assert read.wait(240)
        for _ in range(2):
            _key, _version, correlation_id, body = talk.read()
            talk.answer(correlation_id, body)

    with connected(echo) as (connection, _peer):
        first = connection.send(PRODUCE, 8, pieces, wait=False)
        assert connection.unsent and not connection.arrived(first)
        connection.flush()
        read.set()
        assert whole(connection, first) == b"".join(pieces) and not connection.unsent
        second = connection.send(PRODUCE, 8, [b"behind it"])
        assert bytes(connection.receive(second)) == b"behind it"


def test_a_call_that_waits_sends_first_what_is_left() -> None:
    pieces = [bytes(4_000_000), b"end"]

    def echo(talk: Talk) -> None:
        for _ in range(2):
            _key, _version, correlation_id, body = talk.read()
            talk.answer(correlation_id, body[-3:])

    with connected(echo) as (connection, _peer):
        first = connection.send(PRODUCE, 8, pieces, wait=False)
        second = connection.send(PRODUCE, 8, [b"two"])
        assert [bytes(connection.receive(one)) for one in (first, second)] == [b"end", b"two"]


def test_nothing_more_is_sent_once_a_check_says_no() -> None:
    def forbid() -> None:
        raise RuntimeError("not now")

    with connected(lambda talk: talk.read()) as (connection, peer):
        connection.send(PRODUCE, 8, [bytes(50_000_000)], wait=False)
        left = connection.unsent
        with pytest.raises(RuntimeError, match="not now"):
            while connection.unsent:
                connection.flush(forbid)
        assert left and connection.unsent and len(peer.talks[0].bodies) == 1


def test_a_connection_that_ends_while_its_answer_arrives_is_lost() -> None:
    def half(talk: Talk) -> None:
        _key, _version, correlation_id, _ = talk.read()
        talk.socket.sendall(struct.pack(">ii", 104, correlation_id) + bytes(50))
        talk.socket.close()

    with connected(half) as (connection, _peer):
        asked = connection.send(PRODUCE, 8, [b""], wait=False)
        with pytest.raises(ConnectionLost, match="in the middle of a response|reset"):
            whole(connection, asked)
        assert connection.closed


@pytest.mark.parametrize("end", ["closed", "reset", "more"])
def test_a_connection_that_ends_while_nothing_is_in_flight_is_gone(end: str) -> None:
    """Brokers close what is idle without a word. What was not asked for is no answer to the next request either."""
    go_on = threading.Event()

    def script(talk: Talk) -> None:
        talk.answer(talk.read()[2], b"an answer")
        assert go_on.wait(240)
        if end == "more":
            talk.socket.sendall(b"\0")
            talk.read()
        if end == "reset":
            talk.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        talk.socket.close()

    with connected(script) as (connection, _peer):
        assert not connection.gone
        sent = connection.send(FETCH, 11, [b"body"])
        while not connection.has_bytes:
            time.sleep(0.001)
        assert not connection.gone, "an answer that has come is no end"
        assert bytes(connection.receive(sent)) == b"an answer" and not connection.gone
        go_on.set()
        wait_until_gone(connection)
        connection.close()
        assert connection.gone


def wait_until_gone(connection: Connection) -> None:
    deadline = time.monotonic() + 240
    while not connection.gone:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="of Linux")
def test_an_idle_connection_is_probed_within_minutes() -> None:
    """A firewall forgets it after some, and says nothing to either side."""
    with connected(hang_up) as (connection, _peer):
        options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        idle_s, apart_s, lost = (connection._socket.getsockopt(socket.IPPROTO_TCP, option) for option in options)
        assert connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert idle_s + apart_s * lost < 120 <= 2 * idle_s
