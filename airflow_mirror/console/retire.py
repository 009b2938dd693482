"""``airflow-mirror retire``: remove what a mirror that is over has left."""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import chain
from typing import Any

from airflow_mirror.console.clusters import HELP, add_target, target_of
from airflow_mirror.console.command import add_mirror, command
from airflow_mirror.console.home import add_home, runs_of
from airflow_mirror.console.lift_fence import lift
from airflow_mirror.console.steps import add_steps, walk
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.cutover.decision import OPENED, FenceState, fence_state
from airflow_mirror.cutover.failover.check import is_former
from airflow_mirror.cutover.failover.record import Record
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.lifting import directory_of
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.report import DONE
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.rollback.arm import armed
from airflow_mirror.errors import TryAgain
from airflow_mirror.jobs.decommission import Step, not_over
from airflow_mirror.jobs.retire import Retirement
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger, Values
from airflow_mirror.ledger.records import CONFIGS, CUT, REPORT
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.direction import FAILOVER, Direction, direction, reverse_name

_TEXT = """\
Remove what a mirror that is over has left on its target: settings on hold get the source's last values, topics are given
up, offset maps, positions, plans, notes and signs of life are deleted, and finally the decisions that name it. Data are
never deleted, but a broker deletes what is older than a restored retention. What a cutover has handed over stays decided.

Without --yes it lists what it would do, and changes nothing. It may be repeated, also after it was interrupted.

Exit status: 0 done, or nothing was left; 1 try again; 2 wrong input, or the mirror is still active: nothing was changed.

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
    p = command(commands, "retire", _TEXT, _run)
    add_target(p)
    add_mirror(p)
    add_steps(p)
    p.add_argument(
        "--source", metavar="CLUSTER",
        help=f"also lift the fence that a finished cutover has kept up there: {HELP}",
    )  # fmt: skip
    add_home(p, "reports that the target has lost or can't tell")
    p.add_argument(
        "--fence", default="acl", metavar="acl|FUNCTION", help="how it was raised, as for CutoverOperator (default: acl)"
    )
    p.set_defaults(include_retained=True)


def _run(arguments: argparse.Namespace) -> None:
    name = arguments.mirror
    with target_of(arguments) as target:
        retirement = Retirement(
            mirror=name, target=target, ledger=Ledger(target), maps=MapStore(name),
            keys=state_of(target, "", keys_only=True), seen=state_of(target, CONFIGS.below(name)),
            end_writing=partial(Side(target, arguments.clock).end_writing, name),
        )  # fmt: skip
        values = retirement.ledger.values()
        for read in (fence_state, direction):  # what can't be read must not be forgotten
            read(values, name)
        retirement.require_over(Side(target, arguments.clock).watch(name), may_be_held=arguments.end_writing)
        _require_failed_over(name, Side(target, arguments.clock), values)
        fence = fence_state(values, name)
        way_back = armed(name, values)
        steps, keep, left = _fence(arguments, target, fence, way_back)
        left += [*_left_of(way_back, name), *retirement.left()]
        as_seen = partial(require_as_seen, name, fence if keep and keep["run"] else None)
        found = walk(arguments, chain(steps, retirement.steps(keep, as_seen)))
    _tell(arguments, found, [*left, *_BY_ITSELF])


def require_as_seen(mirror: str, kept: FenceState | None, values: Values) -> None:
    """Return if the mirror has the fence that was seen to be kept, or none that is up.

    :raises TryAgain: a cutover of it goes on.
    """
    there = fence_state(values, mirror)
    if (None if there is None or there.is_over else there) != kept:
        raise TryAgain(
            f"mirror {mirror!r}: what is decided about its fence is not what it was",
            "a cutover went on meanwhile, or somebody ends one. What lifts its fence was not touched",
            "Retire the mirror again once that is over.",
        )


def keep_of(fence: FenceState | None) -> dict[str, str] | None:
    """Return what names what stays of a fence that is over: its record and its plan, and no run's report.

    A request of a process that is long gone may come to the source at any time. Only by these two such a rule is told
    from the site's own. One by a function has none.
    """
    return None if fence is None or fence.kind != AclFence.kind else {"run": "", "plan": fence.plan}


def _require_failed_over(mirror: str, on: Side, values: Values) -> None:
    """Return unless a failover of the mirror was decided, lacks a step, and can be completed.

    What completes it is in the ledger alone, the rules of the lost source's writers among it, and would go.

    :raises InputError: it lacks some.
    """
    decided = direction(values, mirror)
    if decided is None or decided.by != FAILOVER:
        return
    lacks = Record(on.state(CUT.below(mirror)), mirror, decided.attempt).lacks()
    # Of a mirror that was started over since, that command would begin another failover, of a source that lives.
    if lacks and not is_former(on, decided, mirror, values):
        cause = f"its failover of {decided.at} is not complete: {', '.join(lacks)}"
        raise not_over(mirror, cause, "Complete it first: the same 'airflow-mirror failover --yes' again.")


def _left_of(way_back: Direction | None, mirror: str) -> list[str]:
    """Return what an armed way back has left on the old source, where this retirement changes nothing."""
    if way_back is None:
        return []
    back = reverse_name(mirror)
    return [
        f"mirror {back!r}, which copied back: 'airflow-mirror retire --target SOURCE --mirror {back}' removes its rest"
    ]


def _fence(
    arguments: argparse.Namespace, target: ClusterAdmin, fence: FenceState | None, way_back: Direction | None
) -> tuple[list[Step], dict[str, str] | None, list[str]]:  # fmt: skip
    """Return the step that lifts the mirror's fence; or what names it, as it stays, and that for people.

    :raises InputError: a cutover was killed, and its fence is up; or it has opened the target, and has not ended;
        or its way back is armed, and nobody has said that it ends.
    """
    name = arguments.mirror
    if fence is None:
        return [], None, []
    by_record = keep_of(fence)
    record = f"the record of the fence of cutover {fence.run}, and its plan"
    named_by = [f"{record}: by them 'lift-fence' names a rule that comes late"] if by_record else []
    if fence.is_over:
        return [], by_record, named_by
    if fence.phase != OPENED:
        cause = f"a fence of its cutover {fence.run} {fence.text}"
        raise not_over(name, cause, "Lift it ('airflow-mirror lift-fence'), or cut over again.")
    here = directory_of(runs_of(arguments), fence.run)
    report = ReportStore(state_of(target, REPORT.below(name)), name, fence.run, here).of(fence.id)
    # Alive, or to be gone on with: not a fence that was kept on purpose. Where its report is lost nobody can go on.
    if report is not None and report.outcome != DONE:
        cause = f"its cutover {fence.run} has opened the target, and its report does not say that it has ended"
        raise not_over(name, cause, "Run it again: it goes on from there. Where it can't, 'airflow-mirror lift-fence'.")
    if arguments.source is not None:
        return [Step("fence", [f"of cutover {fence.run}"], partial(lift, arguments, target, fence))], by_record, named_by
    # Only this ledger says that the target is the primary, and which plan copies back: without that nobody could go back,
    # nor arm it again, and its tail would copy on.
    if way_back is not None and way_back.attempt == fence.run:
        cause = f"its way back was armed at {way_back.at}: mirror {reverse_name(name)!r} copies to the old source"
        raise not_over(name, cause, "Go back ('airflow-mirror rollback'), or end it: --source lifts the fence as well.")
    stays = f"the fence of cutover {fence.run}, kept on purpose, its plan and its report: --source lifts it"
    return [], {"run": fence.run, "plan": fence.plan}, [stays]


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
