"""What state a job is in. Decided here and nowhere else: operator, sensor, trigger and runner all ask this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNNING, SUCCEEDED, FAILED, LOST = "RUNNING", "SUCCEEDED", "FAILED", "LOST"
# States that a job writes itself, as its last act.
FINAL = frozenset({SUCCEEDED, FAILED})
# A job on another host can't be looked at. It is taken for running while its status is younger than this.
STALE_AFTER_S = 300.0


def decide(status: Mapping[str, Any] | None, alive: bool | None, now_s: float) -> str:
    """Return the state of a job.

    A final state that the job wrote is believed even while its process is still shutting down. Without one, a job whose
    process is gone is LOST: killed, out of memory, or its host died.

    :param status: what the job last wrote (``state``, ``updated`` in seconds since the epoch), or None.
    :param alive: whether its process runs; None when it belongs to another host and nobody here can know.
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
    """Say whether a job in ``state`` may still change anything."""
    return state == RUNNING


def is_succeeded(state: str) -> bool:
    """Say whether ``state`` means that the job did all that it was asked to."""
    return state == SUCCEEDED
