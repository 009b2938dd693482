"""One socket to one broker: frames out, frames in, with TLS and SASL underneath.

Rules:

- A connection belongs to one thread. Several requests may be in flight; a broker answers them in order.
- Calls block unless told not to. A caller that does other work meanwhile sends with ``wait=False``, pushes the rest with
  :meth:`Connection.flush`, and receives once :meth:`Connection.arrived` reports that the response is complete.
- The payload is never copied on a plain socket. ``sendmsg`` gathers the caller's buffers; ``recv_into`` fills the
  buffer that the caller gets, which is writable because batches are patched in place.
- After any error or timeout the position in the stream is unknown, so the connection is closed for good. Requests in
  flight may or may not have been executed: :class:`ConnectionLost` promises neither. Bytes that had not left this
  machine by then never will.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple, Self

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.common.signals import pause
from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed, ConnectionLost, StoppedByQuota
from airflow_mirror.wire.login import log_in
from airflow_mirror.wire.settings import WireSettings
from airflow_mirror.wire.varint import tags_end

__all__ = ["Buffer", "Check", "Connection", "WireSettings"]

Buffer = bytes | bytearray | memoryview
Check = Callable[[], None]  # raises if a request must not be sent

log = logging.getLogger(__name__)

_REQUEST = struct.Struct(">ihhih")  # size, api key, api version, correlation id, length of the client id
_RESPONSE = struct.Struct(">Ii")  # size, correlation id
_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in os.sysconf_names else 16
_TLS_JOIN_BYTES = 16 * 1024  # one TLS record: smaller buffers are joined, larger ones are sent as they are
_ZEROED_BYTES = 64 * 1024
_AT_ONCE_BYTES = 1 << 20  # a selector wakes up once this much of a response, or all of it, has arrived
_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
# Kafka closes a session when it expires; the Java client re-authenticates at 85 to 95 % of its lifetime. A broker
# rejects a re-authentication within a second of the last login.
_RENEW_AT, _RENEW_EARLIEST_S = 0.85, 1.1
_TICKET_AGAIN_S, _TICKET_LATEST_S = 0.5, 1.5  # how often to look for a ticket; how long before the end to wait for it
_PLAIN_HINT = "A TLS or SASL listener closes a plain connection without a word: check security.protocol."
# A bootstrap server has answered, and nobody finds this address in the settings.
_SENT_HINT = "The cluster sends clients there: if the broker runs, its advertised.listeners must be reachable here."
_TLS_HINT = "If this repeats, check the certificates, the ciphers and the port."
# Substrings of OpenSSL's reasons that mean a permanent TLS failure. All others (an internal error of the peer, a
# truncated record) may also come from a broker that dies. Alerts from the peer and local findings are named alike.
_TLS_REFUSALS = (
    "CERT", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "CIPHER", "PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS",
    "WRONG_VERSION_NUMBER", "WRONG_SSL_VERSION", "ACCESS_DENIED", "INSUFFICIENT_SECURITY", "UNRECOGNIZED_NAME",
    "KEY_TOO_SMALL", "MD_TOO_WEAK", "HTTP",
)  # fmt: skip
_LONG_S, _TOLD_AGAIN_S = 1.0, 30.0  # which waits for a quota are told, and how often
_told: dict[str, float] = {}  # by role, monotonic: of all connections of this process
_NO_LOGIN_HINT = "A SASL listener closes a connection that does not log in without a word: check security.protocol."


class _Sent(NamedTuple):
    """A request that awaits its response; ``flexible`` describes the response header."""

    correlation_id: int
    api_key: int
    flexible: bool


class _Arriving:
    """A partially received frame: first the head, then the body."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_RESPONSE.size))
        self.at = 0
        self.is_body = False
        self.lowered = False  # whether SO_RCVLOWAT was raised for this frame


