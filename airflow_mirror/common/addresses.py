"""Where brokers listen: the list of addresses that every Kafka client begins with."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import NamedTuple

from airflow_mirror.errors import InvalidField

_SOUND = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<name>[\w.-]+))(?::(?P<port>[0-9]{1,5}))?")
_WRONG = (  # what stands in a text that is no address: (how it shows, cause, remedy)
    (re.compile(r"\\"), "has a backslash", "This is librdkafka's format, not Java's: write broker1:9092, without any."),
    (re.compile(r"[;|\s]"), "holds several", "Separate addresses by commas: broker1:9092,broker2:9092."),
    (re.compile(r":.*:"), "has several colons", "An IPv6 address stands in brackets: write [::1]:9092."),
)
_NONE = ("is no host:port", "Give, for example, broker1:9092.")


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


def parse_bootstrap(servers: str) -> list[Address]:
    """Split ``host:port,host:port``. The default port is librdkafka's 9092, and a ``PLAINTEXT://`` prefix is allowed.

    :raises InvalidField: an entry is not host and port. It is not shown: whoever mixes up lines has a secret there.
    """
    addresses = list[Address]()
    for number, item in enumerate(servers.split(","), 1):
        text = re.sub(r"^\s*\w+://", "", item).strip()
        if not text:
            continue
        address = _address(text)
        if address is None:
            cause, remedy = next((why for form, *why in _WRONG if form.search(text)), _NONE)
            raise InvalidField("bootstrap.servers", "(not shown)", f"address {number} {cause}", remedy)
        addresses.append(address)
    return addresses


def _address(text: str) -> Address | None:
    # A last group that may be a port is taken for one that was meant: ::1:9092 is an IPv6 address, too.
    if _is_ipv6(text) and not re.search(r":[0-9]{4,}$", text):
        return Address(text, 9092)
    found = _SOUND.fullmatch(text)
    if found is None or (found["ipv6"] and not _is_ipv6(found["ipv6"])):
        return None
    host, port = found["ipv6"] or found["name"], int(found["port"] or 9092)
    with suppress(UnicodeError):  # a label that is empty or too long: nothing that resolves names would take it
        host.encode("idna")
        return Address(host, port) if 0 < port < 65536 else None
    return None


def _is_ipv6(text: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.IPv6Address(text))
    return False
