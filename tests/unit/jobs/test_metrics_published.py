"""Where the figures of a job are found: in a file, and at a port."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.metrics import publish
from airflow_mirror.jobs.metrics.files import FilesCollector
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.jobs.request import BulkRequest
from airflow_mirror.jobs.runner.status import StatusFile
from tests.builders import request
from tests.listening import listeners
from tests.unit.jobs.scraping import collector, parsed, ranges, told
from tests.waiting import wait_until


@pytest.fixture
def opened() -> Iterable[Callable[..., Publication]]:
    every: list[Publication] = []

    def opened(file: Path | None = None, port: int | None = None) -> Publication:
        every.append(Publication(file, port, every_s=0.01))
        return every[-1]

    yield opened
    for one in every:
        one.close()


def get(address: str | None) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def test_file_is_rewritten_while_the_copy_goes_on(opened: Callable[..., Publication], tmp_path: Path) -> None:
    file, three = tmp_path / "m.prom", ranges()
    table = Table(three)
    publication = opened(file)
    assert file.read_text() == ""
    publication.show(collector(table))
    wait_until(lambda: "job_running" in parsed(file.read_text()))
    table.take("a", [told(three[0], 400)])
    wait_until(lambda: parsed(file.read_text())["lag_records"]["a.orders", "0"] == 600)
    table.take("a", [told(three[0], 1000, "done")])
    publication.close()
    last = parsed(file.read_text())
    assert (last["job_running"], last["lag_records"]["a.orders", "0"]) == ({(): 0}, 0)
    assert [p.name for p in tmp_path.iterdir()] == ["m.prom"]


def test_figures_of_an_earlier_job_are_gone_at_once(opened: Callable[..., Publication], tmp_path: Path) -> None:
    (tmp_path / "m.prom").write_text("airflow_mirror_job_running 1\n")
    opened(tmp_path / "m.prom")
    assert (tmp_path / "m.prom").read_text() == ""


def test_port_answers_with_what_is_true_now(opened: Callable[..., Publication]) -> None:
    three = ranges()
    table, publication = Table(three), opened(port=0)
    assert get(publication.address) == "", "before there is a copy"
    publication.show(collector(table))
    table.take("a", [told(three[1], 700)])
    assert parsed(get(publication.address))["lag_records"]["a.orders", "1"] == 300
    table.take("a", [told(three[1], 800)])
    assert parsed(get(publication.address))["lag_records"]["a.orders", "1"] == 200
    publication.close()
    with pytest.raises(OSError):
        get(publication.address)


def test_figures_of_several_jobs_are_at_one_port(opened: Callable[..., Publication], tmp_path: Path) -> None:
    """As they would be in files of node_exporter: each figure is told once, with the series of all."""
    one, two, missing = (tmp_path / f"{name}.prom" for name in ("one", "two", "missing"))
    for file, name in ((one, "one"), (two, "two")):
        table = Table(three := ranges())
        table.take("a", [told(three[0], 400)])
        registry = CollectorRegistry()
        registry.register(collector(table, mirror=name))
        file.write_bytes(generate_latest(registry))
    publication = opened(port=0)
    publication.show(FilesCollector([one]))
    assert get(publication.address) == one.read_text()
    publication = opened(port=0)
    publication.show(FilesCollector([one, missing, two]))
    found = get(publication.address)
    assert sorted({*found.splitlines()}) == sorted(found.splitlines()), "no line twice"
    assert {*found.splitlines()} == {*one.read_text().splitlines(), *two.read_text().splitlines()}


def test_port_is_open_on_the_loopback_interface_alone(opened: Callable[..., Publication]) -> None:
    address = opened(port=0).address
    assert address is not None
    mine = [one for one in listeners({os.getpid()}) if one.port == int(address.partition(":")[2])]
    assert mine and all(one.is_local for one in mine)


def test_taken_port_is_refused_before_anything_is_touched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidField, match=f"--metrics-port={port}: can't listen on 127.0.0.1: .* Use another one"):
            Publication(None, port)
    for senseless in (70_000, -1):
        with pytest.raises(InvalidField):
            Publication(None, senseless)


def test_limit_below_nothing_is_refused() -> None:
    with pytest.raises(InvalidField, match="metrics_partitions=-1"):
        request(BulkRequest, metrics_partitions=-1)


def test_address_of_the_port_is_in_the_jobs_status(tmp_path: Path) -> None:
    asked = request(BulkRequest, metrics_port=0, metrics_partitions=5)
    with closing(open_publication(asked, StatusFile(tmp_path))) as publication:
        assert json.loads((tmp_path / "status.json").read_text())["metrics"] == publication.address


def test_directory_that_is_not_there_is_refused_not_created(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(InvalidField, match=r"--metrics-file='.*/no/m.prom': can't be written"):
        Publication(tmp_path / "no" / "m.prom", 0)
    assert list(tmp_path.iterdir()) == [] and threading.active_count() == before, "and the port is closed again"


def test_full_disk_does_not_end_the_job(
    opened: Callable[..., Publication], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "m.prom"
    publication = opened(file)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk, caplog.at_level(logging.WARNING):
        disk.setattr(publish, "replace_file", full)
        publication.show(collector(Table(ranges())))
        wait_until(lambda: caplog.text.count("m.prom not written: [Errno 28]") > 1)
    wait_until(lambda: file.read_text())
