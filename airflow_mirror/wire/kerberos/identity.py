"""Who logs in by Kerberos, from librdkafka's settings: a principal, and a keytab or a ticket cache that proves it.

A process may log in as several principals, one for each cluster. So an identity never relies on what Kerberos keeps for
the whole process, but for ``krb5.conf`` (``KRB5_CONFIG``), which says where the realms are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from airflow_mirror.errors import InvalidField

KEYTAB, CACHE = "sasl.kerberos.keytab", "sasl.kerberos.ccache"
# The file's bytes, for processes on hosts that don't have it: see `airflow_mirror.config`.
CONTENT = ".base64"
SETTINGS = frozenset(
    {"sasl.kerberos.service.name", "sasl.kerberos.principal", KEYTAB, CACHE, KEYTAB + CONTENT, CACHE + CONTENT}
)
REMEDIES = {
    "sasl.kerberos.kinit.cmd": "Remove it: no command is run. Tickets come from sasl.kerberos.keytab, or from a ticket "
    "cache (sasl.kerberos.ccache) that something else keeps fresh.",
    "sasl.kerberos.min.time.before.relogin": "Remove it: tickets from a keytab are renewed at half of their life.",
}
Get = Callable[..., str]


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who logs in, and as whom it knows the brokers.

    :param principal: such as ``mirror@EXAMPLE.COM``; "" for the owner of the ticket cache.
    :param service: first part of the brokers' principals, ``kafka`` in ``kafka/host@REALM``.
    :param keytab: as Kerberos names it, ``FILE:/path``; "" for a ticket cache.
    :param cache: the ticket cache; "" for Kerberos's default one, or with a keytab.
    :param proof: what people call the keytab or cache.
    """

    principal: str = ""
    service: str = "kafka"
    keytab: str = ""
    cache: str = ""
    proof: str

    def __str__(self) -> str:
        """Return the identity as errors name it."""
        name, at, realm = self.principal.partition("@")
        if not name:
            return f"the owner of the {self.proof}"
        return f"principal {name!r} of {f'realm {realm}' if at else 'the default realm'} ({self.proof})"


def identity_of(get: Get, role: str) -> Identity:
    """Return the identity that a cluster's settings describe.

    :param get: returns a setting; the second argument is the default, "" if omitted.
    :param role: names the cluster in errors.
    :raises InvalidField: a setting is missing, or the keytab can't be read.
    """
    principal, service = get("sasl.kerberos.principal"), get("sasl.kerberos.service.name", "kafka")
    if get(KEYTAB) or get(KEYTAB + CONTENT):
        if not principal:
            cause = f"a keytab may hold several principals, and this one is not named ({role})"
            raise InvalidField("sasl.kerberos.principal", "", cause, "Set it, for example mirror@EXAMPLE.COM.")
        path = get(KEYTAB)
        return Identity(
            principal=principal,
            service=service,
            keytab=_file(get, KEYTAB, role),
            proof=f"keytab {path or 'in the connection'}",
        )
    cache = get(CACHE) or os.environ.get("KRB5CCNAME", "")
    name = _file(get, CACHE, role) if get(CACHE + CONTENT) else cache
    return Identity(
        principal=principal,
        service=service,
        cache=name,
        proof=f"ticket cache {cache}" if cache else "default ticket cache",
    )


def _file(get: Get, key: str, role: str) -> str:
    """Return the name by which Kerberos reads a file that is here, or whose bytes are in the settings.

    A file on this host comes first: its owner may have changed a key since the bytes were read elsewhere.
    """
    path = get(key).removeprefix("FILE:")
    if path and os.access(path, os.R_OK):
        return f"FILE:{path}"
    content = get(key + CONTENT)
    if not content:
        cause = "can't be read by this user" if os.path.exists(path) else "is not on this host"
        remedy = f"Put it there, readable by the user that runs this process, or set {key}{CONTENT} to its content."
        raise InvalidField(key, path, f"the file {cause} ({role}, host {os.uname().nodename})", remedy)
    try:
        return _in_memory(base64.b64decode(content, validate=True))
    except binascii.Error:
        raise InvalidField(key + CONTENT, "(set)", f"is not base64 ({role})", "Give the output of base64 -w0.") from None


_memory: dict[bytes, int] = {}
_lock = threading.Lock()


def _in_memory(content: bytes) -> str:
    """Return the name of a file that holds ``content`` in this process's memory alone: it is never on a disk."""
    digest = hashlib.sha256(content).digest()
    with _lock:
        if digest not in _memory:
            # A forked child has it as well; a program that is started does not, and reads its own settings
            # (close-on-exec).
            descriptor = os.memfd_create("kerberos")
            os.write(descriptor, content)
            # Kept open as long as the process: Kerberos opens it by this name for each ticket.
            _memory[digest] = descriptor
        return f"FILE:/proc/self/fd/{_memory[digest]}"
