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
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from airflow_mirror.common.signals import pause
from airflow_mirror.errors import InputError
from airflow_mirror.wire.arriving import RESPONSE, Arriving, room
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed, StoppedByQuota
from airflow_mirror.wire.login import log_in
from airflow_mirror.wire.settings import WireSettings
from airflow_mirror.wire.stream import Buffer, Stream, api_name, foreign
from airflow_mirror.wire.varint import tags_end

__all__ = ["Buffer", "Check", "Connection", "WireSettings"]

Check = Callable[[], None]  # raises if a request must not be sent

log = logging.getLogger(__name__)

# Request header v1; v2 of flexible versions has tagged fields behind it (KIP-482). The client id has the older encoding
# in both.
_REQUEST = struct.Struct(">ihhih")  # size, api key, api version, correlation id, length of the client id
_AT_ONCE_BYTES = 1 << 20  # a selector wakes up once this much of a response, or all of it, has arrived
_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
# Kafka closes a session when it expires; the Java client re-authenticates at 85 to 95 % of its lifetime. A broker
# rejects a re-authentication within a second of the last login.
_RENEW_AT, _RENEW_EARLIEST_S = 0.85, 1.1
_OVER_EARLY, _OVER_EARLY_S = 0.02, 1.0  # for a request on its way: a part of the lifetime, at most so much
_TICKET_AGAIN_S, _TICKET_LATEST_S = 0.5, 1.5  # how often to look for a ticket; how long before the end to wait for it
_LONG_S, _TOLD_AGAIN_S = 1.0, 30.0  # which waits for a quota are told, and how often
_told: dict[str, float] = {}  # by role, monotonic: of all connections of this process


class _Sent(NamedTuple):
    """A request that awaits its response; ``flexible`` describes the response header."""

    correlation_id: int
    api_key: int
    flexible: bool


