"""What a tail's driver watches knows which topics the job has claimed, also those that join later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import AuthenticationFailed
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


@pytest.mark.parametrize("in_files", [True, False])
def test_login_that_is_refused_ends_no_watch_that_may_read_another_password(
    ledger_target: LedgerCluster, in_files: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the tail as wrong input, weeks after its start. What is in the environment stays what it is."""
    monkeypatch.setenv("TARGET", ledger_target.config.dump())
    there, nothing = ledger_target.reference if in_files else "env:TARGET", cast(Any, None)
    plan = plan_of(Mirror(name="m", source="src", target="dst"))
    job = CopyJob(mirror=plan.mirror, source=there, target=there, plan=plan, options=CopyOptions(mirror="m"))

    def refuse() -> None:
        raise AuthenticationFailed("target", "b:1", "no such user")

    with Watches(job, nothing, nothing, {}) as watch:
        monkeypatch.setattr(watch._loops, "look_in_turn", refuse)
        if not in_files:
            with pytest.raises(AuthenticationFailed):
                watch.look()
            return
        watch.look()
        watch.look()
    (said,) = [one.message for one in caplog.records if "was not looked at" in one.message]
    assert "refused to authenticate" in said
