"""Keys of the clients before Java's: the Scala consumer and producer of Kafka 0.8 to 1.1, whose names the Go client took.

Their files come along with the first MirrorMaker and the Go mirror maker. Where a key is also one of a Java client, that
table has it; :func:`modern` gives the others their newer names.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_mirror.compat.client_keys import CONSUMER as JAVA_CONSUMER
from airflow_mirror.compat.client_keys import PRODUCER as JAVA_PRODUCER
from airflow_mirror.compat.rows import TABLES

CONSUMER = JAVA_CONSUMER.but(*TABLES["scala_consumer"].rows)
PRODUCER = JAVA_PRODUCER.but(*TABLES["scala_producer"].rows)

_VALUES = {"auto.offset.reset": {"smallest": "earliest", "largest": "latest"}}
_NAMES = {"metadata.broker.list": "bootstrap.servers"}


def modern(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by the newer names and values, where a key has those; a newer name that is given wins."""
    kept = {key: value for key, value in given.items() if _NAMES.get(key) not in given}
    return {_NAMES.get(key, key): _VALUES.get(key, {}).get(value.strip(), value) for key, value in kept.items()}


def contradictions(given: Mapping[str, str]) -> list[str]:
    """Return a line for each key whose two names say different things: nothing tells by which one the old tool went."""
    return [
        f"{older}: {newer} has other addresses: Java's client goes by that, those before it by this. Remove one."
        for older, newer in _NAMES.items()
        if {older, newer} <= given.keys() and _addresses(given[older]) != _addresses(given[newer])
    ]


def _addresses(value: str) -> set[str]:
    return {one.strip() for one in value.split(",")}
