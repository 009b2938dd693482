"""What a ledger costs is counted for every kind of record that the package writes, and is little enough."""

from __future__ import annotations

from airflow_mirror.ledger.records import KINDS
from benchmarks.ledger_model import DECISION_KINDS, MAP_KINDS, STATE_KINDS, Decided, Shape, World, Written, cost

SMALL = Shape(topics=20, partitions=3, busy=20, groups=20)


def test_the_model_has_every_kind_of_key_that_is_written() -> None:
    modelled = {kind.keys for kind in (*STATE_KINDS, *DECISION_KINDS) if kind.keys.endswith("/")}
    assert {kind.below().partition("/")[0] + "/" for kind in KINDS if kind.below().count("/")} == modelled


def test_each_kind_is_written_under_the_keys_that_it_says() -> None:
    for kind in STATE_KINDS:
        state = Written()
        kind.write(World(SMALL, state, Decided()), 30)
        assert state.read() and all(key.startswith(kind.keys) for key in state.read()), kind.what
    for kind in DECISION_KINDS:
        ledger = Decided()
        kind.write(World(SMALL, Written(), ledger), 30)
        assert any(key.startswith(kind.keys) for key in ledger.values()), kind.what


def test_a_ledger_of_ten_thousand_partitions_stays_within_its_limits() -> None:
    """Two gigabytes a day; what is written every few seconds, and by each busy partition, decides that."""
    often = [kind for kind in (*STATE_KINDS, *MAP_KINDS) if kind.a_day(Shape()) > 1000]
    assert {"positions of groups", "signs of life", "offset maps"} <= {kind.what for kind in often}
    assert sum(cost(Shape(), kind).a_day for kind in often) < 1_950_000_000
