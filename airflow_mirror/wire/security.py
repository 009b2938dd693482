"""TLS contexts and SASL logins. The mechanisms themselves are kafka-python's."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import AuthenticationFailed, InvalidField
from airflow_mirror.wire.error_codes import ErrorCode, error_name

if TYPE_CHECKING:
    from airflow_mirror.wire.connection import Connection
    from airflow_mirror.wire.settings import WireSettings


def ssl_context(settings: WireSettings) -> ssl.SSLContext:
    """Build the TLS context of a cluster's settings.

    :raises InvalidField: names the setting whose file can't be read or whose text is no certificate or key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify_certificate else ssl.CERT_NONE
    _trust(context, settings)
    _identify(context, settings)
    ciphers = settings.get("ssl.cipher.suites")
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise InvalidField(
                "ssl.cipher.suites", ciphers, "OpenSSL knows none of them", "Give an OpenSSL cipher list."
            ) from None
    return context


def _trust(context: ssl.SSLContext, settings: WireSettings) -> None:
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    try:
        if pem:
            context.load_verify_locations(cadata=pem)
        elif location in ("", "probe"):  # "probe" is librdkafka's word for the system's own store
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        elif os.path.isdir(location):
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except (OSError, ValueError) as e:
        key = "ssl.ca.pem" if pem else "ssl.ca.location"
        shown = "(text)" if pem else location
        raise InvalidField(key, shown, f"no usable PEM certificates: {_short(e)}", "Give the CA's PEM file.") from None


def _identify(context: ssl.SSLContext, settings: WireSettings) -> None:
    """Load the client certificate and its key, each given as a file or as a text."""
    if not (settings.get("ssl.certificate.location") or settings.get("ssl.certificate.pem")):
        return
    # A password function, always: without one OpenSSL would ask on the terminal and the task would hang.
    password = settings.get("ssl.key.password")
    with _as_file(settings, "ssl.certificate") as certificate, _as_file(settings, "ssl.key") as key:
        try:
            context.load_cert_chain(certificate or "", key, password=lambda: password)
        except (OSError, ValueError) as e:
            raise InvalidField(
                "ssl.certificate.location / ssl.key.location",
                "(set)",
                f"no usable certificate and key: {_short(e)}",
                "Give PEM files that belong together, and ssl.key.password if the key is encrypted.",
            ) from None


@contextmanager
def _as_file(settings: WireSettings, prefix: str) -> Iterator[str | None]:
    """Yield a path to the PEM of ``<prefix>.location`` or ``<prefix>.pem``; None when neither is set.

    Python's ssl reads keys from files only. A text is kept in an unlinked memory file where the system has them, so that
    a key never reaches a disk.
    """
    pem = settings.get(f"{prefix}.pem")
    if not pem:
        yield settings.get(f"{prefix}.location") or None
    elif hasattr(os, "memfd_create"):
        fd = os.memfd_create("pem")
        try:
            os.write(fd, pem.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile(mode="w", suffix=".pem") as file:  # mode 0600
            file.write(pem)
            file.flush()
            yield file.name


def _short(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error)


def log_in(connection: Connection, settings: WireSettings) -> int:
    """Run SaslHandshake and SaslAuthenticate on ``connection``.

    :returns: how long the session lives in ms, 0 for ever (KIP-368).
    :raises AuthenticationFailed: the broker does not serve the mechanism, or refuses the credentials.
    """
    from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

    name = settings.sasl_mechanism
    framed = connection.serves(SaslAuthenticateRequest.API_KEY, 0)  # since 1.0 (KIP-152); before, bare tokens follow
    handshake = connection.request(SaslHandshakeRequest(mechanism=name, version=int(framed)), int(framed))
    if handshake.error_code:
        served = ", ".join(handshake.mechanisms) or "none"
        cause = (
            f"it serves the SASL mechanisms {served}, not {name}"
            if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            else f"SaslHandshake answered {error_name(handshake.error_code)}; this listener may want no login"
        )
        raise AuthenticationFailed(settings.role, connection.address, cause)
    mechanism = _mechanism(settings, connection.host)
    if not framed:
        while not mechanism.is_done():
            _receive(mechanism, connection.exchange_token(mechanism.auth_bytes()), connection, settings)
        return 0
    version = connection.newest(SaslAuthenticateRequest.API_KEY, 0, 2)
    lifetime_ms = 0
    while not mechanism.is_done():
        answer = connection.request(SaslAuthenticateRequest(mechanism.auth_bytes(), version=version), version)
        if answer.error_code:
            detail = answer.error_message or error_name(answer.error_code)
            raise AuthenticationFailed(settings.role, connection.address, f"{name}: {detail}")
        lifetime_ms = (answer.session_lifetime_ms or 0) if version else 0
        _receive(mechanism, bytes(answer.auth_bytes or b""), connection, settings)
    return lifetime_ms


def _receive(mechanism: Any, token: bytes, connection: Connection, settings: WireSettings) -> None:
    """Give a mechanism the broker's token."""
    name = settings.sasl_mechanism
    try:
        mechanism.receive(token)
    except (ValueError, KeyError) as e:  # what kafka-python raises for a wrong SCRAM signature or message
        raise AuthenticationFailed(settings.role, connection.address, f"{name}: the broker answered {e}") from None
    if mechanism.is_done() and not mechanism.is_authenticated():
        raise AuthenticationFailed(settings.role, connection.address, f"{name}: not authenticated")


def _mechanism(settings: WireSettings, host: str) -> Any:
    from kafka.net.sasl import get_sasl_mechanism

    name, user = settings.sasl_mechanism, settings.get("sasl.username")
    if name.startswith("SCRAM"):
        # RFC 5802: these two separate the fields of a message. kafka-python 3.0.12 sends the name as it is.
        user = user.replace("=", "=3D").replace(",", "=2C")
    return get_sasl_mechanism(name)(
        host=host,
        sasl_mechanism=name,
        sasl_plain_username=user,
        sasl_plain_password=settings.get("sasl.password"),
        sasl_oauth_token_provider=settings.oauth_tokens if name == "OAUTHBEARER" else None,
    )
