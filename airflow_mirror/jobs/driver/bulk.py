"""The bulk copy on Spark: every partition up to the source's log end offset at the start (or ``--end``), then exit.

Exit status 0: every partition at its end. 1: failed; partition and cause on stderr. 2: bad arguments.
The last line on stdout is one JSON object.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from airflow_mirror.jobs.driver import arguments as cli
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.copying import copy
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.driver.publication import open_publication
from airflow_mirror.jobs.driver.spark_crew import spark_crew
from airflow_mirror.jobs.request import BulkRequest
from airflow_mirror.jobs.runner.status import StatusFile

DESCRIPTION = """Copy Kafka topics to another cluster: same records, same bytes, same offsets.

Safe to repeat: each partition continues at the target's log end offset."""


def main(argv: Sequence[str]) -> int:
    """Run the job; see the module docstring for exit status and output."""
    return entry.run(cli.parser("bulk_copy.py", DESCRIPTION, BulkRequest), argv, BulkRequest, work)


def work(request: BulkRequest, status: StatusFile) -> Outcome:
    """Copy on Spark; see :func:`.copying.copy`."""
    with closing(open_publication(request, status)) as publication:
        muster = partial(spark_crew, f"airflow-mirror bulk {request.mirror.name}", request.settings_from)
        return copy(request, status, publication, muster)
