"""A bulk copy and a tail in plain processes: the same drivers, lease, ledger and results as the Spark jobs.

Both can be called by whoever has read another tool's command line: clusters as references (`config.load`), a Mirror, and
options (:mod:`.options`). Nothing here sets up logging or signals.
"""

from __future__ import annotations

import argparse
import logging
import threading
import uuid
from contextlib import AbstractContextManager, closing, nullcontext

from airflow_mirror.errors import TailRuns
from airflow_mirror.jobs.driver import copying, following
from airflow_mirror.jobs.driver.crew import Crew
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.plain.crew import PlainCrew, dealing_crew
from airflow_mirror.jobs.plain.member import Member, Verdict, lives, turn_aside
from airflow_mirror.jobs.plain.workers import Workers, cores, workers
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.mirror import Mirror

log = logging.getLogger(__name__)


def copy(
    source: str, target: str, mirror: Mirror, options: argparse.Namespace, status: StatusFile | None = None
) -> Outcome:
    """Copy every partition to its end; return the summary, and the error if there is one.

    :param options: of :func:`.options.add_copy`.
    """
    told, arguments = status or StatusFile(options.job_dir), _arguments(source, target, options)
    with closing(open_publication(arguments, told)) as publication, workers(_count(options)) as them:
        return copying.copy(arguments, mirror, told, publication, lambda _: nullcontext(PlainCrew(them)))


def follow(
    source: str, target: str, mirror: Mirror, options: argparse.Namespace, status: StatusFile | None = None, *,
    stopping: threading.Event,
) -> Outcome:  # fmt: skip
    """Follow the source until ``stopping`` is set, or the target's ledger says so; return as :func:`copy` does.

    Where the mirror's tail lives already, this shares it (:mod:`.member`), and takes its place when that dies.

    :param options: of :func:`.options.add_follow`.
    """
    told, arguments = status or StatusFile(options.job_dir), _arguments(source, target, options)
    with closing(open_publication(arguments, told)) as publication, workers(_count(options)) as them:
        member = Member(mirror, source, target, them, told)
        is_first = options.takeover or not lives(mirror.name, target)
        while True:
            if is_first:
                try:
                    return _be_the_tail(arguments, mirror, told, publication, them, stopping)
                except TailRuns as e:  # one that was quicker
                    log.info("%s", e)
            is_first = True
            verdict, arguments.replaces = member.run(stopping)
            if verdict is Verdict.END:
                return member.outcome()
            turn_aside(stopping)


def _be_the_tail(
    arguments: argparse.Namespace, mirror: Mirror, status: StatusFile, publication: Publication, them: Workers,
    stopping: threading.Event,
) -> Outcome:  # fmt: skip
    job = uuid.uuid4().hex

    def muster(_: threading.Event | None) -> AbstractContextManager[Crew]:
        return dealing_crew(them, mirror.name, job, arguments.target)

    return following.follow(arguments, mirror, status, publication, muster, stopping=stopping, known_as=job)


def _count(options: argparse.Namespace) -> int:
    return options.processes or cores()


def _arguments(source: str, target: str, options: argparse.Namespace) -> argparse.Namespace:
    """Return what the drivers take."""
    return argparse.Namespace(**{"start": None, **vars(options), "source": source, "target": target, "tasks": None})
