"""``airflow-mirror drills``: what the drills on a target measured, from any host."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import replace_file
from airflow_mirror.common.policy import DRILL_PREFIX
from airflow_mirror.console.clusters import HELP, add_target, config_of, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.errors import InputError
from airflow_mirror.extras.drill.clean_up import clean_up_drill, deleted, left_behind
from airflow_mirror.extras.drill.page import render
from airflow_mirror.extras.drill.store import Drill, Drills, drills_of
from airflow_mirror.extras.drill.turn import end, is_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import DRILL
from airflow_mirror.ledger.state import state_of
from airflow_mirror.wording import minute

_TEXT = """\
List the last hundred drills of a mirror, the newest last: RPO, RTO, records lost and read again, and what failed them.
They are read from the target, even if the hosts that ran them are lost.

With --clean-up RUN, topics and groups that a drill has left are deleted on both sides: for one whose Airflow is gone. The
next drill of the same mirror does so too, when they are a day old.

examples:
  airflow-mirror drills --target dst.properties
  airflow-mirror drills --target dst.properties --html drills.html
  airflow-mirror drills --target dst.properties --source src.properties --clean-up scheduled-2026-11-15
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "drills", _TEXT, _run)
    add_target(p)
    add_mirror(p, help="the drill's mirror (default: %(default)s)", default="dr-drill")
    p.add_argument(
        "--html", metavar="FILE", help="write the last one as a page, with charts of all; - is standard output"
    )
    add_json(p)
    p.add_argument("--clean-up", metavar="RUN", help="delete what this drill has left; name the run as --json does")
    p.add_argument("--source", metavar="CLUSTER", help=f"for --clean-up, the drill's source: {HELP}")
    p.add_argument(
        "--prefix", default=DRILL_PREFIX, metavar="TEXT",
        help="for --clean-up, what the names of its topics begin with; no other is deleted (default: %(default)s)",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    name = arguments.mirror
    with target_of(arguments) as target:
        its = drills_of(target, name)
        drills = its.all()
        run, ledger = arguments.clean_up, Ledger(target)
        # Whoever dies between its turn and its first note has created nothing: that note comes before each topic.
        if run is not None and its.of(run) is None and is_of(ledger.peek(), name, run):
            end(ledger, name, run)
            print(f"{run} has left nothing")
            return
        if not drills:
            known = ", ".join(sorted(DRILL.under(state_of(target, DRILL.below(), keys_only=True).read()))) or "none"
            raise InputError(
                f"--mirror {name}: the target knows of no drill of it",
                f"it knows drills of: {known}",
                "Correct the name.",
            )
        if run is not None:
            _clean_up(its, arguments)
            end(ledger, name, run)
            return
    if arguments.html == "-":
        sys.stdout.write(render(drills[-1], drills))
    elif arguments.html is not None:
        replace_file(Path(arguments.html), render(drills[-1], drills))
        print(arguments.html)
    elif arguments.json:
        print(json.dumps([one.to_dict() for one in drills], indent=1))
    else:
        print("\n".join(map(_line, drills)))


def _clean_up(drills: Drills, arguments: argparse.Namespace) -> None:
    drill = drills.of(arguments.clean_up)
    if drill is None:
        known = ", ".join(one.run for one in drills.all() if one.topics) or "none"
        raise InputError(
            f"--clean-up {arguments.clean_up}: no drill has this name",
            f"drills that left topics: {known}",
            "Correct the name.",
        )
    if arguments.source is None:
        raise InputError(
            "--clean-up needs --source as well", "a drill has topics and groups on both sides", "Name the drill's source."
        )
    source = config_of(arguments.source, "source")
    with ClusterAdmin(source) as admin:
        if drill.source_id != (its_id := admin.cluster_id()):
            raise InputError(
                f"--source {arguments.source} has cluster id {its_id}",
                f"the drill's had {drill.source_id}",
                "Name that one.",
            )
    topics = list(drill.topics)
    left = clean_up_drill(drill, [source, config_of(arguments.target, "target")], arguments.prefix, drills.mirror)
    drills.save(drill)
    print("".join(f"{line}\n" for line in drill.others), end="")
    if left:
        raise left_behind(left)
    if topics := deleted(drill, topics):
        print(f"deleted on both sides: {', '.join(topics)}")
    elif not drill.others:
        print(f"{drill.run} has left nothing")


def _line(one: Drill) -> str:
    begun, f = minute(one.at_ms / 1000), one.figures
    measured = "nothing measured"
    if f:
        measured = f"RPO {f['rpo_s']:.2f} s, RTO {f['rto_s']:.2f} s, {f['lost']:,} lost, {f['reread']:,} read again"
    remedy = f" (--clean-up {one.run})" if one.topics else ""
    return f"{begun}: {measured}: {one.outcome}{remedy}"
