"""Whose certificates a connection trusts, by settings named as librdkafka names them."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_mirror.errors import InvalidField


def trust(context: ssl.SSLContext, of: str, get: Callable[[str], str]) -> None:
    """Have a context trust the CAs that settings name, else those of the system.

    :param of: how the names of the settings begin, such as ``ssl.ca``. :param get: returns one, "" if it is not set.
    :raises InvalidField: names the setting that has no certificates.
    """
    location, pem = get(f"{of}.location"), get(f"{of}.pem")
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
        key, shown = (f"{of}.pem", "(text)") if pem else (f"{of}.location", location)
        raise InvalidField(key, shown, f"no usable PEM certificates: {short(e)}", "Give the CA's PEM file.") from None


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


def short(error: Exception) -> str:
    """Return what is wrong, without the path that a file has in memory."""
    return str(getattr(error, "strerror", None) or getattr(error, "reason", None) or error)
