"""The streaming tail on Spark: follows the source until SIGTERM, in one turn (micro-batch) after another.

Exit status 0: stopped by SIGTERM or SIGINT, every partition cleanly. 1: failed, or partitions had failed when it was
stopped; partition and cause on stderr. 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.following import follow
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.driver.spark_crew import spark_crew
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.signals import set_in_handler

DESCRIPTION = """Follow Kafka topics on another cluster: same records, same bytes, same offsets, milliseconds later.

Runs until SIGTERM. Safe to kill and start again: each partition continues at the target's log end offset."""


def main(argv: Sequence[str]) -> int:
    """Run the tail; see the module docstring for exit status."""
    parser = cli.parser("streaming_tail.py", DESCRIPTION)
    cli.add_spark(parser)
    cli.add_tail(parser)
    cli.add_hold(parser)
    cli.add_progress(parser)
    cli.add_metrics(parser)
    return entry.run(parser, argv, _work)


def _work(arguments: argparse.Namespace, status: StatusFile) -> Outcome:
    with closing(open_publication(arguments, status)) as publication:
        mirror, stopping = cli.mirror_of(arguments), threading.Event()

        def hear_signals() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: set_in_handler(stopping))

        muster = partial(spark_crew, f"airflow-mirror tail {mirror.name}", arguments.settings_from)
        return follow(arguments, mirror, status, publication, muster, stopping=stopping, on_present=hear_signals)
