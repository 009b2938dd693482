"""``airflow-mirror configs``: which settings of the target's topics differ from what they are to be; and to set them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from airflow_mirror.console.clusters import add_both, both_of
from airflow_mirror.console.command import add_json, add_yes, command
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.jobs.planning import plan_to_read
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.config_diff import shown
from airflow_mirror.plan.ledger_store import last_between
from airflow_mirror.sync.configs import ConfigsReport
from airflow_mirror.sync.holding import sync_plan

_TEXT = """\
Show which settings of the mirror's target topics differ from what they are to be, and what they would become. The topics
are those of the mirror's last plan, or, where none is stored, those that a plan made now would have. Changes nothing
without --yes; with --after that is refused while a job may still write. The hold of a topic ends once behind each
opening: what production has chosen since is listed, and stays.

Exit status: 0 nothing differs, or it is set; 1 something differs, or a topic is missing on a side and was not compared;
2 wrong input.

examples:
  airflow-mirror configs --mirror dc1-to-dc2.yaml
  airflow-mirror configs --mirror dc1-to-dc2.yaml --after --json
  airflow-mirror configs --mirror dc1-to-dc2.yaml --after --yes      # behind a cutover: the hold ends
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "configs", _TEXT, _run)
    add_both(p)
    add_flow(p)
    p.add_argument("--after", action="store_true", help="once the mirror has stopped writing (default: while it writes)")
    add_yes(p)
    add_json(p, "a list of topic, key, before and after")


def _run(arguments: argparse.Namespace) -> int:
    mirror = mirror_of(arguments)
    of_source, of_target = both_of(arguments, mirror)
    with ClusterAdmin(of_source) as source, ClusterAdmin(of_target) as target:
        ledger = Ledger(target)
        stored = last_between(mirror.name, source, target, ledger)
        if arguments.yes and stored is None:
            raise InputError(
                f"mirror {mirror.name!r}", "the target keeps no plan of it: whose topics these are nobody knows",
                "Correct --name, or the Mirror's name; 'airflow-mirror status' lists the mirrors.",
            )  # fmt: skip
        plan = stored or plan_to_read(mirror, source, target)
        here = source.topics([t.source_topic for t in plan.topics])
        there = target.topics([t.target_topic for t in plan.topics])
        missing = {t.source_topic: "the source has no such topic" for t in plan.topics if t.source_topic not in here}
        missing |= {t.source_topic: "the target has no such topic" for t in plan.topics if t.target_topic not in there}
        both = tuple(t for t in plan.topics if t.source_topic not in missing)
        # What is set goes by the plan, as the operator's does; what is shown by the Mirror that was given.
        plan = replace(plan, mirror=plan.mirror if arguments.yes else mirror, topics=both)

        report = sync_plan(plan, source, target, hold=not arguments.after, dry_run=not arguments.yes)
    if arguments.json:
        print(json.dumps([one._asdict() for one in report.changes], indent=1))
        for line in report.remarks:
            print(line, file=sys.stderr)
    else:
        _show(report, len(both))
    for topic, why in missing.items():
        print(f"not compared: {topic}: {why}", file=sys.stderr)
    return 1 if (report.changes and not report.applied) or missing else 0


def _show(report: ConfigsReport, topics: int) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("topic", "setting", "on the target", "becomes"):
        table.add_column(column, overflow="fold")
    for one in report.changes:
        table.add_row(one.topic, one.key, one.before, shown(one.after))
    console = Console(markup=False, highlight=False)
    differs = "nothing differs" if not report.remarks else "nothing is to be set"
    found = f"{differs} in {topics:,} topic(s)" if topics else "nothing was compared"
    console.print(table if report.changes else found)
    for line in report.remarks:
        console.print(line)
