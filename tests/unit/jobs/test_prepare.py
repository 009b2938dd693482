"""What a job asks once more when it holds the lease: who had it before may have decided otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import MirrorCutOver
from airflow_mirror.jobs.driver import prepare
from airflow_mirror.plan.owned import claimed_ids, target_ids
from airflow_mirror.plan.ownership import claim, mark_cut_over
from tests.driven.ledger import LedgerCluster
from tests.unit.plan.test_model import a_plan
from tests.unit.plan.test_ownership import NOON


def test_topics_opened_while_a_job_waited_for_the_lease(ledger_target: LedgerCluster) -> None:
    """It may have asked minutes ago, and a lost ledger keeps nobody from copying."""
    plan, ledger = a_plan(), ledger_target.ledger
    for topic in plan.topics:
        ledger_target.create(topic.target_topic, topic.partitions)
    job: Any = SimpleNamespace(plan=plan, target=ledger_target.reference)
    claim(ledger, plan, ledger_target.admin)
    prepare.require_still_ours(job)
    mark_cut_over(ledger, plan, target_ids(plan, ledger_target.admin), NOON)
    with pytest.raises(MirrorCutOver):
        prepare.require_still_ours(job)
    ledger_target.create(DECISIONS)  # which loses it
    prepare.require_still_ours(job)


def test_job_of_an_old_plan_takes_no_topic_that_was_created_again(ledger_target: LedgerCluster) -> None:
    """Empty, it would look like a copy that has not begun."""
    plan, ledger = a_plan(), ledger_target.ledger
    for topic in plan.topics:
        ledger_target.create(topic.target_topic, topic.partitions)
    there = ledger_target.admin
    prepare._claim(plan, there, ledger_target.admin, ledger)
    before, before_ids = dict(ledger.values()), target_ids(plan, ledger_target.admin)
    again = plan.topics[0].target_topic
    ledger_target.create(again, 1)
    now = target_ids(plan, ledger_target.admin)
    prepare._claim(plan, there, ledger_target.admin, ledger)
    assert ledger.values() == before, "others' topics go on, and this one's partitions stop by the id that was claimed"
    assert claimed_ids(ledger.values(), now) == {**now, again: before_ids[again]} != now
