"""Offsets that are kept outside Kafka, translated from a shell."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from airflow_mirror.config import load
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.jobs.translate import main
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.wire.cluster import WireCluster
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import create_maps

ONE = mapped_range("orders", "dc1.orders", 3)


@pytest.fixture
def target() -> Iterator[DrivenCluster]:
    with DrivenCluster("target") as one:
        yield one


@pytest.fixture
def arguments(target: DrivenCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    one = OffsetMap(100, 7)
    one.add(100, 7, 10)
    one.add(115, 19, 6)
    one.advance(200)
    target.create("dc1.orders", 5)
    create_maps(target)
    with WireCluster(target.config) as wire:
        store = MapStore("m")
        store.begin(wire, ONE, 100, 7, lambda: None)
        store.append(wire, ONE, one, lambda: None)
    monkeypatch.setenv("TARGET", target.config.dump())
    return ["--target", "env:TARGET", "--name"]


def test_both_directions_are_printed_with_how_they_were_found(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "m", "dc1.orders", "3", "112"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["to_target"] == {"offset": 19, "found": "hole"}
    assert told["to_source"] == {"offset": 200, "found": "beyond"}
    assert (told["source_start"], told["source_end"], told["target_start"], told["target_end"]) == (100, 200, 7, 25)


def test_who_has_read_everything_goes_on_behind_what_another_tool_sent_again(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It lies behind the last record that an adopted map names, until the mirror's own records come."""
    adopted = OffsetMap(0, 0)
    adopted.add(0, 0, 10)
    adopted.advance(10, 14)
    with WireCluster(load("env:TARGET", "target")) as wire:
        MapStore("m").adopt(wire, ONE, adopted, lambda: None)
    assert main([*arguments, "m", "dc1.orders", "3", "10"]) == 0
    assert json.loads(capsys.readouterr().out)["to_target"] == {"offset": 14, "found": "end"}


def test_offset_behind_records_of_others_has_no_counterpart(
    target: DrivenCluster, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that found nothing to copy has stored how far it looked through the target, past what applications wrote."""
    log = Writer(target.topics["dc1.orders"].logs[3])
    log.plain(25)
    with WireCluster(target.config) as wire:
        store = MapStore("m")
        end = store.resume(wire, ONE)
        assert end is not None
        end.advance(200, 27)
        store.append(wire, ONE, end, lambda: None)
    log.plain(2)
    found = []
    for offset in ("25", "27"):
        assert main([*arguments, "m", "dc1.orders", "3", offset]) == 0
        found.append(json.loads(capsys.readouterr().out)["to_source"])
    assert found == [{"offset": 200, "found": "end"}, {"offset": 200, "found": "beyond"}]


@pytest.mark.parametrize(("mirror", "partition"), [("m", "4"), ("other", "3")])
def test_partition_without_a_map_is_named_in_the_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str], mirror: str, partition: str
) -> None:
    assert main([*arguments, mirror, "dc1.orders", partition, "0"]) == 1
    assert f"dc1.orders-{partition} of mirror {mirror} has no offset map in topic" in capsys.readouterr().err
