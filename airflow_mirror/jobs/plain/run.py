"""A bulk copy and a tail in plain processes: the same drivers, lease, ledger and results as the Spark jobs.

:func:`copy` and :func:`follow` set up neither logging nor signals, so that whoever has read another tool's command line
can call them.
"""

from __future__ import annotations

import logging
import threading
import uuid
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial

from airflow_mirror.common.signals import stop_by_signals
from airflow_mirror.errors import TailRuns
from airflow_mirror.jobs.driver import copying, following, together
from airflow_mirror.jobs.driver.crew import Crew
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.plain.crew import PlainCrew, dealing_crew
from airflow_mirror.jobs.plain.member import Member, Verdict, lives, sleep_jitter
from airflow_mirror.jobs.plain.workers import Workers, cores, workers
from airflow_mirror.jobs.request import BulkRequest, TailRequest
from airflow_mirror.jobs.runner.status import StatusFile

log = logging.getLogger(__name__)


def work(request: TailRequest, status: StatusFile) -> Outcome:
    """Follow until SIGTERM or SIGINT, and wait for clusters that are away: a process that does nothing else."""
    stopping = threading.Event()
    stop_by_signals(stopping)
    one = partial(follow, request, status, stopping=stopping)
    return together.keep_alone(request.mirror.name, one, stopping, request.fail_fast)


def copy(request: BulkRequest, status: StatusFile) -> Outcome:
    """Copy every partition to its end; return the summary, and the error if there is one."""
    with closing(open_publication(request, status)) as publication, workers(request.tasks or cores()) as them:
        return copying.copy(replace(request, tasks=None), status, publication, lambda _: nullcontext(PlainCrew(them)))


def follow(request: TailRequest, status: StatusFile, *, stopping: threading.Event) -> Outcome:
    """Follow the source until ``stopping`` is set, or the target's ledger says so; return as :func:`copy` does.

    Where the mirror's tail lives already, this shares it (:mod:`.member`), and takes its place when that dies.
    """
    with closing(open_publication(request, status)) as publication, workers(request.tasks or cores()) as them:
        member = Member(request.mirror, request.source, request.target, them, status)
        is_first = request.takeover or not lives(request.mirror.name, request.target)
        while True:
            if is_first:
                try:
                    return _be_the_tail(request, status, publication, them, stopping)
                except TailRuns as e:  # one that was quicker
                    log.info("%s", e)
            is_first = True
            verdict, lost = member.run(stopping)
            if verdict is Verdict.END:
                return member.outcome()
            request = replace(request, replaces=lost)
            sleep_jitter(stopping)


def _be_the_tail(
    request: TailRequest, status: StatusFile, publication: Publication, them: Workers, stopping: threading.Event
) -> Outcome:
    job = uuid.uuid4().hex

    def muster(_: threading.Event | None) -> AbstractContextManager[Crew]:
        return dealing_crew(them, request.mirror.name, job, request.target)

    return following.follow(replace(request, tasks=None), status, publication, muster, stopping=stopping, known_as=job)
