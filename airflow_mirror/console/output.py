"""Standard output, of which a command knows neither the characters nor the disk."""

from __future__ import annotations

import io
import os
import sys


def tolerate() -> None:
    """Write a character that the terminal does not have as its escape, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # not a stand-in of whoever calls the command in its own process
        sys.stdout.reconfigure(errors="backslashreplace")


def give_up() -> None:
    """Drop what could not be written, or the interpreter would fail with it at its end, with a status of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
