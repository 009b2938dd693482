"""``airflow-mirror lift-fence``: let producers write to a mirror's source again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mirror.console.clusters import HELP, add_target, config_of, target_of
from airflow_mirror.cutover.decision import PATIENCE_S
from airflow_mirror.cutover.fence import fence_of
from airflow_mirror.cutover.kept import REPORTS, Kept, fences_up, mirrors_in, reports_of
from airflow_mirror.cutover.run import lift_leftover_fence
from airflow_mirror.errors import InputError, MirrorError, PlanNotKept, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.plan.kept import fetch_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_mirror.cutover.report import CutoverReport

_TEXT = """\
Find every fence that a cutover of the mirror left up, on any host, by the reports on the target, and lift it:
producers may write to the source again. Exactly what the fence changed is undone. A cutover that is running keeps its
fence; so does a finished one, so that nobody writes where nobody reads (but see --kept-too).

Exit status: 0 done, or no fence was up; 1 a fence is still up, the error says why; 2 wrong input.
"""
_EXAMPLES = """\
examples:
  airflow-mirror lift-fence --target kafka_dc2 --mirror dc1-to-dc2
  airflow-mirror lift-fence --target dst.properties --source src.properties --mirror dc1-to-dc2
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = commands.add_parser(
        "lift-fence", help="let producers write to the source again, after a cutover was killed", description=_TEXT,
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_target(p)
    p.add_argument("--mirror", required=True, metavar="NAME", help="the mirror's name")
    p.add_argument("--source", metavar="CLUSTER", help=f"{HELP} (default: the source in the plan of that cutover)")
    add_home(p)
    p.add_argument(
        "--fence", default="acl", metavar="acl|FUNCTION",
        help="how it was raised, as for CutoverOperator: by ACL, or the dotted path of a function (default: acl)",
    )  # fmt: skip
    p.add_argument(
        "--kept-too", action="store_true",
        help="lift the fence of a finished cutover as well; the mirror's writer lease is taken first, so that no tail "
        "copies what is then written",
    )  # fmt: skip
    p.set_defaults(run=_run)


def add_home(parser: argparse.ArgumentParser) -> None:
    """Add ``--home``."""
    parser.add_argument(
        "--home", metavar="DIR",
        help="the directory of all mirrors on this host (default: Airflow's [mirror] home), for reports that the target "
        "has lost or can't tell",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    name, failed = arguments.mirror, False
    with target_of(arguments) as target:
        up = list(fences_up(_reports(arguments, target), name, runs_of(arguments)))
        if not up:
            print(f"no fence of mirror {name!r} is up, as the reports of its cutovers say")
        for run, report, error in up:
            try:
                if report is None:
                    raise error or InputError(f"{run}: its report can't be read.")
                print(f"run {run}: {lift(arguments, target, run, report)}")
            except MirrorError as e:  # one that can't be lifted must not keep the others up
                print(f"error: run {run}: {e}", file=sys.stderr)
                failed = True
    return 1 if failed else 0


def _reports(arguments: argparse.Namespace, target: ClusterAdmin) -> Mapping[str, bytes]:
    """Return the reports on the target; nothing if it can't be asked, and there is something on this host.

    :raises InputError: neither the target nor this host knows a cutover of the mirror.
    """
    runs = runs_of(arguments)
    try:
        values = state_of(target, REPORTS).read()
    except TryAgain as e:
        if runs is None:
            raise
        print(f"the target can't be asked ({e}): what follows is what is known on this host", file=sys.stderr)
        return {}
    if arguments.mirror not in mirrors_in(values) and runs is None:
        known = ", ".join(sorted(mirrors_in(values))) or "none"
        raise InputError(f"--mirror {arguments.mirror}: the target has no report of a cutover of it. It has of: {known}.")
    return values


def runs_of(arguments: argparse.Namespace) -> Path | None:
    """Return the directory of the mirror's runs on this host, below ``--home`` or Airflow's; None if it has none."""
    home = arguments.home
    if home is None:
        try:
            from airflow_mirror.hooks.home import home as airflows
        except ImportError:
            return None
        home = airflows()
    runs = Path(home) / arguments.mirror / "runs"
    return runs if runs.is_dir() else None


def lift(arguments: argparse.Namespace, target: ClusterAdmin, run: str, report: CutoverReport) -> str:
    """Lift the fence of one cutover, as ``arguments`` say; return what was done."""
    if report.fence is not None and report.fence.kept and not arguments.kept_too:
        return "the fence of a finished cutover stays; --kept-too lifts it"
    runs = runs_of(arguments)
    there = None if runs is None or not (runs / run).is_dir() else runs / run
    kept = Kept(reports_of(target, report.mirror), report.mirror, run, there)
    with ClusterAdmin(config_of(source_of(arguments, target, report), "source")) as source:
        fence = fence_of(arguments.fence, source)
        lines = lift_leftover_fence(
            kept, source, target, fence, life=Ledger(target, PATIENCE_S), kept_too=arguments.kept_too
        )
    return "; ".join(f"lifted: {line}" for line in lines) or "somebody else has lifted it"


def source_of(arguments: argparse.Namespace, target: ClusterAdmin, report: CutoverReport) -> str:
    """Return the source that the arguments name, or else that of the cutover's plan.

    :raises InputError: neither says it.
    """
    if arguments.source is not None:
        return str(arguments.source)
    try:
        return fetch_rule(report.plan_hash, report.mirror, target).mirror.source
    except PlanNotKept as e:
        raise InputError(
            f"which cluster is the source, only the plan of that cutover says. Use --source. ({e})"
        ) from None
