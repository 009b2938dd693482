"""The entry point of every job: a request in; status file, summary on stdout, errors on stderr and exit status out."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from airflow_mirror.copy.results import PartitionResult, summarise
from airflow_mirror.errors import InputError, MirrorError, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver.arguments import R, request_of
from airflow_mirror.jobs.driver.reporting import reporting
from airflow_mirror.jobs.request import JobRequest
from airflow_mirror.jobs.runner.state import STALE_AFTER_S
from airflow_mirror.jobs.runner.status import StatusFile

log = logging.getLogger(__name__)

_ALIVE_EVERY_S = STALE_AFTER_S / 10

# The summary, and the error or None.
Outcome = tuple[dict[str, Any], MirrorError | None]


class NotBegun(Exception):
    """A signal came while a job waited for clusters that have to say what it is about: it ends well."""


def run(
    parser: argparse.ArgumentParser, argv: Sequence[str], kind: type[R], work: Callable[[R, StatusFile], Outcome]
) -> int:
    """Run ``work`` with a job's own command line, and return the exit status, as :func:`carry_out`."""
    arguments = parser.parse_args(argv)
    return carry_out(partial(request_of, kind, arguments), work, Told.by(arguments))


@dataclass(frozen=True, kw_only=True)
class Told:
    """Where it is told how a job goes, also where its request is wrong: fields of it that nothing else depends on.

    :param report: key of the reports in the state of ``target``, a reference to its settings; "": none are wanted.
    """

    job_dir: str = ""
    report: str = ""
    target: str = ""

    @classmethod
    def by(cls, given: argparse.Namespace | JobRequest | Mapping[str, Any]) -> Told:
        """Return what a command line, a request or its file says."""
        values = given if isinstance(given, Mapping) else vars(given)
        return cls(**{one.name: values.get(one.name) or "" for one in fields(cls)})


def carry_out(asked: Callable[[], R], work: Callable[[R, StatusFile], Outcome], told: Told) -> int:
    """Run ``work`` and return the exit status: 0 done, 1 failed, 2 wrong input (nothing was changed).

    :param asked: returns the request; what is wrong with it is reported as any error is. Where it, or ``work``, raises
        :class:`NotBegun`, that is the end.
    """
    log_to_stderr()
    status = StatusFile(told.job_dir)
    summary: dict[str, Any] | None = None
    error: MirrorError | None
    with _said_again(status, told.job_dir), reporting(told.report, told.target, status):
        try:
            summary, error = work(asked(), status)
        except NotBegun:
            summary, error = summarise([], 0.0), None
        except MirrorError as e:
            error = e
        if error is not None:
            print(f"error: {error.lines}", file=sys.stderr)
            status.fail(error, summary)
        elif summary is not None:
            status.succeed(summary)
    if summary is not None:
        print(json.dumps(summary), flush=True)
    return 0 if error is None else 2 if isinstance(error, InputError) else 1


@contextmanager
def _said_again(status: StatusFile, job_dir: str) -> Iterator[None]:
    """Keep a job's status new until the block ends, also while it waits for a cluster, or compares for an hour.

    Elsewhere it would count as lost.

    :param job_dir: where the status is written; "": nowhere.
    """
    ended = threading.Event()

    def say() -> None:
        while not ended.wait(_ALIVE_EVERY_S):
            status.update()

    thread = threading.Thread(target=say, name="alive", daemon=True)
    if job_dir:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if job_dir:
            thread.join()


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
