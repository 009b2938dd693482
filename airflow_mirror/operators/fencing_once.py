"""One fence for a task: a retry that nobody asked for raises no other one.

Airflow retries a task by itself, and each fence keeps producers out again. So a cutover that had its fence up ends the
task, whatever its ``retries`` are, until somebody clears it.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_mirror.errors import FencedOnce, TryAgain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_mirror.cutover.report_store import ReportStore


@contextmanager
def fencing_once(run_dir: Path, again: bool) -> Iterator[None]:
    """Let a cutover that backs out behind its fence end the task: a retry would raise another one.

    :param run_dir: of the cutover. :param again: a retry may.
    :raises FencedOnce: instead of a temporary cause.
    """
    begun = time.time()
    try:
        yield
    except TryAgain as e:
        if not again and (seconds := _fenced_s(run_dir, begun)) is not None:
            raise FencedOnce(seconds, str(e)) from e
        raise


def require_never_fenced(store: ReportStore) -> None:
    """Return unless an earlier attempt of a cutover has raised its fence, on whatever worker: its process was killed.

    :raises FencedOnce: it has. What it left is undone.
    """
    left = store.load()
    if left is not None and left.fence is not None:
        raise FencedOnce(left.fence.seconds or 0.0, left.error or "its process was killed")


def _fenced_s(run_dir: Path, begun: float) -> float | None:
    """Return how long the fence was up that an attempt raised and lifted since ``begun``; None if there was none."""
    from airflow_mirror.cutover.report import BACKED_OUT, CutoverReport

    left = CutoverReport.load(run_dir)
    if left is None or left.started < begun or left.outcome != BACKED_OUT or left.fence is None:
        return None
    return left.fence.seconds
