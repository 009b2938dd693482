"""Java's trust and key stores: PEM is taken over; for the others there is the command that makes PEM of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

_BECOMES = {"truststore": ("ssl.ca.location",), "keystore": ("ssl.certificate.location", "ssl.key.location")}
_TO_PEM = {
    "truststore": "openssl pkcs12 -in {p12} -nokeys -out ca.pem",
    "keystore": "openssl pkcs12 -in {p12} -out client.pem",  # the key stays encrypted: it asks for a passphrase
}


def settings_of(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of stores that are PEM; and what to say of each that is not, by the key of its location."""
    found, problems = dict[str, str](), dict[str, str]()
    for store, names in _BECOMES.items():
        location = given.get(f"ssl.{store}.location", "").strip()
        kind = given.get(f"ssl.{store}.type", "JKS").strip().upper()
        if location and kind == "PEM":
            found |= dict.fromkeys(names, location)
        elif location:
            problems[f"ssl.{store}.location"] = (
                f"={location}: only Java reads a {kind} store. Make PEM of it: "
                f"{' && '.join(commands(store, kind, location))}. Then set ssl.{store}.type=PEM and the new location."
            )
    return found, problems


def commands(store: str, kind: str, location: str) -> list[str]:
    """Return the commands that make a PEM file of a store, ``ca.pem`` or ``client.pem``. They ask for the passwords.

    :param store: ``truststore`` or ``keystore``.
    :param kind: its ``ssl.*.type``; a PKCS12 store needs one command less.
    """
    if kind == "PKCS12":
        return [_TO_PEM[store].format(p12=shlex.quote(location))]
    first = (
        f"keytool -importkeystore -srckeystore {shlex.quote(location)} -destkeystore {store}.p12 -deststoretype PKCS12"
    )
    return [first, _TO_PEM[store].format(p12=f"{store}.p12")]
