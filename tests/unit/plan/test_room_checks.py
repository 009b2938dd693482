"""Whether a copy fits on the target's disks, and which quotas slow it down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError
from airflow_mirror.kafka.quotas import QuotaEntity, limits_of
from airflow_mirror.plan import inventory
from airflow_mirror.plan.inventory import with_remote
from airflow_mirror.plan.model import Plan
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import findings, levels, plan

GB = 10**9
DAY_MS = 86_400_000
_TAKES = "at least {} for what is there now"


def fits(needed: int, usable: Any, **of_target: Any) -> Plan:
    return plan(a_cluster(a_topic(replicas=3), sizes={"orders": needed}), usable_bytes=usable, **of_target)


def test_copy_that_exceeds_the_targets_disks_is_blocked() -> None:
    assert levels(fits(30 * GB, dict.fromkeys((1, 2, 3), 60 * GB)), "disk") == ["pass"]
    assert findings(fits(30 * GB, {1: 29 * GB, 2: 30 * GB, 3: 30 * GB}), "disk") == [
        ("block", "target brokers",
         "the copy takes 90.0 GB with all replicas; the target's brokers have 89.0 GB free"),
    ]  # fmt: skip


def test_tiered_topic_counts_with_what_samples_say_and_not_with_what_lies_on_brokers() -> None:
    sizes, sampled = {"orders": 2 * GB, "plain": GB, "unread": GB}, {"orders": 30 * GB, "plain": 7 * GB}
    topics = [
        a_topic(name, remote_storage_enable=tiered) for name, tiered in zip(sizes, ("true", "false", "true"), strict=True)
    ]
    found = with_remote(a_cluster(*topics, sizes=sizes), sampled).sizes
    assert with_remote(a_cluster(*topics, sizes=sizes), sampled).local_sizes == ("unread",)
    assert found == {"orders": 30 * GB, "plain": GB, "unread": GB}
    assert with_remote(a_cluster(*topics, sizes=None), sampled).sizes is None


def test_tiered_topic_without_a_sample_is_at_least_what_lies_on_brokers() -> None:
    """Its local part looked like all of it, and the check passed."""
    here = with_remote(a_cluster(a_topic(remote_storage_enable="true"), sizes={"orders": GB}), {})
    assert findings(plan(here, usable_bytes=dict.fromkeys((1, 2, 3), 60 * GB)), "disk") == [
        ("warn", "target brokers",
         "the copy takes at least 3.0 GB with all replicas; the target's brokers have 180.0 GB free; how much lies in "
         "tiered storage is not known of orders"),
    ]  # fmt: skip
    assert levels(plan(here, usable_bytes=dict.fromkeys((1, 2, 3), GB // 2)), "disk") == ["block"]
    empty = with_remote(a_cluster(a_topic(spans=((7, 7),), remote_storage_enable="true"), sizes={"orders": 0}), {})
    assert levels(plan(empty), "disk") == ["pass"], "an empty log has no sample"


@pytest.mark.parametrize("usable", [{1: 35 * GB, 2: 35 * GB, 3: 35 * GB}, {1: 29 * GB, 2: 99 * GB, 3: 99 * GB}])
def test_disks_that_are_nearly_full_or_uneven_only_warn(usable: dict[int, int]) -> None:
    ((level, _, evidence),) = findings(fits(30 * GB, usable), "disk")
    assert level == "warn" and evidence.endswith(f"broker 1 {usable[1] / GB:.1f} GB of it")


def test_what_the_target_holds_of_this_mirror_needs_no_disk() -> None:
    there = (a_topic(replicas=2),)
    usable = dict.fromkeys((1, 2, 3), 5 * GB)
    ours = fits(30 * GB, usable, target=there, known={"orders": "identical"}, sizes={"orders": 26 * GB})
    assert levels(ours, "disk") == ["pass"]  # 8 GB
    assert levels(fits(30 * GB, usable, target=there, sizes={"orders": 26 * GB}), "disk") == ["block"]


@pytest.mark.parametrize(
    ("begin", "tiered", "level"), [(1000, "false", "pass"), (1000, "true", "pass"), (0, "false", "block")]
)
def test_what_lies_before_the_start_needs_no_disk(begin: int, tiered: str, level: str) -> None:
    """With start="latest", or behind another tool's group, next to nothing is copied of a log of any length."""
    topic = a_topic(spans=((0, 1000),) * 3, begins=dict.fromkeys(range(3), begin), remote_storage_enable=tiered)
    quota = {QuotaEntity.of(user="mirror"): {"consumer_byte_rate": 1e6}}
    here = a_cluster(topic, sizes={"orders": 30 * GB}, quotas=quota)
    made = plan(here, usable_bytes=dict.fromkeys((1, 2, 3), GB))
    assert levels(made, "disk") == [level]
    assert ("at least" in findings(made, "quotas")[0][2]) is (level == "block")


def test_a_part_of_a_log_counts_by_its_offsets() -> None:
    topic = a_topic(spans=((600, 1000), (0, 600)), begins={0: 900, 1: 550}, replicas=1)
    made = plan(a_cluster(topic, sizes={"orders": 30 * GB}), usable_bytes={1: 3 * GB})
    assert findings(made, "disk")[0][2].startswith("the copy takes 4.5 GB with all replicas")


