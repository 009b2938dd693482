"""Standard output, of which a command knows neither the characters nor the disk."""

from __future__ import annotations

import io
import os
import sys


def tolerate() -> None:
    """Let output fail nothing: a character that the terminal does not have is its escape, as in standard error.

    Where a stream was closed before the process began, as by ``>&-``, Python has None in its place: what is written there
    is dropped.
    """
    # In this order: the lowest free descriptors are theirs, and nothing that is opened later, a connection say, becomes
    # the standard output of a child. Of errors None made standard output.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):  # not a stand-in of whoever calls the command in its own process
        sys.stdout.reconfigure(errors="backslashreplace")


def give_up() -> None:
    """Drop what could not be written, or the interpreter would fail with it at its end, with a status of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
