"""The options of a job in plain processes, beside those that describe a Mirror and name the clusters."""

from __future__ import annotations

import argparse

from airflow_mirror.common import knobs
from airflow_mirror.jobs.request import JobRequest


def add_options(p: argparse.ArgumentParser, kind: type[JobRequest], *leave_out: str) -> None:
    """Add those of a kind of request, and ``--processes`` in place of Spark's. :param leave_out: as there."""
    knobs.add_options(p, kind, {"tasks", "settings_from", *leave_out})
    p.add_argument(
        "--processes", type=_count, metavar="N", dest="tasks",
        help="how many processes work on this host (default: one for each core)",
    )  # fmt: skip


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("at least one")
    return value