class Connection:
    """An open connection, created by :meth:`open`.

    :ivar api_versions: API key -> (lowest, highest) version that the broker serves.
    """

    def __init__(self, host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        self.host, self.port, self.settings, self.timeout_s = host, port, settings, timeout_s
        self.address = f"{host}:{port}"
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._client_id = settings.client_id.encode()
        self._socket: socket.socket | None = None
        self._gathers = False
        self._correlation = 0
        self._in_flight: deque[_Sent] = deque()
        self._early: dict[int, memoryview] = {}
        self._unsent: list[Buffer] = []
        self._arriving = _Arriving()
        self._answers = 0
        self._renew_at = self._ends_at = float("inf")
        self._muted_until = -math.inf

    @classmethod
    def open(cls, host: str, port: int, settings: WireSettings, timeout_s: float | None = None) -> Self:
        """Connect, negotiate API versions and log in.

        :param timeout_s: for connecting, and later for every wait in which no byte moves. Default:
            ``socket.timeout.ms`` from the settings.
        :raises ConnectionLost: nothing listens, or the broker hung up (also in a TLS handshake); hints at the cause.
        :raises InputError: no agreement on TLS, or an untrusted certificate.
        :raises AuthenticationFailed: the broker rejects the credentials.
        """
        connection = cls(host, port, settings, settings.socket_timeout_s if timeout_s is None else timeout_s)
        try:
            connection._connect()
            connection._negotiate()
            if settings.uses_sasl:
                connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    # --- life ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the socket; idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._in_flight.clear()
        self._early.clear()
        self._unsent.clear()

    @property
    def unsent(self) -> bool:
        """Whether part of a request has not been handed to the kernel yet; see :meth:`flush`."""
        return bool(self._unsent)

    @property
    def ends_soon(self) -> bool:
        """Whether the session must be renewed: by the next blocking send, or by a replacement connection."""
        return time.monotonic() >= self._renew_at

    def put_off(self, seconds: float) -> None:
        """Make :attr:`ends_soon` return False for a while."""
        self._renew_at = time.monotonic() + seconds

    @property
    def closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._socket is None

    @property
    def in_flight(self) -> int:
        """Number of requests that await their response."""
        return len(self._in_flight) + len(self._early)

    def fileno(self) -> int:
        """Return the socket's file descriptor, for ``select``; -1 when closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Connection {self.address}{' closed' if self.closed else ''}>"

    # --- requests -----------------------------------------------------------------------------------------------------

    def send(
        self, api_key: int, api_version: int, buffers: Sequence[Buffer], flexible: bool = False,
        check: Check | None = None, *, wait: bool = True,
    ) -> int:  # fmt: skip
        """Send a request whose body is ``buffers`` in order; return its correlation id for :meth:`receive`.

        :param flexible: whether this version has tagged fields (request header v2, response header v1).
        :param check: called right before the bytes go to the kernel; if it raises, not a byte is sent.
        :param wait: block until the kernel has taken everything, after a login if the session ends soon. If False, the
            buffers must not change until :attr:`unsent` is False.
        :raises ApiNotServed: before a byte is sent: the broker does not serve this version.
        :raises StoppedByQuota: before a byte is sent: this process shall end, and the broker throttles it.
        :raises ConnectionLost: the connection is gone; the request may or may not have arrived.
        """
        served = self.api_versions.get(api_key)
        if (served is None or not served[0] <= api_version <= served[1]) and api_key != _API_VERSIONS:
            raise ApiNotServed(self.address, api_name(api_key), api_version, served)
        if wait:
            self._wait_out()
            if self.ends_soon and not self._goes_on():
                self._renew()
        if check is not None:
            check()
        return self._send(api_key, api_version, buffers, flexible, wait=wait)

    def flush(self, check: Check | None = None) -> None:
        """Hand more of a request to the kernel, without blocking.

        :param check: called first; if it raises, nothing more is sent. The broker ignores an incomplete request.
        :raises ConnectionLost: the connection is gone.
        """
        if self._unsent:
            if check is not None:
                check()
            self._write([], self._in_flight[-1].api_key, wait=False)

    def arrived(self, correlation_id: int) -> bool:
        """Receive what is there without blocking; return whether :meth:`receive` of this response would not block.

        :raises ConnectionLost: the connection is gone, or the bytes are not a Kafka frame.
        """
        while self._in_flight and correlation_id not in self._early:
            head = self._in_flight[0].correlation_id
            body = self._read_frame(wait=False)
            if body is None:
                return False
            self._early[head] = body
        return True

    def receive(self, correlation_id: int) -> memoryview:
        """Wait for the response to a request and return its body, without the header. The view is writable.

        Responses to earlier requests are kept until they are asked for.

        :raises ConnectionLost: the connection is gone, the wait timed out, or the bytes are not a Kafka frame.
        :raises ValueError: no request with this correlation id is in flight.
        """
        if correlation_id in self._early:
            return self._early.pop(correlation_id)
        if all(correlation_id != sent.correlation_id for sent in self._in_flight):
            if self.closed:
                raise self._lost(f"the answer to request {correlation_id}", "the connection is closed")
            raise ValueError(f"no request with correlation id {correlation_id} is in flight to {self.address}")
        while True:
            head = self._in_flight[0].correlation_id
            body = self._read_frame()
            assert body is not None
            if head == correlation_id:
                return body
            self._early[head] = body

    def roundtrip(
        self, api_key: int, api_version: int, body: Buffer | Sequence[Buffer], flexible: bool = False,
        check: Check | None = None,
    ) -> memoryview:  # fmt: skip
        """Send a request, wait for its response and return the body. Raises what send and receive raise."""
        buffers = [body] if isinstance(body, bytes | bytearray | memoryview) else body
        return self.receive(self.send(api_key, api_version, buffers, flexible, check))

    def request(self, message: Any, version: int, check: Check | None = None) -> Any:
        """Send a request of kafka-python's schema classes and return the decoded response of the same kind."""
        flexible = type(message).flexible_version_q(version)
        body = self.roundtrip(message.API_KEY, version, message.encode(version=version), flexible, check)
        message.with_header()
        response = message.header.get_response_class().decode(body, version=version)
        self.throttle(getattr(response, "throttle_time_ms", 0))
        return response

    def throttle(self, ms: int) -> None:
        """Note what a response said: so long the broker does not read from this connection (KIP-219)."""
        self._muted_until = time.monotonic() + ms / 1000

    def _wait_out(self) -> None:
        """Send nothing before that ends, or the broker would seem frozen."""
        left = self._muted_until - time.monotonic()
        if left <= 0:
            return
        role, now = self.settings.role, time.monotonic()
        if left > _LONG_S and now - _told.get(role, -math.inf) > _TOLD_AGAIN_S:
            _told[role] = now
            log.warning("%s cluster: broker %s throttles this client (quota): it waits %.1f s", role, self.address, left)
        if not pause(left):
            raise StoppedByQuota(role, self.address, left)

    def exchange_token(self, token: bytes, *, last: bool = False) -> bytes:
        """Send a bare SASL token and return the broker's token, which is how brokers before 1.0 authenticate clients.

        :param last: the broker does not answer this one; nothing is returned.
        :raises ConnectionLost: the broker hung up, which is also how such a broker rejects credentials.
        """
        self._write([struct.pack(">i", len(token)), token], _SASL_HANDSHAKE)
        if last:
            return b""
        size = memoryview(bytearray(4))
        refused = "during the login; a broker before 1.0 refuses user or password in no other way"
        self._fill(size, _SASL_HANDSHAKE, refused)
        answer = memoryview(bytearray(max(0, min(struct.unpack(">i", size)[0], self.settings.max_response_bytes))))
        self._fill(answer, _SASL_HANDSHAKE, refused)
        return bytes(answer)

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker serves a request in ``version`` or a newer one."""
        served = self.api_versions.get(api_key)
        return served is not None and served[1] >= version

    def newest(self, api_key: int, lowest: int, highest: int) -> int:
        """Return the newest version in [lowest, highest] that the broker serves too.

        :raises ApiNotServed: there is none.
        """
        served = self.api_versions.get(api_key)
        if served is None or min(highest, served[1]) < max(lowest, served[0]):
            raise ApiNotServed(self.address, api_name(api_key), highest, served)
        return min(highest, served[1])

    # --- opening ------------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        plain = self._dial()
        try:
            self._tune(plain)
            self._socket = self._encrypt(plain) if self.settings.uses_tls else plain
        except BaseException:
            plain.close()
            raise
        self._gathers = not self.settings.uses_tls
        if self._gathers:
            # A blocking socket with kernel timeouts receives a whole frame in one recv with MSG_WAITALL. With a Python
            # timeout each piece costs a poll and a recv. TLS sockets can't use kernel timeouts: they spin.
            plain.settimeout(None)
            limit = struct.pack("ll", int(self.timeout_s), int(self.timeout_s % 1 * 1_000_000))
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _dial(self) -> socket.socket:
        try:
            return socket.create_connection((self.host, self.port), timeout=self.timeout_s)
        except OSError as e:
            silent = isinstance(e, TimeoutError)
            cause = f"no answer within {self.timeout_s:g} s" if silent else e.strerror or str(e)
            hints = ["Is a firewall in between?"] if silent else []
            if (self.host, self.port) not in parse_bootstrap(self.settings.bootstrap):
                hints.append(_SENT_HINT)
            raise self._lost("connect", cause, " ".join(hints)) from None

    def _tune(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A closed socket is reset, whether we close it or the process dies. Otherwise the kernel would keep delivering
        # its buffer for minutes, and an abandoned request could arrive after the requests that followed it.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Not set by default: a fixed size disables the kernel's auto-tuning, which goes far higher.
        for option, size in zip((socket.SO_SNDBUF, socket.SO_RCVBUF), self.settings.buffer_bytes, strict=True):
            if size:
                plain.setsockopt(socket.SOL_SOCKET, option, size)

    def _encrypt(self, plain: socket.socket) -> ssl.SSLSocket:
        try:
            context = self.settings.ssl_context
            # Two calls: a single one silently skips the handshake if the peer has already hung up.
            self._socket = tls = context.wrap_socket(plain, server_hostname=self.host, do_handshake_on_connect=False)
            tls.do_handshake()
            return tls
        except ssl.SSLCertVerificationError as e:
            remedy = (
                "The certificate must name the host that brokers advertise; or set "
                "ssl.endpoint.identification.algorithm=none."
                if "match" in e.verify_message
                else "Set ssl.ca.location to the CA that signed the broker's certificate."
            )
            raise self._tls_refused(e.verify_message, remedy) from None
        except TimeoutError:
            raise self._lost("TLS handshake", f"no answer within {self.timeout_s:g} s") from None
        except OSError as e:
            if isinstance(e, ssl.SSLError) and not isinstance(e, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                raise self._tls_failed(e, "TLS handshake") from None
            # A broker that dies or is just starting does this too, so it must not count as a wrong setting.
            hint = "A plain listener does that: if this repeats, check port and security.protocol."
            raise self._lost("TLS handshake", "the peer closed the connection", hint) from None

    def _negotiate(self) -> None:
        from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

        version = 3
        message = ApiVersionsRequest(client_software_name="airflow-mirror", client_software_version="1", version=version)
        # The response header has no tags although the body has, so that an old broker can be understood too.
        sent = self._send(_API_VERSIONS, version, [message.encode(version=version)], True, flexible_answer=False)
        response = ApiVersionsResponse.decode(self.receive(sent), version=version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:  # before 2.4
            sent = self._send(_API_VERSIONS, 0, [b""], False)
            response = ApiVersionsResponse.decode(self.receive(sent), version=0)
        if response.error_code:
            raise self._lost("ApiVersions", f"error {response.error_code}")
        self.api_versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _log_in(self) -> None:
        """Log in, or re-authenticate a session that ends soon (KIP-368); requests in flight keep their responses."""
        self._renew_at = float("inf")  # the login's own requests must not trigger a renewal
        lifetime_s = log_in(self, self.settings) / 1000
        if lifetime_s > 0:
            self._renew_at = time.monotonic() + max(_RENEW_AT * lifetime_s, _RENEW_EARLIEST_S)
            self._ends_at = time.monotonic() + lifetime_s

    def _renew(self) -> None:
        try:
            self._log_in()
        except BaseException:  # the broker takes nothing but the rest of the login from now on
            self.close()
            raise

    def _goes_on(self) -> bool:
        """Return whether the session is used although it ends soon: while a KDC is asked for a ticket, which may hang.

        What waits for an answer here, such as the confirmation of a lease, would wait for the KDC.
        """
        if not self.settings.uses_kerberos or time.monotonic() > self._ends_at - _TICKET_LATEST_S:
            return False
        if self.settings.kerberos.is_at_hand(self.host):
            return False
        self.put_off(_TICKET_AGAIN_S)
        return True

    # --- frames -------------------------------------------------------------------------------------------------------

    def _send(
        self, key: int, version: int, buffers: Sequence[Buffer], flexible: bool, flexible_answer: bool | None = None,
        *, wait: bool = True,
    ) -> int:  # fmt: skip
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        sent = self._correlation
        header = len(self._client_id) + _REQUEST.size - 4 + flexible
        size = header + sum(len(buffer) for buffer in buffers)
        head = _REQUEST.pack(size, key, version, sent, len(self._client_id)) + self._client_id + b"\0" * flexible
        self._write([head, *buffers], key, wait)
        answer = flexible if flexible_answer is None else flexible_answer
        self._in_flight.append(_Sent(sent, key, answer))
        return sent

    def _write(self, buffers: list[Buffer], key: int, wait: bool = True) -> None:
        if self._socket is None:
            raise self._lost(key, "the connection is closed")
        try:
            if self._gathers:
                self._unsent = _gather(self._socket, [*self._unsent, *buffers], wait)
            else:
                # The rest of a TLS record must be offered again unchanged.
                self._unsent = self._encrypted([*self._unsent, *_joined(buffers)], wait)
        except (BlockingIOError, TimeoutError):
            raise self._lost(key, f"it accepted no data for {self.timeout_s:g} s") from None
        except OSError as e:
            error = self._last_words() or e
            if isinstance(error, ssl.SSLError):
                raise self._tls_failed(error, key) from None
            raise self._lost(key, f"sending failed: {e.strerror or e}", self._hint()) from None

    def _encrypted(self, chunks: list[Buffer], wait: bool) -> list[Buffer]:
        """Send chunks through TLS; return the unsent rest, which is empty if ``wait`` is set."""
        assert self._socket is not None
        if wait:
            for chunk in chunks:
                self._socket.sendall(chunk)
            return []
        with self._unwaiting() as tls:
            for number, chunk in enumerate(chunks):
                view = memoryview(chunk)
                while view:
                    try:
                        view = view[tls.send(view) :]
                    except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                        return [view, *chunks[number + 1 :]]
        return []

    @contextmanager
    def _unwaiting(self) -> Iterator[socket.socket]:
        """Make a TLS socket non-blocking; plain sockets get a flag in each call instead."""
        plain = self._socket
        assert plain is not None
        plain.settimeout(0)
        try:
            yield plain
        finally:
            if plain.fileno() >= 0:
                plain.settimeout(self.timeout_s)

    def _read_frame(self, wait: bool = True) -> memoryview | None:
        """Read the next frame, which must be the response to the oldest request in flight.

        :return: None if ``wait`` is false and the frame is incomplete; the received part is kept.
        """
        expected, key, flexible = self._in_flight[0]
        frame = self._arriving
        if not frame.is_body:
            if not self._take(frame, key, "before it answered", wait):
                return None
            frame.view, frame.at, frame.is_body = _room(self._body_size(frame.view, expected, key)), 0, True
        if not self._take(frame, key, "in the middle of a response", wait):
            return None
        self._arriving = _Arriving()
        self._in_flight.popleft()
        self._answers += 1
        return frame.view[tags_end(frame.view) :] if flexible else frame.view

    def _take(self, frame: _Arriving, key: int, where: str, wait: bool) -> bool:
        """Receive into a frame's view; return whether it is full."""
        frame.at = self._fill(frame.view, key, where, frame.at, wait)
        left = len(frame.view) - frame.at
        if self._gathers and (frame.lowered or (left and frame.is_body)):
            # Otherwise a large response would wake its reader every few packets.
            frame.lowered = left > 0
            assert self._socket is not None
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, min(left, _AT_ONCE_BYTES)))
        return not left

    def _body_size(self, head: memoryview, expected: int, key: int) -> int:
        size, correlation_id = _RESPONSE.unpack(head)
        if size < 4 or size > self.settings.max_response_bytes:
            limit = self.settings.max_response_bytes
            absurd = f"it announced a response of {size} bytes (limit {limit})"
            hint = "Is this a Kafka broker? If so, raise receive.message.max.bytes."
            raise self._lost(key, *(_foreign(bytes(head)) or (absurd, hint)))
        if correlation_id != expected:
            raise self._lost(key, f"it answered request {correlation_id} where {expected} was expected")
        return int(size) - 4

    def _fill(self, view: memoryview, key: int, where: str, at: int = 0, wait: bool = True) -> int:
        """Fill ``view`` from ``at`` on; return the new end of the filled part: the end of the view if ``wait`` is set."""
        if self._socket is None:
            raise self._lost(key, "the connection is closed")
        flags = 0 if not self._gathers else socket.MSG_WAITALL if wait else socket.MSG_DONTWAIT
        try:
            with nullcontext() if wait or self._gathers else self._unwaiting():
                while at < len(view):
                    try:
                        count = self._socket.recv_into(view[at:], 0, flags)
                    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        if wait:
                            raise
                        return at
                    if count == 0:
                        cause, hint = _foreign(bytes(view[:at])) or (f"it closed the connection {where}", self._hint())
                        raise self._lost(key, cause, hint)
                    at += count
            return at
        except (BlockingIOError, TimeoutError):
            raise self._lost(key, f"no answer within {self.timeout_s:g} s") from None
        except ssl.SSLError as e:
            raise self._tls_failed(e, key) from None
        except OSError as e:
            raise self._lost(key, f"receiving failed: {e.strerror or e}", self._hint()) from None

    # --- endings ------------------------------------------------------------------------------------------------------

    def _hint(self) -> str:
        """A SASL listener answers ApiVersions without a login, then closes the connection: two answers show access."""
        if self._answers > 1 or self.settings.uses_sasl:
            return ""
        return _NO_LOGIN_HINT if self.settings.uses_tls else _PLAIN_HINT

    def _lost(self, asked: str | int, cause: str, hint: str = "") -> ConnectionLost:
        self.close()
        what = api_name(asked) if isinstance(asked, int) else asked
        return ConnectionLost(self.settings.role, self.address, what, cause, hint)

    def _last_words(self) -> ssl.SSLError | None:
        """Return the TLS alert with which a broker ended the connection, if sending found it closed."""
        if self._answers or not isinstance(self._socket, ssl.SSLSocket):
            return None
        try:
            self._socket.recv(1)
        except ssl.SSLError as e:
            return e
        except OSError:
            pass
        return None

    def _tls_refused(self, cause: str, remedy: str) -> InputError:
        return InputError(f"{self.settings.role} cluster, broker {self.address}: TLS failed", cause, remedy)

    def _tls_failed(self, error: ssl.SSLError, asked: str | int) -> MirrorError:
        """Return the error for a TLS failure: InputError if peer or OpenSSL rejected TLS before the first response.

        With TLS 1.3 a broker rejects our certificate after our side of the handshake has ended, with an alert in place
        of the first response. Once a request was answered, both sides had agreed: later failures only end it.
        """
        reason = error.reason or ""
        said = (reason or str(error)).replace("_", " ").lower()
        if not self._answers and any(word in reason for word in _TLS_REFUSALS):
            self.close()
            return self._tls_refused(said, "Check the client certificate, the ciphers and the port.")
        return self._lost(asked, f"TLS ended: {said}", "" if self._answers else _TLS_HINT)


