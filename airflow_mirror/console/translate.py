"""``airflow-mirror translate``: where each consumer group stands on both clusters; committed only on request."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from airflow_mirror.config import ClientConfig
from airflow_mirror.console.clusters import add_both, both_of
from airflow_mirror.console.command import add_json, add_yes, command
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.jobs.driver.by_hand import require_target
from airflow_mirror.jobs.planning import plan_to_read
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.sync.group_translation import GroupMove
from airflow_mirror.sync.groups import GroupReport, translate_groups

_TEXT = """\
Show where each of the mirror's consumer groups stands on the source, and where that is on the target: the same offset
where offsets are kept, else the exact one by the offset map. With --yes it commits that, and reads it back. A commit
never sets a group back that is further on the target (but see --allow-rewind), and is refused while a group has members
there, and once a cutover has opened the topics (but see --allow-production). A tail leaves what is committed here alone,
as it does everybody's positions: let a group follow, or commit it once at the end.

Exit status: 0 done; 1 a position has no counterpart (yet), or a group has members there: a commit would be refused;
2 wrong input.

examples:
  airflow-mirror translate --source src.properties --target dst.properties --include 'orders.*'
  airflow-mirror translate --mirror dc1-to-dc2.yaml --groups billing --yes
"""
_COLUMNS = ("group", "partition", "source", "target", "stands there at", "found", "action")


def add(commands: Any) -> None:
    """Add the command."""
    p = command(
        commands,
        "translate",
        _TEXT,
        _run,
    )
    add_both(p)
    add_flow(p)
    add_yes(p)
    p.add_argument("--allow-rewind", action="store_true", help="also set back groups that are further on the target")
    p.add_argument(
        "--allow-production", action="store_true",
        help="also where a cutover has opened the topics: the groups there are applications' own by then",
    )  # fmt: skip
    p.add_argument("--back", action="store_true", help="from the target to the source, for groups that return")
    add_json(p, "as TranslateConsumerOffsetsOperator writes it")


def _run(arguments: argparse.Namespace) -> int:
    mirror = mirror_of(arguments)
    source, target = both_of(arguments, mirror)
    report = translate_groups(
        _planned(mirror, source, target), source, target,
        commit=arguments.yes, allow_rewind=arguments.allow_rewind, back=arguments.back,
        allow_production=arguments.allow_production,
    )  # fmt: skip
    if arguments.json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        _show(report)
    refusals = [*report.problems, *(f"group {group!r} has members there" for group in report.active)]
    for refusal in refusals:
        print(f"refused: {refusal}", file=sys.stderr)
    return 1 if refusals else 0


def _planned(mirror: Mirror, source: ClientConfig, target: ClientConfig) -> Plan:
    with ClusterAdmin(source) as here, ClusterAdmin(target) as there:
        plan = plan_to_read(mirror, here, there)
    plan.raise_if_blocked()
    require_target(plan)
    return plan


def _show(report: GroupReport) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for column in _COLUMNS:
        table.add_column(column, overflow="fold", justify="right" if column in _COLUMNS[2:5] else "left")
    for move in report.moves:
        table.add_row(*_row(move))
    console = Console(markup=False, highlight=False)
    console.print(table if report.moves else "no group has a position in these topics")
    if report.without_positions:
        console.print(f"without a position in these topics: {', '.join(report.without_positions)}")
    done = "committed; a tail leaves these positions alone from now on"
    console.print(done if report.committed else "nothing was committed (--yes does it)")


def _row(move: GroupMove) -> tuple[str, ...]:
    renamed = "" if move.source.topic == move.target.topic else f" -> {move.target}"
    before = "" if move.before is None else f"{move.before:,}"
    action = f"{move.action}: {move.note}" if move.note else move.action
    offsets = f"{move.source_offset:,}", f"{move.target_offset:,}", before
    return move.group, f"{move.source}{renamed}", *offsets, move.found, action
