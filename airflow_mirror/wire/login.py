"""SASL logins. kafka-python implements the mechanisms, but for Kerberos's (:mod:`.kerberos`)."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_mirror.common.oauth.tokens import Tokens
from airflow_mirror.errors import AuthenticationFailed
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.settings import WireSettings


class Line(Protocol):
    """What a login needs from its connection; see :class:`~airflow_mirror.wire.connection.Connection`."""

    host: str
    address: str
    timeout_s: float

    def serves(self, api_key: int, version: int) -> bool:
        """Return whether the broker serves a request in ``version`` or a newer one."""

    def newest(self, api_key: int, lowest: int, highest: int) -> int:
        """Return the newest version in [lowest, highest] that the broker serves too."""

    def request(self, message: Any, version: int) -> Any:
        """Send a request and return the decoded response."""

    def exchange_token(self, token: bytes, *, last: bool = False) -> bytes:
        """Send a bare token and return the broker's token; empty after the ``last`` one, which is not answered."""


def log_in(connection: Line, settings: WireSettings) -> int:
    """Run SaslHandshake and SaslAuthenticate on ``connection``.

    :returns: lifetime of the session in ms, 0 for unlimited (KIP-368).
    :raises AuthenticationFailed: the broker does not serve the mechanism, or rejects the credentials.
    :raises ConnectionLost: the KDC gave no ticket in time; nothing was sent, and the connection can still be used.
    """
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

    name = settings.sasl_mechanism
    # Before the handshake: behind it the broker takes nothing but the login, and a session that is good until its end
    # would be lost to a KDC that hangs.
    mechanism = _begun(settings, connection) if name == "GSSAPI" else _mechanism(settings, connection.host)
    framed = connection.serves(SaslAuthenticateRequest.API_KEY, 0)  # since 1.0 (KIP-152); before that, bare tokens follow
    # From here on the broker takes nothing but the login: what ends amid it leaves a connection of no use, to be closed.
    handshake = connection.request(SaslHandshakeRequest(mechanism=name, version=int(framed)), int(framed))
    if handshake.error_code:
        served = ", ".join(handshake.mechanisms) or "none"
        cause = (
            f"it serves the SASL mechanisms {served}, not {name}"
            if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            else f"SaslHandshake answered {error_name(handshake.error_code)}; this listener may want no login"
        )
        raise AuthenticationFailed(settings.role, connection.address, cause)
    # A broker before 1.0 answers a wrong password by hanging up, which looks like a broker that died: see
    # `exchange_token`.
    if not framed:
        while not mechanism.is_done():
            last = getattr(mechanism, "has_last_word", False)
            _receive(mechanism, connection.exchange_token(mechanism.auth_bytes(), last=last), connection, settings)
        return 0
    version = connection.newest(SaslAuthenticateRequest.API_KEY, 0, 2)
    lifetime_ms = 0
    while not mechanism.is_done():
        answer = connection.request(SaslAuthenticateRequest(mechanism.auth_bytes(), version=version), version)
        if answer.error_code:
            detail = answer.error_message or error_name(answer.error_code)
            raise _refused(settings, connection, detail)
        # Told with the last answer, from version 1 on (KIP-368).
        lifetime_ms = (answer.session_lifetime_ms or 0) if version else 0
        _receive(mechanism, bytes(answer.auth_bytes or b""), connection, settings)
    return lifetime_ms


def _receive(mechanism: Any, token: bytes, connection: Line, settings: WireSettings) -> None:
    """Pass the broker's token to a mechanism."""
    name = settings.sasl_mechanism
    try:
        mechanism.receive(token)
    except (ValueError, KeyError) as e:  # kafka-python raises these for a wrong SCRAM signature or message
        raise AuthenticationFailed(settings.role, connection.address, f"{name}: the broker answered {e}") from None
    if mechanism.is_done() and not mechanism.is_authenticated():
        raise AuthenticationFailed(settings.role, connection.address, f"{name}: not authenticated")


def _refused(settings: WireSettings, connection: Line, detail: str) -> AuthenticationFailed:
    name = settings.sasl_mechanism
    if name == "OAUTHBEARER":
        remedy = settings.oauth_tokens.advise(detail)
        return AuthenticationFailed(settings.role, connection.address, f"{name}: {detail}", remedy)
    if name != "GSSAPI":
        return AuthenticationFailed(settings.role, connection.address, f"{name}: {detail}")
    # The broker tells nobody more than that it failed.
    identity = settings.kerberos.identity
    remedy = (
        "The KDC gave a ticket for this broker, so only the broker's log has the cause: its own keytab is older than its "
        "key, clocks differ by more than five minutes, or sasl.kerberos.principal.to.local.rules has no rule for this "
        "realm."
    )
    return AuthenticationFailed(settings.role, connection.address, f"{name} as {identity}: {detail}", remedy)


def _begun(settings: WireSettings, connection: Line) -> Any:
    """Return a Kerberos login whose first token is made: before anything is sent, because the KDC may hang."""
    from airflow_mirror.wire.kerberos.mechanism import KerberosLogin

    host, address = connection.host, connection.address
    return KerberosLogin(settings.kerberos, host, connection.timeout_s, settings.role, address)


def _mechanism(settings: WireSettings, host: str) -> Any:
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.net.sasl.oauth import AbstractTokenProvider

    AbstractTokenProvider.register(Tokens)
    name, user = settings.sasl_mechanism, settings.get("sasl.username")
    if name.startswith("SCRAM"):
        # RFC 5802: these two separate the fields of a message. kafka-python 3.0.12 does not escape them.
        user = user.replace("=", "=3D").replace(",", "=2C")
    return get_sasl_mechanism(name)(
        host=host,
        sasl_mechanism=name,
        sasl_plain_username=user,
        sasl_plain_password=settings.get("sasl.password"),
        sasl_oauth_token_provider=settings.oauth_tokens if name == "OAUTHBEARER" else None,
    )
