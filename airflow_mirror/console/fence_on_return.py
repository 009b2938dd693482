"""``airflow-mirror fence-on-return``: stand by until a source that was failed over answers, and fence it then."""

from __future__ import annotations

import argparse
import json
import logging
from typing import Any

from airflow_mirror.console.clusters import HELP, add_fence, add_target, config_of, open_by_default, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.cutover.failover.returned import watch
from airflow_mirror.cutover.signing import load_signer

_TEXT = """\
Ask the source of a mirror that was failed over every second. When it answers, fence its topics: producers that nobody has
told can't write to it any more. Then prove the fence as a cutover does, and list what the source took after the last
copied offset. It runs until that is done; ^C or SIGTERM ends it at any moment, and the same command goes on, on any host.
Once that is done it only says so. What it found is in the report of 'airflow-mirror failover', too.

The fence is found as that of a finished cutover: 'status' shows it, 'lift-fence --include-retained' lifts it.

Exit status: 0 fenced; 1 needs a look; 2 wrong input, as a source that can't be fenced with these rights.

examples:
  airflow-mirror fence-on-return --target dst.properties --source src.properties dc1-to-dc2
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "fence-on-return", _TEXT, _run)
    add_target(p)
    add_mirror(p, "mirror")
    p.add_argument("--source", required=True, metavar="CLUSTER", help=f"the source that may return: {HELP}")
    add_fence(p)
    p.add_argument(
        "--sign", metavar="KEY",
        help="sign the report: a PEM file with a private Ed25519 key, or env:NAME with its text (default: not signed)",
    )  # fmt: skip
    add_json(p)


def _run(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    source = config_of(arguments.source, "source")
    signer = load_signer(arguments.sign) if arguments.sign else None
    with target_of(arguments) as target:
        found = watch(
            source, target, arguments.mirror, fence=arguments.fence, open_by_default=open_by_default(arguments),
            signer=signer,
        )  # fmt: skip
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else "\n".join(found.lines()))
