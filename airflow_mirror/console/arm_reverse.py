"""``airflow-mirror arm-reverse``: arm the way back of a finished cutover."""

from __future__ import annotations

import argparse
import json
import logging
from typing import Any

from airflow_mirror.console.clusters import add_source, add_target, planned_source, target_of
from airflow_mirror.console.command import add_json, add_mirror, add_yes, command
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.rollback.arm import arm, cutover_of
from airflow_mirror.kafka.admin import ClusterAdmin

_TEXT = """\
Arm the way back after a cutover that has kept its fence; without --yes only say what would be changed. The fence is
swapped for one that spares the mirror (swap-fence), both ends of every log are compared, the plan of the reverse mirror
is made and kept on the old source, and the old source's topics become the reverse mirror's. Its tail, which is started
afterwards, copies back what applications write to the target, at the same offsets. All objections are reported at once.

A failover whose source has returned and was fenced (fence-on-return) is such a cutover: see 'failback' first. Topics of
the old source that have diverged are left out by name; those that are gone are created.

Exit status: 0 armed; 1 no way back, with every reason, or to be tried again; 2 wrong input.

examples:
  airflow-mirror arm-reverse --target kafka_dc2 dc1-to-dc2
  airflow-mirror arm-reverse --target dst.properties --source src.properties dc1-to-dc2 --yes
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "arm-reverse", _TEXT, _run)
    add_target(p)
    add_mirror(p, "mirror", "the mirror that was cut over")
    add_source(p, "the plan of that cutover")
    p.add_argument(
        "--exclude-topic", action="append", default=[], metavar="TOPIC",
        help="not this topic: it stays on the old source as it is; may be repeated",
    )  # fmt: skip
    add_yes(p)
    add_json(p)


def _run(arguments: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with target_of(arguments) as target:
        report_of, plan = cutover_of(arguments.mirror, Side(target))
        with ClusterAdmin(planned_source(arguments, plan.mirror)) as source:
            found = arm(
                Platform.of(source, target, arguments.clock),
                report_of,
                plan,
                exclude_topics=arguments.exclude_topic,
                check_only=not arguments.yes,
            )
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else "\n".join(found.lines()))
