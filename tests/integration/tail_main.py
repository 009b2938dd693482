"""A tail as its driver runs it, in a process of its own, and without Spark: what copies is a thread.

Arguments: files of the Mirror and of the plan; settings of the clusters are in the environment. Exit status as the job's.
``TEST_LEASE_TIMES`` there: times of the writer lease, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_mirror.config import load
from airflow_mirror.copy.delays import DelayMeter
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.jobs.driver.followers import followers
from airflow_mirror.jobs.driver.held_lease import wait_until_safe, writer_lease
from airflow_mirror.jobs.driver.prepare import prepare_to_copy, resolve_ranges
from airflow_mirror.jobs.driver.presence import presence
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.mirror import Mirror
from airflow_mirror.wire.cluster import WireCluster


def main(mirror_file: str, plan_file: str) -> None:
    for name, seconds in json.loads(os.environ.get("TEST_LEASE_TIMES", "{}")).items():
        setattr(lease, name, seconds)
    mirror = Mirror.from_dict(json.loads(Path(mirror_file).read_text()))
    asked = TailRequest(mirror=mirror, source="env:TEST_SOURCE", target="env:TEST_TARGET", plan=plan_file)
    stopping, status = threading.Event(), StatusFile(None)
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    job = prepare_to_copy(asked)
    with (
        presence(job, asked, status, stopping) as there,
        writer_lease(asked.target, mirror.name, lambda: there.is_cut_over) as held,
    ):
        there.require_active()
        with WireCluster(load(job.source, "source")) as source:
            ranges, _ = resolve_ranges(job, source, mirror.start, None)
        wait_until_safe(held, status, stopping)
        copying: Any = SimpleNamespace(job=job, gone={}, take_in=lambda _: None)
        work = CopyWork(source=job.source, target=job.target, options=job.options, lease=held.token)
        with followers(copying, held, status, DelayMeter(), by_hand=False):
            results = copy_ranges(work, ranges, None, stopping.is_set)
        _, error = there.ends_with(({}, None))
    if error is not None:
        raise error
    for result in results:
        print(json.dumps([result.topic, result.partition, result.position, result.error]))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except MirrorError as e:
        print(f"error: {e}", file=sys.stderr)
        sys.exit(2 if isinstance(e, InputError) else 1)
