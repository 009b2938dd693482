"""Offsets that are kept outside Kafka, translated from a shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.jobs.translate import main


@pytest.fixture
def maps(tmp_path: Path) -> str:
    one = OffsetMap(100, 7)
    one.add(100, 7, 10)
    one.add(115, 19, 6)
    one.advance(200)
    store = MapStore(str(tmp_path / "map"))
    store.origin("dc1.orders/3", 100, 7)
    store.append("dc1.orders/3", one)
    return str(tmp_path / "map")


def test_both_directions_are_printed_with_how_they_were_found(maps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--map-dir", maps, "dc1.orders", "3", "112"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["to_target"] == {"offset": 19, "found": "hole"}
    assert told["to_source"] == {"offset": 200, "found": "beyond"}
    assert (told["source_start"], told["source_end"], told["target_start"], told["target_end"]) == (100, 200, 7, 25)


def test_partition_without_a_map_is_named_in_the_error(maps: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--map-dir", maps, "dc1.orders", "4", "0"]) == 1
    assert "no offset map of dc1.orders/4 below" in capsys.readouterr().err
