"""Delivery in transactions: what is committed with the records is where the next copy goes on."""

from __future__ import annotations

import json

import pytest

from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, lose_pieces, map_of, ranges_of

TP = TopicPartition("t", 0)


def deliver(source: DrivenCluster, target: DrivenCluster) -> None:
    ranges = ranges_of(source, "t", MAPPED)
    copies = copy(source, target, ranges, delivery="transactional", transaction_bytes=300)
    assert errors(copies) == {TP: None}


def bodies(cluster: DrivenCluster) -> list[tuple[object, ...]]:
    return [row[1:] for row in cluster.topics["t"].logs[0].rows()]


@pytest.fixture
def writer(source: DrivenCluster, target: DrivenCluster) -> Writer:
    target.create("t")
    return Writer(source.create("t").logs[0])


def test_next_source_offset_is_committed_with_the_records(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """A hole at the end is below it, too."""
    writer.plain(5)
    writer.in_transaction(9, 2)
    writer.end(9, commit=False)
    deliver(source, target)
    (committed,) = target.groups.committed.values()
    (position,) = committed.values()
    assert position.offset == 8
    assert json.loads(position.metadata)["producer_id"] in target.topics["t"].logs[0].producers.known


def test_a_copy_goes_on_at_the_committed_offset(source: DrivenCluster, target: DrivenCluster, writer: Writer) -> None:
    for _ in range(3):
        writer.plain(5)
        deliver(source, target)
        writer.skip(2)
    assert bodies(target) == bodies(source)


def test_records_under_a_forgotten_transactional_id_are_still_ours(
    source: DrivenCluster, target: DrivenCluster, writer: Writer
) -> None:
    """The map is derived anew, and what was committed says who wrote what stands on the target."""
    writer.plain(5)
    deliver(source, target)
    lose_pieces(target)
    with target.lock:
        target.transactions.known.clear()
    writer.plain(5)
    deliver(source, target)
    assert bodies(target) == bodies(source)
    whole = map_of(target, ranges_of(source, "t", MAPPED)[0])
    assert whole is not None and (whole.source_start, whole.source_end) == (0, 10)
    assert sum(whole.columns[2]) == 10


def test_what_an_open_transaction_hides_is_not_stable(source: DrivenCluster, writer: Writer) -> None:
    writer.plain(5)
    writer.in_transaction(9, 2)
    with WireCluster(source.config) as cluster:
        cluster.refresh(["t"])
        assert (cluster.last_stable([TP]), cluster.high_watermarks([TP])) == ({TP: 5}, {TP: 7})
