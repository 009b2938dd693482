"""``airflow-mirror retire``: remove what a mirror that is over has left."""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from airflow_mirror.console.clusters import HELP, add_target, target_of
from airflow_mirror.console.lift_fence import add_home, lift, runs_of
from airflow_mirror.console.steps import add_steps, walk
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.kept import fences_up
from airflow_mirror.cutover.kept import prefix as reports_prefix
from airflow_mirror.cutover.writers import end_writing
from airflow_mirror.errors import InputError, MirrorNotOver
from airflow_mirror.failover.decision import direction
from airflow_mirror.jobs.ending import Part
from airflow_mirror.jobs.retire import Retirement
from airflow_mirror.jobs.runner.active import Watch, keys_of
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.sync.seen_configs import prefix

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin

_TEXT = """\
Remove what a mirror that is over has left on its target: settings on hold get the source's last values, topics are given
up, offset maps, positions, plans, notes and signs of life are deleted, and finally the decisions that name it. Data are
never deleted, but a broker deletes what is older than a restored retention. What a cutover has handed over stays decided.

Without --yes it lists what it would do, and changes nothing. It may be repeated, also after it was interrupted.

Exit status: 0 done, or nothing was left; 1 try again; 2 wrong input, or the mirror is not over: nothing was changed.
"""
_EXAMPLES = """\
examples:
  airflow-mirror retire --target dst.properties --mirror dc1-to-dc2
  airflow-mirror retire --target dst.properties --mirror dc1-to-dc2 --source src.properties --yes
"""
_BY_ITSELF = (
    "its transactional ids (writer lease, padding): a broker forgets them after transactional.id.expiration.ms, a week",
    "the rights of its principal: 'airflow-mirror rights' prints them",
    "its directories below [mirror] home, on each host: logs, and reports for people",
)


def add(commands: Any) -> None:
    """Add the command."""
    p = commands.add_parser(
        "retire", help="remove what a mirror that is over has left", description=_TEXT, epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_target(p)
    p.add_argument("--mirror", required=True, metavar="NAME", help="the mirror's name")
    add_steps(p)
    p.add_argument(
        "--source", metavar="CLUSTER",
        help=f"also lift the fences that finished cutovers have kept up there: {HELP}",
    )  # fmt: skip
    add_home(p)
    p.add_argument(
        "--fence", default="acl", metavar="acl|FUNCTION", help="how it was raised, as for CutoverOperator (default: acl)"
    )
    p.set_defaults(run=_run, kept_too=True)


def _run(arguments: argparse.Namespace) -> None:
    name = arguments.mirror
    with target_of(arguments) as target:
        retirement = Retirement(
            mirror=name, target=target, ledger=Ledger(target), maps=MapStore(name),
            keys=state_of(target, "", keys_only=True), seen=state_of(target, prefix(name)),
            end_writing=partial(end_writing, target.config, name),
        )  # fmt: skip
        values = retirement.ledger.values()
        for read in (fence_state, direction):  # what can't be read must not be forgotten
            read(values, name)
        retirement.require_over(Watch(state_of(target, keys_of(name))), may_be_held=arguments.end_writing)
        fences, stays = _fences(arguments, target)
        known = tuple(f"{reports_prefix(name)}{run}/" for run in stays)
        left = [f"the fence of cutover {run}, kept on purpose, and its report: --source lifts it" for run in stays]
        left += retirement.left()
        found = walk(arguments, chain(fences, retirement.steps(keep=known)))
    _tell(arguments, found, [*left, *_BY_ITSELF])


def _fences(arguments: argparse.Namespace, target: ClusterAdmin) -> tuple[list[Part], list[str]]:
    """Return the steps that lift fences, and the runs whose fence stays.

    :raises MirrorNotOver: a cutover was killed, and its fence is up.
    """
    steps, stays = [], []
    values = state_of(target, reports_prefix(arguments.mirror)).read()
    for run, report, error in fences_up(values, arguments.mirror, runs_of(arguments)):
        if report is None:
            raise error or InputError(f"{run}: its report can't be read.")
        if report.fence is None or not report.fence.kept or report.outcome != reports.DONE:
            cause = f"a fence of its cutover {run} is up"
            raise MirrorNotOver(arguments.mirror, cause, "Lift it ('airflow-mirror lift-fence'), or cut over again.")
        if arguments.source is None:
            stays.append(run)
        else:
            steps.append(Part("fence", [f"of cutover {run}"], partial(lift, arguments, target, run, report)))
    return steps, stays


def _tell(arguments: argparse.Namespace, found: list[dict[str, Any]], left: list[str]) -> None:
    if arguments.json:
        print(json.dumps({"mirror": arguments.mirror, "done": arguments.yes, "steps": found, "left": left}, indent=1))
        return
    for line in left:
        print(f"stays      {line}")
    if not found:
        print(f"nothing is left of mirror {arguments.mirror!r}")
    else:
        print("done" if arguments.yes else "nothing was changed (--yes does it)")
