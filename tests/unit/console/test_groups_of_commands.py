"""The list of all commands, and how a wrong one is answered."""

from __future__ import annotations

import subprocess
import sys

import pytest

from airflow_mirror.console import commands
from airflow_mirror.console.commands import COMMANDS, GROUPS
from airflow_mirror.console.main import main, parser


def test_every_command_stands_in_one_group(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and all(f"{group}:" in lines for group in GROUPS)
    for name, (_, short) in COMMANDS.items():
        assert [line for line in lines if line.split()[:1] == [name]] == [f"  {name:<15} {short}"]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_module_adds_the_commands_of_its_rows(name: str) -> None:
    assert parser(name).prog == f"airflow-mirror {name}"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_wrong_word_is_answered_with_what_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no command 'cutovr'. The nearest known is 'cutover'." in said(capsys, "cutovr")
    assert "'airflow-mirror --help' lists them" in said(capsys, "xyz") and "which command?" in said(capsys)


def test_a_wrong_option_is_answered_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty lines of usage stood before it, and what was meant was not said."""
    end = "'airflow-mirror plan --help' explains each; nothing was done.\n"
    nearest = "error: there is no option '--inclued'. The nearest known is '--include'.\n"
    assert said(capsys, "plan", "--inclued", "orders") == said(capsys, "plan", "--inclued=orders") == nearest + end
    assert said(capsys, "plan", "--include", "a", "b") == f"error: unrecognized arguments: b.\n{end}"
    assert "--prime-budget: invalid int value: 'x'." in said(capsys, "plan", "--prime-budget", "x")
    assert "ambiguous option: --s could match --source" in said(capsys, "plan", "--s", "x")


def test_a_required_option_that_is_misspelt_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """It was said to be missing, and it stood there."""
    told = said(capsys, "pause", "--target", "t", "--mirorr", "m")
    assert "no option '--mirorr'. The nearest known is '--mirror'." in told and "required" not in told
    assert "are required: --mirror." in said(capsys, "pause", "--target", "t")


def test_wrong_words_behind_a_verb_are_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    """The options that are right, and stood behind the verb, were said not to exist."""
    end = "'airflow-mirror ledger show --help' explains each; nothing was done.\n"
    nearest = "error: there is no option '--jsn'. The nearest known is '--json'.\n"
    assert said(capsys, "ledger", "show", "--target", "x", "--jsn") == nearest + end
    told = said(capsys, "ledger", "release", "--target", "x", "m", "n")
    assert told.startswith("error: unrecognized arguments: n.\n'airflow-mirror ledger release --help'")
    assert "invalid choice: 'shwo'" in said(capsys, "ledger", "shwo", "--target", "x")
    assert "no option '--jsn'." in said(capsys, "ledger", "--jsn", "show", "--target", "x")


def test_the_list_imports_no_command() -> None:
    """It took four seconds on a busy machine."""
    code = "import sys; from airflow_mirror.console.main import listing; listing(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert commands.__name__ in loaded
    assert not [one for one in loaded if one.startswith(("airflow_mirror.kafka", "airflow_mirror.wire", "rich", "yaml"))]
