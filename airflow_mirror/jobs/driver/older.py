"""Run a command line of an older tool: its options become those of our jobs, its files become settings of the clusters.

Settings and Mirror pass to the job in files that only this user can read, and that go when it ends, so that nothing of
them stands on a command line.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from airflow_mirror.common.signals import stop_by_signals
from airflow_mirror.compat import flags
from airflow_mirror.compat.flags import CommandLine, Flow
from airflow_mirror.config import load
from airflow_mirror.errors import FollowDiffers, InputError, LedgerMissing
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.together import FollowOne, follow_together, until_there, waited_for
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.active import active_tail
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import SHORTEST_HOLD_MS
from airflow_mirror.plan.owned import decided
from airflow_mirror.sync.log_starts.deciding import retention_of
from airflow_mirror.sync.log_starts.observations import FOREVER
from airflow_mirror.wording import some

log = logging.getLogger(__name__)

# Of one job: several would write to the same place.
_OF_ONE = ("--job-dir", "--metrics-file", "--metrics-port", "--plan", "--mirror")


def run(
    argv: Sequence[str],
    parse: Callable[[Sequence[str]], argparse.Namespace],
    asked: Callable[[argparse.Namespace], TailRequest],
    work: Callable[[TailRequest, StatusFile], Outcome],
    of_several: Callable[[threading.Event, int], AbstractContextManager[FollowOne]],
    tasks: str = "--tasks",
) -> int:
    """Run a tail with an older tool's command line, or with one of its own; return the exit status.

    :param parse: reads a command line of the tail's own. :param asked: makes a request of it.
    :param work: follows one source; see :func:`.entry.carry_out`.
    :param of_several: yields what follows one of several sources, given how many.
    :param tasks: the tail's option for how many copy at once.
    """
    if not flags.is_old(argv):
        own = parse(argv)
        return entry.carry_out(partial(asked, own), work, entry.Told.by(own))
    stop_by_signals(threading.Event())  # before a secret is written: nothing removes it when a signal ends the process
    with tempfile.TemporaryDirectory(prefix="airflow-mirror-older-") as scratch:
        try:
            given = flags.read(argv)
            lines = {flow.fields["name"]: parse(_arguments(flow, given, Path(scratch), tasks)) for flow in given.flows}
            jobs = {name: asked(line) for name, line in lines.items()}
            told = {flow.fields["name"] for flow in given.flows if "partitioning" in flow.fields}
            told |= {name for name, line in lines.items() if line.partitioning is not None}
            _require_apart(given)
        except InputError as e:
            print(f"error: {e.lines}", file=sys.stderr)
            return 2
        for line in flags.describe(given.noticed):
            print(line, file=sys.stderr)

        def settled(job: TailRequest) -> TailRequest:
            job = job if job.mirror.name in told else _changed(job, partitioning=partitioning(job))
            ends = job.mirror.partitioning == "by_key" and job.mirror.hold_retention_ms is None and not job.mirror.shares
            return _changed(job, hold_retention_ms=hold_retention_ms(job)) if ends else job

        def alone(job: TailRequest, status: StatusFile) -> Outcome:
            return work(until_there(job.mirror.name, partial(settled, job), waited_for(job.fail_fast)), status)

        @contextmanager
        def several(stopping: threading.Event) -> Iterator[FollowOne]:
            with of_several(stopping, len(jobs)) as one:
                yield lambda job: _but_what_others_have(settled(job), one)

        first, *others = jobs.values()
        return follow_together(jobs, several) if others else entry.carry_out(lambda: first, alone, entry.Told.by(first))


def _but_what_others_have(job: TailRequest, one: FollowOne) -> Outcome:
    """Follow a source; without the topics that mirrors of other sources own on the target, if that is refused.

    The flow then ends with what refused it, so that nobody takes it for whole.
    """
    try:
        return one(job)
    except (InputError, FollowDiffers) as e:  # a tail that left them out has another Mirror
        taken = _taken(job)
        if not taken:
            raise
        log.error(
            "%s goes on without %s: %s. To write both into one topic, give --ownership shared --delivery transactional "
            "--offsets mapped, for new topics on the target; or --prefix, which keeps them apart",
            job.mirror.name, some(taken), "; ".join(sorted(set(taken.values()))),
        )  # fmt: skip
        left = (*job.mirror.exclude_topics, *map(re.escape, taken))
        summary, error = one(_changed(job, exclude_topics=left))
        return summary, error or e


def _taken(job: TailRequest) -> dict[str, str]:
    """Return the source topics whose target topics are another mirror's, and whose."""
    mirror = job.mirror
    with ClusterAdmin(load(job.source, "source")) as source, ClusterAdmin(load(job.target, "target")) as target:
        names = {mirror.naming.target_topic(n): n for n in source.topic_names() if mirror.selects_topic(n)}
        ids = {name: one.topic_id for name, one in target.topics(names).items()}
        try:
            owned = decided(Ledger(target).values(), ids)
        except LedgerMissing:
            return {}
        me = mirror.name, source.cluster_id()
        return {names[name]: one.owner for name, one in sorted(owned.items()) if (one.mirror, one.source_id) != me}


