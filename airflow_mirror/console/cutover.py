"""``airflow-mirror cutover`` and ``rollback``: what CutoverOperator and RollbackCutoverOperator do, without Airflow."""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow_mirror.console.clusters import config_of
from airflow_mirror.console.command import command
from airflow_mirror.console.home import add_home, home_of
from airflow_mirror.console.request import add_request, last_plan, request_of, way_of
from airflow_mirror.cutover.kept import Kept
from airflow_mirror.cutover.report import DONE, HTML_NAME, CutoverReport
from airflow_mirror.cutover.request import Clusters, CutoverRequest, connected
from airflow_mirror.cutover.run import preview_cutover, run_cutover
from airflow_mirror.cutover.signing import Signer, load_signer
from airflow_mirror.jobs.driver.arguments import add_alarm
from airflow_mirror.rollback.foresee import with_way_back
from airflow_mirror.rollback.run import counted, roll_back, way_back
from airflow_mirror.wording import count

_CUTOVER = """\
Move producers and consumers to the target: fence the source, prove the fence, wait for the tail, compare what was not
compared before, end the tail's writing, set the groups' positions, open the target. The tail must be running.

Without --yes it shows what that would meet (preview), and changes nothing. With --yes it looks once more, and does it
unless something blocks. After any failure, ^C or SIGTERM, everything is undone, and producers may write to the source
again. What was interrupted the same command goes on with, on any host; of a finished cutover it compares once more.

Exit status: 0 done, or without --yes nothing blocks; 1 it backed out, or something blocks; 2 wrong input, nothing was
changed.

examples:
  airflow-mirror cutover --target dst.properties --source src.properties --mirror dc1-to-dc2
  airflow-mirror cutover --target dst.properties --source src.properties --mirror dc1-to-dc2 --yes
"""
_ROLLBACK = """\
Take the way back that 'arm-reverse' has armed: fence the target, wait for the reverse mirror's tail ('follow
--reverse-of'), move the groups, open the old source. It is a cutover of the reverse mirror, with the same options.
--target and --source are those of the mirror.

Without --yes it counts what was written since the opening, and says what would be refused. After any failure the target
is open again, and the old source fenced for applications as before.

Exit status: 0 done, or without --yes nothing would be refused; 1 it backed out; 2 wrong input or refused, nothing was
changed.

examples:
  airflow-mirror rollback --target dst.properties --source src.properties --mirror dc1-to-dc2
  airflow-mirror rollback --target dst.properties --source src.properties --mirror dc1-to-dc2 --yes
"""


def add(commands: Any) -> None:
    """Add the commands."""
    p = command(commands, "cutover", "move producers and consumers to the target", _CUTOVER, _cut_over)
    _add(p)
    p.add_argument(
        "--lift-fence-afterwards", action="store_true",
        help="let producers write to the source again once the target is open (default: it stays fenced)",
    )  # fmt: skip
    p = command(commands, "rollback", "move producers and consumers back to the old source", _ROLLBACK, _roll_back)
    _add(p)
    p.add_argument(
        "--accept-groups", nargs="+", default=(), metavar="GROUP",
        help="groups whose positions on the target count although they have members, or have committed on both sides",
    )  # fmt: skip


def _add(p: argparse.ArgumentParser) -> None:
    add_request(p)
    p.add_argument("--yes", action="store_true", help="do it")
    p.add_argument(
        "--run", dest="run_name", metavar="RUN", help="the cutover's name (default: by-hand- and the plan's hash)"
    )
    p.add_argument(
        "--sign", metavar="KEY",
        help="sign the report: a PEM file with a private Ed25519 key, or env:NAME with its text (default: not signed)",
    )  # fmt: skip
    add_alarm(p)
    add_home(p, "the report's page")


def _cut_over(arguments: argparse.Namespace) -> int:
    signer = _begin(arguments)
    plan = last_plan(arguments)
    source, target = config_of(arguments.source or plan.mirror.source, "source"), config_of(arguments.target, "target")
    request = replace(request_of(arguments, plan), keep_fence=not arguments.lift_fence_afterwards, alarm=arguments.alarm)
    with connected(request, source, target) as clusters:
        kept = _kept(arguments, request, clusters)
        if not arguments.yes:
            found = with_way_back(preview_cutover(request, clusters, kept), plan, clusters)
            _say(arguments, found.to_dict(), [*found.lines(), "nothing was changed; --yes does it"])
            return 1 if found.blocks else 0
        report = run_cutover(_approved(request), clusters, kept, signer=signer)
    return _end(arguments, report, kept, "source")


def _roll_back(arguments: argparse.Namespace) -> int:
    signer = _begin(arguments)
    way, named = way_of(arguments, arguments.mirror)
    source, target = config_of(named, "source"), config_of(arguments.target, "target")
    request = replace(request_of(arguments, way.plan), alarm=arguments.alarm)
    with connected(request, target, source) as clusters:
        kept, accepted = _kept(arguments, request, clusters), arguments.accept_groups
        way = way_back(arguments.mirror, clusters.on.turned())  # by connections that live
        if not arguments.yes:
            found = counted(way, clusters.on.target.admin, clusters.on.source.admin, accepted)
            _say(arguments, found.to_dict(), [*found.lines(), "nothing was changed; --yes rolls back"])
            return 2 if found.problems else 0
        report = roll_back(way, _approved(request), clusters, kept, accepted=accepted, signer=signer)
    return _end(arguments, report, kept, "target")


def _begin(arguments: argparse.Namespace) -> Signer | None:
    """Set up the log, and return what signs the report: a key that can't be read ends the command before anything."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    return load_signer(arguments.sign) if arguments.sign else None


def _kept(arguments: argparse.Namespace, request: CutoverRequest, clusters: Clusters) -> Kept:
    """Return where the run is kept. Its name is the same in every call, so that each goes on with what one has left."""
    mirror, run = request.plan.mirror.name, arguments.run_name or f"by-hand-{request.plan.hash[:12]}"
    return Kept(clusters.on.target.reports(mirror), mirror, run, home_of(arguments) / mirror / "runs" / run)


def _approved(request: CutoverRequest) -> CutoverRequest:
    """Return the request with who has typed ``--yes``."""
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return replace(request, approved={"answer": "--yes", "by": getpass.getuser(), "at": at})


def _end(arguments: argparse.Namespace, report: CutoverReport, kept: Kept, fenced: str) -> int:
    fence = report.fence
    lines = [f"run {kept.run}: {report.outcome}"]
    if fence is not None:
        lines[0] += f"; nobody could write for {fence.seconds or 0.0:.1f} s"
        lines.append(f"the {fenced} {'stays fenced' if fence.kept else 'is open again'}")
    records = sum(row["records"] for row in report.verification)
    lines.append(f"compared behind the fence: {count(records, 'record')} in {count(len(report.ends), 'partition')}")
    lines += [f"group {group.group}: set ({group.settled})" for group in report.groups]
    lines += [f"group {name}: left where it was" for name in report.left_behind]
    lines.append(f"report: {kept.directory}/{HTML_NAME}")
    _say(arguments, {**report.summary(), "run": kept.run, "report": str(kept.directory)}, lines)
    return 0 if report.outcome == DONE else 1


def _say(arguments: argparse.Namespace, values: dict[str, Any], lines: Sequence[str]) -> None:
    print(json.dumps(values, indent=1) if arguments.json else "\n".join(lines))
