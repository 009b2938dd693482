"""``airflow-mirror cutover`` and ``rollback``: what CutoverOperator and RollbackCutoverOperator do, without Airflow."""

from __future__ import annotations

import argparse
import getpass
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow_mirror.console import output
from airflow_mirror.console.clusters import config_of, planned_source, target_of
from airflow_mirror.console.command import add_yes, command
from airflow_mirror.console.home import add_home, configured, home_of
from airflow_mirror.console.registries import named_registries, prover_of, registry_of
from airflow_mirror.console.request import add_request, last_plan, request_of, way_of
from airflow_mirror.cutover.check import require_forward, require_own_fence
from airflow_mirror.cutover.decision import CLOSED, CLOSING, OPENED, FenceState, fence_state
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.report import DONE, HTML_NAME, RUNNING, CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Additions, Clusters, CutoverRequest, connected
from airflow_mirror.cutover.rollback.foresee import with_way_back
from airflow_mirror.cutover.rollback.run import counted, roll_back, way_back
from airflow_mirror.cutover.run import preview_cutover, run_cutover
from airflow_mirror.cutover.signing import Signer, load_signer
from airflow_mirror.errors import (
    CutoverTakenOver,
    InputError,
    MirrorError,
    OpeningUnfinished,
    OpenOutcomeUnknown,
    RegistryStillHeld,
)
from airflow_mirror.extras.clients.inventory import clients_of
from airflow_mirror.extras.schemas.release import with_release
from airflow_mirror.jobs.driver.arguments import add_alarm
from airflow_mirror.jobs.runner.directory import job_name
from airflow_mirror.plan.direction import direction
from airflow_mirror.plan.ledger_store import last_hash
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.requirements import require_planned_clusters
from airflow_mirror.wording import count

Decided = Callable[[], FenceState | None]
_SAY_WHAT_TO_DO = (OpeningUnfinished, OpenOutcomeUnknown, CutoverTakenOver, RegistryStillHeld)  # and leave it open

_CUTOVER = """\
Move producers and consumers to the target: fence the source, prove the fence, wait for the tail, compare what was not
compared before, end the tail's writing, set the groups' positions, open the target. The tail must be running.

Without --yes it shows what that would meet (preview), and changes nothing. With --yes it looks once more, and does it
unless something blocks. After any failure, ^C or SIGTERM, everything is undone, and producers may write to the source
again. What was interrupted the same command goes on with, on any host; of a finished cutover it compares once more.

Exit status: 0 done, or without --yes nothing blocks; 1 it backed out, or something blocks; 2 wrong input, nothing was
changed; 3 the target is open, or nobody can tell: the error says what to do.

examples:
  airflow-mirror cutover --target dst.properties --source src.properties --mirror dc1-to-dc2
  airflow-mirror cutover --target dst.properties --source src.properties --mirror dc1-to-dc2 --yes
"""
_ROLLBACK = """\
Take the way back that 'arm-reverse' has armed: fence the target, wait for the reverse mirror's tail ('follow
--reverse-of'), move the groups, open the old source. It is a cutover of the reverse mirror, with the same options.
--target and --source are those of the mirror.

Without --yes it counts what was written since the opening, shows what the cutover back would meet, and changes nothing.
After any failure the target is open again, and the old source fenced for applications as before.

Exit status: 0 done, or without --yes nothing blocks; 1 it backed out, is refused, or something blocks; 2 wrong input,
nothing was changed; 3 the old source is open, or nobody can tell: the error says what to do.

examples:
  airflow-mirror rollback --target dst.properties --source src.properties --mirror dc1-to-dc2
  airflow-mirror rollback --target dst.properties --source src.properties --mirror dc1-to-dc2 --yes
"""


def add(commands: Any) -> None:
    """Add the commands."""
    p = command(commands, "cutover", _CUTOVER, _cut_over)
    _add(p)
    p.add_argument(
        "--lift-fence-afterwards", action="store_true",
        help="let producers write to the source again once the target is open (default: it stays fenced)",
    )  # fmt: skip
    p.add_argument(
        "--release-registry", action="store_true",
        help="let everybody register schemas at the target's registry once it is open, which 'move-schemas --hold' holds",
    )  # fmt: skip
    p = command(commands, "rollback", _ROLLBACK, _roll_back)
    _add(p)
    p.add_argument(
        "--accept-groups", nargs="+", default=(), metavar="GROUP",
        help="groups whose positions on the target count although they have members, or have committed on both sides",
    )  # fmt: skip


def _add(p: argparse.ArgumentParser) -> None:
    add_request(p)
    add_yes(p)
    p.add_argument(
        "--run", dest="run_name", metavar="RUN",
        help="the cutover's name (default: the one that is under way or has finished, or by-hand- and the time)",
    )  # fmt: skip
    p.add_argument(
        "--revision", metavar="REV", help="of the plan, as the preview named it: refuse if topics have joined it since"
    )
    p.add_argument(
        "--sign", metavar="KEY",
        help="sign the report: a PEM file with a private Ed25519 key, or env:NAME with its text (default: not signed)",
    )  # fmt: skip
    add_alarm(p)
    add_home(p, "the report's page")


