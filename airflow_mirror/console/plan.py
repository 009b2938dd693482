"""``airflow-mirror plan``: what a mirror would do, and what keeps it from doing it. Stores nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from airflow_mirror.console.clusters import add_both, add_fence, both_of, open_by_default
from airflow_mirror.console.command import add_json, command
from airflow_mirror.console.registries import prover_of
from airflow_mirror.cutover.foreseen import with_foreseen
from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.errors import LedgerMissing, MirrorCutOver, TopicsOwned
from airflow_mirror.jobs import planning
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.kafka.acls import EVERYBODY
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.ownership import hold_data
from airflow_mirror.plan.requirements import require_active
from airflow_mirror.wording import wrapped

_TEXT = """\
Read both clusters and print what the mirror would do: its topics, with the mode of their offsets, their settings, what
has to be filled, the consumer groups, and all checks with their evidence and remedies. Stores nothing and writes to no
cluster (but see --probe). Which of the target's topics are the mirror's own, the target's ledger says.

Exit status: 0 it may start; 1 it is blocked, standard error lists by what; 2 wrong input.

examples:
  airflow-mirror plan --source src.properties --target dst.properties --include 'orders.*' > plan.md
  airflow-mirror plan --mirror dc1-to-dc2.yaml --json | jq .findings
  airflow-mirror plan --mirror dc1-to-dc2.yaml --fence acl
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "plan", _TEXT, _run)
    add_both(p)
    add_flow(p)
    p.add_argument(
        "--probe", action="store_true",
        help="try out the rights on the target: writes a scratch topic there, and deletes it again",
    )  # fmt: skip
    add_fence(p, default=None, more="; asks what a cutover with that fence would refuse")
    p.add_argument("--every-check", action="store_true", help="list the checks that passed as well")
    add_json(p, "as PlanMirrorOperator stores it (default: Markdown)")


def _run(arguments: argparse.Namespace) -> int:
    mirror = mirror_of(arguments)
    of_source, of_target = both_of(arguments, mirror)
    with ClusterAdmin(of_source) as source, ClusterAdmin(of_target) as target:
        plan, refusals = planned(mirror, source, target, probe=arguments.probe)
        if arguments.fence is not None:
            request = CutoverRequest(
                plan=plan, mirror=mirror, fence=arguments.fence, open_by_default=open_by_default(arguments),
                accept_ledger_writers=[EVERYBODY],  # who may write there the plan itself says
            )  # fmt: skip
            plan = with_foreseen(request, source, target, partial(prover_of, arguments, mirror))
    print(plan.to_json() if arguments.json else render(plan, every_check=arguments.every_check), end="")
    return said([*map(str, plan.blocks), *refusals])


def planned(mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, *, probe: bool) -> tuple[Plan, list[str]]:
    """Return the plan as PlanMirrorOperator would make it now, and why it would be refused besides its own blocks."""
    ledger = Ledger(target)
    plan, _ = planning.planned(mirror, source, target, ledger, probe=probe)
    return plan, _refusals(ledger, plan, target)


def said(blocks: Sequence[str]) -> int:
    """Say on standard error what blocks; return the exit status."""
    for block in blocks:
        first, *more = block.splitlines()
        print(wrapped(first, "blocked: "), *(wrapped(line, "  ") for line in more), sep="\n", file=sys.stderr)
    return 1 if blocks else 0


def _refusals(ledger: Ledger, plan: Plan, target: ClusterAdmin) -> list[str]:
    """Return why topics are not this mirror's to write to, or nobody knows. Without a ledger a first plan begins one."""
    try:
        require_active(ledger, plan, target)
    except LedgerMissing as e:
        return [str(e)] if hold_data(plan, target) else []
    except (MirrorCutOver, TopicsOwned) as e:
        return [str(e)]
    return []
