"""Settings of a Java client, as settings of a connection: librdkafka's names, which the mirror's own client reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from airflow_mirror.common.addresses import parse_bootstrap
from airflow_mirror.common.nearest import nearest
from airflow_mirror.compat import kerberos, login, stores
from airflow_mirror.compat.rows import NUMBERS, Noticed, Table
from airflow_mirror.errors import InvalidField

# Settings that keep their value.
_NAMES = {
    **{name: name for name in (
        "bootstrap.servers", "client.id", "security.protocol", "ssl.key.password",
        "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope",
    )},
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}  # fmt: skip
_CHOICES = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"),
}


@dataclass
class Settings:
    """What became of a client's keys.

    :param properties: settings of the connection, secrets included.
    :param fields: of the Mirror: ``isolation`` and ``start``, where the file says so.
    :param problems: what can't be kept, one line each, with the remedy. No line has a value: it may be a secret.
    :param noticed: what became of each key.
    """

    properties: dict[str, str] = field(default_factory=dict, repr=False)
    fields: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    noticed: list[Noticed] = field(default_factory=list)


def convert(
    given: Mapping[str, str],
    table: Table,
    where: str = "",
    names: Mapping[str, str] = MappingProxyType({}),
    *,
    whole: bool = True,
) -> Settings:
    """Return what becomes of a Java client's settings.

    :param given: by Java's names.
    :param table: of :mod:`.client_keys`: which client they are for.
    :param where: what stands before a key in problems and reports, such as ``us-west.consumer.``.
    :param names: of keys that are called otherwise there.
    :param whole: False: some keys were left out, so that nothing is said to be missing.
    """
    found = Settings()

    def add(key: str, problems: Iterable[str]) -> None:
        found.problems += [names.get(key, where + key) + problem for problem in problems]

    for key, given_value in given.items():
        row, value = table.find(key), given_value.strip()
        if row is None:
            add(key, [f": no key of a Java client.{nearest(key, table.keys)} Correct or remove it."])
            continue
        found.noticed.append(Noticed.by(row, names.get(key, where + key), value))
        if row.refuses(value):
            add(key, [f": {row.why}."])
        elif (wrong := _no_value(key, value)) is not None:
            add(key, [f": {wrong}"])
        if key in _NAMES:  # whatever its value: it is not missing
            found.properties[_NAMES[key]] = value
        elif key in _OTHERS:
            add(key, _OTHERS[key](value, found))
    properties, left = stores.settings_of(given)
    found.properties |= properties
    for key, problem in left.items():
        add(key, [problem])
    if whole and (missing := kerberos.missing(given)) is not None:
        add("security.protocol", [missing])
    return found


def _no_value(key: str, value: str) -> str | None:
    """Return why Java's client would not start with this value, and what to do; None: it would."""
    if key in _CHOICES and value.upper() not in _CHOICES[key]:
        return f"unknown. Use one of {', '.join(_CHOICES[key])}."
    if key in NUMBERS and NUMBERS[key].refuses(value):
        return f"no {NUMBERS[key]}. Correct it."
    if key == "bootstrap.servers":
        try:
            parse_bootstrap(value)
        except InvalidField as e:
            return f"{e.cause}. {e.remedy}"
        if not all(re.search(r":\d+$", one.strip()) for one in value.split(",") if one.strip()):
            return "an address has no port. Give each its own: broker1:9092,broker2:9092."
    return None


# Each takes a value and adds what it becomes; it returns what can't be kept, as it goes on behind the key.


def _login(key: str) -> Callable[[str, Settings], list[str]]:
    def add(value: str, found: Settings) -> list[str]:
        properties, problems = login.KEYS[key](value)
        service = properties.pop(kerberos.SERVICE, None)
        problems += [
            f"it says another {name} than a setting before it. Remove one of the two."
            for name, meant in properties.items()
            if found.properties.setdefault(name, meant) != meant
        ]
        return [*(f": {problem}" for problem in problems), *([] if service is None else _service(service, found))]

    return add


def _service(value: str, found: Settings) -> list[str]:
    if found.properties.setdefault(kerberos.SERVICE, value) == value:
        return []
    return [f": serviceName of sasl.jaas.config and {kerberos.SERVICE} differ. Remove one of them."]


def _host_names(value: str, found: Settings) -> list[str]:
    found.properties["ssl.endpoint.identification.algorithm"] = value.lower() or "none"
    return []


def _isolation(value: str, found: Settings) -> list[str]:
    if value not in ("read_committed", "read_uncommitted"):
        return [": no isolation level. Use read_committed or read_uncommitted."]
    found.fields["isolation"] = value
    return []


def _start(value: str, found: Settings) -> list[str]:
    if value not in ("earliest", "latest"):
        return [": a mirror starts at earliest, latest or an ISO 8601 time. Use one of the first two here, or "
                "give the Mirror's start."]  # fmt: skip
    found.fields["start"] = value
    return []


def _buffer(name: str) -> Callable[[str, Settings], list[str]]:
    def add(value: str, found: Settings) -> list[str]:
        found.properties[name] = "0" if value == "-1" else value  # the kernel's choice
        return []

    return add


_OTHERS: Mapping[str, Callable[[str, Settings], list[str]]] = {
    **{key: _login(key) for key in login.KEYS},
    kerberos.SERVICE: _service,
    "ssl.endpoint.identification.algorithm": _host_names,
    "isolation.level": _isolation,
    "auto.offset.reset": _start,
    "receive.buffer.bytes": _buffer("socket.receive.buffer.bytes"),
    "send.buffer.bytes": _buffer("socket.send.buffer.bytes"),
}
