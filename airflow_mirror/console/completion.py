"""``airflow-mirror completion``: what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_mirror.console.command import command
from airflow_mirror.errors import InputError

_TEXT = """\
Print a script that lets a shell complete airflow-mirror's commands, options and choices.

examples:
  airflow-mirror completion bash > ~/.local/share/bash-completion/completions/airflow-mirror
  airflow-mirror completion zsh > ~/.zfunc/_airflow-mirror        # where fpath has ~/.zfunc
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "completion", _TEXT, _run)
    p.add_argument("shell", choices=("bash", "zsh", "tcsh"), help="for which one")


def _run(arguments: argparse.Namespace) -> None:
    try:
        import shtab
    except ImportError:
        raise InputError(
            "completion", "shtab is not installed, which writes the script", "pip install 'airflow-mirror[completion]'"
        ) from None
    from airflow_mirror.console.main import every

    print(shtab.complete(every(), arguments.shell))
