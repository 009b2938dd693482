"""The command line that the Spark jobs share (design, section 4)."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.knobs import knobs_of, options_given
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.windows import LATE_S
from airflow_mirror.jobs.metrics.collector import LISTED
from airflow_mirror.jobs.progress.listener import Hosts
from airflow_mirror.mirror import Mirror

TURN_S = 600.0  # of a tail: little is copied between two turns
_SOURCE_ID, _TARGET_ID = "source", "target"  # names of both clusters if a job is run by hand, without connections


def parser(prog: str, description: str) -> argparse.ArgumentParser:
    """Return the parser with the arguments that every job takes. Wrong arguments end the process with status 2."""
    p = argparse.ArgumentParser(prog=prog, description=description, formatter_class=argparse.RawTextHelpFormatter)
    add_clusters(p)
    add_flow(p)
    add_run(p)
    return p


def add_clusters(p: argparse.ArgumentParser) -> None:
    """Add the options that name the clusters' settings."""
    what = p.add_argument_group("clusters")
    reference = "librdkafka settings: a properties file (one key=value per line), or env:NAME holding JSON"
    what.add_argument("--source", required=True, metavar="FILE", help=f"the cluster to read. {reference}")
    what.add_argument("--target", required=True, metavar="FILE", help=f"the cluster to write. {reference}")


def add_run(p: argparse.ArgumentParser) -> None:
    """Add the options of one run of a job, whoever carries it out."""
    run = p.add_argument_group("this run")
    run.add_argument("--plan", metavar="FILE", help="plan.json; without it the job makes a plan and creates topics")
    run.add_argument(
        "--no-probe", action="store_true", help="don't try out the rights on the target with a scratch topic"
    )
    run.add_argument("--report", metavar="KEY", help=argparse.SUPPRESS)  # of a job that was submitted in cluster mode
    run.add_argument("--job-dir", metavar="DIR", help="directory of status.json while the job runs")


def add_spark(p: argparse.ArgumentParser) -> None:
    """Add the options of a job that Spark carries out."""
    run = p.add_argument_group("on Spark")
    run.add_argument(
        "--tasks", type=int, metavar="N", help="number of Spark tasks (default: from the cluster's cores and the bytes)"
    )
    run.add_argument(
        "--settings-from", choices=("driver", "executor"), default="driver",
        help="on a Spark cluster: the driver hands the clusters' settings to its tasks, in memory,\n"
        "or each executor reads --source and --target (default: driver)",
    )  # fmt: skip


def add_flow(p: argparse.ArgumentParser) -> None:
    """Add the options that describe a Mirror, for :func:`mirror_of`."""
    flow = p.add_argument_group("what to mirror")
    flow.add_argument(
        "--mirror", metavar="FILE", help="a Mirror as YAML or JSON; the options of this group then change it"
    )
    flow.add_argument("--name", help="identity of the flow; two jobs of one name never write at once (default: cli)")
    for one, knob in knobs_of(Mirror):
        if knob.option:
            knob.add(flow, one.default)


def add_bulk(p: argparse.ArgumentParser) -> None:
    """Add the options of a copy that ends."""
    p.add_argument(
        "--end", metavar="latest|ISO", default="latest", help="where to stop (default: latest, when the job starts)"
    )
    p.add_argument(
        "--accept-open-transactions", action="store_true",
        help="exit 0 although an open transaction of the source keeps records from being copied; something\n"
        "else copies them later, such as a tail",
    )  # fmt: skip
    add_late(p)


def add_tail(p: argparse.ArgumentParser) -> None:
    """Add the options of a copy that follows."""
    p.add_argument(
        "--turn-s", type=float, default=TURN_S, metavar="S",
        help=f"seconds that a turn takes, a micro-batch on Spark (default: {TURN_S:g})",
    )  # fmt: skip
    p.add_argument("--takeover", action="store_true", help="replace the mirror's tail even if it gives signs of life")
    p.add_argument("--replaces", default="", help=argparse.SUPPRESS)  # what was found to be lost
    add_fail_fast(p)
    add_alarm(p)


def add_fail_fast(p: argparse.ArgumentParser) -> None:
    """Add the option of what otherwise waits for clusters."""
    p.add_argument(
        "--fail-fast", action="store_true",
        help="end with status 1 where a cluster is away at the start, instead of waiting for it",
    )  # fmt: skip


