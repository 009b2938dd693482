"""The fences of a mirror that are up, whichever run raised them: found by the reports of its cutovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import InputError


class Leftover(NamedTuple):
    """A run whose fence is up, or whose report can't be read: then nobody knows.

    :param report: None if it can't be read; ``error`` says why.
    """

    run_dir: Path
    report: CutoverReport | None
    error: InputError | None = None


def fences_up(runs: Path) -> Iterator[Leftover]:
    """Yield the runs below a directory whose fence is, or may be, up, oldest first.

    :param runs: ``runs`` in the mirror's directory; empty if it is not there.
    """
    found = sorted(runs.glob(f"*/{reports.JSON_NAME}"), key=lambda path: path.stat().st_mtime)
    for run_dir in (path.parent for path in found):
        try:
            report = CutoverReport.load(run_dir)
        except InputError as e:
            yield Leftover(run_dir, None, e)
            continue
        if report is not None and report.is_fenced:
            yield Leftover(run_dir, report)
