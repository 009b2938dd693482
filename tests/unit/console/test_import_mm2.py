"""What a file of MirrorMaker 2 becomes on disk; secrets stand where nobody else may read, and nowhere else."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml

from airflow_mirror.config import load
from airflow_mirror.console.main import main
from airflow_mirror.mirror import Mirror

PEM = "-----BEGIN CERTIFICATE-----\\nMII\\n-----END CERTIFICATE-----"
FILE = f"""
clusters = A, B
A.bootstrap.servers = a:9092
A.ssl.truststore.type = PEM
A.ssl.truststore.certificates = {PEM}
B.bootstrap.servers = b:9092
B.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden=1";
A->B.enabled = true
A->B.topics = orders
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    return path


def test_mirrors_and_connections_are_written(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["import-mm2", str(file), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()} == {
        "A-to-B.yaml", "connections.json", "clusters/kafka_A.properties", "clusters/kafka_B.properties",
    }  # fmt: skip
    assert Mirror.from_file(out / "A-to-B.yaml") == Mirror.from_properties(file)[0]
    connections = json.loads((out / "connections.json").read_text())
    assert {name: one["conn_type"] for name, one in connections.items()} == {"kafka_A": "kafka", "kafka_B": "kafka"}
    for name, one in connections.items():
        settings = load(str(out / "clusters" / f"{name}.properties")).properties
        assert {key: value.replace("\\n", "\n") for key, value in settings.items()} == json.loads(one["extra"])
    assert json.loads(connections["kafka_B"]["extra"])["sasl.password"] == "hidden=1"
    for path in out.rglob("*"):
        secret = path.is_file() and "hidden" in path.read_text()
        assert secret is (path.name in ("connections.json", "kafka_B.properties"))
        if path.suffix in (".json", ".properties"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "hidden" not in printed and "MII" not in printed
    assert f"airflow connections import {out}/connections.json" in printed
    assert all(key in printed for key in ("A.ssl.truststore.certificates", "B.sasl.jaas.config", "A->B.topics"))


@pytest.mark.parametrize("password", ["p w", "p\u2028w", "p\x85w", "\\u0020p", "p\\u0020", "p\\\\nw"])
def test_a_password_arrives_as_it_is_whatever_is_in_it(file: Path, tmp_path: Path, password: str) -> None:
    file.write_text(FILE.replace("hidden=1", password))
    assert main(["import-mm2", str(file), "--out", str(tmp_path)]) == 0
    meant = json.loads(json.loads((tmp_path / "connections.json").read_text())["kafka_B"]["extra"])
    (written,) = (tmp_path / "clusters").glob("kafka_B.*")
    assert load(str(written)).properties == meant
    assert meant["sasl.password"].strip() == meant["sasl.password"] or written.suffix == ".json"


def test_without_a_directory_nothing_is_written_and_no_secret_is_needed(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        FILE.replace('"hidden=1"', '"${env:NOT_SET_HERE}"') + "config.providers = env\n"
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    assert main(["import-mm2", str(file)]) == 0
    assert "Nothing was written" in capsys.readouterr().out
    assert main(["import-mm2", str(file), "--out", str(file.parent / "out")]) == 2
    assert "'NOT_SET_HERE' is not there" in capsys.readouterr().err
    assert not (file.parent / "out").exists()


def test_what_is_refused_leaves_no_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "x.jks").write_bytes(b"\xfe\xed\xfe\xed")
    file.write_text(FILE + f"B.ssl.truststore.location = {file.parent / 'x.jks'}\n")
    assert main(["import-mm2", str(file), "--out", str(file.parent / "out")]) == 2
    assert "B.ssl.truststore.location" in capsys.readouterr().err
    assert not (file.parent / "out").exists()


def test_a_written_mirror_says_everything_that_the_file_meant(file: Path, tmp_path: Path) -> None:
    main(["import-mm2", str(file), "--out", str(tmp_path)])
    written = yaml.safe_load((tmp_path / "A-to-B.yaml").read_text())
    assert list(written)[:3] == ["name", "source", "target"]
    assert {"isolation", "start", "sync_groups", "replication_factor", "policy", "source_alias"} <= written.keys()
