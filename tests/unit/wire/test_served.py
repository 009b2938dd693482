"""What brokers must serve is held against what brokers of each version do serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.served import lacking, release_of, serves_old_clients, without
from tests.unit.peer import settings

# Asked of real brokers, as far as a mirror needs it.
ALL = {
    0: (0, 9),
    1: (0, 12),
    2: (0, 6),
    3: (0, 11),
    10: (0, 3),
    21: (0, 2),
    22: (0, 4),
    23: (0, 4),
    24: (0, 3),
    26: (0, 3),
}
SERVED: dict[str, dict[int, tuple[int, int]]] = {
    "0.10.2": {0: (0, 2), 1: (0, 3), 2: (0, 1), 3: (0, 2), 10: (0, 0)},
    "0.11.0.3": {0: (0, 3), 1: (0, 5), 2: (0, 2), 3: (0, 4), 10: (0, 1), 21: (0, 0), 22: (0, 0), 23: (0, 0)},
    "2.8.2": {**ALL, 35: (0, 2)},
    "3.0.0": {**ALL, 35: (0, 2), 61: (0, 0), 65: (0, 0)},
    "4.3.1": {
        0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 10: (0, 6), 21: (0, 2), 22: (0, 6), 23: (2, 4), 24: (0, 5),
        26: (0, 5), 35: (1, 4), 61: (0, 0), 65: (0, 0),
    },
}  # fmt: skip


def cluster_of(*versions: str) -> Any:
    """A cluster with a broker of each version."""
    connections = []
    for port, version in enumerate(versions):
        connection = Connection("broker", port, settings(), 1.0)
        connection.api_versions = SERVED[version]
        connections.append(connection)
    return SimpleNamespace(broker_ids=lambda: range(len(versions)), connection=connections.__getitem__)


@pytest.mark.parametrize(
    ("side", "version", "serves"),
    [
        ("source", "0.10.2", False),
        ("source", "0.11.0.3", True),
        ("source", "4.3.1", True),
        ("target", "2.8.2", False),
        ("target", "3.0.0", True),
        ("target", "4.3.1", True),
    ],
)
def test_oldest_supported_broker_of_each_side_is_as_promised(side: str, version: str, serves: bool) -> None:
    assert (list(lacking(cluster_of(version), side)) == []) is serves


def test_every_broker_is_asked_and_what_it_lacks_is_named() -> None:
    missing = list(lacking(cluster_of("4.3.1", "2.8.2"), "target"))
    assert missing == [
        "broker broker:1: DescribeProducers in version 0 (it does not serve it)",
        "broker broker:1: DescribeTransactions in version 0 (it does not serve it)",
    ]


def test_old_clients_are_served_before_kafka_4_by_all_brokers() -> None:
    """By the lowest version that is served: the highest only grows."""
    served = {("0.11.0.3",): True, ("3.0.0",): True, ("3.0.0", "4.3.1"): False, ("4.3.1",): False}
    assert {some: serves_old_clients(cluster_of(*some)) for some in served} == served


def test_old_source_is_said_to_tell_less() -> None:
    assert without(cluster_of("4.3.1")) == []
    lost = [one.what for one in without(cluster_of("4.3.1", "0.11.0.3"))]
    assert lost == ["leader epochs", "topic ids", "sizes of logs"]


@pytest.mark.parametrize(
    ("served", "release"),
    [
        ({}, (0, 11)),
        ({37: (0, 0), 30: (0, 0)}, (1, 0)),
        ({37: (0, 1), 30: (0, 1), 23: (0, 1)}, (2, 0)),
        ({37: (0, 3), 30: (0, 3), 23: (0, 4), 22: (0, 4)}, (2, 1)),
        ({37: (0, 3), 30: (0, 3), 23: (0, 4), 22: (0, 4), 48: (0, 1)}, (2, 6)),
        ({37: (0, 3), 30: (0, 3), 23: (0, 4), 22: (0, 4), 48: (0, 1), 66: (0, 0)}, (3, 0)),
        ({37: (0, 3), 30: (1, 3), 23: (2, 4), 22: (0, 5), 48: (0, 1), 66: (0, 1)}, (3, 8)),
    ],
)
def test_a_release_is_known_by_what_it_serves(served: dict[int, tuple[int, int]], release: tuple[int, int]) -> None:
    """Asked of real brokers: 0.11.0.3, 1.1.1, 2.0, 2.1.1, 2.8.2, 3.4.1, 3.9.1."""
    cluster = cluster_of("4.3.1", "4.3.1")
    cluster.connection(0).api_versions = served
    cluster.connection(1).api_versions = {37: (0, 3), 30: (1, 3), 23: (2, 4), 22: (0, 6), 48: (0, 1), 66: (0, 2)}
    assert release_of(cluster) == release  # the oldest broker counts