def partitioning(job: TailRequest) -> str:
    """Return the partitioning of a command line that says none.

    Both tools let the producer choose by the key. Where both sides have as many partitions, that is where producers have
    put the record, so it stays there, with its offset. What the mirror has begun with it goes on with.
    """
    mirror = job.mirror
    with ClusterAdmin(load(job.source, "source")) as source, ClusterAdmin(load(job.target, "target")) as target:
        try:
            tail = active_tail(Ledger(target).values(), mirror.name)
        except LedgerMissing:
            tail = None
        if tail is not None:
            return str(tail.mirror["partitioning"])
        here = source.topics([name for name in source.topic_names() if mirror.selects_topic(name)])
        there = target.topics([mirror.naming.target_topic(name) for name in here])
    names = {mirror.naming.target_topic(name): one.partitions for name, one in here.items()}
    differ = sorted(name for name, one in there.items() if one.partitions != names[name])
    if differ:
        log.warning(
            "all records are partitioned by key, as the older tools do, so offsets can't be kept: another number of "
            "partitions than on the source have %s on the target", some(differ),
        )  # fmt: skip
    return "by_key" if differ else "preserve"


def hold_retention_ms(job: TailRequest) -> int | None:
    """Return how long a target keeps what no log start can follow, so that it stays as small as the older tool's.

    A broker deletes a segment once its newest record is as old as the retention. Its oldest one is older by segment.ms at
    most. So no record of the source gets as old as a hold of both, and a fifth more; :mod:`.finite_hold` looks.

    :return: None, for ever: of some topic the source itself keeps records for ever.
    """
    with ClusterAdmin(load(job.source, "source")) as source:
        configs = source.topic_configs([name for name in source.topic_names() if job.mirror.selects_topic(name)])
    values = {name: {key: one.value for key, one in entries.items()} for name, entries in configs.items()}
    kept_ms = {name: retention_of(its).ms for name, its in values.items()}
    if forever := sorted(name for name, ms in kept_ms.items() if ms == FOREVER):
        log.warning(
            "the target keeps every record, because keys choose the partition and the source keeps those of %s for ever; "
            "--hold-retention-ms limits it", some(forever),
        )  # fmt: skip
        return None
    held_ms = max((ms + int(values[name].get("segment.ms") or 0) for name, ms in kept_ms.items()), default=0)
    return max(SHORTEST_HOLD_MS, held_ms * 6 // 5) if kept_ms else None


def _changed(job: TailRequest, **fields: Any) -> TailRequest:
    """Return a request of which some fields of the Mirror are others."""
    return replace(job, mirror=replace(job.mirror, **fields))


def _require_apart(given: CommandLine) -> None:
    taken = [option for option in _OF_ONE if any(one.partition("=")[0] == option for one in given.rest)]
    if taken and len(given.flows) > 1:
        raise InputError(", ".join(taken), f"it is of one job, and there are {len(given.flows)} sources", "Remove it.")


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
