"""The independent client of a comparison, at driven clusters: records that it can't read whole."""

from __future__ import annotations

from contextlib import closing

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.verify.referee import Place, SpotCheck, Stretch, _Reader, second_look, spot_check
from airflow_mirror.wire.batch import HEADER_SIZE
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.records import Row

TP = TopicPartition("t", 0)
NAME = b"\xff\xfe"  # no text; the protocol says UTF-8, brokers and Java's producer with bytes of its own don't ask


RECORDS = 50


def lay(cluster: DrivenCluster, value: bytes = b"value", name: bytes = NAME) -> None:
    """Lay records that have such a header, and one behind them that has none."""
    (log,) = cluster.create("t").logs
    rows = [Row(offset, 1, None, value, (("h", b"1"), ("NN", b"2"))) for offset in range(RECORDS - 1)]
    batch = records.encode([*rows, Row(RECORDS - 1, 2, b"key", b"value")])
    log.lay(records.signed(records.header_of(batch), batch[HEADER_SIZE:].replace(b"NN", name)))


def check(source: DrivenCluster, target: DrivenCluster) -> SpotCheck:
    whole = Stretch(source=TP, target=TP, start=0, end=RECORDS)
    return spot_check([whole], source.config, target.config, places=9 * RECORDS, seed=1, isolation="read_committed")


def look(source: DrivenCluster, target: DrivenCluster) -> str:
    place = Place(source=TP, source_offset=0, target=TP, target_offset=0)
    (seen,) = second_look([place], source.config, target.config, isolation="read_committed")
    return seen


def test_headers_that_the_client_cannot_read_are_left_out(source: DrivenCluster, target: DrivenCluster) -> None:
    lay(source)
    lay(target)
    found = check(source, target)
    assert (found.records, found.differences, found.failed) == (RECORDS, [], "")
    assert found.left_out == [
        f"headers of {RECORDS - 1} records with a name that is not UTF-8, which the client can't read"
    ]
    assert look(source, target) == (
        "an independent client reads the same record on both sides, but can't read its headers, with a name that is not "
        "UTF-8"
    )


@pytest.mark.parametrize(
    ("value", "name", "differs"),
    [(b"other", NAME, "value 5 bytes "), (b"value", b"NN", "headers with a name that is not UTF-8 on the source, ")],
)
def test_a_record_with_such_headers_may_differ_all_the_same(
    source: DrivenCluster, target: DrivenCluster, value: bytes, name: bytes, differs: str
) -> None:
    lay(source)
    lay(target, value, name)
    lines = check(source, target).differences
    assert len(lines) == RECORDS - 1 and lines[0].startswith(f"t-0 offset 0: an independent client reads {differs}")
    assert look(source, target).startswith(f"an independent client reads {differs}")


def test_a_partition_is_read_no_further_than_its_first_record(source: DrivenCluster) -> None:
    """Whoever waits for the others would read all the rest of it meanwhile; the next round asks for it again."""
    logs = source.create("t", 20).logs
    for log in logs:
        for _ in range(5):
            Writer(log).plain(4, size=3)
    with closing(_Reader(source.config, "read_committed")) as reader:
        for place in (3, 11, 7):
            found = reader.first({log.tp: (place, 20) for log in logs})
            assert {tp: offset for tp, (offset, _) in found.items()} == {log.tp: place for log in logs}
            assert reader._consumer.assignment() == []
        assert reader.first({logs[0].tp: (20, 21), logs[1].tp: (19, 20)}).keys() == {logs[1].tp}
