"""The streaming tail on Spark: follows the source until SIGTERM, in one turn (micro-batch) after another.

Exit status 0: stopped by SIGTERM or SIGINT; partitions that it would have opened again are in the summary. 1: failed, or
partitions had failed for good when it was stopped; partition and cause on stderr. 2: wrong arguments.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from time import monotonic

from airflow_mirror.common.signals import stop_by_signals
from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import older, together
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.executors import await_slots
from airflow_mirror.jobs.driver.following import follow
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.driver.session import spark_context
from airflow_mirror.jobs.driver.spark_crew import crew_of, spark_crew
from airflow_mirror.jobs.driver.together import FollowOne
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.status import StatusFile

DESCRIPTION = """Follow Kafka topics on another cluster: same records, same bytes, same offsets, milliseconds later.

Runs until SIGTERM. Safe to kill and start again: each partition continues at the target's log end offset. A cluster that
is away is waited for, also at the start.

The options of the first MirrorMaker and of the Go mirror maker are understood, too (--consumer.config and so on); see
docs/from-mirrormaker-1.md."""


def main(argv: Sequence[str]) -> int:
    """Run the tail; see the module docstring for exit status. Command lines of older tools are understood, too."""
    parse = cli.parser("streaming_tail.py", DESCRIPTION, TailRequest).parse_args
    return older.run(argv, parse, partial(cli.request_of, TailRequest), work, _of_several)


def work(request: TailRequest, status: StatusFile) -> Outcome:
    """Follow on Spark until SIGTERM; see :func:`.following.follow`."""
    with closing(open_publication(request, status)) as publication:
        name, stopping = request.mirror.name, threading.Event()
        muster = partial(spark_crew, f"airflow-mirror tail {name}", request.settings_from)
        heard = partial(stop_by_signals, stopping)
        one = partial(follow, request, status, publication, muster, stopping=stopping, on_present=heard)
        return together.keep_alone(name, one, stopping, request.fail_fast)


@contextmanager
def _of_several(stopping: threading.Event, count: int) -> Iterator[FollowOne]:
    """Yield what follows one of so many sources, all of them in one application of Spark."""
    with spark_context("airflow-mirror tail", stopping) as context:
        queue = threading.Lock()  # they wait for the same slots

        def one(request: TailRequest) -> Outcome:
            begun = monotonic()
            with queue:
                await_slots(context, count, stopping, begun)
            status = StatusFile(None)
            with closing(open_publication(request, status)) as publication:
                muster = lambda _: crew_of(context, request.settings_from, count)  # noqa: E731
                return follow(request, status, publication, muster, stopping=stopping)

        yield one
