"""The options of a copy in plain processes, beside those that describe a Mirror and name the clusters."""

from __future__ import annotations

import argparse

from airflow_mirror.jobs.driver import arguments as cli


def add_copy(p: argparse.ArgumentParser) -> None:
    """Add those of :func:`.run.copy`."""
    _add(p)
    cli.add_bulk(p)


def add_follow(p: argparse.ArgumentParser) -> None:
    """Add those of :func:`.run.follow`."""
    _add(p)
    cli.add_tail(p)


def _add(p: argparse.ArgumentParser) -> None:
    cli.add_run(p)
    cli.add_hold(p)
    cli.add_failures(p)
    cli.add_progress(p)
    cli.add_metrics(p)
    add_processes(p, "copy")


def add_processes(p: argparse.ArgumentParser, what: str) -> None:
    """Add ``--processes``. :param what: they do."""
    p.add_argument(
        "--processes", type=_count, metavar="N",
        help=f"how many processes {what} on this host (default: one for each core)",
    )  # fmt: skip


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least one")
    return value
