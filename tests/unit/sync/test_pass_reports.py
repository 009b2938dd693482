"""What passes say, as text and as values: tests/golden/passes.json holds it.

``airflow-mirror status``, health and what people's own tools read of a status.json go by it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.kafka.model import Acl
from airflow_mirror.sync.acl_follower import AclFollowReport
from airflow_mirror.sync.acl_rules import LeftOut
from airflow_mirror.sync.acls import AclDiff, AclReport
from airflow_mirror.sync.config_follower import ConfigReport
from airflow_mirror.sync.ends.follower import EndsReport
from airflow_mirror.sync.following.follower import FollowReport
from airflow_mirror.sync.log_starts.report import StartsReport
from airflow_mirror.sync.mm2_topics.follower import TraceReport
from airflow_mirror.sync.mm2_topics.heartbeats import HeartbeatReport
from airflow_mirror.sync.schemas.follower import SchemaFollowReport
from airflow_mirror.sync.topic_discovery import AmendingReport
from tests.builders import rule
from tests.unit.jobs.test_followers import every_follower

GOLDEN = Path(__file__).parents[2] / "golden" / "passes.json"
READ, DENY, WRITE = (rule("orders", *one) for one in (("READ", "ALLOW"), ("ALTER", "DENY"), ("WRITE", "ALLOW")))


def two(what: str) -> list[str]:
    return [f"t-2: {what} again", f"t-1: {what} {'x' * 300}"]


def acls(*, granted: tuple[Acl, ...] = (), more: bool = False) -> AclReport:
    some = (READ,) if more else ()
    diff = AclDiff(
        own=(), deny=(), allow=granted, kept=(DENY,), later=(WRITE,) * more, drift=some,
        stays=(LeftOut(READ, "it also covers 'orders.local'"),) * more,
        left_out=(LeftOut(WRITE, "it is about no topic"),) * more, written_out=(), lost=tuple(two("bob")) * more,
    )  # fmt: skip
    return AclReport(
        phase="early", diff=diff, open_by_default=None, removed=(), applied=True, notes=("nobody knows",) * more
    )


def acl_report(found: AclReport, **fields: Any) -> AclFollowReport:
    report = AclFollowReport(took_s=0.5, **fields)
    report.add(found)
    return report


def samples() -> dict[str, Any]:
    return {
        "acls": acl_report(acls()),
        "acls, with all": acl_report(acls(granted=(READ,), more=True), left_out=two("left")),
        "acls, without authorizer": AclFollowReport(notes=["no rules follow: the target has no authorizer"]),
        "configs": ConfigReport(topics=2, took_s=0.5),
        "configs, with all": ConfigReport(
            topics=2, changed=1, latest=two("latest"), waiting=two("waiting"), given_up=two("given up"),
            refused=two("refused"), left_out=two("left"), failed=two("failed"), took_s=0.5,
        ),
        "groups": FollowReport(groups=2, positions=3, took_s=0.5),
        "groups, with all": FollowReport(
            groups=2, positions=3, written=1, held=two("held"), left_alone=two("alone"), active=two("active"),
            gone=two("gone"), unseen=["none is seen"], left_out=two("left"), failed=two("failed"), took_s=0.5,
        ),
        "groups, none follows": FollowReport(failed=two("failed"), took_s=0.5),
        "heartbeats": HeartbeatReport(topics=2),
        "heartbeats, with all": HeartbeatReport(topics=1, seen=False, failed=two("failed")),
        "log_starts": StartsReport(topics=2, took_s=0.5),
        "log_starts, with all": StartsReport(
            topics=2, moved=1, kept=two("kept"), compacted=two("compacted"), not_compacted=two("not compacted"),
            longer=two("longer"), left_alone=two("alone"), left_out=two("left"), failed=two("failed"), took_s=0.5,
        ),
        "schemas": SchemaFollowReport(versions=2, took_s=0.5),
        "schemas, with all": SchemaFollowReport(
            versions=2, done=two("done"), differs=two("differs"), left_out=two("left"), failed=two("failed"), took_s=0.5
        ),
        "source": EndsReport(seen=7.5, partitions=2, took_s=0.5),
        "source, with all": EndsReport(partitions=2, failed=two("failed"), took_s=0.5),
        "topics": AmendingReport(topics=2, revision="r1", took_s=0.5),
        "topics, with all": AmendingReport(
            topics=2, revision="r1", amendments=1, added=two("added"), left_out=two("left"), gone=two("gone"),
            again=two("again"), took_s=0.5,
        ),
        "checkpoints": TraceReport(checkpoints=2, took_s=0.5),
        "checkpoints, with all": TraceReport(
            checkpoints=2, written=1, syncs=3, left_out=two("left"), failed=two("failed"), took_s=0.5
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", samples())
def test_pass_says_what_it_said_before(name: str) -> None:
    """Re-made by UPDATE_GOLDEN=1; review the difference."""
    one = samples()[name]
    if os.environ.get("UPDATE_GOLDEN"):
        made = {name: {"line": str(one), "status": one.to_dict()} for name, one in samples().items()}
        GOLDEN.write_text(json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    assert {"line": str(one), "status": one.to_dict()} == json.loads(GOLDEN.read_text())[name]


def test_every_report_has_a_sample() -> None:
    assert {type(one) for one in samples().values()} == {one.report for one in every_follower()}
