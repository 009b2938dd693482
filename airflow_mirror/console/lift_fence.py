"""``airflow-mirror lift-fence``: let producers write to a mirror's source again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mirror.console.clusters import HELP, config_of
from airflow_mirror.cutover.fence import fence_of
from airflow_mirror.cutover.leftovers import fences_up
from airflow_mirror.cutover.run import lift_leftover_fence
from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan import PlanDirectory

if TYPE_CHECKING:
    from airflow_mirror.config import ClientConfig
    from airflow_mirror.cutover.report import CutoverReport

_TEXT = """\
Find every fence that a cutover of the mirror left up, by the reports of its runs, and lift it: producers may write to
the source again. Exactly what the fence changed is undone. A cutover that is running keeps its fence; so does a finished
one, so that nobody writes where nobody reads (but see --kept-too).

Exit status: 0 done, or no fence was up; 1 a fence is still up, the error says why; 2 wrong input.
"""
_EXAMPLES = """\
examples:
  airflow-mirror lift-fence --mirror dc1-to-dc2
  airflow-mirror lift-fence --mirror dc1-to-dc2 --home /srv/mirrors --source src.properties --target dst.properties
"""


def add(commands: Any) -> None:
    """Add the command."""
    p = commands.add_parser(
        "lift-fence", help="let producers write to the source again, after a cutover was killed", description=_TEXT,
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("--mirror", required=True, metavar="NAME", help="the mirror's name")
    p.add_argument("--home", metavar="DIR", help="the directory of all mirrors (default: Airflow's [mirror] home)")
    for role in ("source", "target"):
        p.add_argument(f"--{role}", metavar="CLUSTER", help=f"{HELP} (default: the {role} in the plan of that cutover)")
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


def _run(arguments: argparse.Namespace) -> int:
    mirror = _directory(arguments)
    up, failed = list(fences_up(mirror / "runs")), False
    if not up:
        print(f"no fence of mirror {arguments.mirror!r} is up: none in the reports below {mirror / 'runs'}")
    for run_dir, report, error in up:
        try:
            if report is None:
                raise error or InputError(f"{run_dir}: its report can't be read.")
            print(f"run {run_dir.name}: {lift(arguments, mirror, run_dir, report)}")
        except MirrorError as e:  # one that can't be lifted must not keep the others up
            print(f"error: run {run_dir.name}: {e}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


def _directory(arguments: argparse.Namespace) -> Path:
    """Return the mirror's directory.

    :raises InputError: nobody says where it is, or it is not there.
    """
    home = home_of(arguments)
    if home is None:
        raise InputError("--home is missing: without Airflow nobody knows the directory of the mirrors.")
    found: Path = home / arguments.mirror
    if not found.is_dir():
        others = sorted(path.name for path in home.glob("*") if (path / "runs").is_dir()) if home.is_dir() else []
        raise InputError(f"--mirror {arguments.mirror}: {home} has no such mirror. There: {', '.join(others) or 'none'}.")
    return found


def home_of(arguments: argparse.Namespace) -> Path | None:
    """Return the directory of all mirrors, ``--home`` or Airflow's; None where neither is."""
    if arguments.home is not None:
        return Path(arguments.home)
    try:
        from airflow_mirror.hooks.home import home as airflows
    except ImportError:
        return None
    return airflows()


def lift(arguments: argparse.Namespace, mirror: Path, run_dir: Path, report: CutoverReport) -> str:
    """Lift the fence of one cutover, as ``arguments`` say; return what was done."""
    if report.fence is not None and report.fence.kept and not arguments.kept_too:
        return "the fence of a finished cutover stays; --kept-too lifts it"
    with (
        ClusterAdmin(_config(arguments, "source", mirror, report)) as source,
        ClusterAdmin(_config(arguments, "target", mirror, report)) as target,
    ):
        fence = fence_of(arguments.fence, source)
        lines = lift_leftover_fence(run_dir, source, target, fence, life=Ledger(target), kept_too=arguments.kept_too)
    return "; ".join(f"lifted: {line}" for line in lines) or "somebody else has lifted it"


def _config(arguments: argparse.Namespace, role: str, mirror: Path, report: CutoverReport) -> ClientConfig:
    given: str | None = getattr(arguments, role)
    if given is None:
        plans = PlanDirectory(mirror / "plans")
        plan = plans.load(report.plan_hash)
        if plan is None:
            raise InputError(f"which cluster is the {role}, plan {plans.path(report.plan_hash)} would say. Use --{role}.")
        given = str(getattr(plan.mirror, role))
    return config_of(given, role)
