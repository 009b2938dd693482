"""Reports of a job that runs where nobody sees its files: to the target's state, for whoever started it.

A thread with connections of its own does that. The job never waits for it, but for the last report: without it nobody
would know what became of the job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_mirror.config import load
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner import reports
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.state import state_of

log = logging.getLogger(__name__)

_EVERY_S = 5.0
_AGAIN_S = 1.0
_LAST_S = 120.0  # how long the last report is tried


@contextmanager
def reporting(
    key: str, target: str, status: StatusFile, every_s: float = _EVERY_S, again_s: float = _AGAIN_S
) -> Iterator[None]:  # fmt: skip
    """Report what ``status`` says until the block ends; an exception that ends it is reported as well.

    :param key: of the reports (:mod:`.runner.reports`); "": nobody asked for them.
    :param target: reference to the target's settings.
    :param every_s: how often. :param again_s: behind one that failed.
    """
    if not key:
        yield
        return
    ended = threading.Event()
    given = (key, target, status, ended, every_s, again_s)
    thread = threading.Thread(target=_report, args=given, name="reports", daemon=True)
    thread.start()
    try:
        yield
    except BaseException as e:
        status.fail(e)
        raise
    finally:
        ended.set()
        thread.join()


def _report(
    key: str, reference: str, status: StatusFile, ended: threading.Event, every_s: float, again_s: float
) -> None:  # fmt: skip
    complaints = Complaints(log, "no report in the target's state, and the job goes on: %s")
    deadline = float("inf")
    while True:
        try:
            with ClusterAdmin(load(reference, "target")) as target:
                _report_to(target, key, status, ended, every_s)
            return
        except Exception as e:  # also for a mistake of ours: without a last report nobody would know how the job ended
            complaints.of(e)
            now = time.monotonic()
            if ended.is_set():
                deadline = min(deadline, now + _LAST_S)
            if now > deadline or (ended.is_set() and isinstance(e, InputError)):
                return
            time.sleep(again_s)


def _report_to(target: ClusterAdmin, key: str, status: StatusFile, ended: threading.Event, every_s: float) -> None:
    state, mirror = state_of(target, f"{key}/"), reports.mirror_of(key)
    reports.forget_old(state_of(target, reports.report_key(mirror, ""), keys_only=True), mirror)
    while True:
        last = ended.is_set()  # before it is written: what follows is not
        reports.write(state, key, status.content())
        if last:
            return
        ended.wait(every_s)
