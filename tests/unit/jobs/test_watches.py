"""What a tail's driver watches knows which topics the job has claimed, also those that join later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.watches import Watches
from airflow_mirror.mirror import Mirror
from tests.builders import plan_of, topic_plan
from tests.driven.ledger import LedgerCluster


def test_watches_know_topics_by_the_ids_that_the_job_has_claimed(ledger_target: LedgerCluster) -> None:
    """Otherwise they would set, and claim, what somebody else created under the name."""
    mirror = Mirror(name="m", source="src", target="dst")
    plan = plan_of(mirror, topic_plan("a", {0: 0}, source_topic_id="id-a"))
    there = ledger_target.reference
    options, ids = CopyOptions(mirror="m"), {"a": "id-there"}
    job = CopyJob(mirror=mirror, source=there, target=there, plan=plan, options=options, target_ids=ids)
    nothing: Any = None
    with Watches(job, nothing, nothing, {}) as watch:
        assert watch.hold._ids == watch._loops._ids == ids
        more = ids | {"b": "id-joined"}
        watch.follow(replace(job, target_ids=more))
        assert watch.hold._ids == watch._loops._ids == more
