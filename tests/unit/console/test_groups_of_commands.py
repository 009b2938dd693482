"""The list of all commands: each stands in one group, with what it is for."""

from __future__ import annotations

import pytest

from airflow_mirror.console.command import SHORT
from airflow_mirror.console.main import GROUPS, main, parser


def test_every_command_stands_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert all(f"{group}:" in lines for group in GROUPS)
    for name, short in SHORT.items():
        assert [line for line in lines if line.split()[:1] == [name]] == [f"  {name:<15} {short}"]


def test_a_command_without_a_word_for_the_list_can_not_be_added() -> None:
    action = next(one for one in parser()._actions if one.dest == "==SUPPRESS==" and one.choices)
    assert set(action.choices or ()) == SHORT.keys()
