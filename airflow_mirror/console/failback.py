"""``airflow-mirror failback``: what became of the topics of a source that returned; export, and make room for a copy."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import Any

from airflow_mirror.console.clusters import HELP, add_target, config_of, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.rollback.failback import failback
from airflow_mirror.kafka.admin import ClusterAdmin

_TEXT = """\
Say what became of each topic of a source that returned after a failover and is fenced (fence-on-return):

  delta     it ends at or below the cut, and what both sides have is the same: only what is missing is copied back
  diverged  it has records that the target lacks, or other ones, or the target has deleted what follows its end: it can't
            go on where it ends
  gone      it is empty, or not there: everything is copied back

With --export what a diverged topic has and the target lacks is written to files, with count and digest, and read back.
With --recreate TOPIC, which is a yes for this one topic, it is deleted after that, by its id; 'arm-reverse' creates it
again, and its tail copies all of it back. 'arm-reverse --exclude-topic TOPIC' leaves a topic as it is. Without these
nothing is changed.

Exit status: 0 done; 1 needs a look, or to be tried again; 2 wrong input.

examples:
  airflow-mirror failback --target dst.properties --source src.properties dc1-to-dc2
  airflow-mirror failback --target dst.properties --source src.properties dc1-to-dc2 --export surplus
  airflow-mirror failback --target dst.properties --source src.properties dc1-to-dc2 --export surplus --recreate orders
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "failback", _TEXT, _run)
    add_target(p)
    add_mirror(p, "mirror", "the mirror that was failed over")
    p.add_argument("--source", required=True, metavar="CLUSTER", help=f"its source, which has returned: {HELP}")
    p.add_argument(
        "--export", type=Path, metavar="DIR", help="directory for the records that only the diverged source topics have"
    )
    p.add_argument(
        "--recreate", action="append", default=[], metavar="TOPIC",
        help="delete this diverged topic once it is exported; may be repeated",
    )  # fmt: skip
    add_json(p)


def _run(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with target_of(arguments) as target, ClusterAdmin(config_of(arguments.source, "source")) as source:
        on = Platform.of(source, target, arguments.clock)
        found = failback(arguments.mirror, on, export_to=arguments.export, recreate=arguments.recreate)
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else "\n".join(found.lines()))
