"""Groups follow from one driven cluster to another: what the coordinator of an exactly-once group says meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.following.follower import FollowReport, GroupFollower
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.groups import Committed
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger
from tests.unit.sync.following.world import NOW, FakeRight, MemoryState


class Followed:
    """A topic of four partitions on both sides, and the group ``g`` of the source."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster, here: ClusterAdmin, there: ClusterAdmin) -> None:
        self.source, self.target = source, target
        for cluster in (source, target):
            cluster.create("t", 4)
            for log in cluster.topics["t"].logs:
                Writer(log).plain(100)
        topic_id = here.topics(["t"])["t"].topic_id
        plan = plan_of(
            Mirror(name="m", source="a", target="b"),
            topic_plan("t", dict.fromkeys(range(4), 0), source_topic_id=topic_id),
        )
        ledger = MemoryLedger()
        claim(ledger, plan, there)
        right: Any = FakeRight()
        self.given = sides(plan, here, there, right, ledger=ledger, state=MemoryState(), maps=SimpleNamespace())

    def commit(self, **offsets: int) -> None:
        its = self.source.groups.committed.setdefault("g", {})
        its.update({TP("t", int(p.removeprefix("p"))): Committed(offset, "", -1) for p, offset in offsets.items()})

    def follow(self) -> FollowReport:
        return GroupFollower(self.given).follow(NOW)

    def there(self) -> list[int]:
        return [one.offset for _, one in sorted(self.target.groups.committed["g"].items())]


@pytest.fixture
def followed() -> Iterator[Followed]:
    with (
        DrivenCluster("source") as source, DrivenCluster("target") as target,
        ClusterAdmin(source.config) as here, ClusterAdmin(target.config) as there,
    ):  # fmt: skip
        yield Followed(source, target, here, there)


def test_an_open_transaction_holds_no_position_of_its_group_back(followed: Followed) -> None:
    """Of many threads of an exactly-once application one has an open transaction at nearly any time."""
    followed.commit(p0=10, p1=10, p2=10, p3=10)
    followed.follow()
    followed.source.groups.commit_later(7, "g", TP("t", 0), Committed(20, "", -1))
    followed.commit(p1=90, p2=90, p3=90)
    report = followed.follow()
    assert (followed.there(), report.failed, report.positions) == ([10, 90, 90, 90], [], 4)
    followed.source.groups.end(7, "g", commit=True)
    followed.follow()
    assert followed.there() == [20, 90, 90, 90]


def test_an_open_transaction_on_the_target_leaves_its_group_alone(followed: Followed) -> None:
    """Who has it sets the position with its end: it is not the mirror's."""
    followed.commit(p0=10, p1=10, p2=10, p3=10)
    followed.follow()
    followed.target.groups.commit_later(7, "g", TP("t", 0), Committed(50, "", -1))
    followed.commit(p0=90)
    report = followed.follow()
    assert followed.there() == [10, 10, 10, 10] and "UNSTABLE_OFFSET_COMMIT" in report.failed[0]
