"""``airflow-mirror report``: what a cutover did, from the target, on any host."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import replace_file
from airflow_mirror.console.clusters import add_target, target_of
from airflow_mirror.console.command import add_mirror, command
from airflow_mirror.cutover.html import render
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import reports_of, text_in
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner.directory import job_name
from airflow_mirror.ledger.records import REPORT
from airflow_mirror.ledger.state import state_of

_TEXT = """\
Read the report of a cutover from the target, where it is written before each change: also while the cutover runs, and of
one that was killed, even if its host is lost. Without --html or --json it prints what there is.

examples:
  airflow-mirror report --target dst.properties --mirror dc1-to-dc2
  airflow-mirror report --target dst.properties --mirror dc1-to-dc2 --run manual-2026-11-23 --html cutover.html
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "report", _TEXT, _run)
    add_target(p)
    add_mirror(p)
    p.add_argument("--run", dest="run_name", metavar="RUN", help="the cutover's run (default: the last one)")
    p.add_argument("--html", metavar="FILE", help="write it as a page; - is standard output")
    p.add_argument("--json", metavar="FILE", help="write it as JSON, byte for byte; - is standard output")


def _run(arguments: argparse.Namespace) -> None:
    name = arguments.mirror
    with target_of(arguments) as target:
        values = reports_of(target, name).read()
        if not (runs := REPORT.under(values, name)):
            known = ", ".join(sorted(REPORT.under(state_of(target, REPORT.below(), keys_only=True).read()))) or "none"
            raise InputError(
                f"--mirror {name}: the target has no report of a cutover of it",
                f"it has of: {known}",
                "Correct the name, or cut over first.",
            )
    if arguments.html is None and arguments.json is None:
        _print(values, name)
        return
    asked = arguments.run_name or runs[-1]
    run = asked if asked in runs else job_name(asked)  # as whoever has cut over has named it
    text = text_in(values, name, run)
    if text is None:
        raise InputError(f"--run {run}: there is no report of it", f"there are: {', '.join(runs)}", "Name one of these.")
    if arguments.json is not None:
        _write(arguments.json, text + "\n")
    if arguments.html is not None:
        _write(arguments.html, render(CutoverReport.from_json(text, f"run {run}")))


def _print(values: Mapping[str, bytes], mirror: str) -> None:
    for run in REPORT.under(values, mirror):
        text = text_in(values, mirror, run)
        if text is None:
            continue
        report = CutoverReport.from_json(text, f"run {run}")
        begun = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.started))
        print(f"{run}: {report.outcome}, attempt {report.attempt}, begun {begun} on {report.host}, {_fenced(report)}")


def _fenced(report: CutoverReport) -> str:
    if report.fence is None:
        return "no fence was raised"
    seconds = report.fence.seconds
    return "fenced" if seconds is None else f"fenced for {seconds:.1f} s"


def _write(file: str, text: str) -> None:
    if file == "-":
        sys.stdout.write(text)
    else:
        replace_file(Path(file), text)
        print(file)
