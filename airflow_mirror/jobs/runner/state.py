"""The state of a job. Only this module decides it: operator, sensor, trigger and runner all use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RUNNING, SUCCEEDED, FAILED, LOST = "RUNNING", "SUCCEEDED", "FAILED", "LOST"
# States that a job itself writes as its last action.
FINAL = frozenset({SUCCEEDED, FAILED})
# A job on another host can't be checked. It counts as running while its status is younger than this.
STALE_AFTER_S = 300.0


def decide(status: Mapping[str, Any] | None, alive: bool | None, now_s: float) -> str:
    """Return the state of a job.

    A final state that the job wrote counts even while its process is still shutting down. Without one, a job whose
    process is gone is LOST: killed, out of memory, or its host died.

    :param status: what the job last wrote (``state``, ``updated`` in seconds since the epoch), or None.
    :param alive: whether its process runs; None if it runs on another host, where that can't be checked.
    :param now_s: seconds since the epoch.
    """
    written = str((status or {}).get("state", RUNNING))
    if written in FINAL:
        return written
    if alive is None:
        age_s = now_s - float((status or {}).get("updated", 0.0))
        return RUNNING if age_s < STALE_AFTER_S else LOST
    return RUNNING if alive else LOST


def is_active(state: str) -> bool:
    """Return whether a job in ``state`` may still change anything."""
    return state == RUNNING


def is_succeeded(state: str) -> bool:
    """Return whether ``state`` means that the job succeeded."""
    return state == SUCCEEDED