def _cut_over(arguments: argparse.Namespace) -> int:
    signer = _begin(arguments)
    plan = _plan(arguments)
    source, target = planned_source(arguments, plan.mirror), config_of(arguments.target, "target")
    request = replace(_request(arguments, plan), keep_fence=not arguments.lift_fence_afterwards)
    with connected(request, source, target, prover_of(arguments, plan.mirror)) as clusters:
        require_planned_clusters(plan, clusters.on.source.admin, clusters.on.target.admin)
        kept = _kept(arguments, request, clusters)
        if not arguments.yes:
            return _show(arguments, with_way_back(preview_cutover(request, clusters, kept), plan, clusters), [])
        known = Additions(clients=clients_of(plan, clusters))
        if arguments.release_registry:
            mirror = named_registries(arguments, plan.mirror)
            known = with_release(known, mirror, registry_of, logging.getLogger(__name__).info)
        over = partial(run_cutover, request, clusters, kept, signer=signer, additions=known)
        return _do(arguments, kept, "source", partial(_decided, request, clusters), over)


def _roll_back(arguments: argparse.Namespace) -> int:
    signer = _begin(arguments)
    way, named = way_of(arguments, arguments.mirror)
    source, target = config_of(named, "source"), config_of(arguments.target, "target")
    request = replace(_request(arguments, way.plan), is_rollback=True)
    with connected(request, target, source, prover_of(arguments, way.plan.mirror, turned=True)) as clusters:
        kept = _kept(arguments, request, clusters)
        way = way_back(arguments.mirror, clusters.on.turned(), arguments.accept_groups)  # by connections that live
        if not arguments.yes:
            found = counted(way, clusters.on.target.admin, clusters.on.source.admin)
            status = _show(arguments, preview_cutover(request, clusters, kept), found.lines())
            return 1 if found.problems else status
        known = Additions(clients=clients_of(way.plan, clusters))
        back = partial(roll_back, way, request, clusters, kept, signer=signer, additions=known)
        return _do(arguments, kept, "target", partial(_decided, request, clusters), back)


def _plan(arguments: argparse.Namespace) -> Plan:
    """Return the plan of a cutover that is under way or has finished, or else the mirror's last one.

    A tail that was started meanwhile has made another last one. What is decided about the fence says which it was.

    :raises InputError: the mirror is a way back.
    :raises MirrorCutOver: it was failed over, and the fence that stands is that of its source, which has returned.
    """
    name = arguments.mirror
    with target_of(arguments) as admin:
        target = Side(admin)
        values = target.ledger.values()
        # Before any connection to its source; the cutover itself asks as well.
        turned, fence = direction(values, name), fence_state(values, name)
        require_forward(name, turned)
        # A name that was planned anew since its failover: the cutover itself refuses it behind that fence, which is to be
        # lifted first.
        anew = fence is not None and fence.is_of_returned and last_hash(values, name) not in (None, fence.plan)
        if fence is not None and not fence.is_over and not anew:
            require_own_fence(name, fence, fence.run)
            return target.plan(name, fence.plan, fence.revision)
    return last_plan(arguments)


def _begin(arguments: argparse.Namespace) -> Signer | None:
    """Set up alarm and log, and return what signs the report. A key that can't be read ends the command at once."""
    key = arguments.sign or configured("report_key")
    arguments.alarm = arguments.alarm or configured("alarm")
    # Behind the first look at Airflow, which sets up a log of its own.
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr, force=True
    )
    return load_signer(key) if key else None


def _request(arguments: argparse.Namespace, plan: Plan) -> CutoverRequest:
    """Return what is wanted, with who has typed ``--yes``."""
    try:
        by = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        by = str(os.getuid())
    return replace(
        request_of(arguments, plan), alarm=arguments.alarm,
        compared=[arguments.revision] if arguments.revision else [],
        approved={"answer": "--yes", "by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")},
    )  # fmt: skip


def _kept(arguments: argparse.Namespace, request: CutoverRequest, clusters: Clusters) -> ReportStore:
    """Return where the run is kept: that which is under way or has finished, so that each call goes on with it."""
    mirror = request.plan.mirror.name
    fence = _decided(request, clusters)
    stands = fence is not None and not fence.is_over and not fence.is_of_returned
    standing = fence.run if fence is not None and stands else f"by-hand-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    # Named as Airflow's runs are: it is a part of a key in the ledger, and of a path.
    run = job_name(arguments.run_name) if arguments.run_name else standing
    return ReportStore(clusters.on.target.reports(mirror), mirror, run, home_of(arguments) / mirror / "runs" / run)


