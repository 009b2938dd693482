"""``airflow-mirror swap-fence``: let the mirror write to a source that stays fenced for applications."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_mirror.console.clusters import add_source, add_target, config_of, target_of
from airflow_mirror.console.command import add_mirror, add_yes, command
from airflow_mirror.console.lift_fence import source_of
from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.swap import swap_fence
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.principal import given_principal, own_principal

_TEXT = """\
Swap the fence that a finished cutover has kept for one that spares the mirror's principal on the source, so that a
mirror may copy back what applications write to the target. Whoever an ACL lets write is denied by name, an ALLOW WRITE
for everybody on one of the topics is replaced, and the DENY for everybody goes last: at no moment may an application
write. No ACL that covers another topic or operation is touched; where one lets everybody write, nothing is changed.
Without --yes it only says what would be changed. lift-fence --include-retained undoes all of it.

Exit status: 0 done; 1 not possible, or to be tried again: the error says which; 2 wrong input.

examples:
  airflow-mirror swap-fence --target kafka_dc2 --mirror dc1-to-dc2
  airflow-mirror swap-fence --target dst.properties --source src.properties --mirror dc1-to-dc2 --yes
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "swap-fence", _TEXT, _run)
    add_target(p)
    add_mirror(p)
    add_source(p, "the plan of that cutover")
    p.add_argument(
        "--principal", metavar="TYPE:NAME",
        help="whom to spare (default: whom the source's connection logs in as, if that says it)",
    )  # fmt: skip
    add_yes(p)


def _run(arguments: argparse.Namespace) -> None:
    name, asked = arguments.mirror, arguments.principal
    # Before any cluster is asked: whom a fence spares is decided once, and a name that brokers know nobody by stays.
    given = {} if asked is None else {"source": given_principal("--principal", asked)}
    with target_of(arguments) as target:
        fence = fence_state(Side(target).ledger.values(), name)
        with ClusterAdmin(config_of(source_of(arguments, target, fence), "source")) as source:
            own = own_principal(source, given)
            lines = swap_fence(Platform.of(source, target, arguments.clock), name, own, check_only=not arguments.yes)
    for line in lines:
        print(f"{'' if arguments.yes else 'would be: '}{line}")
