"""``airflow-mirror copy`` and ``airflow-mirror follow``: the bulk copy and the tail in plain processes."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from airflow_mirror.common.signals import stop_by_signals
from airflow_mirror.config import load
from airflow_mirror.console.clusters import add_both, reference, references_of
from airflow_mirror.console.command import command, name_of
from airflow_mirror.console.parser import CommandParser
from airflow_mirror.console.request import way_of
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver import older, together
from airflow_mirror.jobs.driver.arguments import R, add_flow, mirror_of, request_of
from airflow_mirror.jobs.driver.entry import Told, carry_out
from airflow_mirror.jobs.driver.together import FollowOne
from airflow_mirror.jobs.plain import options, run
from airflow_mirror.jobs.request import BulkRequest, TailRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.sync.holding import sync_plan

_SAME = (
    "It is spark_jobs/{} in plain Python processes, without Spark and Java: the same engine, lease, ledger and result."
)
_COPY = f"""\
Copy every partition up to where the source's log ends now (or --end), with its bytes and offsets, and exit.
{_SAME.format("bulk_copy.py")}
Safe to repeat: each partition continues at the target's log end offset.

Exit status: 0 every partition at its end; 1 failed, partition and cause on stderr, or records wait for an open
transaction of the source; 2 wrong input. The last line on stdout is one JSON object.
"""
_FOLLOW = f"""\
Follow the source until SIGTERM: same records, same bytes, same offsets, milliseconds later.
{_SAME.format("streaming_tail.py")}
Safe to kill and start again: each partition continues at the target's log end offset. A cluster that is away is waited
for, also at the start.

The options of the first MirrorMaker and of the Go mirror maker are understood, too (--consumer.config and so on); see
docs/from-mirrormaker-1.md.

Exit status: 0 stopped by SIGTERM or SIGINT; 1 failed, or partitions had failed for good when it was stopped, partition
and cause on stderr; 2 wrong input. The last line on stdout is one JSON object; its "waiting" names partitions that were
not copied to their end.
"""
_EXAMPLES = """
examples:
  airflow-mirror {0} --source src.properties --target dst.properties --include 'orders[.].*' --name orders-move
  airflow-mirror {0} --mirror dc1-to-dc2.yaml --source src.properties --target dst.properties --processes 4
"""


def add(commands: Any) -> None:
    """Add the commands."""
    p = command(
        commands, "copy", _COPY + _EXAMPLES.format("copy"),
        lambda arguments: carry_out(partial(_asked, BulkRequest, arguments), run.copy, Told.by(arguments)),
    )  # fmt: skip
    add_both(p)
    add_flow(p)
    options.add_options(p, BulkRequest)
    p = command(
        commands, "follow", _FOLLOW + _EXAMPLES.format("follow"),
        lambda arguments: carry_out(partial(_waited_for, arguments), run.work, Told.by(arguments)),
    )  # fmt: skip
    _add_follow(p)


def _add_follow(p: argparse.ArgumentParser) -> None:
    add_both(p)
    add_flow(p)
    options.add_options(p, TailRequest)
    p.add_argument(
        "--reverse-of", type=name_of, metavar="MIRROR",
        help="copy back what applications write to the target of this mirror, whose way back is armed ('arm-reverse').\n"
        "--source and --target are the mirror's own; what is copied is the way back's plan",
    )  # fmt: skip


def follow_older(argv: Sequence[str]) -> int:
    """Run ``follow`` with a command line of the first MirrorMaker or the Go mirror maker; return the exit status."""
    p = CommandParser(prog="airflow-mirror follow")
    _add_follow(p)
    return older.run(argv, p.parse_args, _followed, run.work, _of_several, tasks="--processes")


@contextmanager
def _of_several(stopping: threading.Event, _: int) -> Iterator[FollowOne]:
    yield lambda request: run.follow(request, StatusFile(request.job_dir), stopping=stopping)


def _asked(kind: type[R], arguments: argparse.Namespace) -> R:
    mirror = mirror_of(arguments)
    return request_of(kind, arguments, mirror, *references_of(arguments, mirror))


def _waited_for(arguments: argparse.Namespace) -> TailRequest:
    """Return what is followed, once the clusters that have to say it are there."""
    stop_by_signals(threading.Event())
    again = together.waited_for(arguments.fail_fast)
    return together.until_there(arguments.reverse_of or "follow", partial(_followed, arguments), again)


def _followed(arguments: argparse.Namespace) -> TailRequest:
    """Return what is followed.

    :raises NoWayBack: of ``--reverse-of`` none was armed. :raises InputError: beside it something else is asked for.
    """
    if arguments.reverse_of is None:
        return _asked(TailRequest, arguments)
    if arguments.target is None:
        raise InputError(
            "--target is missing", "--reverse-of needs the target of the mirror that was cut over", "Name that cluster."
        )
    way, named = way_of(arguments, arguments.reverse_of)
    plan, read, write = way.plan, reference(arguments.target, "target"), reference(named, "source")
    if arguments.mirror or arguments.plan or mirror_of(arguments, plan.mirror) != plan.mirror:
        raise InputError(
            "--mirror, --plan or what describes a Mirror is given beside --reverse-of",
            "--reverse-of says what is copied back",
            "Leave out --mirror, --plan and what describes a Mirror.",
        )
    with ClusterAdmin(load(read, "source")) as source, ClusterAdmin(load(write, "target")) as target:
        sync_plan(plan, source, target, hold=True)
    # No file: the old source's ledger has the plan, for whoever begins again.
    return replace(request_of(TailRequest, arguments, plan.mirror, read, write), plan=f"{plan.hash}.json")
