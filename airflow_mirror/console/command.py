"""How a command looks to whoever asks for its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def command(
    commands: Any, name: str, short: str, text: str, run: Callable[[argparse.Namespace], int | None]
) -> argparse.ArgumentParser:
    """Add a command, and return its parser.

    :param short: what it is for, in the list of all commands. :param text: the same at length, and ``examples:``, which
        come behind the options.
    :param run: called with the arguments; returns the exit status, None for 0.
    """
    description, _, examples = text.partition("\nexamples:\n")
    p: argparse.ArgumentParser = commands.add_parser(
        name, help=short, description=description, epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.set_defaults(run=run)
    return p
