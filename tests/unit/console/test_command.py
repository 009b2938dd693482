"""What commands share: the mirror is given by its name or its file, wherever it is asked for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from airflow_mirror.console.command import add_mirror
from airflow_mirror.console.main import main, parser


@pytest.fixture
def file(tmp_path: Path) -> str:
    file = tmp_path / "orders.json"
    file.write_text(json.dumps({"name": "dc1-to-dc2", "source": "a", "target": "b"}))
    return str(file)


def test_a_mirror_is_its_name_or_its_file(file: str) -> None:
    p = argparse.ArgumentParser()
    add_mirror(p)
    assert p.parse_args(["--mirror", "dc1-to-dc2"]).mirror == "dc1-to-dc2"
    assert p.parse_args(["--mirror", file]).mirror == "dc1-to-dc2"


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "--mirror", "MIRROR"], ["retire", "--mirror", "MIRROR"], ["pause", "--mirror", "MIRROR"],
        ["lift-fence", "--mirror", "MIRROR"], ["swap-fence", "--mirror", "MIRROR"], ["cutover", "--mirror", "MIRROR"],
        ["preview", "--mirror", "MIRROR"], ["report", "--mirror", "MIRROR"], ["failover", "MIRROR"],
        ["failback", "MIRROR"], ["arm-reverse", "MIRROR"], ["fence-on-return", "MIRROR"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_each_command_takes_both(words: list[str], file: str) -> None:
    more = ["--target", "dst"] + (["--source", "src"] if words[0] in ("fence-on-return", "failback") else [])
    given = parser(words[0]).parse_args([file if word == "MIRROR" else word for word in words[1:]] + more)
    assert given.mirror == "dc1-to-dc2"


@pytest.mark.parametrize("command", ["verify", "follow"])
def test_a_mirror_whose_way_back_is_meant_as_well(command: str, file: str) -> None:
    given = parser(command).parse_args(["--target", "dst", "--source", "src", "--reverse-of", file])
    assert given.reverse_of == "dc1-to-dc2"


@pytest.mark.parametrize("given", ["inf", "nan", "-1", "soon"])
@pytest.mark.parametrize(
    "words",
    [
        ["cutover", "--target", "dst", "--mirror", "m", "--max-fence-s"],
        ["preview", "--target", "dst", "--mirror", "m", "--quiet-s"],
        ["clients", "--target", "dst", "--mirror", "m", "--watch"],
        ["readiness", "--source", "src", "--target", "dst", "--trial"],
        ["adopt", "--source", "src", "--target", "dst", "--max-ambiguous"],
        ["adopt", "--source", "src", "--target", "dst", "--watch"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_a_limit_is_a_number_from_0_on(words: list[str], given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Endless, a fence ended in a traceback; no number at all switched the proof off that it was to limit."""
    with pytest.raises(SystemExit) as ended:
        parser(words[0]).parse_args([*words[1:], given])
    assert ended.value.code == 2 and f"argument {words[-1]}: " in capsys.readouterr().err
    assert parser(words[0]).parse_args([*words[1:], "0.5"])


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--target", "dst", "--mirror", "nowhere.yaml"]) == 2
    assert "mirror file 'nowhere.yaml' can't be read" in capsys.readouterr().err
