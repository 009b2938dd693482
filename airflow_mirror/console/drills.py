"""``airflow-mirror drills``: what the drills on a target measured, from any host."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mirror.console.clusters import add_target, target_of
from airflow_mirror.drill.kept import Drills, mirrors_in, prefix
from airflow_mirror.drill.page import render
from airflow_mirror.errors import InputError
from airflow_mirror.files import replace_file
from airflow_mirror.ledger.state import state_of

if TYPE_CHECKING:
    from airflow_mirror.drill.kept import Drill

_TEXT = """\
List the last hundred drills of a mirror, the newest last: RPO, RTO, records lost and read again, and what failed them.
They are read from the target, whatever became of the hosts that ran them.
"""
_EXAMPLES = """\
examples:
  airflow-mirror drills --target dst.properties
  airflow-mirror drills --target dst.properties --html drills.html
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = commands.add_parser(
        "drills", help="what the last drills measured, as a list, a page with charts or JSON", description=_TEXT,
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_target(p)
    p.add_argument("--mirror", default="dr-drill", metavar="NAME", help="the drill's mirror (default: %(default)s)")
    p.add_argument(
        "--html", metavar="FILE", help="write the last one as a page, with charts of all; - is standard output"
    )
    p.add_argument("--json", action="store_true", help="print JSON")
    p.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> None:
    name = arguments.mirror
    with target_of(arguments) as target:
        drills = Drills(state_of(target, prefix(name)), name).all()
        if not drills:
            known = ", ".join(sorted(mirrors_in(target))) or "none"
            raise InputError(f"--mirror {name}: the target knows of no drill of it. It knows drills of: {known}.")
    if arguments.html == "-":
        sys.stdout.write(render(drills[-1], drills))
    elif arguments.html is not None:
        replace_file(Path(arguments.html), render(drills[-1], drills))
        print(arguments.html)
    elif arguments.json:
        print(json.dumps([one.to_dict() for one in drills], indent=1))
    else:
        print("\n".join(map(_line, drills)))


def _line(one: Drill) -> str:
    begun, f = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(one.at_ms / 1000)), one.figures
    measured = "nothing measured"
    if f:
        measured = f"RPO {f['rpo_s']:.2f} s, RTO {f['rto_s']:.2f} s, {f['lost']:,} lost, {f['reread']:,} read again"
    return f"{begun}: {measured}: {one.outcome}"
