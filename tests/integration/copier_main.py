"""A copier as a process of its own, for tests that kill or freeze it."""

from __future__ import annotations

import json
import logging
import sys
import time

from airflow_mirror.config import load
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.task import CopyWork, copy_ranges
from airflow_mirror.copy.writer import lease
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced


def taken(wire: WireCluster, mirror: str) -> lease.LeaseToken:
    """Take the lease, also where a twin takes it in the same moment: a driver that is fenced there tries again."""
    while True:
        try:
            return lease.take(wire, mirror)
        except Fenced as e:
            print(e, file=sys.stderr)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    spec = json.loads(sys.argv[1])
    with WireCluster(load("env:TEST_TARGET", "target")) as wire:
        ranges = [CopyRange(**r) for r in spec["ranges"]]
        if any(one.is_mapped for one in ranges):
            with ClusterAdmin(load("env:TEST_TARGET", "target")) as admin:
                make_ready(admin)
        token = taken(wire, spec["mirror"])
        print("lease taken", file=sys.stderr, flush=True)
        if spec["wait"]:
            time.sleep(token.wait_s)
        work = CopyWork(
            source="env:TEST_SOURCE",
            target="env:TEST_TARGET",
            options=CopyOptions(mirror=spec["mirror"], **spec["options"]),
            lease=token,
        )
        for result in copy_ranges(work, ranges):
            print(json.dumps(result.to_dict()), flush=True)
        lease.release(wire, token)