def _room(size: int) -> memoryview:
    """Return a buffer to fill. Large ones are not zeroed: that took a twelfth of a copier's CPU."""
    if size <= _ZEROED_BYTES:
        return memoryview(bytearray(size))
    import pyarrow

    return memoryview(pyarrow.allocate_buffer(size)).cast("B")  # its format is signed bytes otherwise


def _gather(plain: socket.socket, buffers: list[Buffer], wait: bool = True) -> list[Buffer]:
    """Send buffers with as few calls and copies as the kernel allows; return the rest that would have blocked."""
    flags = 0 if wait else socket.MSG_DONTWAIT
    while buffers:
        part = buffers[:_IOV_MAX]
        try:
            left = sum(len(b) for b in part) - plain.sendmsg(part, (), flags)
        except BlockingIOError:
            if wait:
                raise
            return buffers
        buffers = _tail(part, left) + buffers[_IOV_MAX:] if left or len(buffers) > _IOV_MAX else []
    return []


def _tail(buffers: list[Buffer], size: int) -> list[Buffer]:
    """Return the last ``size`` bytes of ``buffers``, as views."""
    kept: list[Buffer] = []
    for buffer in reversed(buffers):
        if size <= 0:
            break
        kept.append(memoryview(buffer)[max(len(buffer) - size, 0) :])
        size -= len(buffer)
    return kept[::-1]


def _joined(buffers: list[Buffer]) -> list[Buffer]:
    """Join neighbours that fit into one TLS record; each sendall costs a record, a packet and a system call."""
    chunks: list[Buffer] = []
    small = bytearray()
    for buffer in buffers:
        if len(small) + len(buffer) <= _TLS_JOIN_BYTES:
            small += buffer
            continue
        if small:
            chunks.append(small)
            small = bytearray()
        chunks.append(buffer)
    return [*chunks, small] if small else chunks


def _foreign(head: bytes) -> tuple[str, str] | None:
    """Identify another protocol by its first bytes and return (cause, hint); read as sizes they exceed 256 MiB."""
    if head[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it answered with TLS", "The listener speaks TLS: set security.protocol to SSL or SASL_SSL."
    if head[:4] == b"HTTP":
        return "it answered with HTTP", "This is a web server, no Kafka broker: check host and port."
    return None


def api_name(api_key: int) -> str:
    from kafka.protocol.api_key import ApiKey

    try:
        return str(ApiKey(api_key).name)
    except ValueError:
        return f"request {api_key}"
