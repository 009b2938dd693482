"""How a command looks to whoever asks for its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from airflow_mirror.mirror import Mirror


def command(
    commands: Any, name: str, text: str, run: Callable[[argparse.Namespace], int | None]
) -> argparse.ArgumentParser:
    """Add a command, which has a row in :mod:`.commands`, and return its parser.

    :param text: what it is for, at length, and ``examples:``, which come behind the options.
    :param run: called with the arguments; returns the exit status, None for 0.
    """
    description, _, examples = text.partition("\nexamples:\n")
    p: argparse.ArgumentParser = commands.add_parser(
        name, description=description, epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.set_defaults(run=run)
    return p


def add_mirror(p: argparse._ActionsContainer, word: str = "--mirror", help: str = "the mirror", **how: Any) -> None:
    """Add the option, or the word, that says which mirror: its name, or its file."""
    if word.startswith("-"):
        how = {"required": "default" not in how, **how}
    p.add_argument(word, type=name_of, metavar="MIRROR", help=f"{help}: its name, or its file", **how)


def name_of(mirror: str) -> str:
    """Return the name of a mirror that is given by it, or by its file. Errors as :meth:`.Mirror.from_file`."""
    return Mirror.from_file(mirror).name if mirror.endswith((".yaml", ".yml", ".json")) else mirror


def add_yes(p: argparse._ActionsContainer) -> None:
    """Add ``--yes``: the command says what it would do, and does it with that option."""
    p.add_argument("--yes", action="store_true", help="do it (default: only say what would be done)")


def add_json(p: argparse._ActionsContainer, what: str = "") -> None:
    """Add ``--json``. :param what: that it prints."""
    p.add_argument("--json", action="store_true", help=f"print JSON{what and ': '}{what}")
