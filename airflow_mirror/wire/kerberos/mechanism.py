"""The messages of a SASL/GSSAPI login (RFC 4752), in the form that kafka-python gives its mechanisms."""

from __future__ import annotations

from airflow_mirror.errors import AuthenticationFailed
from airflow_mirror.wire.kerberos.causes import no_ticket
from airflow_mirror.wire.kerberos.tickets import Tickets, Unavailable

_AUTH_ONLY = 1  # security layers: a bit for none, which is all that Kafka offers; TLS encrypts
_ANSWER = bytes([_AUTH_ONLY, 0, 0, 0])  # the layer, and how much of it we take: none


class KerberosLogin:
    """One login. Both sides prove who they are: a broker that can't read our ticket is not believed.

    The first token is made at once, before a byte is sent: it may have to wait for the KDC.

    :param host: of the broker, as it advertises itself.
    :param role: ``source`` or ``target``, for errors, as is ``address``.
    :raises ConnectionLost: the KDC does not answer within ``timeout_s``.
    :raises InputError: it refuses, or there is nothing to ask it with.
    """

    def __init__(self, tickets: Tickets, host: str, timeout_s: float, role: str, address: str) -> None:
        self._identity, self._role, self._address = tickets.identity, role, address
        try:
            self._context, self._token = tickets.begin(host, timeout_s)
        except Unavailable as e:
            raise no_ticket(role, address, tickets.identity, e.failure) from None
        self._chosen = self._done = False

    @property
    def has_last_word(self) -> bool:
        """Whether the token to send is the last one. Brokers before 1.0, which get bare tokens, don't answer it."""
        return self._chosen

    def auth_bytes(self) -> bytes:
        """Return the token to send."""
        return self._token

    def receive(self, token: bytes) -> None:
        """Take the broker's token.

        :raises AuthenticationFailed: it does not prove that the broker is who we asked for, or offers no plain layer.
        """
        from gssapi.exceptions import GSSError

        try:
            if self._chosen:
                self._done = True
            # RFC 4752: tokens until both sides' contexts stand, then the broker's offer of layers, then our choice,
            # which is the last word.
            elif not self._context.complete:
                self._token = bytes(self._context.step(token) or b"")
            else:
                self._choose(self._context.unwrap(token).message)
        except GSSError as e:
            raise self._failed(f"the broker's answer proves nothing: {e.gen_message()}") from None

    def is_done(self) -> bool:
        """Whether there is nothing more to send."""
        return self._done

    def is_authenticated(self) -> bool:
        """Whether both sides know each other."""
        return bool(self._context.complete)

    def _choose(self, offer: bytes) -> None:
        if len(offer) != 4 or not offer[0] & _AUTH_ONLY:
            raise self._failed(f"the broker wants a security layer of SASL ({offer.hex()}); Kafka has none")
        self._token, self._chosen = bytes(self._context.wrap(_ANSWER, False).message), True

    def _failed(self, cause: str) -> AuthenticationFailed:
        return AuthenticationFailed(self._role, self._address, f"GSSAPI as {self._identity}: {cause}")
