"""Where brokers listen: the list of addresses that every Kafka client begins with."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import NamedTuple

from airflow_mirror.errors import InvalidField

_SOUND = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<name>[\w.-]+))(?::(?P<port>[0-9]{1,5}))?")
_PORT_ALONE = re.compile(r"(\d+\.){4}\d+|\d{4,5}")  # 10.0.0.1.9092; 9092
_BEFORE = re.compile(r"^\s*(PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://", re.IGNORECASE)
_ALONE, _COMMAS = "Give host and port alone: broker1:9092.", "Separate addresses by commas: broker1:9092,broker2:9092."
_WRONG = (  # what stands in a text that is no address: (how it shows, cause, remedy); the first one counts
    (r"\\", "has a backslash", "This is librdkafka's format, not Java's: write broker1:9092, without any."),
    (r"[\"'{}]", "has quotes or braces", f"Leave them out. {_COMMAS}"),
    (r"\s:|:\s", "has a blank beside its colon", _ALONE),
    (r"[;|&\s\uff0c\uff1b\u3001]", "holds several", _COMMAS),
    (r"^[^/]*://", "is a URL of no protocol of Kafka's", _ALONE),
    (r"@", "has a user before it", f"{_ALONE} A login has settings of its own (sasl.username, sasl.password)."),
    (
        r"^[][.:\da-fA-F]*:[.:\da-fA-F]*:[][.:\da-fA-F]*$",
        "has several colons",
        "An IPv6 address stands in brackets: write [::1]:9092.",
    ),
    (r":.*:", "holds several", _COMMAS),
    (r"/", "has a path behind it", _ALONE),
    (r"^[\w.-]+:([+-]?0*|\d{5,})$", "has no port from 1 to 65535", _ALONE),
    (r"^[\d.]+$", "has no colon before its port", _ALONE),  # what _PORT_ALONE finds
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
        text = _BEFORE.sub("", item, count=1).strip()
        if not text:
            continue
        address = _address(text)
        if address is None:
            cause, remedy = next((why for form, *why in _WRONG if re.search(form, text)), _NONE)
            raise InvalidField("bootstrap.servers", "(not shown)", f"address {number} {cause}", remedy)
        addresses.append(address)
    return addresses


def _address(text: str) -> Address | None:
    # A last group that may be a port is taken for one that was meant: ::1:9092 is an IPv6 address, too.
    if _is_ipv6(text) and not re.search(r":[0-9]{4,}$", text):
        return Address(text, 9092)
    found = _SOUND.fullmatch(text)
    if found is None or (found["ipv6"] and not _is_ipv6(found["ipv6"])) or _PORT_ALONE.fullmatch(text):
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
