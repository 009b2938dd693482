"""Commands that change a mirror step by step: they list first, and do it with ``--yes``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from airflow_mirror.console.command import add_json, add_yes
from airflow_mirror.jobs.decommission import Step

_SHOWN = 20  # of each step


def add_steps(parser: argparse.ArgumentParser) -> None:
    """Add ``--yes``, ``--end-writing`` and ``--json``."""
    add_yes(parser)
    parser.add_argument(
        "--end-writing", action="store_true",
        help="also if a job holds the writer lease: one that was killed. It is taken, and waited for",
    )  # fmt: skip
    add_json(parser, "what was done or is to do, and what stays")


def walk(arguments: argparse.Namespace, steps: Iterable[Step]) -> list[dict[str, Any]]:
    """Show each step that has something to do, and do it if that is wanted; return what they are about, for JSON."""
    found = []
    for step in steps:
        if not step.lines:
            continue
        found.append({"step": step.name, "lines": step.lines})
        if not arguments.json:
            _show(step)
        if arguments.yes:
            step.do()
    return found


def _show(step: Step) -> None:
    for line in step.lines[:_SHOWN]:
        print(f"{step.name:<10} {line}")
    if (more := len(step.lines) - _SHOWN) > 0:
        print(f"{step.name:<10} and {more:,} more (--json lists all)")
