"""A row for every key of a Java consumer, producer and admin client, from Kafka 0.11 to 4.3.

A test holds the three tables against the lists that the clients' own classes print. What is left to clients of
librdkafka's names is a setting of the connection; ``*.callback.handler.class`` and the like are code, which can't come
along.
"""

from __future__ import annotations

import re

from airflow_mirror.compat.rows import TABLES

COMMON = TABLES["client"]
CONSUMER = COMMON + TABLES["consumer"]
PRODUCER = COMMON + TABLES["producer"]
ADMIN = COMMON

_SECRET = re.compile(r"password|passphrase|secret|jaas|token$|keystore\.key$|credentials$|user\.info$")


def is_basic(key: str) -> bool:
    """Return whether a key is one that every Java client has to reach brokers: addresses, encryption, login.

    Rule: MirrorClientConfig.CLIENT_CONFIG_DEF of 4.3.1.
    """
    return key in ("bootstrap.servers", "security.protocol") or key.startswith(("ssl.", "sasl."))


def is_secret(key: str) -> bool:
    """Return whether a key's value must not be shown, whatever class of Java it may be for."""
    return _SECRET.search(key) is not None
