"""The topic of offset maps before a copy: created, fit, and tried out; what is missing is named before anything else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import cast

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.offsets.topic import make_ready
from airflow_mirror.errors import BrokerError, InputError, MissingRight
from airflow_mirror.jobs import start_memory
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.maps import mapped_range
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster, topic_config
from tests.driven.script import Fault


class Admin:
    """The calls of the admin facade that a driven broker does not answer."""

    def __init__(self, target: DrivenCluster, wire: WireCluster) -> None:
        self.target, self.wire = target, wire
        self.refuses_wishes = False
        self.made: list[NewTopicSpec] = []

    def broker_count(self) -> int:
        return len(self.target.brokers)

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        self.wire.refresh([name for name in names if name in self.target.topics] or ["orders"])
        return {
            name: TopicInfo(name, self.wire.topic_id(name), len(self.target.topics[name].logs), 1)
            for name in names
            if name in self.target.topics
        }

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        configs = {name: self.target.topics[name].logs[0].config for name in names}
        return {name: {"cleanup.policy": ConfigEntry(value=one.cleanup_policy)} for name, one in configs.items()}

    def create_topics(self, specs: Iterable[NewTopicSpec], permit: Permit) -> None:
        for spec in specs:
            if self.refuses_wishes and "segment.ms" in spec.configs:
                raise BrokerError("create", ErrorCode.POLICY_VIOLATION, "no")
            self.made.append(spec)
            known = ("cleanup.policy", "segment.bytes", "message.timestamp.type")
            config = topic_config({k: v for k, v in spec.configs.items() if k in known})
            self.target.create(spec.name, spec.partitions, config)


@pytest.fixture
def target() -> Iterator[DrivenCluster]:
    with DrivenCluster("target") as target:
        target.create("orders")
        yield target


@pytest.fixture
def admin(target: DrivenCluster) -> Iterator[Admin]:
    with WireCluster(target.config) as wire:
        yield Admin(target, wire)


def ready(admin: Admin) -> None:
    make_ready(cast("ClusterAdmin", admin))


@pytest.mark.parametrize("refuses", [False, True])
def test_topic_is_created_once_and_tried_out(admin: Admin, refuses: bool) -> None:
    """A managed cluster may not take all settings."""
    admin.refuses_wishes = refuses
    ready(admin)
    ready(admin)
    (made,) = admin.made
    assert (made.name, made.partitions, made.configs["cleanup.policy"]) == (MAPS, MAP_PARTITIONS, "compact")
    rows = [row for log in admin.target.topics[MAPS].logs for row in log.rows()]
    assert [(row.key, row.value) for row in rows] == [(b"write", None)] * 2
    assert MapStore("write").begun(admin.wire) == set()


@pytest.mark.parametrize(("api", "right"), [("Produce", "WRITE"), ("Fetch", "READ")])
def test_missing_right_is_named_before_anything_is_copied(admin: Admin, api: str, right: str) -> None:
    ready(admin)
    admin.target.script.on(api, Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, [TopicPartition(MAPS, 0)]))
    with pytest.raises(MissingRight, match=rf"(?i){right}.*{MAPS}|{MAPS}.*{right}"):
        ready(admin)


@pytest.mark.parametrize(
    ("partitions", "policy", "cause"), [(1, "compact", "1 partitions instead of 16"), (16, "delete", "policy is delete")]
)
def test_topic_that_would_lose_maps_is_refused(admin: Admin, partitions: int, policy: str, cause: str) -> None:
    admin.target.create(MAPS, partitions, topic_config({"cleanup.policy": policy}))
    with pytest.raises(
        InputError,
        match=rf"^topic airflow-mirror.maps can't hold offset maps: it.*{cause}.*\. Nothing was copied. "
        "Correct it, or delete it: the next copy creates it and derives the maps from both logs.$",
    ):
        ready(admin)


def test_more_partitions_than_created_are_no_matter(admin: Admin) -> None:
    settings = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    admin.target.create(MAPS, 50, topic_config(settings))
    ready(admin)


def test_job_by_hand_knows_by_the_topic_how_a_copy_began(admin: Admin) -> None:
    """It has no plan, and no directory. A target topic that was created again is another one."""
    mirror = Mirror(name="m", source="src", target="dst", topics=["orders", "users"])

    def modes(of: Mirror = mirror) -> dict[str, str]:
        return dict(start_memory.copy_modes(of, ["orders", "users", "audit"], cast("ClusterAdmin", admin)))

    assert modes() == {"orders": "identical", "users": "identical"}, "before there is a topic of maps"
    ready(admin)
    store, one = MapStore("m"), mapped_range("orders", "orders", 0)
    store.begin(admin.wire, one, 0, 0, lambda: None)
    store.append(admin.wire, one, OffsetMap(0, 0), lambda: None)
    assert modes() == {"orders": "mapped", "users": "identical"}
    assert modes(Mirror(name="n", source="src", target="dst", topics=["orders"])) == {"orders": "identical"}
    admin.target.create("orders")
    assert modes() == {"orders": "identical", "users": "identical"}
