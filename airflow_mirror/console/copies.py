"""``airflow-mirror copy`` and ``airflow-mirror follow``: the bulk copy and the tail in plain processes."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from airflow_mirror.common.signals import stop_by_signals
from airflow_mirror.config import load
from airflow_mirror.console.clusters import add_both, reference, references_of
from airflow_mirror.console.command import command, name_of
from airflow_mirror.console.request import way_of
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver import older, together
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.jobs.driver.entry import Outcome, carry_out
from airflow_mirror.jobs.driver.together import FollowOne
from airflow_mirror.jobs.plain import options, run
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
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

Exit status: 0 stopped by SIGTERM or SIGINT, every partition cleanly; 1 failed, or partitions had failed when it was
stopped, partition and cause on stderr; 2 wrong input. The last line on stdout is one JSON object.
"""
_EXAMPLES = """
examples:
  airflow-mirror {0} --source src.properties --target dst.properties --include 'orders[.].*' --name orders-move
  airflow-mirror {0} --mirror dc1-to-dc2.yaml --source src.properties --target dst.properties --processes 4
"""


def add(commands: Any) -> None:
    """Add the commands."""
    both = (
        ("copy", "copy topics to the end of their logs, in plain processes", _COPY, options.add_copy, _copy),
        ("follow", "follow topics until SIGTERM, in plain processes", _FOLLOW, _add_follow, _follow),
    )
    for name, what, text, add_options, do in both:
        p = command(commands, name, what, text + _EXAMPLES.format(name), partial(carry_out, work=do))
        _add_all(p, add_options)


def _add_all(p: argparse.ArgumentParser, add_options: Callable[[argparse.ArgumentParser], None]) -> None:
    add_both(p)
    add_flow(p)
    add_options(p)


def _add_follow(p: argparse.ArgumentParser) -> None:
    options.add_follow(p)
    p.add_argument(
        "--reverse-of", type=name_of, metavar="MIRROR",
        help="copy back what applications write to the target of this mirror, whose way back is armed ('arm-reverse').\n"
        "--source and --target are the mirror's own; what is copied is the way back's plan",
    )  # fmt: skip


def _copy(arguments: argparse.Namespace, status: StatusFile) -> Outcome:
    mirror = mirror_of(arguments)
    return run.copy(*references_of(arguments, mirror), mirror, arguments, status)


def follow_older(argv: Sequence[str]) -> int:
    """Run ``follow`` with a command line of the first MirrorMaker or the Go mirror maker; return the exit status."""
    p = argparse.ArgumentParser(prog="airflow-mirror follow")
    _add_all(p, _add_follow)
    return older.run(argv, p.parse_args, _follow, _of_several, tasks="--processes")


@contextmanager
def _of_several(stopping: threading.Event) -> Iterator[FollowOne]:
    def one(arguments: argparse.Namespace) -> Outcome:
        mirror = mirror_of(arguments)
        return run.follow(*references_of(arguments, mirror), mirror, arguments, stopping=stopping)

    yield one


def _follow(arguments: argparse.Namespace, status: StatusFile) -> Outcome:
    stopping = threading.Event()
    stop_by_signals(stopping)
    with _flow(arguments) as (source, target, mirror):
        one = partial(run.follow, source, target, mirror, arguments, status, stopping=stopping)
        return together.keep(mirror.name, one, stopping, together.waited_for(arguments))


@contextmanager
def _flow(arguments: argparse.Namespace) -> Iterator[tuple[str, str, Mirror]]:
    """Yield what names the cluster to read and the one to write, and the Mirror.

    :raises NoWayBack: of ``--reverse-of`` none was armed. :raises InputError: beside it something else is asked for.
    """
    if arguments.reverse_of is None:
        mirror = mirror_of(arguments)
        yield (*references_of(arguments, mirror), mirror)
        return
    if arguments.target is None:
        raise InputError("--target is missing: the target of the mirror that was cut over.")
    way, named = way_of(arguments, arguments.reverse_of)
    plan, read, write = way.plan, reference(arguments.target, "target"), reference(named, "source")
    if arguments.mirror or arguments.plan or mirror_of(arguments, plan.mirror) != plan.mirror:
        raise InputError("--reverse-of says what is copied back. Leave out --mirror, --plan and what describes a Mirror.")
    with ClusterAdmin(load(read, "source")) as source, ClusterAdmin(load(write, "target")) as target:
        sync_plan(plan, source, target, hold=True)
    arguments.plan = f"{plan.hash}.json"  # no file: the old source's ledger has it, for whoever begins again
    yield read, write, plan.mirror
