"""S4: the same scenarios with a TLS listener on the target. S5: passwords and authorizers on both sides. I11."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from airflow_mirror.kafka.permit import unfenced
from sandbox import Cluster
from sandbox.settings import SUPER_USER, USERS
from tests.builders import rule
from tests.integration.copying import EncryptedCluster
from tests.integration.parity.flow import PARTITIONS, SYNC_S, TOPICS_S, Flow, within
from tests.integration.parity.scenarios import TEN, Scenarios

pytestmark = pytest.mark.parity


class SecuredCluster(EncryptedCluster):
    """Our clients come as its super user. Some of its defaults are others than elsewhere."""

    @property
    def settings(self) -> dict[str, str]:
        return {**super().settings, "sasl.username": SUPER_USER, "sasl.password": USERS[SUPER_USER]}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    with ExitStack() as close:
        yield tuple(  # type: ignore[misc]
            close.enter_context(
                SecuredCluster(name, tmp_path_factory.mktemp(name), {"log.roll.ms": roll}, ready_timeout_s=240)
            )
            for name, roll in (("primary", "30000000"), ("backup", "40000000"))
        )


@pytest.fixture(scope="module")
def clusters(source_cluster: Cluster, secured: tuple[Cluster, Cluster]) -> tuple[Cluster, Cluster]:
    return source_cluster, secured[1]


class TestS4Tls(Scenarios):
    FIELDS = {"policy": "prefix", "use_defaults_from": "target"}


def test_s5_passwords_and_authorizers(secured: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    """Partitions, settings and rules follow, in both directions at once."""
    ways = ((secured, "primary"), (secured[::-1], "backup"))
    flows = [
        Flow(
            clusters, tmp_path / alias, name=f"s5-{alias}", policy="prefix", source=alias,
            target="backup" if alias == "primary" else "primary", sync_acls=True, exclude_configs=[],
        )
        for clusters, alias in ways
    ]  # fmt: skip
    with flows[0], flows[1]:
        for flow in flows:
            topic = flow.create("test-topic-1", retention_bytes="1000", segment_ms="111111")
            flow.append(topic, TEN)
            flow.admins[0].create_acls([rule(topic, "DESCRIBE", principal="User:dummy")], unfenced)
            flow.start()
        for flow in flows:
            topic, there = f"{flow.name}-test-topic-1", flow.there(f"{flow.name}-test-topic-1")
            flow.arrives(topic, 100)
            wanted = rule(there, "DESCRIBE", principal="User:dummy")
            within(SYNC_S, lambda f=flow, w=wanted: w in f.admins[1].describe_acls(), "the rule is there")
            flow.admins[0].grow_partitions(topic, PARTITIONS + 1, unfenced)
            within(TOPICS_S, lambda f=flow, t=there: f.admins[1].topics([t])[t].partitions == 11, "there are eleven")
            flow.append(topic, [0] * PARTITIONS + [10])
            flow.arrives(topic, 110)
            flow.admins[1].alter_topic_configs(there, unfenced, {"segment.ms": "222222"})
            within(SYNC_S, lambda f=flow, t=topic: f.setting(t, "segment.ms") == "111111", "the setting returns")


def test_i11_defaults_of_the_source(secured: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    """A setting that the source has by default is its default on the target, whatever that has; excluded ones stay."""
    with Flow(secured, tmp_path, use_defaults_from="source") as flow:
        topic = flow.create("i11", 1)
        flow.append(topic, [10])
        flow.start()
        flow.arrives(topic, 10)
        flow.admins[1].alter_topic_configs(topic, unfenced, {"segment.ms": "2000000", "delete.retention.ms": "2000"})
        within(SYNC_S, lambda: flow.setting(topic, "segment.ms") == "30000000", "it is the source's default again")
        assert flow.setting(topic, "delete.retention.ms") == "2000"
