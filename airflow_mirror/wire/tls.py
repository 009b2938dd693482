"""TLS contexts from a cluster's settings."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_mirror.compat import stores
from airflow_mirror.errors import InvalidField

Get = Callable[[str], str]


def ssl_context(get: Get, *, verify_certificate: bool, verify_hostname: bool) -> ssl.SSLContext:
    """Build the TLS context for a cluster's settings.

    :param get: returns a setting, "" if it is not set.
    :raises InvalidField: names the setting whose file can't be read or whose text is not a certificate or key.
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
        return _trust(context, lambda key: pem if key == "ssl.ca.pem" else "")
    location, pem = get("ssl.ca.location"), get("ssl.ca.pem")
    try:
        if pem:
            with as_file(pem) as path:  # as text Python takes ASCII alone, and bundles name their CAs in comments
                context.load_verify_locations(cafile=path)
        elif location in ("", "probe"):  # "probe" is librdkafka's name for the system's certificate store
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        elif os.path.isdir(location):
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except (OSError, ValueError) as e:
        key = "ssl.ca.pem" if pem else "ssl.ca.location"
        shown = "(text)" if pem else location
        raise InvalidField(key, shown, f"no usable PEM certificates: {_short(e)}", "Give the CA's PEM file.") from None


def _identify(context: ssl.SSLContext, get: Get) -> None:
    """Load the client certificate and its key, each from a file or from text, or both from a store."""
    if store := get("ssl.keystore.location"):
        pem = "".join(stores.identity(store, get("ssl.keystore.password")))
        return _identify(context, lambda key: pem if key == "ssl.certificate.pem" else "")
    if not (get("ssl.certificate.location") or get("ssl.certificate.pem")):
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
                f"no usable certificate and key: {_short(e)}",
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


@contextmanager
def as_file(pem: str) -> Iterator[str]:
    """Yield a path to a PEM text, as long as the block runs: Python's ssl reads keys from files only.

    Where the system supports it, the text is kept in an unlinked memory file, so that a key never reaches a disk.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pem")
        try:
            # Gone with the descriptor, or with the process, whatever ends it.
            os.write(fd, pem.encode())
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        # Removed when it is closed. Of a process that is killed in the block it stays, readable by its owner alone: only
        # where there are no files in memory.
        with tempfile.NamedTemporaryFile(mode="w", encoding="utf-8", suffix=".pem") as file:  # mode 0600
            file.write(pem)
            file.flush()
            yield file.name


def _short(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error)
