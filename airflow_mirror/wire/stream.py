"""The socket of a connection, plain or with TLS: bytes out, bytes in, and why it ended.

After any error or timeout the position in the stream is unknown, so it is closed for good; frames and requests are
:mod:`.connection`'s.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.common.closing import Closing
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.errors import ConnectionLost, TlsRefused
from airflow_mirror.wire.settings import WireSettings

Buffer = bytes | bytearray | memoryview
# What one sendmsg may gather: a request of hundreds of partitions has more pieces than that.
_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in os.sysconf_names else 16
# Probes of an idle connection: after so many seconds, so far apart, and how many are lost when it ends.
_KEEP_ALIVE = tuple(
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
)
_TLS_JOIN_BYTES = 16 * 1024  # one TLS record: smaller buffers are joined, larger ones are sent as they are
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
_NO_LOGIN_HINT = "A SASL listener closes a connection that does not log in without a word: check security.protocol."


class Stream(Closing):
    """A socket to one broker; see the module. Belongs to one thread."""

    def __init__(self, host: str, port: int, settings: WireSettings, timeout_s: float) -> None:
        self.host, self.port, self.settings, self.timeout_s = host, port, settings, timeout_s
        self.address = f"{host}:{port}"
        self._socket: socket.socket | None = None
        self._gathers = False
        self._unsent: list[Buffer] = []
        self._answers = 0

    def close(self) -> None:
        """Close the socket; idempotent."""
        if self._socket is not None:
            # Not drained: see `_tune`. What the kernel still has of ours is thrown away, which is what callers rest on.
            self._socket.close()
            self._socket = None
        self._unsent.clear()

    @property
    def unsent(self) -> bool:
        """Whether part of a request has not been handed to the kernel yet; see :meth:`flush`."""
        return bool(self._unsent)

    @property
    def closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._socket is None

    def fileno(self) -> int:
        """Return the socket's file descriptor, for ``select``; -1 when closed."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def has_bytes(self) -> bool:
        """Whether something has come, or the end, although a selector may not report it yet: it waits for more."""
        # With TLS it reports every byte.
        return self._gathers and self._peeked() is not None

    def _is_at_rest(self) -> bool:
        """Return whether nothing has come, nor the end: as it is between a response and the next request."""
        if self._gathers:
            return self._peeked() is None
        try:
            with self._unwaiting() as tls:
                # Read, not peeked: what TLS says for itself is no byte of ours, and its farewell comes before the end.
                tls.recv(1)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError:
            pass
        return False

    def _peeked(self) -> bytes | None:
        """Return the next byte of a plain socket, and leave it there; b"" at its end, None if nothing has come."""
        if self._socket is None:
            return b""
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _connect(self) -> None:
        plain = self._dial()
        try:
            # Before the first byte: from here on the socket of a process that dies, also amid a handshake, is reset.
            self._tune(plain)
            self._socket = self._encrypt(plain) if self.settings.uses_tls else plain
        except BaseException:
            plain.close()
            raise
        # A TLS record is made of one buffer, and its rest must be offered unchanged: only a plain socket gathers.
        self._gathers = not self.settings.uses_tls
        if self._gathers:
            # A blocking socket with kernel timeouts receives a whole frame in one recv with MSG_WAITALL. With a Python
            # timeout each piece costs a poll and a recv. TLS sockets can't use kernel timeouts: they spin.
            plain.settimeout(None)
            limit = struct.pack("ll", int(self.timeout_s), int(self.timeout_s % 1 * 1_000_000))
            # They end a wait in which no byte moves, not a whole response: one that is large and slow is not given up.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _dial(self) -> socket.socket:
        try:
            # Each address of the name in turn; nothing was sent yet, so a failure here is never a doubt.
            return socket.create_connection((self.host, self.port), timeout=self.timeout_s)
        except OSError as e:
            silent = isinstance(e, TimeoutError)
            cause = f"no answer within {self.timeout_s:g} s" if silent else e.strerror or str(e)
            hints = ["Is a firewall in between?"] if silent else []
            if (self.host, self.port) not in parse_bootstrap(self.settings.bootstrap):
                hints.append(_SENT_HINT)
            raise self._lost("connect", cause, " ".join(hints)) from None

    def _tune(self, plain: socket.socket) -> None:
        # Requests are written as a whole: Nagle's algorithm would hold back the last packet until the others are
        # confirmed.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # By default the first probe comes after two hours: a firewall has forgotten the connection by then.
        for option, value in _KEEP_ALIVE:
            plain.setsockopt(socket.IPPROTO_TCP, option, value)
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

    def _write(self, buffers: list[Buffer], key: int, wait: bool = True) -> None:
        if self._socket is None:
            raise self._lost(key, "the connection is closed")
        # Whoever dies before these lines has sent nothing, and behind them everything that the kernel took may arrive: a
        # broker executes a request as soon as it has its last byte, and drops one that it never gets to the end of.
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
                # All of it, or an error behind which nobody knows how much has gone out: `_write` closes.
                self._socket.sendall(chunk)
            return []
        with self._unwaiting() as tls:
            for number, chunk in enumerate(chunks):
                view = memoryview(chunk)
                while view:
                    try:
                        view = view[tls.send(view) :]
                    # TLS may have to read before it can write. The selector wakes us for either, and the rest is
                    # offered again.
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

    def _fill(self, view: memoryview, key: int, where: str, at: int = 0, wait: bool = True) -> int:
        """Fill ``view`` from ``at`` on; return the new end of the filled part: the end of the view if ``wait`` is set."""
        if self._socket is None:
            raise self._lost(key, "the connection is closed")
        flags = 0 if not self._gathers else socket.MSG_WAITALL if wait else socket.MSG_DONTWAIT
        try:
            with nullcontext() if wait or self._gathers else self._unwaiting():
                while at < len(view):
                    try:
                        # With MSG_WAITALL it returns less than that only at the end, at a timeout or on a signal.
                        count = self._socket.recv_into(view[at:], 0, flags)
                    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        if wait:
                            raise
                        return at
                    if count == 0:
                        # An end without a word. What was asked may have been executed, its answer died with the
                        # connection.
                        cause, hint = foreign(bytes(view[:at])) or (f"it closed the connection {where}", self._hint())
                        raise self._lost(key, cause, hint)
                    at += count
            return at
        except (BlockingIOError, TimeoutError):
            raise self._lost(key, f"no answer within {self.timeout_s:g} s") from None
        except ssl.SSLError as e:
            raise self._tls_failed(e, key) from None
        except OSError as e:
            raise self._lost(key, f"receiving failed: {e.strerror or e}", self._hint()) from None

    def _hint(self) -> str:
        """A SASL listener answers ApiVersions without a login, then closes the connection: two answers show access."""
        if self._answers > 1 or self.settings.uses_sasl:
            return ""
        return _NO_LOGIN_HINT if self.settings.uses_tls else _PLAIN_HINT

    def _lost(self, asked: str | int, cause: str, hint: str = "") -> ConnectionLost:
        self.close()
        # Closed before the error is told: who catches it can't send on a stream whose position is unknown.
        what = api_name(asked) if isinstance(asked, int) else asked
        return ConnectionLost(self.settings.role, self.address, what, cause, hint)

    def _last_words(self) -> ssl.SSLError | None:
        """Return the TLS alert with which a broker ended the connection, if sending found it closed."""
        if self._answers or not isinstance(self._socket, ssl.SSLSocket):
            return None
        try:
            # The broker closed while we were writing: what it said before, an alert, is still here to be read.
            self._socket.recv(1)
        except ssl.SSLError as e:
            return e
        except OSError:
            pass
        return None

    def _tls_refused(self, cause: str, remedy: str) -> TlsRefused:
        return TlsRefused(self.settings.role, self.address, cause, remedy)

    def _tls_failed(self, error: ssl.SSLError, asked: str | int) -> MirrorError:
        """Return the error for a TLS failure: TlsRefused if peer or OpenSSL rejected TLS before the first response.

        With TLS 1.3 a broker rejects our certificate after our side of the handshake has ended, with an alert in place
        of the first response. Once a request was answered, both sides had agreed: later failures only end it.
        """
        reason = error.reason or ""
        said = (reason or str(error)).replace("_", " ").lower()
        if not self._answers and any(word in reason for word in _TLS_REFUSALS):
            self.close()
            return self._tls_refused(said, "Check the client certificate, the ciphers and the port.")
        return self._lost(asked, f"TLS ended: {said}", "" if self._answers else _TLS_HINT)


def _gather(plain: socket.socket, buffers: list[Buffer], wait: bool = True) -> list[Buffer]:
    """Send buffers with as few calls and copies as the kernel allows; return the rest that would have blocked."""
    flags = 0 if wait else socket.MSG_DONTWAIT
    while buffers:
        part = buffers[:_IOV_MAX]
        try:
            # The kernel may take any part of it. The rest is offered from there on, in order: a request is executed
            # once it is whole.
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


def foreign(head: bytes) -> tuple[str, str] | None:
    """Identify another protocol by its first bytes and return (cause, hint); read as sizes they exceed 256 MiB."""
    if head[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it answered with TLS", "The listener speaks TLS: set security.protocol to SSL or SASL_SSL."
    if head[:4] == b"HTTP":
        return "it answered with HTTP", "This is a web server, no Kafka broker: check host and port."
    return None


def api_name(api_key: int) -> str:
    """Return Kafka's name of a request, for errors."""
    from kafka.protocol.api_key import ApiKey

    try:
        return str(ApiKey(api_key).name)
    except ValueError:
        return f"request {api_key}"
