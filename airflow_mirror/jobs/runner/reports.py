"""What a job whose driver runs on another host says about itself: its status, in the target's state.

A status file there would be seen by nobody. What a client-mode job writes to ``status.json`` is written under a key of
the job (:func:`report_key`) instead, without its rows for partitions: as one value while it runs, as pieces when it is
over, because the summary of thousands of partitions fits into no record. A report in pieces is there as a whole or not
at all, so a job is never half over. Each key has one writer: the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_mirror.jobs.runner.state import FINAL
from airflow_mirror.ledger.records import RUN_LAST, RUN_NOW
from airflow_mirror.ledger.state import State

KEEP = 100  # reports of a mirror's jobs; whoever waits for one reads it within seconds


def report_key(mirror: str, job: str) -> str:
    """Return the key of a job's report, from its id."""
    return f"{RUN_NOW.below(mirror)}{job}"


def job_of(key: str) -> str:
    """Return the id of the job whose report is at ``key``."""
    return key.rpartition("/")[2]


def mirror_of(key: str) -> str:
    """Return the name of the mirror whose job reports at ``key``."""
    return key.split("/")[1]


def write(state: State, key: str, report: Mapping[str, Any]) -> None:
    """Write what a job says now.

    :param report: as in the status file.
    :raises TryAgain: it is not known to be written.
    """
    kind = RUN_LAST if report["state"] in FINAL else RUN_NOW
    state.write(kind.put(report, mirror_of(key), job_of(key)))


def read(state: State, key: str) -> dict[str, Any] | None:
    """Return what a job said last; None if it has said nothing yet.

    :raises TryAgain: nobody knows. :raises LedgerNewer: it has another version of the package.
    """
    values, names = state.read(), (mirror_of(key), job_of(key))
    last = RUN_LAST.get(values, *names)
    return RUN_NOW.get(values, *names) if last is None else last


def forget_old(state: State, mirror: str, keep: int = KEEP) -> None:
    """Remove the reports of a mirror's jobs beyond the last ones.

    :param state: of the keys that begin with ``run/<mirror>/``; their values are not needed.
    """
    keys = [key for key in state.read() if key.startswith(report_key(mirror, ""))]
    newest = [*dict.fromkeys(key.split("/")[2] for key in keys)][-keep:]
    state.write(dict.fromkeys(key for key in keys if key.split("/")[2] not in newest))
