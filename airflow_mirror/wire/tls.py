"""TLS contexts from a cluster's settings."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_mirror.common.certificates import as_file, short, trust
from airflow_mirror.compat import stores
from airflow_mirror.errors import InvalidField

Get = Callable[[str], str]


def ssl_context(get: Get, *, verify_certificate: bool, verify_hostname: bool) -> ssl.SSLContext:
    """Build the TLS context for a cluster's settings.

    :param get: returns a setting, "" if it is not set.
    :raises InvalidField: names the setting whose file can't be read or whose text is not a certificate or key; or the key
        has no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify_hostname
    # In this order: Python refuses CERT_NONE while host names are checked.
    context.verify_mode = ssl.CERT_REQUIRED if verify_certificate else ssl.CERT_NONE
    _trust(context, get)
    _identify(context, get)
    ciphers = get("ssl.cipher.suites")
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise InvalidField(
                "ssl.cipher.suites", ciphers, "OpenSSL knows none of them", "Give an OpenSSL cipher list."
            ) from None
    return context


def _trust(context: ssl.SSLContext, get: Get) -> None:
    if store := get("ssl.truststore.location"):
        pem = stores.trusted(store, get("ssl.truststore.password"))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # to Java each is trusted, issuer or not
        return trust(context, "ssl.ca", lambda key: pem if key == "ssl.ca.pem" else "")
    return trust(context, "ssl.ca", get)


def _identify(context: ssl.SSLContext, get: Get) -> None:
    """Load the client certificate and its key, each from a file or from text, or both from a store."""
    if store := get("ssl.keystore.location"):
        pem = "".join(stores.identity(store, get("ssl.keystore.password")))
        return _identify(context, lambda key: pem if key == "ssl.certificate.pem" else "")
    if not (get("ssl.certificate.location") or get("ssl.certificate.pem")):
        if alone := next((one for one in ("ssl.key.location", "ssl.key.pem") if get(one)), ""):
            cause = "has no effect without a certificate: brokers would see a client that nobody knows"
            remedy = "Give ssl.certificate.location, or .pem (a file that holds both is both), or remove the key."
            raise InvalidField(alone, "(set)", cause, remedy)
        return
    # Always pass a password function: without one OpenSSL would prompt on the terminal and the task would hang.
    password = get("ssl.key.password")
    with _file_of(get, "ssl.certificate") as certificate, _file_of(get, "ssl.key") as key:
        try:
            context.load_cert_chain(certificate or "", key, password=lambda: password)
        except (OSError, ValueError) as e:
            raise InvalidField(
                "ssl.certificate.location / ssl.key.location",
                "(set)",
                f"no usable certificate and key: {short(e)}",
                "Give PEM files that belong together, and ssl.key.password if the key is encrypted.",
            ) from None


@contextmanager
def _file_of(get: Get, prefix: str) -> Iterator[str | None]:
    """Yield a path to the PEM of ``<prefix>.location`` or ``<prefix>.pem``; None if neither is set."""
    if pem := get(f"{prefix}.pem"):
        with as_file(pem) as path:
            yield path
    else:
        yield get(f"{prefix}.location") or None
