"""``airflow-mirror pause``, ``resume`` and ``rate``: what a mirror's copy is to do, whoever carries it out."""

from __future__ import annotations

import argparse
import json
from typing import Any

from airflow_mirror.console.clusters import add_target, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.jobs.runner.pacing import pace

_PAUSE = """\
Pause a mirror: its tail, or the bulk copy that runs, ends what is in flight, copies nothing, and stays ready, on whatever
host; waited for. This holds until 'resume', also for a tail that is started meanwhile. A bulk copy that is started,
catch-up sensors and cutovers of the mirror are refused then, and say who paused it.

Groups and settings go on following, groups up to what was copied. Records that the source deletes during the pause are
lost to the mirror: the tail names them when it is resumed.

Exit status: 0 nothing is copied; 1 the pause stands, and a job does not rest yet; 2 wrong input.
"""
_RESUME = """\
Let a paused mirror copy again, from where it was.
"""
_RATE = """\
Change a mirror's largest average rate. A tail or a bulk copy that runs copies at it within seconds, one that is started
later from its start. It holds for every job of the mirror, whatever its max_bytes_per_second says, until 'default'.
"""


def add(commands: Any) -> None:
    """Add the commands."""
    for name, text in (
        ("pause", _PAUSE),
        ("resume", _RESUME),
        ("rate", _RATE),
    ):
        example = f"\nexamples:\n  airflow-mirror {name} --target dst.properties --mirror dc1-to-dc2"
        p = command(commands, name, text + example + (" 20000000" if name == "rate" else ""), _run)
        add_target(p)
        add_mirror(p)
        add_json(p, "what is wished now, and of the jobs")
        p.set_defaults(verb=name)
    p.add_argument(
        "rate", metavar="BYTES|none|default",
        help="bytes per second, of all its tasks together; none: no limit; default: as the Mirror says",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    with target_of(arguments) as target:
        rate = getattr(arguments, "rate", "default")
        done = pace(target, arguments.mirror, arguments.verb, rate, clock=arguments.clock)
    print(json.dumps(done.to_dict(), indent=1) if arguments.json else "\n".join(done.lines()))
