"""``airflow-mirror run``: a tail for each flow of a MirrorMaker 2 file, as ``connect-mirror-maker.sh`` has them."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from airflow_mirror.common.signals import stop_by_signals
from airflow_mirror.compat import files
from airflow_mirror.compat.keys import RETENTION
from airflow_mirror.compat.rows import Fate
from airflow_mirror.config import ClientConfig
from airflow_mirror.console.command import command
from airflow_mirror.console.home import own_home
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver.arguments import add_alarm
from airflow_mirror.jobs.metrics.files import FilesCollector, say_ended
from airflow_mirror.jobs.metrics.publish import Publication
from airflow_mirror.jobs.progress.wording import progress_line
from airflow_mirror.jobs.runner.client import ThisHost
from airflow_mirror.jobs.runner.keeping import Kept, keep
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.jobs.runner.plain import PlainProcesses
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.mirror import Mirror

_TEXT = """\
Keep a tail running for each enabled flow of a connect-mirror-maker.properties, or of the files of MirrorMaker 2's three
connectors. Each is a process of its own, in plain Python or, if asked for, with Spark on this host. Runs until SIGTERM,
which ends them all: each finishes what is in flight. The first lines say what is otherwise here than with MirrorMaker.

A tail that dies is started again; one that only a person can help is not, and the others go on. Run on several hosts, one
file is shared: the partitions of each flow are dealt to all of them. A mirror whose tail is a Spark job elsewhere is left
alone until that one is gone. Killed itself, it leaves its tails running; run again, it finds
them.

Exit status: 0 stopped, every tail cleanly; 1 one failed, or had to be killed; 2 wrong input.

examples:
  airflow-mirror run connect-mirror-maker.properties
  airflow-mirror run connect-mirror-maker.properties --clusters us-east    # only flows into this cluster
"""
ENGINES = {"plain": PlainProcesses, "spark": ThisHost}
_SAID = {
    "plain": "plain Python processes, for each flow its own; --engine spark copies with Spark on this host instead",
    "spark": "Spark on this host, with a JVM for each flow",
}


def add(commands: Any) -> None:
    """Add the command."""
    p = command(commands, "run", _TEXT, _run)
    p.add_argument("file", nargs="+", type=Path, metavar="FILE", help="of the driver, or of the connectors")
    add_clusters(p)
    p.add_argument(
        "--engine", choices=ENGINES, default="plain",
        help="plain Python processes, or Spark on this host, with a JVM for each flow (default: plain)",
    )  # fmt: skip
    add_home(p)
    p.add_argument(
        "--metrics-dir", type=Path, metavar="DIR",
        help="figures for Prometheus: a file for each flow, rewritten every few seconds, for node_exporter's textfile "
        "collector",
    )  # fmt: skip
    p.add_argument(
        "--metrics-port", type=int, metavar="N",
        help="figures of all flows at one port of the loopback interface; 0: any free one",
    )  # fmt: skip
    p.add_argument(
        "--fail-fast", action="store_true",
        help="give a flow up where its tail ends, or can't start because a cluster is away, instead of trying it again",
    )  # fmt: skip
    add_alarm(p)


def add_clusters(p: argparse.ArgumentParser) -> None:
    """Add ``--clusters``."""
    p.add_argument(
        "--clusters", nargs="+", metavar="ALIAS", help="only flows whose target is one of these (default: all flows)"
    )


def add_home(p: argparse.ArgumentParser) -> None:
    """Add ``--home``."""
    p.add_argument(
        "--home", type=Path, metavar="DIR",
        help="logs and scratch of the tails (default: airflow-mirror in the user's state directory)",
    )  # fmt: skip


def chosen(brought: files.Brought, clusters: Collection[str] | None) -> Mapping[tuple[str, str], Mirror]:
    """Return the Mirrors of the flows into some clusters, by source and target alias; into all by default.

    :raises InputError: no flow leads into one of them.
    """
    return {flow: Mirror.from_dict(fields) for flow, fields in brought.into(clusters or ()).items()}


def _run(arguments: argparse.Namespace) -> int:
    brought = files.read(arguments.file)
    mirrors, home = chosen(brought, arguments.clusters), arguments.home or own_home()
    stopping = threading.Event()
    stop_by_signals(stopping)
    otherwise = [one for one in brought.noticed if one.changed or one.fate is Fate.WITHOUT_EFFECT]
    keys = [(one.key, f"{one.fate.value}: {one.text}") for one in otherwise]
    for subject, line in (("engine", _SAID[arguments.engine]), ("retention", RETENTION), *keys):
        _say(subject, line)

    port, directory = arguments.metrics_port, arguments.metrics_dir
    figures = {m.name: (directory or home / m.name).absolute() / f"{m.name}.prom" for m in mirrors.values()}
    if directory is None and port is None:
        figures.clear()

    def one(flow: tuple[str, str], mirror: Mirror) -> Kept:
        runner = LocalRunner(home / mirror.name, ENGINES[arguments.engine]())
        # A plan refuses topics that hold data of others, so what is put on hold is the mirror's own: adopted, or changed.
        metrics = str(figures[mirror.name]) if figures else ""
        spec = JobSpec(
            kind="streaming_tail", mirror=mirror.to_dict(), options={"hold": True}, alarm=arguments.alarm or "",
            metrics=metrics,
        )  # fmt: skip
        ends = {"source": mirror.source, "target": mirror.target}

        def secrets() -> dict[str, ClientConfig]:
            connections = _connections(arguments.file, brought)
            return {role: ClientConfig(connections[name], role) for role, name in ends.items()}

        say = partial(_say, "->".join(flow))
        try:
            kept = keep(runner, spec, secrets, stopping, say, progress_line, fail_fast=arguments.fail_fast)
        except Exception as e:  # a mistake of ours: who waits for all flows looks at it once the others have ended
            say(f"given up: {type(e).__name__}: {e}")
            raise
        if figures:
            say_ended(figures[mirror.name])
        return kept

    with closing(Publication(None, port)) as publication, ThreadPoolExecutor(len(mirrors)) as pool:
        publication.show(FilesCollector([*figures.values()]))
        if publication.address is not None:
            _say("figures", f"http://{publication.address}/metrics")
        kept = [future.result() for future in [pool.submit(one, *each) for each in mirrors.items()]]
    statuses = {end.status for end in kept}
    return statuses.pop() if len(statuses) == 1 else 1


def _connections(paths: Sequence[Path], brought: files.Brought) -> Mapping[str, Mapping[str, str]]:
    """Return the connections as the files have them now: a password may have been changed. Nothing else is taken."""
    try:
        return {**brought.connections, **files.read(paths).connections}
    except InputError as e:  # somebody may be writing them
        _say("settings", f"those of the start are used: {e}")
        return brought.connections


def _say(subject: str, line: str) -> None:
    with suppress(OSError):  # the disk of a log that is full must end no flow
        print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {subject}: {line}", file=sys.stderr, flush=True)