def test_what_an_older_tool_has_copied_is_no_part_of_what_lies_behind_the_start() -> None:
    """From the second plan on the target topic is the mirror's."""
    topic = a_topic(spans=((0, 1000),), begins={0: 750}, replicas=1)
    here = a_cluster(topic, sizes={"orders": 40 * GB})
    ours = plan(
        here, target=(a_topic(spans=((0, 750),), replicas=1),), known={"orders": "identical"},
        sizes={"orders": 30 * GB}, usable_bytes={1: 9 * GB},
    )  # fmt: skip
    assert findings(ours, "disk")[0][2].startswith("the copy takes 10.0 GB")


@pytest.mark.parametrize(
    ("usable", "sizes", "said"),
    [
        ({}, {"orders": 1}, "free disk of the target (no DESCRIBE on the cluster)"),
        ({1: 5, 2: None}, {"orders": 1}, "free disk of broker 2 (they don't tell; from Kafka 3.3 on they do)"),
        ({1: 5}, None, "sizes of the source's topics (no DESCRIBE on the cluster, or not told)"),
    ],
)
def test_disk_that_nobody_tells_is_said_to_be_unknown(usable: Any, sizes: Any, said: str) -> None:
    made = plan(a_cluster(a_topic(), sizes=sizes), usable_bytes=usable)
    assert findings(made, "disk") == [("warn", "target brokers", f"it is not known whether the copy fits: {said}")]


def test_quotas_of_both_sides_are_named_with_the_time_they_cost() -> None:
    ours, everybody = QuotaEntity.of(user="mirror"), QuotaEntity.of(client_id=None)
    here = a_cluster(a_topic(), sizes={"orders": 36 * GB}, quotas={ours: {"consumer_byte_rate": 1e6}})
    made = plan(here, quotas={everybody: {"producer_byte_rate": 2e6, "consumer_byte_rate": 1.0}})
    said = "quotas apply to the mirror, on each broker: "
    assert findings(made, "quotas") == [
        ("warn", "source cluster", f"{said}consumer_byte_rate=1000000 for user 'mirror': {_TAKES.format('3 h')}"),
        (
            "warn",
            "target cluster",
            f"{said}producer_byte_rate=2000000 for client-id <default>: {_TAKES.format('100 min')}",
        ),
    ]
    assert levels(plan(a_cluster(a_topic(), quotas=None)), "quotas") == ["warn"]


def test_a_quota_for_changes_of_topics_is_named_on_the_target_alone() -> None:
    slow = {QuotaEntity.of(user="mirror"): {"controller_mutation_rate": 1.0}}
    (found,) = findings(plan(a_cluster(a_topic(), quotas=slow), quotas=slow), "quotas")
    assert found[1] == "target cluster" and "controller_mutation_rate=1 for user 'mirror'" in found[2]


def test_own_quotas_take_the_place_of_everybodys() -> None:
    rate = {"producer_byte_rate": 1.0}
    ours, default = QuotaEntity.of(user="mirror", client_id="x"), QuotaEntity.of(user=None)
    others = {QuotaEntity.of(user="app"): rate, QuotaEntity.of(ip="::1"): rate}
    assert limits_of({ours: rate, default: rate, **others}, "mirror") == {ours: rate}
    assert limits_of({ours: rate, default: rate, **others}, None) == {default: rate}


SHARED = {
    "ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False, "sync_acls": False
}  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "mirror", "cause"),
    [
        ("delete", {}, None),
        ("compact", {}, None),
        ("delete", {"offsets": "mapped"}, None),
        ("compact", {"offsets": "mapped"}, "a map is completed by counting records"),
        ("compact", {"offsets": "mapped", "hold_retention_ms": DAY_MS}, "a map is completed by counting records"),
        ("delete", {"offsets": "mapped", "delivery": "transactional"}, "markers of transactions"),
        ("delete", {"offsets": "mapped", "delivery": "transactional", "sync_log_starts": False}, None),
        ("delete", {"offsets": "mapped", "partitioning": "by_key"}, "offsets have no counterpart"),
        ("delete", {"offsets": "mapped", "partitioning": "by_key", "hold_retention_ms": DAY_MS}, None),
        ("delete", {"offsets": "mapped", **SHARED}, "mirrors of other sources"),
    ],
)
def test_topics_that_stay_larger_than_on_the_source_are_named(
    policy: str, mirror: dict[str, Any], cause: str | None
) -> None:
    """What no option asked for was said by a tail's status.json alone, hours later."""
    made = plan(a_topic(cleanup_policy=policy), mirror=a_mirror(**mirror))
    found = [(level, evidence) for level, _, evidence in findings(made, "growing")]
    if cause is None:
        assert [level for level, _ in found] == ["pass"]
    else:
        ((level, evidence),) = found
        assert level == "warn" and cause in evidence and evidence.endswith(": orders")


def test_sizes_that_brokers_do_not_tell_are_not_known() -> None:
    """Those of a managed cluster may list no logs, for ever."""

    def log_sizes(_: object) -> dict[TopicPartition, int]:
        raise BrokerError("DescribeLogDirs of orders-0", 5, "LEADER_NOT_AVAILABLE", "")

    admin: Any = SimpleNamespace(wire=SimpleNamespace(log_sizes=log_sizes))
    assert inventory._sizes(admin, {}) is None
