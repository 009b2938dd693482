"""How long batches took from one cluster to the other: what is measured, and what is not."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.loop import source_side, target_side
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, ranges_of


@pytest.fixture
def newest(source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> int:
    """Three batches with holes between them; the newest record's time, by which the copier's clock goes."""
    target.create("t")
    log = source.create("t").logs[0]
    writer = Writer(log)
    writer.plain(5)
    writer.skip(4)
    writer.plain(5)
    writer.skip(4)
    writer.plain(5)
    newest = max(row.timestamp for row in log.rows())
    monkeypatch.setattr(source_side, "wall_ms", lambda: newest + 10_000)
    monkeypatch.setattr(target_side, "wall_ms", lambda: newest + 10_025)
    return newest


@pytest.mark.parametrize("joined", [False, True])
def test_each_sent_batch_is_measured_on_both_sides(
    source: DrivenCluster, target: DrivenCluster, newest: int, joined: bool
) -> None:
    copies = copy(source, target, ranges_of(source, "t", "identical"), merge_below=1000 if joined else 0)
    assert set(errors(copies).values()) == {None}
    measured, counters = copies[0].delays, copies[0].counters
    found = measured.read()
    assert found.batches == counters.batches > 0
    assert found.latency_sum_ms - found.age_sum_ms == 25 * found.batches
    assert 10_000 <= found.age_min_ms <= found.age_max_ms and found.latency_min_ms == found.age_min_ms + 25


def test_fillers_are_not_measured(source: DrivenCluster, target: DrivenCluster, newest: int) -> None:
    """They have the time of the record before them, however long ago that was."""
    (copied,) = copy(source, target, ranges_of(source, "t"), merge_below=0, tombstone_topics=("t",))
    assert copied.error is None and copied.counters.padded == 8
    assert copied.delays.batches == copied.counters.batches == 3
