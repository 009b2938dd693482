"""Records whose keys choose the partition, from one job to the next."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.jobs.driver.prepare import CopyJob, resolve_ranges, taking_in
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import with_amendments
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, id_of
from tests.driven.log import PartitionLog
from tests.unit.ledger.memory import MemoryLedger


def run(source: DrivenCluster, target: DrivenCluster, plan: Plan, ledger: MemoryLedger) -> None:
    """Copy as a job does that begins now."""
    job = CopyJob(
        mirror=plan.mirror, source="s", target="t", plan=plan_of(plan.mirror), options=CopyOptions(mirror="m")
    )  # fmt: skip
    with ClusterAdmin(target.config) as admin, WireCluster(source.config) as wire:
        claim(ledger, plan, admin)
        job = taking_in(job, plan, admin, ledger)
        assert with_amendments(plan, admin, ledger) == job.plan and job.plan.hash == plan.hash
        ranges, _ = resolve_ranges(job, wire, "earliest", "latest")
    assert {p.error for p in copy(source, target, ranges)} == {None}


def bodies(*logs: PartitionLog) -> list[str]:
    return sorted(repr(row[1:]) for log in logs for row in log.rows())


@pytest.mark.parametrize("planned", [2, None])
def test_target_that_grows_between_two_jobs_gets_no_record_twice(
    source: DrivenCluster, target: DrivenCluster, planned: int | None
) -> None:
    """Of a plan of before the count was kept the ledger alone knows it."""
    ledger = MemoryLedger()
    log = source.create("t").logs[0]
    target.create("t", 2)
    mirror = Mirror(name="m", source="src", target="dst", partitioning="by_key")
    topic = topic_plan("t", {0: 0}, source_topic_id=id_of(source, "t"), mode="mapped", key_partitions=planned)
    for _ in range(3):
        Writer(log).plain(10)
    run(source, target, plan_of(mirror, topic), ledger)
    target.grow("t", 4)
    for _ in range(3):
        Writer(log).plain(10)
    run(source, target, plan_of(mirror, topic), ledger)
    there = target.topics["t"].logs
    assert bodies(*there) == bodies(log)
    assert all(one.end for one in there[:2]) and not any(one.end for one in there[2:])
