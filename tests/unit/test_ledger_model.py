"""What a ledger costs is counted for every kind of record that the package writes, and is little enough."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import airflow_mirror
from benchmarks.ledger_model import DECISION_KINDS, MAP_KINDS, STATE_KINDS, Decided, Shape, World, Written, cost

PACKAGE = Path(airflow_mirror.__file__).parent  # of the one that is tested: `make dist` installs it elsewhere
SMALL = Shape(topics=20, partitions=3, busy=20, groups=20)


def beginnings() -> Iterator[str]:
    """Yield what keys begin with, up to the first slash, by the package's source: no other text there looks like that."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                whole = isinstance(node, ast.Constant)
                if found := (re.fullmatch if whole else re.match)(r"[a-z]+/", text.value):
                    yield found[0]


def test_the_model_has_every_kind_of_key_that_is_written() -> None:
    modelled = {kind.keys for kind in (*STATE_KINDS, *DECISION_KINDS) if kind.keys.endswith("/")}
    assert set(beginnings()) == modelled


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
