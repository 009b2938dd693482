"""What a tail's driver watches knows which topics the job has claimed, also those that join later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.errors import AuthenticationFailed
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.driver.watches import Watches
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.mirror import Mirror
from airflow_mirror.wire.errors import TlsRefused
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
    there, nothing = ledger_target.reference if in_files else "env:TARGET", cast("Any", None)
    plan = plan_of(Mirror(name="m", source="src", target="dst"))
    job = CopyJob(mirror=plan.mirror, source=there, target=there, plan=plan, options=CopyOptions(mirror="m"))

    errors = [AuthenticationFailed("target", "b:1", "no such user")] * 2
    if not in_files:  # a certificate is renewed at the broker
        errors.insert(0, TlsRefused("target", "b:1", "certificate has expired", "Renew it."))

    def refuse() -> None:
        raise errors.pop(0)

    with Watches(job, nothing, nothing, {}) as watch:
        monkeypatch.setattr(watch._loops, "look_in_turn", refuse)
        if not in_files:
            watch.look()
            with pytest.raises(AuthenticationFailed):
                watch.look()
            return
        watch.look()
        watch.look()
    (said,) = [one.message for one in caplog.records if "was not looked at" in one.message]
    assert "refused to authenticate" in said


def test_settings_that_somebody_changed_are_noted_behind_topics_that_are_gone(ledger_target: LedgerCluster) -> None:
    """The last 20 notes are kept, and health tells three: topics that come and go hid that the hold is not kept."""
    there, plan, status = ledger_target.reference, plan_of(Mirror(name="m", source="src", target="dst")), StatusFile(None)
    job = CopyJob(mirror=plan.mirror, source=there, target=there, plan=plan, options=CopyOptions(mirror="m"))
    with Watches(job, cast("Any", None), status, {f"t{n}": f"topic 't{n}' is gone" for n in range(30)}) as watch:
        watch.hold.notes.append("a: retention.ms was changed to 1, set back to -1")
        watch.tell()
    notes = status.brief()["notes"]
    assert len(notes) == 20 and notes[-1].startswith("a: retention.ms") and notes[-2] == "topic 't29' is gone"
