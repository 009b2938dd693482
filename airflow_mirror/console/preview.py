"""``airflow-mirror preview``: what a cutover of a mirror would meet now, and how long its fence would last."""

from __future__ import annotations

import argparse
import json
from typing import Any

from airflow_mirror.console.clusters import config_of, planned_source
from airflow_mirror.console.command import command
from airflow_mirror.console.registries import prover_of
from airflow_mirror.console.request import add_request, last_plan, request_of
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import connected
from airflow_mirror.cutover.rollback.foresee import with_way_back
from airflow_mirror.cutover.run import preview_cutover
from airflow_mirror.plan.requirements import require_planned_clusters

_TEXT = """\
Look at what a cutover of the mirror's last plan would meet now: its tail, lag, what is left to compare, transactions,
groups, replicas, the fence and the rights for it; and how long producers would be kept out. It takes some ten seconds and
changes nothing.

Exit status: 0 a fence could be raised; 1 something blocks it, or a cluster does not answer; 2 wrong input.

examples:
  airflow-mirror preview --target kafka_dc2 --mirror dc1-to-dc2
  airflow-mirror preview --target dst.properties --source src.properties --mirror dc1-to-dc2 --max-fence-s 30
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "preview", _TEXT, _run)
    add_request(p)


def _run(arguments: argparse.Namespace) -> int:
    name, plan = arguments.mirror, last_plan(arguments)
    request, source = request_of(arguments, plan), planned_source(arguments, plan.mirror)
    prove = prover_of(arguments, plan.mirror)
    with connected(request, source, config_of(arguments.target, "target"), prove) as clusters:
        require_planned_clusters(plan, clusters.on.source.admin, clusters.on.target.admin)
        never = ReportStore(clusters.on.target.reports(name), name, "preview", None)  # names a run that never is
        found = with_way_back(preview_cutover(request, clusters, never), plan, clusters)
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else "\n".join(found.lines()))
    return 1 if found.blocks else 0
