"""Run a command line of an older tool: its options become those of our jobs, its files become settings of the clusters.

Settings and Mirror pass to the job in files that only this user can read, and that go when it ends, so that nothing of
them stands on a command line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from airflow_mirror.compat import flags
from airflow_mirror.compat.flags import CommandLine, Flow
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.together import FollowOne, follow_together
from airflow_mirror.jobs.runner.status import StatusFile

# Of one job: several would write to the same place.
_OF_ONE = ("--job-dir", "--metrics-file", "--metrics-port", "--plan", "--mirror")


def run(
    argv: Sequence[str],
    parse: Callable[[Sequence[str]], argparse.Namespace],
    work: Callable[[argparse.Namespace, StatusFile], Outcome],
    of_several: Callable[[threading.Event], AbstractContextManager[FollowOne]],
    tasks: str = "--tasks",
) -> int:
    """Run a tail with an older tool's command line, or with one of its own; return the exit status.

    :param parse: reads a command line of the tail's own.
    :param work: follows one source; see :func:`.entry.carry_out`.
    :param of_several: yields what follows one of several sources.
    :param tasks: the tail's option for how many copy at once.
    """
    if not flags.is_old(argv):
        return entry.carry_out(parse(argv), work)
    with tempfile.TemporaryDirectory(prefix="airflow-mirror-older-") as scratch:
        try:
            given = flags.read(argv)
            jobs = {flow.fields["name"]: parse(_arguments(flow, given, Path(scratch), tasks)) for flow in given.flows}
            _require_apart(given)
        except InputError as e:
            print(f"error: {e}", file=sys.stderr)
            return 2
        for line in flags.describe(given.noticed):
            print(line, file=sys.stderr)
        first, *others = jobs.values()
        return follow_together(jobs, of_several) if others else entry.carry_out(first, work)


def _require_apart(given: CommandLine) -> None:
    taken = [option for option in _OF_ONE if any(one.partition("=")[0] == option for one in given.rest)]
    if taken and len(given.flows) > 1:
        raise InputError(f"{', '.join(taken)}: of one job, and there are {len(given.flows)} sources. Remove it.")


def _arguments(flow: Flow, given: CommandLine, scratch: Path, tasks: str) -> list[str]:
    """Return a flow's command line of our own."""
    directory = scratch / flow.fields["name"]
    directory.mkdir()  # within a directory of this user's alone
    arguments = list[str]()
    for option, content in (("--source", flow.source), ("--target", flow.target), ("--mirror", flow.fields)):
        file = directory / f"{option.strip('-')}.json"
        file.write_text(json.dumps(dict(content)), encoding="utf-8")
        arguments += [option, str(file)]
    streams = [] if given.streams is None else [tasks, str(given.streams)]
    aborts = ["--abort-on-send-failure"] if given.aborts else []
    bound = [] if given.give_up_after_s is None else ["--give-up-after-s", str(given.give_up_after_s)]
    return [*arguments, *streams, *aborts, *bound, *given.rest]
