"""``airflow-mirror failover``: promote the target of a mirror whose source is gone."""

from __future__ import annotations

import argparse
import json
import logging
from typing import Any

from airflow_mirror.console.clusters import HELP, add_target, config_of, target_of
from airflow_mirror.console.command import add_json, add_mirror, add_yes, command
from airflow_mirror.cutover.failover.after import after, to_dict
from airflow_mirror.cutover.failover.check import check
from airflow_mirror.cutover.failover.run import run
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin

_TEXT = """\
Promote the target of a mirror whose source is gone, from what the target's own ledger knows: end the mirror's writing,
decide that applications write here, set group positions that lie beyond the log's end, take topics off hold. The source
is not asked, and need not be known. It is refused while a tail has seen the source in the last half minute: a source that
lives is cut over, and nothing is lost. What was interrupted is completed by the same command, on any host.

Without --yes it only says what would be lost and done. With --after, once the source has returned, it lists what the
source took after the last copied offset.

Exit status: 0 done; 1 try again: the target does not answer; 2 wrong input, or refused: nothing was changed.

examples:
  airflow-mirror failover --target dst.properties dc1-to-dc2
  airflow-mirror failover --target dst.properties dc1-to-dc2 --yes
  airflow-mirror failover --target dst.properties --source src.properties dc1-to-dc2 --after
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "failover", _TEXT, _run)
    add_target(p)
    add_mirror(p, "mirror")
    add_yes(p)
    what = p.add_mutually_exclusive_group()
    what.add_argument("--after", action="store_true", help="list what the source took after the last copied offset")
    what.add_argument(
        "--force", action="store_true",
        help="also if a tail has just seen the source, or a cutover is at work: what the source takes then is lost; or "
        "if rights are missing: the same command completes what needs them",
    )  # fmt: skip
    p.add_argument("--source", metavar="CLUSTER", help=f"for --after: the source that has returned, {HELP}")
    add_json(p)


def _run(arguments: argparse.Namespace) -> None:
    if arguments.after != (arguments.source is not None):
        raise InputError(
            "--after needs --source, and nothing else does", "a failover asks no source", "Give both, or neither."
        )
    if arguments.yes and arguments.after or arguments.force and not arguments.yes:
        raise InputError(
            "--yes, --after and --force don't go together like this",
            "--yes fails over, --after looks behind it, and --force is for --yes",
            "Give --after alone, or --yes, with --force or without.",
        )
    name = arguments.mirror
    with target_of(arguments) as target:
        if arguments.after:
            with ClusterAdmin(config_of(arguments.source, "source")) as source:
                rows = after(source, Side(target, arguments.clock), name)
            found: dict[str, Any] = to_dict(name, rows)
            lines = [str(one) for one in rows] or ["the source took nothing after the last copied offset"]
        elif arguments.yes:
            logging.basicConfig(level=logging.INFO, format="%(message)s")
            report = run(Side(target, arguments.clock), name, force=arguments.force)
            found, lines = report.to_dict(), report.lines()
        else:
            checked = check(Side(target, arguments.clock), name)
            found, lines = checked.to_dict(), [*checked.lines(), "nothing was changed (--yes does it)"]
    print(json.dumps(found, indent=1) if arguments.json else "\n".join(lines))
