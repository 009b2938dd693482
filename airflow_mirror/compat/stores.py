"""Java's trust and key stores: PEM and PKCS12 are read, whatever a file is called; JKS is Java's own.

keytool has written PKCS12 since Java 9, also into a file that is called ``.jks``, and Java reads either where the other
one is declared. So the file's first bytes say what it is.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from airflow_mirror.errors import InvalidField

_BECOMES = {"truststore": ("ssl.ca.location",), "keystore": ("ssl.certificate.location", "ssl.key.location")}
_OF_JAVA = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}


def settings_of(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of stores; and what to say of each that only Java reads, by the key of its location.

    A store that is not on this host is taken for PKCS12: whoever opens it says what it is.
    """
    found, problems = dict[str, str](), dict[str, str]()
    for store, names in _BECOMES.items():
        key, password = f"ssl.{store}.location", f"ssl.{store}.password"
        location = given.get(key, "").strip()
        if not location:
            continue
        if given.get(f"ssl.{store}.type", "").strip().upper() == "PEM":
            found |= dict.fromkeys(names, location)
            continue
        try:
            with open(location, "rb") as file:
                kind = _OF_JAVA.get(file.read(4))
        except (OSError, ValueError):  # a NUL in its name is the latter
            kind = None
        if kind is not None:
            problems[key] = f"={location}: {_only_java(kind)}. {_remedy(store, location)}"
        else:
            found[key] = location
            if secret := given.get(password, "").strip():
                found[password] = secret
    return found, problems


def command(store: str, location: str) -> str:
    """Return the command that makes a PKCS12 store of one of Java's own, in this directory. It asks for the passwords.

    :param store: ``truststore`` or ``keystore``.
    """
    return f"keytool -importkeystore -srckeystore {shlex.quote(location)} -destkeystore {store}.p12 -deststoretype PKCS12"


def trusted(location: str, password: str) -> str:
    """Return the certificates of a PKCS12 truststore, as PEM.

    :raises InvalidField: it can't be read, or holds none.
    """
    if not (found := "".join(_opened("truststore", location, password)[1:])):
        cause = "it holds no certificate"
        raise InvalidField("ssl.truststore.location", location, cause, "Give the store with the brokers' authority.")
    return found


def identity(location: str, password: str) -> tuple[str, str]:
    """Return the key of a PKCS12 keystore, and its certificate with the chain, each as PEM.

    :raises InvalidField: it can't be read, or holds no key.
    """
    key, *chain = _opened("keystore", location, password)
    if not (key and chain[0]):
        raise InvalidField("ssl.keystore.location", location, "it holds no private key", "Give the client's keystore.")
    return key, "".join(chain)


def _opened(store: str, location: str, password: str) -> list[str]:
    """Return the PEM texts of a key, of its certificate, and of each other certificate; "" for what is not there."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12

    pem, key = serialization.Encoding.PEM, f"ssl.{store}.location"
    try:
        with open(location, "rb") as file:
            content = file.read()
    except OSError as e:
        raise InvalidField(key, location, f"it can't be read: {e.strerror or e}", "Check the path.") from None
    if (kind := _OF_JAVA.get(content[:4])) is not None:
        raise InvalidField(key, location, _only_java(kind), _remedy(store, location))
    try:
        found = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except (ValueError, UnsupportedAlgorithm):
        cause = "it is no PKCS12 store, or has another password"
        raise InvalidField(key, location, cause, f"Check it and ssl.{store}.password; keytool -list reads it.") from None
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return [
        found.key.private_bytes(pem, *plain).decode() if found.key else "",
        *(one.certificate.public_bytes(pem).decode() if one else "" for one in (found.cert, *found.additional_certs)),
    ]


def _only_java(kind: str) -> str:
    return f"only Java reads a {kind} store"


def _remedy(store: str, location: str) -> str:
    return f"Make PKCS12 of it: {command(store, location)}. Then give that file."
