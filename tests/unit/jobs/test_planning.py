"""What the next plan says of topics that the last one has, where the source does not list them any more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest

from airflow_mirror.errors import MissingRight
from airflow_mirror.jobs.planning import planned
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.ledger_store import keep_on
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.topics import create_target_topics
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster

MIRROR = Mirror(name="m", source="old", target="new", topics=[r"orders\..*"])


class Hides(ClusterAdmin):
    """As Kafka: a list of all topics lacks what may not be described; who asks by name is told."""

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        if names is not None and "orders.b" in names:
            raise MissingRight("describe topic 'orders.b'", "TOPIC_AUTHORIZATION_FAILED", "User:m")
        return {name: one for name, one in super().topics(names).items() if name != "orders.b"}

    def topic_names(self) -> list[str]:
        return [name for name in super().topic_names() if name != "orders.b"]


@pytest.fixture
def source() -> Iterator[DrivenCluster]:
    with DrivenCluster("source") as cluster:
        for name in ("orders.a", "orders.b"):
            Writer(cluster.create(name).logs[0]).plain(5)
        yield cluster


@pytest.fixture
def target(source: DrivenCluster, ledger_target: LedgerCluster) -> LedgerCluster:
    """With the last plan, of both topics."""
    with ClusterAdmin(source.config) as here:
        plan = build(MIRROR, here, ledger_target.admin, probe_target=False)
    create_target_topics(plan, ledger_target.admin, unfenced)
    claim(ledger_target.ledger, plan, ledger_target.admin, lambda _: [plan.source_cluster_id])
    keep_on(ledger_target.admin, plan, ledger_target.ledger)
    return ledger_target


@pytest.mark.parametrize("by_hand", [False, True])
def test_topic_that_the_principal_may_not_see_any_more_is_not_left_out_without_a_word(
    source: DrivenCluster, target: LedgerCluster, by_hand: bool
) -> None:
    with Hides(source.config) as here:
        plan, _ = planned(MIRROR, here, target.admin, target.ledger, probe=False, by_hand=by_hand)
        wanted = replace(MIRROR, exclude_topics=["orders.b"])
        without, _ = planned(wanted, here, target.admin, target.ledger, probe=False, by_hand=by_hand)
    (said,) = [f for f in plan.findings if f.check == "absent_topics"]
    assert said.level == ("warn" if by_hand else "block") and said.evidence.endswith("orders.b")
    assert [f.level for f in without.findings if f.check == "absent_topics"] == ["pass"], "nobody wants it"


def test_topic_that_was_deleted_is_told_and_keeps_nothing_from_starting(
    source: DrivenCluster, target: LedgerCluster
) -> None:
    source.delete("orders.b")
    with ClusterAdmin(source.config) as here:
        plan, _ = planned(MIRROR, here, target.admin, target.ledger, probe=False)
    assert [(f.level, f.evidence[-8:]) for f in plan.findings if f.check == "absent_topics"] == [("warn", "orders.b")]
    assert not plan.blocks