def _decided(request: CutoverRequest, clusters: Clusters) -> FenceState | None:
    return fence_state(clusters.on.target.ledger.values(), request.plan.mirror.name)


def _show(arguments: argparse.Namespace, found: Preview, first: Sequence[str]) -> int:
    """Show what it would meet, and return the exit status."""
    last = ["nothing was changed; --yes does it", f"--revision {found.revision} holds it to what was shown"]
    _say(arguments, {**found.to_dict(), "lines": [*first]}, [*first, *found.lines(), *last])
    return 1 if found.blocks else 0


def _do(
    arguments: argparse.Namespace, store: ReportStore, fenced: str, decided: Decided, work: Callable[[], CutoverReport]
) -> int:  # fmt: skip
    """Do it; say what became of it, and return the exit status.

    :param fenced: the cluster, by the mirror's roles. :param decided: returns what is decided about the mirror's fence.
    """
    begun, before = time.time(), decided()
    try:
        report = work()
    except (MirrorError, OSError, KeyboardInterrupt) as e:
        may_be_open = isinstance(e, _SAY_WHAT_TO_DO) or _may_be_open(store, before, decided)
        if not (may_be_open or isinstance(e, MirrorError)):
            raise
        _warn(e, "" if not may_be_open or isinstance(e, _SAY_WHAT_TO_DO) else _go_on(fenced))
        if may_be_open:
            return 3
        left = store.on_disk()
        was_fenced = left is not None and left.started >= begun and left.fence is not None
        return 2 if isinstance(e, InputError) and not was_fenced else 1
    try:
        status = _end(arguments, report, store, fenced)
        sys.stdout.flush()
    except OSError as e:  # a disk that is full, a reader that has gone: what is done is done all the same
        output.give_up()
        _warn(e, f"{_go_on(fenced)} 'airflow-mirror report' shows what it did.")
        return 3
    return status


def _may_be_open(store: ReportStore, before: FenceState | None, decided: Decided) -> bool:
    """Return whether it is decided that this run has opened its cluster, or nobody can tell.

    Not by the error, since any may come behind the opening; nor by the report, which may be one writing older.

    :param before: what was decided when the command began.
    """
    try:
        return _has_opened(store, decided())
    except MirrorError:
        left = store.on_disk()
        return _has_opened(store, before) or (left is not None and left.outcome in (DONE, RUNNING))


def _has_opened(store: ReportStore, fence: FenceState | None) -> bool:
    # A kept fence that was lifted is the word of a person, or of a rollback: where producers write now is theirs to say.
    return (
        fence is not None
        and fence.run == store.run
        and (fence.phase in (OPENED, CLOSING) or (fence.phase == CLOSED and not fence.kept))
    )


def _go_on(fenced: str) -> str:
    opened = "target" if fenced == "source" else "source"
    return f"The {opened} is open, or may be: start no producers on the {fenced}. The same command does what is left."


def _warn(e: BaseException, more: str) -> None:
    said = e.lines if isinstance(e, MirrorError) else f"{type(e).__name__}: {e}"
    with suppress(OSError):  # standard error is on the same full disk, perhaps: the exit status is read all the same
        print(f"error: {said}", *filter(None, [more]), sep="\n", file=sys.stderr, flush=True)


def _end(arguments: argparse.Namespace, report: CutoverReport, store: ReportStore, fenced: str) -> int:
    fence = report.fence
    again = bool(report.steps) and report.steps[-1].name == "verify_again"
    lines = [f"run {store.run}: {report.outcome}{' before; both sides were compared once more' if again else ''}"]
    if fence is not None:
        lines[0] += f"; nobody could write for {fence.seconds or 0.0:.1f} s"
        if fence.is_kept and report.is_fence_gone:
            lines.append(
                f"the fence of the {fenced} is gone or incomplete: deny WRITE to User:* again, and bring over what was "
                "written; if applications are to write there, 'airflow-mirror lift-fence --include-retained' decides that"
            )
        else:
            lines.append(f"the {fenced} {'stays fenced' if fence.is_kept else 'is open again'}")
    records = sum(row["records"] for row in report.verification)
    lines.append(f"compared behind the fence: {count(records, 'record')} in {count(len(report.ends), 'partition')}")
    lines += [f"group {group.group}: set ({group.settled})" for group in report.groups]
    lines += [f"group {name}: left where it was" for name in report.left_behind]
    lines.append(f"report: {store.directory}/{HTML_NAME}")
    _say(arguments, {**report.summary(), "run": store.run, "report": str(store.directory)}, lines)
    return 0 if report.outcome == DONE else 1


def _say(arguments: argparse.Namespace, values: dict[str, Any], lines: Sequence[str]) -> None:
    print(json.dumps(values, indent=1) if arguments.json else "\n".join(lines))
