"""The entry point of every job: arguments in; status file, summary on stdout, errors on stderr and exit status out."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from airflow_mirror.copy.results import PartitionResult
from airflow_mirror.errors import InputError, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver.reporting import reporting
from airflow_mirror.jobs.runner.status import StatusFile

# The summary, and the error or None.
Outcome = tuple[dict[str, Any], MirrorError | None]


def run(
    parser: argparse.ArgumentParser, argv: Sequence[str], work: Callable[[argparse.Namespace, StatusFile], Outcome]
) -> int:
    """Run ``work`` and return the exit status: 0 done, 1 failed, 2 wrong input (nothing was changed)."""
    return carry_out(parser.parse_args(argv), work)


def carry_out(arguments: argparse.Namespace, work: Callable[[argparse.Namespace, StatusFile], Outcome]) -> int:
    """Run ``work`` as :func:`run` does, with arguments that somebody has parsed."""
    log_to_stderr()
    status = StatusFile(arguments.job_dir)
    summary: dict[str, Any] | None = None
    error: MirrorError | None
    with reporting(arguments.report, arguments.target, status):
        try:
            summary, error = work(arguments, status)
        except MirrorError as e:
            error = e
        if error is not None:
            print(f"error: {error}", file=sys.stderr)
            status.fail(error, summary)
        elif summary is not None:
            status.succeed(summary)
    if summary is not None:
        print(json.dumps(summary), flush=True)
    return 0 if error is None else 2 if isinstance(error, InputError) else 1


def failure(results: Iterable[PartitionResult], errors: Sequence[str]) -> MirrorError | None:
    """Return the error of a job whose partitions reported ``results``; None without ``errors``."""
    if not errors:
        return None
    kind = NeedsHuman if any(r.final for r in results) else TryAgain
    return kind("\n".join(errors))


def log_to_stderr() -> None:
    """Set up logging. spark-submit merges stderr into stdout, whose last line belongs to the summary."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs its shutdown after the summary