class Connection(Stream):
    """An open connection, created by :meth:`open`.

    :ivar api_versions: API key -> (lowest, highest) version that the broker serves.
    """

    def __init__(self, host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        super().__init__(host, port, settings, timeout_s)
        self.api_versions: dict[int, tuple[int, int]] = {}
        self._client_id = settings.client_id.encode()
        self._correlation = 0
        self._in_flight: deque[_Sent] = deque()
        self._early: dict[int, memoryview] = {}
        self._arriving = Arriving()
        self._renew_at = self._over_at = self._ends_at = float("inf")
        self._muted_until = -math.inf
        self.throttled_s = 0.0  # in all

    @classmethod
    def open(cls, host: str, port: int, settings: WireSettings, timeout_s: float | None = None) -> Self:
        """Connect, negotiate API versions and log in.

        :param timeout_s: for connecting, and later for every wait in which no byte moves. Default:
            ``socket.timeout.ms`` from the settings.
        :raises ConnectionLost: nothing listens, or the broker hung up (also in a TLS handshake); hints at the cause.
        :raises TlsRefused: no agreement on TLS, or an untrusted certificate.
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
        super().close()
        # Unknown from here on; who still waits for one of them is told so by `receive`, and looks for itself what
        # became of it.
        self._in_flight.clear()
        self._early.clear()

    @property
    def gone(self) -> bool:
        """Whether it can't be used: closed, or ended by the broker while nothing was in flight, which nobody told."""
        return self.closed or not (self._in_flight or self._is_at_rest())

    @property
    def ends_soon(self) -> bool:
        """Whether the session must be renewed: by the next blocking send, or by a replacement connection."""
        return time.monotonic() >= self._renew_at

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, or does before a request is there: the broker closes on that one (KIP-368)."""
        return time.monotonic() >= self._over_at

    def put_off(self, seconds: float) -> None:
        """Make :attr:`ends_soon` return False for a while."""
        self._renew_at = time.monotonic() + seconds

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
            # In between two requests, whose answers come before that of the login (KIP-368).
            if self.ends_soon and not self._goes_on():
                self._renew()
        if check is not None:
            check()
        # Nothing may come between the check and this: what was waited for above, a quota or a login, may take longer
        # than a lease is valid. A process that is frozen right here sends when it thaws, whoever has the lease by then:
        # the sequences and epochs of what it sends are there for that.
        return self._send(api_key, api_version, buffers, flexible, wait=wait)

    def flush(self, check: Check | None = None) -> None:
        """Hand more of a request to the kernel, without blocking.

        :param check: called first; if it raises, nothing more is sent. The broker ignores an incomplete request.
        :raises ConnectionLost: the connection is gone.
        """
        if self._unsent:
            if check is not None:
                check()
            # The last request in flight is the only one that may have a rest: callers that don't wait have one at a
            # time.
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
        # Since 2.0 a broker answers first and reads nothing for so long; before that it held back the answer instead.
        self._muted_until = max(self._muted_until, time.monotonic() + ms / 1000)
        self.throttled_s += ms / 1000

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

    def _negotiate(self) -> None:
        from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

        version = 3
        message = ApiVersionsRequest(client_software_name="airflow-mirror", client_software_version="1", version=version)
        # The response header has no tags although the body has, so that an old broker can be understood too.
        # Version 3 in the older header, because its asker can't know yet what the broker speaks (KIP-511).
        sent = self._send(_API_VERSIONS, version, [message.encode(version=version)], True, flexible_answer=False)
        response = ApiVersionsResponse.decode(self.receive(sent), version=version)
        self.throttle(response.throttle_time_ms or 0)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:  # before 2.4
            sent = self._send(_API_VERSIONS, 0, [b""], False)
            response = ApiVersionsResponse.decode(self.receive(sent), version=0)
        if response.error_code:
            raise self._lost("ApiVersions", f"error {response.error_code}")
        # Of this broker at this moment: while a cluster is upgraded, its neighbours may serve others.
        self.api_versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _log_in(self) -> None:
        """Log in, or re-authenticate a session that ends soon (KIP-368); requests in flight keep their responses."""
        self._renew_at = float("inf")  # the login's own requests must not trigger a renewal
        lifetime_s = log_in(self, self.settings) / 1000
        if lifetime_s > 0:
            self._renew_at = time.monotonic() + max(_RENEW_AT * lifetime_s, _RENEW_EARLIEST_S)
            self._ends_at = time.monotonic() + lifetime_s
            self._over_at = self._ends_at - min(_OVER_EARLY * lifetime_s, _OVER_EARLY_S)

    def _renew(self) -> None:
        """Log in again amid the session; a refusal loses the connection, and is final for the next one alone."""
        try:
            self._log_in()
        # By then its file may have another password: the next connection is opened with that, or says what is refused.
        except InputError as e:
            raise self._lost("login", e.cause) from e
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
        # If this raises, the connection is closed, and the request not in flight but unknown: part of it, or all, may
        # be there.
        self._write([head, *buffers], key, wait)
        answer = flexible if flexible_answer is None else flexible_answer
        self._in_flight.append(_Sent(sent, key, answer))
        return sent

    def _read_frame(self, wait: bool = True) -> memoryview | None:
        """Read the next frame, which must be the response to the oldest request in flight.

        :return: None if ``wait`` is false and the frame is incomplete; the received part is kept.
        """
        expected, key, flexible = self._in_flight[0]
        frame = self._arriving
        if not frame.is_body:
            if not self._take(frame, key, "before it answered", wait):
                return None
            frame.view, frame.at, frame.is_body = room(self._body_size(frame.view, expected, key)), 0, True
        if not self._take(frame, key, "in the middle of a response", wait):
            return None
        self._arriving = Arriving()
        self._in_flight.popleft()
        self._answers += 1
        return frame.view[tags_end(frame.view) :] if flexible else frame.view

    def _take(self, frame: Arriving, key: int, where: str, wait: bool) -> bool:
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
        size, correlation_id = RESPONSE.unpack(head)
        # Before memory is taken for it: another protocol's first bytes, read as a size, are gigabytes.
        if size < 4 or size > self.settings.max_response_bytes:
            limit = self.settings.max_response_bytes
            absurd = f"it announced a response of {size} bytes (limit {limit})"
            hint = "Is this a Kafka broker? If so, raise receive.message.max.bytes."
            raise self._lost(key, *(foreign(bytes(head)) or (absurd, hint)))
        # Answers come in the order of requests: otherwise nobody can say which request was executed.
        if correlation_id != expected:
            raise self._lost(key, f"it answered request {correlation_id} where {expected} was expected")
        return int(size) - 4

    # --- endings ------------------------------------------------------------------------------------------------------
