"""``airflow-mirror lift-fence``: let producers write to a mirror's source again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import Any

from airflow_mirror.console.clusters import add_source, add_target, config_of, target_of
from airflow_mirror.console.command import add_mirror, command
from airflow_mirror.console.home import add_home, runs_of
from airflow_mirror.cutover.decision import OPENED, FenceState, fence_state
from airflow_mirror.cutover.fence import AclFence, fence_of
from airflow_mirror.cutover.intent import line
from airflow_mirror.cutover.lifting import Assurance, lift_leftover_fence, told
from airflow_mirror.cutover.other_fences import let_in, lift_unexplained, unexplained
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.report import DONE
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.errors import (
    FencedByAnother,
    InputError,
    LedgerLost,
    MissingRight,
    OpeningUnfinished,
    PlanNotKept,
    TryAgain,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl
from airflow_mirror.ledger.records import FENCE, LAST_PLAN
from airflow_mirror.plan.ledger_store import last_hash
from airflow_mirror.wire.errors import ApiNotServed

_TEXT = """\
Lift the fence that a cutover of the mirror left up, on any host, as is decided in the target's ledger: producers may
write to the source again. Exactly what the fence changed is undone, and groups get their positions back. A cutover that
is running keeps its fence; so does a finished one, so that nobody writes where nobody reads (but see --include-retained).
Then it looks for rules that keep everybody out and that no record explains (see --unexplained).

Exit status: 0 done, or no fence was up; 1 a fence is still up, the error says why; 2 wrong input.

examples:
  airflow-mirror lift-fence --target kafka_dc2 --mirror dc1-to-dc2
  airflow-mirror lift-fence --target dst.properties --source src.properties --mirror dc1-to-dc2
"""

_NOT_LOOKED = "rules that no record explains were not looked for"


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "lift-fence", _TEXT, _run)
    add_target(p)
    add_mirror(p)
    add_source(p, "the plan of that cutover")
    add_home(p, "reports that the target has lost or can't tell")
    p.add_argument(
        "--fence", default="acl", metavar="acl|FUNCTION",
        help="how it was raised, as for CutoverOperator: by ACL, or the dotted path of a function (default: acl)",
    )  # fmt: skip
    p.add_argument(
        "--include-retained", action="store_true",
        help="lift the fence of a finished cutover as well, or of one that died while it opened the target; the mirror's "
        "writer lease is taken first, so that no tail copies what is then written",
    )  # fmt: skip
    p.add_argument(
        "--unexplained", action="store_true",
        help="also remove rules that keep everybody out of the mirror's source topics and that no record explains; never "
        "one that a fence has found there; with --fence FUNCTION, have that let everybody in",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    name = arguments.mirror
    with target_of(arguments) as target:
        fence = _decided(arguments, target)
        with ClusterAdmin(config_of(source_of(arguments, target, fence), "source")) as source:
            on = Platform.of(source, target, arguments.clock)
            lines = _lifted(arguments, on, fence)
            print("\n".join(lines) or f"no fence of mirror {name!r} is up")
            try:
                left = unexplained(on, name)
            except (TryAgain, LedgerLost, FencedByAnother) as e:
                print(f"{_NOT_LOOKED}: {e}", file=sys.stderr)
                return int(arguments.unexplained)
            # Who may not list rules, or has no broker that does, may have a fence by a function all the same.
            except (MissingRight, ApiNotServed) as e:
                print(f"{_NOT_LOOKED}: {e}", file=sys.stderr)
                if not arguments.unexplained or arguments.fence == AclFence.kind:
                    return int(arguments.unexplained)
                left = []
            if arguments.unexplained:
                _lift_unexplained(arguments, on, left)
                return 0
    for acl in left:
        print(f"no record explains: {line(acl)}", file=sys.stderr)
    if left:
        print("If these are no rules of yours, --unexplained removes them.", file=sys.stderr)
    return 1 if left else 0


def _lift_unexplained(arguments: argparse.Namespace, on: Platform, left: Collection[Acl]) -> None:
    name = arguments.mirror
    for acl in lift_unexplained(on, name, left):
        print(f"lifted: {line(acl)}")
    if (given := fence_of(arguments.fence, on.source.admin)).kind != AclFence.kind:
        let_in(on, name, given)
        print(f"lifted: {arguments.fence} has let everybody in")


def _decided(arguments: argparse.Namespace, target: ClusterAdmin) -> FenceState | None:
    """Return what is decided about the mirror's fence; None if nothing is, or the target can't be asked.

    :raises TryAgain: :raises LedgerLost: it can't, and this host has no reports.
    :raises InputError: neither the target nor this host knows the mirror.
    """
    name = arguments.mirror
    try:
        values = Side(target).ledger.values()
    except (TryAgain, LedgerLost) as e:  # what was decided is unknown either way: the source's names tell
        if runs_of(arguments) is None:
            raise
        print(f"the target can't be asked ({e}): what follows is what is known on this host", file=sys.stderr)
        return None
    if (last_hash(values, name) or fence_state(values, name)) is None and runs_of(arguments) is None:
        known = ", ".join(sorted({*LAST_PLAN.under(values), *FENCE.under(values)})) or "none"
        raise InputError(f"--mirror {name}: the target does not know it", f"it knows: {known}", "Correct the name.")
    return fence_state(values, name)


def _lifted(arguments: argparse.Namespace, on: Platform, fence: FenceState | None) -> list[str]:
    if fence is not None and fence.phase == OPENED and not arguments.include_retained:
        report = ReportStore(on.target.reports(arguments.mirror), arguments.mirror, fence.run, None).of(fence.id)
        if report is None or report.outcome != DONE:
            raise OpeningUnfinished(fence.run, "its report does not say that it has ended")
        if fence.kept:
            return [f"run {fence.run}: the fence of a finished cutover stays; --include-retained lifts it"]
    given = fence_of(arguments.fence, on.source.admin)
    runs = runs_of(arguments)
    also, known = arguments.include_retained, Assurance(unfinished_too=arguments.include_retained)
    lines = lift_leftover_fence(on, arguments.mirror, given, include_retained=also, runs=runs, known=known)
    run = "" if fence is None else f"run {fence.run}: "
    return [f"{run}{told(one)}" for one in lines]


def lift(arguments: argparse.Namespace, target: ClusterAdmin, fence: FenceState) -> str:
    """Lift the kept fence of a finished cutover; return what was done."""
    with ClusterAdmin(config_of(source_of(arguments, target, fence), "source")) as source:
        on, given = Platform.of(source, target, arguments.clock), fence_of(arguments.fence, source)
        lines = lift_leftover_fence(
            on, arguments.mirror, given, run=fence.run, attempt=fence.id, include_retained=True, runs=runs_of(arguments)
        )
    return "; ".join(map(told, lines)) or "somebody else has lifted it"


def source_of(arguments: argparse.Namespace, target: ClusterAdmin, fence: FenceState | None) -> str:
    """Return the source that the arguments name, or else that of the cutover's plan, or of the mirror's last one.

    :raises InputError: neither says it.
    """
    if arguments.source is not None:
        return str(arguments.source)
    on, name = Side(target), arguments.mirror
    try:
        plan_hash = fence.plan if fence is not None else last_hash(on.ledger.values(), name)
        if plan_hash is None:
            raise PlanNotKept(name, "none")
        return on.plan(name, plan_hash).mirror.source
    except (PlanNotKept, TryAgain, LedgerLost) as e:
        raise InputError("which cluster is the source, only the plan says", e.what_and_why, "Use --source.") from None
