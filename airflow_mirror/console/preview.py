"""``airflow-mirror preview``: what a cutover of a mirror would meet now, and how long its fence would last."""

from __future__ import annotations

import argparse
import json
from typing import Any

from airflow_mirror.console.clusters import HELP, add_fence, add_target, config_of, open_by_default, target_of
from airflow_mirror.console.command import command
from airflow_mirror.cutover.context import Limits
from airflow_mirror.cutover.fence import fence_of
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.run import preview_cutover
from airflow_mirror.errors import UnknownMirror
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.state import names_below, state_of
from airflow_mirror.plan.kept import fetch, last_hash
from airflow_mirror.plan.life import target_ids
from airflow_mirror.rollback.foresee import with_way_back
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.verify.proof import Proofs, keys_of
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import LEVELS

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
    p = command(commands, "preview", "what a cutover would meet now, and how long its fence would last", _TEXT, _run)
    add_target(p)
    p.add_argument("--mirror", required=True, metavar="NAME", help="the mirror's name")
    p.add_argument("--source", metavar="CLUSTER", help=f"{HELP} (default: the source in the mirror's plan)")
    add_fence(p)
    p.add_argument("--level", choices=LEVELS, default="batches", help="of the comparison (default: batches)")
    p.add_argument("--max-fence-s", type=float, default=Limits().max_fence_s, metavar="S", help="default: %(default)g")
    p.add_argument(
        "--accept-still-groups", nargs="+", default=(), metavar="GROUP",
        help="groups that may stand still with members and lag, as for CutoverOperator",
    )  # fmt: skip
    p.add_argument(
        "--leave-out-groups", nargs="+", default=(), metavar="GROUP",
        help="groups that don't move, as for CutoverOperator",
    )  # fmt: skip
    p.add_argument(
        "--accept-ledger-writers", nargs="+", default=(), metavar="PRINCIPAL",
        help="who else may write to the target's ledger, as for CutoverOperator",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print JSON")


def _run(arguments: argparse.Namespace) -> int:
    found = _look(arguments)
    print(json.dumps(found.to_dict(), indent=1) if arguments.json else "\n".join(found.lines()))
    return 1 if found.blocks else 0


def _look(arguments: argparse.Namespace) -> Preview:
    name, level = arguments.mirror, arguments.level
    with target_of(arguments) as target:
        ledger = Side(target).ledger
        values = ledger.values()
        plan_hash = last_hash(values, name)
        if plan_hash is None:
            raise UnknownMirror(name, names_below(values, "plan/"))
        plan = fetch(plan_hash, name, target, ledger)
        config = config_of(arguments.source or plan.mirror.source, "source")
        proven = Proofs(state_of(target, keys_of(name)), name).ends(plan, target_ids(plan, target), level)
        with ClusterAdmin(config) as source, OffsetMaps(plan, config, target.config) as maps:
            fence = fence_of(arguments.fence, source, open_by_default(arguments))
            on = Platform.of(source, target)
            never = Kept(on.target.reports(name), name, "preview", None)  # names a run that never is
            found = preview_cutover(
                on, plan.mirror, plan, fence=fence, kept=never, limits=Limits(max_fence_s=arguments.max_fence_s),
                verify=verify_rest(plan, config, target.config, proven, level), compared_to=proven,
                accept_still_groups=arguments.accept_still_groups, leave_out_groups=arguments.leave_out_groups,
                accept_ledger_writers=arguments.accept_ledger_writers,
                tail_positions=maps.positions, translate_offset=maps.to_target,
            )  # fmt: skip
            return with_way_back(found, plan, source, target, fence)
