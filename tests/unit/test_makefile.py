"""Which Python `make` takes: the one that was named, and pyenv's where its names on PATH don't run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(path: Path, text: str) -> Path:
    """Make a program."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def make(*arguments: str, **environment: str) -> str:
    """Return what make prints."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(("asked", "is_made"), [("3.13", True), ("3.11", False), (None, False)])
def test_an_environment_of_another_python_than_the_named_one_is_made_anew(
    tmp_path: Path, asked: str | None, is_made: bool
) -> None:
    """`make test PYTHON=python3.13` ran on whatever Python the environment had."""
    venv = tmp_path / "venv"
    script(venv / "bin" / "python", "echo 3.11")
    (venv / ".installed").touch()
    named = [f"PYTHON={script(tmp_path / 'named', f'echo {asked}')}"] if asked else []
    said = make("-n", "setup", f"VENV={venv}", *named)
    assert (f"rm -rf {venv}" in said, "installing into" in said) == (is_made, is_made), said


def test_a_python_that_only_pyenv_has_is_found_by_its_name(tmp_path: Path) -> None:
    """Pyenv's name on PATH answers "command not found", and so did make."""
    shims, pyenv, here = tmp_path / "shims", tmp_path / "pyenv", "versions/3.13.0/bin/python3.13"
    script(shims / "python3.13", "exit 127")
    script(pyenv / here, "echo 3.13")
    path = f"{shims}:/usr/bin:/bin"
    said = make("-n", "setup", f"VENV={tmp_path}", "PYTHON=python3.13", PATH=path, PYENV_ROOT=str(pyenv))
    assert f"{pyenv / here} -m venv {tmp_path}" in said


def test_pythons_are_found_on_the_path_and_among_those_of_pyenv(tmp_path: Path) -> None:
    """Pyenv's names on PATH answer "command not found" for versions that nobody has turned on."""
    shims, pyenv = tmp_path / "shims", tmp_path / "pyenv"
    works, here = script(shims / "python3.11", "true"), "versions/3.12.10/bin/python3.12"
    script(shims / "python3.12", "echo 'command not found' >&2; exit 127")
    script(pyenv / here, "true")
    script(pyenv / "versions/3.12.9/bin/python3.12", "true")
    script(pyenv / "versions/3.13.0/bin/python3.13", "exit 1")
    found = make("pythons", PATH=f"{shims}:/usr/bin:/bin", PYENV_ROOT=str(pyenv)).split()
    assert found[:2] == [f"3.11={works}", f"3.12={pyenv / here}"]
    assert not any("pyenv" in one for one in found[2:]), "one that does not run is none"