def add_alarm(p: argparse.ArgumentParser) -> None:
    """Add the option of a tail, whose driver guards its mirror's fence: how that calls a person."""
    p.add_argument(
        "--alarm", default="", metavar="FUNCTION",
        help="package.module.function that calls a person if a cutover dies behind its fence (default: none)",
    )  # fmt: skip


def add_late(p: argparse.ArgumentParser) -> None:
    """Add the option that belongs to an ``--end`` that is a time."""
    p.add_argument(
        "--late-s", type=float, metavar="S", default=LATE_S,
        help=f"with --end ISO: how late its last records may arrive, in seconds (default: {LATE_S:g})",
    )  # fmt: skip


def add_hold(p: argparse.ArgumentParser) -> None:
    """Add the option of a job that writes without a plan."""
    p.add_argument(
        "--hold", action="store_true",
        help="without --plan: turn retention and compaction off on target topics that already hold data,\n"
        "instead of refusing them",
    )  # fmt: skip


def add_failures(p: argparse.ArgumentParser) -> None:
    """Add the options of a job that copies: when it gives up."""
    p.add_argument(
        "--give-up-after-s", type=float, metavar="S",
        help="how long a partition may make no progress before it is given up, in seconds; inf: never\n"
        "(default: 120, and 600 while nobody can tell whether this job may write). A tail tries it again",
    )  # fmt: skip
    p.add_argument(
        "--abort-on-send-failure", action="store_true",
        help="end the job with the first partition that stops, instead of copying the others; a tail that is\n"
        "to end because the target is away needs --give-up-after-s as well",
    )  # fmt: skip


def failing(options: CopyOptions, arguments: argparse.Namespace) -> CopyOptions:
    """Return options with what the arguments say of failures.

    :raises InvalidField: no time makes sense as the bound.
    """
    bound_s = arguments.give_up_after_s
    if bound_s is not None and not bound_s > 0:  # nan, too
        raise InvalidField("--give-up-after-s", bound_s, "no time to copy in", "Give seconds above 0, or inf.")
    return replace(options, give_up_after_s=bound_s, abort_on_send_failure=arguments.abort_on_send_failure)


def add_progress(p: argparse.ArgumentParser) -> None:
    """Add the option of a job that copies: whether its driver listens for what tasks report."""
    p.add_argument(
        "--no-progress", action="store_true",
        help="open no port for the tasks' reports: positions are read from the clusters,\n"
        "counters are known at the end",
    )  # fmt: skip


def progress_hosts(arguments: argparse.Namespace, hosts: Hosts | None) -> Hosts | None:
    """Return where the driver listens for its tasks' reports; None: it is not to listen.

    :param hosts: where the tasks reach it, if they may.
    """
    return None if arguments.no_progress else hosts


def add_metrics(p: argparse.ArgumentParser) -> None:
    """Add the options of a job that copies: where Prometheus finds its figures."""
    shown = p.add_argument_group("figures for Prometheus")
    shown.add_argument(
        "--metrics-file", metavar="FILE", type=Path,
        help="rewritten every few seconds, for node_exporter's textfile collector (a name that ends in .prom)",
    )  # fmt: skip
    shown.add_argument(
        "--metrics-port", metavar="N", type=int, help="listen on the loopback interface; 0: at any free port"
    )
    shown.add_argument(
        "--metrics-partitions", metavar="N", type=int, default=LISTED,
        help=f"most partitions with figures of their own (default: {LISTED})",
    )  # fmt: skip


def mirror_of(arguments: argparse.Namespace, base: Mirror | None = None) -> Mirror:
    """Build the Mirror that the arguments describe.

    :param base: what they change, instead of one that ``--mirror`` names.
    :raises InputError: names the field, its value and the remedy.
    """
    values: dict[str, Any] = {"name": "cli", "source": _SOURCE_ID, "target": _TARGET_ID}
    if base is not None or arguments.mirror:
        values = (base or Mirror.from_file(arguments.mirror)).to_dict()
    if arguments.name is not None:
        values["name"] = arguments.name
    values |= options_given(Mirror, arguments)
    if arguments.ownership == "shared":
        values |= {"sync_groups": False, "sync_configs": False}
    return Mirror.from_dict(values)
