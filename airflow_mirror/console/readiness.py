"""``airflow-mirror readiness``: what moves together in the night of a migration, and what is short of time."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import replace_file
from airflow_mirror.common.knobs import number
from airflow_mirror.common.text_files import read_text
from airflow_mirror.console.clusters import add_both, both_of
from airflow_mirror.console.command import add_json, command
from airflow_mirror.console.plan import planned, said
from airflow_mirror.extras.readiness.build import night_plan
from airflow_mirror.extras.readiness.drift import drift
from airflow_mirror.extras.readiness.sections import html, markdown
from airflow_mirror.extras.readiness.trial import SECONDS
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.kafka.admin import ClusterAdmin

_TEXT = """\
Read both clusters and print the plan for the night: which topics and groups have to be cut over together, and because of
which group, how long the source keeps what is not copied, who writes, which kinds of groups there are, what applications
keep elsewhere, and what is left behind. It takes some ten seconds, stores nothing and writes to no cluster (but see
--trial). It needs the rights of a plan; what those do not show is listed.

Exit status: 0 nothing blocks; 1 something does, standard error lists what; 2 wrong input.

examples:
  airflow-mirror readiness --source src.properties --target dst.properties --include 'orders.*' > night.md
  airflow-mirror readiness --mirror dc1-to-dc2.yaml --trial --tasks 8
  airflow-mirror readiness --mirror dc1-to-dc2.yaml --since night.json --html night.html
  airflow-mirror readiness --mirror dc1-to-dc2.yaml --json | jq '.waves[].mirror'
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "readiness", _TEXT, _run)
    add_both(p)
    add_flow(p)
    add_json(p, "default: Markdown")
    p.add_argument("--html", type=Path, metavar="FILE", help="write it as a page, too")
    p.add_argument(
        "--trial", type=number, nargs="?", const=SECONDS, default=0.0, metavar="SECONDS",
        help="copy for so long to a scratch topic of the target, which is deleted again, and tell how long each topic "
        "takes and because of what, before anything is copied (default without a number: 10)",
    )  # fmt: skip
    p.add_argument("--tasks", type=int, default=2, help="of the copy to come, for what a trial tells (default: 2)")
    p.add_argument(
        "--since", type=Path, metavar="FILE", help="the JSON of an earlier one: what is structurally different blocks"
    )


def _run(arguments: argparse.Namespace) -> int:
    mirror = mirror_of(arguments)
    of_source, of_target = both_of(arguments, mirror)
    with ClusterAdmin(of_source) as source, ClusterAdmin(of_target) as target:
        plan, refusals = planned(mirror, source, target, probe=False)
        night = night_plan(plan, source, target, trial_s=arguments.trial, tasks=arguments.tasks)
    if arguments.since is not None:
        changes = drift(read_text(arguments.since, str(arguments.since)), night)
        night = replace(night, findings=[*changes, *night.findings])
    if arguments.html is not None:
        replace_file(arguments.html, html(night))
    print(night.to_json() if arguments.json else markdown(night), end="")
    return said([*map(str, [*plan.blocks, *night.blocks]), *refusals])
