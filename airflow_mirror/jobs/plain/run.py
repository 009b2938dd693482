"""A bulk copy and a tail in plain processes: the same drivers, lease, ledger and results as the Spark jobs.

Both can be called by whoever has read another tool's command line: clusters as references (`config.load`), a Mirror, and
options (:mod:`.options`). Nothing here sets up logging or signals.
"""

from __future__ import annotations

import argparse
import threading
from contextlib import closing
from functools import partial

from airflow_mirror.jobs.driver import copying, following
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.plain.crew import plain_crew
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.mirror import Mirror


def copy(
    source: str, target: str, mirror: Mirror, options: argparse.Namespace, status: StatusFile | None = None
) -> Outcome:
    """Copy every partition to its end; return the summary, and the error if there is one.

    :param options: of :func:`.options.add_copy`.
    """
    told, arguments = status or StatusFile(options.job_dir), _arguments(source, target, options)
    with closing(open_publication(arguments, told)) as publication:
        return copying.copy(arguments, mirror, told, publication, partial(plain_crew, options.processes))


def follow(
    source: str, target: str, mirror: Mirror, options: argparse.Namespace, status: StatusFile | None = None, *,
    stopping: threading.Event,
) -> Outcome:  # fmt: skip
    """Follow the source until ``stopping`` is set, or the target's ledger says so; return as :func:`copy` does.

    :param options: of :func:`.options.add_follow`.
    """
    told, arguments = status or StatusFile(options.job_dir), _arguments(source, target, options)
    with closing(open_publication(arguments, told)) as publication:
        muster = partial(plain_crew, options.processes)
        return following.follow(arguments, mirror, told, publication, muster, stopping=stopping)


def _arguments(source: str, target: str, options: argparse.Namespace) -> argparse.Namespace:
    """Return what the drivers take."""
    return argparse.Namespace(**{"start": None, **vars(options), "source": source, "target": target, "tasks": None})
