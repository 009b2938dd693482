"""The API versions that brokers must serve, and what old brokers can't report.

A source may be as old as 0.11, the first version with record batches and transactions (KIP-98). A target must be able
to report its writers: 3.0, the first with DescribeTransactions and DescribeProducers (KIP-664).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.stream import api_name

# API key -> oldest and newest version that a mirror supports.
_EVERYBODY = {
    1: (4, 11),  # Fetch
    2: (2, 5),  # ListOffsets
    3: (4, 12),  # Metadata
    10: (0, 2),  # FindCoordinator
}
NEEDED: Mapping[str, Mapping[int, tuple[int, int]]] = {
    "source": _EVERYBODY,
    "target": {
        **_EVERYBODY,
        0: (8, 8),  # Produce
        21: (1, 1),  # DeleteRecords
        22: (3, 4),  # InitProducerId with compare-and-bump (KIP-360)
        23: (3, 3),  # OffsetForLeaderEpoch: the log end offset
        24: (2, 2),  # AddPartitionsToTxn
        26: (2, 2),  # EndTxn
        61: (0, 0),  # DescribeProducers
        65: (0, 0),  # DescribeTransactions
    },
}
OLDEST = {"source": "0.11", "target": "3.0"}


class Without(NamedTuple):
    """Something that an old broker can't report. ``since`` is the Kafka version that introduced it."""

    what: str
    since: str
    effect: str


# The (API key, version) that proves that a source can report it.
_OPTIONAL = {
    (3, 7): Without(
        "leader epochs", "2.1",
        "records that the source loses in an unclean election are noticed only where its log ends below the copy; log "
        "end offsets are read at the high watermark",
    ),
    (3, 10): Without(
        "topic ids", "2.8",
        "a topic that is deleted and created again is recognized by its log alone: a shorter one, or other records",
    ),
    (35, 1): Without("sizes of logs", "2.0", "work is split by samples"),
}  # fmt: skip


def lacking(cluster: WireCluster, side: str) -> Iterator[str]:
    """Yield a short text for each broker and each request that it does not serve in a version that a mirror needs.

    :param side: ``source`` or ``target``: the cluster's role in the mirror.
    """
    for connection in _each(cluster):
        for key, (oldest, newest) in NEEDED[side].items():
            served = connection.api_versions.get(key)
            if served is None or max(oldest, served[0]) > min(newest, served[1]):
                wanted = f"version {newest}" if oldest == newest else f"a version from {oldest} to {newest}"
                has = f"it serves {served[0]} to {served[1]}" if served else "it does not serve it"
                yield f"broker {connection.address}: {api_name(key)} in {wanted} ({has})"


def without(cluster: WireCluster) -> list[Without]:
    """Return what at least one broker of a source can't report."""
    missing = {
        key: lost for connection in _each(cluster) for key, lost in _OPTIONAL.items() if not connection.serves(*key)
    }
    return [lost for key, lost in _OPTIONAL.items() if key in missing]


def served_by_any(cluster: WireCluster) -> frozenset[str]:
    """Return the names of the requests that at least one broker serves, as Kafka writes them."""
    return frozenset(api_name(key) for connection in _each(cluster) for key in connection.api_versions)


_FETCH, _OLD = 1, 3  # a version of Fetch that Kafka 4 serves no longer; of Produce it still says so (KAFKA-18659)


def serves_old_clients(cluster: WireCluster) -> bool:
    """Return whether all brokers serve clients of before Kafka 2.1. Kafka 4 does not: KIP-896."""
    return all(connection.api_versions[_FETCH][0] <= _OLD for connection in _each(cluster))


# Release -> an (API key, version) that brokers serve from it on; the releases that change which rights a mirror needs.
RELEASES: Mapping[tuple[int, int], tuple[int, int]] = {
    (3, 8): (22, 5),  # InitProducerId with TRANSACTION_ABORTABLE (KIP-890)
    (3, 0): (66, 0),  # ListTransactions (KIP-664)
    (2, 6): (48, 0),  # DescribeClientQuotas (KIP-546)
    (2, 1): (23, 2),  # OffsetForLeaderEpoch for clients (KIP-320)
    (2, 0): (30, 1),  # CreateAcls with prefixed patterns (KIP-290)
    (1, 0): (37, 0),  # CreatePartitions (KIP-195)
}


def release_of(cluster: WireCluster) -> tuple[int, ...]:
    """Return the newest of :data:`RELEASES` that every broker has reached; (0, 11) for none of them."""
    brokers = list(_each(cluster))
    reached = (release for release, api in RELEASES.items() if all(broker.serves(*api) for broker in brokers))
    return next(reached, (0, 11))


# Produce, Fetch, ListOffsets and Metadata, by whose newest versions a release is known: a broker tells nothing else.
_TELLING = (0, 1, 2, 3)
# Releases that were seen to refuse an invalid batch and to write nothing (tests/integration/test_fence_proof.py).
REFUSING: Mapping[tuple[int, ...], str] = {
    (3, 5, 2, 4): "0.11",
    (5, 7, 2, 5): "1.1",
    (7, 10, 4, 7): "2.1",
    (9, 12, 6, 11): "2.8",
    (9, 13, 7, 12): "3.4",
    (11, 17, 9, 12): "3.9",
    (13, 18, 11, 13): "4.3, 4.4",
}


def fingerprint(connection: Connection) -> tuple[int, ...]:
    """Return what :data:`REFUSING` knows a broker's release by; -1 for a request that it does not serve."""
    return tuple(connection.api_versions.get(key, (-1, -1))[1] for key in _TELLING)


def unproven(cluster: WireCluster) -> list[str]:
    """Return the addresses of those brokers of which nobody has shown that they never write an invalid batch."""
    return [broker.address for broker in _each(cluster) if fingerprint(broker) not in REFUSING]


def _each(cluster: WireCluster) -> Iterator[Connection]:
    for node_id in cluster.broker_ids():
        yield cluster.connection(node_id)
