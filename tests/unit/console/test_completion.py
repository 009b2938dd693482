"""A shell completes every command and its options, by a script that bash itself reads."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_mirror.console.commands import COMMANDS
from airflow_mirror.console.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_bash_completes_commands_options_and_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> set[str]:
        line = "COMP_WORDS=(airflow-mirror " + " ".join(f"'{word}'" for word in words) + f"); COMP_CWORD={len(words)}; "
        name = "$(complete -p airflow-mirror | sed 's/.*-F //; s/ .*//')"
        run = f'. {script}; {line}{name} airflow-mirror; printf "%s\\n" "${{COMPREPLY[@]}}"'
        return set(subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=True).stdout.split())

    assert completed("") >= set(COMMANDS)
    assert completed("pre") == {"preview"}
    assert "--watch" in completed("clients", "--w")
    assert completed("preview", "--level", "re") == {"records"}


def test_who_lacks_the_writer_of_scripts_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 2
    assert "airflow-mirror[completion]" in capsys.readouterr().err
