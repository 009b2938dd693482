"""How a command's cluster is named."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console.clusters import config_of
from airflow_mirror.console.main import main
from airflow_mirror.errors import InputError

HERE = {"bootstrap.servers": "here:9092"}


def test_files_variables_and_connections_name_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file wins over a connection of the same name: it can be seen."""
    monkeypatch.chdir(tmp_path)
    Path("dst").write_text("bootstrap.servers=here:9092\n")
    monkeypatch.setenv("DST", '{"bootstrap.servers": "here:9092"}')
    for name in ("dst", "./dst", f"{tmp_path}/dst", "env:DST"):
        assert config_of(name, "target") == ClientConfig(HERE, "target")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/such/file", "target settings: file 'no/such/file' can't be read"),
        ("env:NOT_SET", "environment variable NOT_SET is not set"),
        ("a:9092", "target cluster: 'a:9092' is neither a file here nor the id of an Airflow connection"),
        ("dst", r"target cluster: 'dst' is neither a file here nor .* connection(:|\n  why:) Airflow is not installed"),
    ],
)
def test_a_cluster_that_is_not_there_is_named(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "airflow_mirror.hooks.kafka", raising=False)
    monkeypatch.setitem(sys.modules, "airflow", None)
    with pytest.raises(InputError, match=said):
        config_of(name, "target")
    assert main(["ledger", "show", "--target", name]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and re.search(said, printed)
    assert name != "a:9092" or "Write bootstrap.servers=broker1:9092 into a file and give that" in printed
