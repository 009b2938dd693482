"""Older brokers ask for other rights: what is printed for their release is enough there, and what is left out is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MirrorError, TryAgain
from airflow_mirror.kafka.admin import Acl, ClusterAdmin, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.probe import probe
from airflow_mirror.plan.rights import SOURCE, TARGET, rights_of
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.served import release_of
from sandbox import Cluster
from tests.integration.copying import wait_until

pytestmark = pytest.mark.versions

MIRROR = Mirror(name="flow", source="s", target="t", topics=["orders"], groups=["billing"], offsets="identical")
OURS = "User:mirror"
CLOSED = {"allow.everyone.if.no.acl.found": "false"}


@pytest.fixture(params=["0.11.0.3", "1.1.1", "2.1.1", "3.4.1"])
def walled(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    name = f"rights-{request.param.replace('.', '-')}"
    with Cluster(name, version=request.param, authorizer=True, overrides=CLOSED, ready_timeout_s=400) as cluster:
        yield cluster


@pytest.fixture
def root(walled: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(ClientConfig(walled.admin_properties()), timeout_s=120) as admin:
        yield admin


def allow(root: ClusterAdmin, acls: list[Acl]) -> None:
    root.delete_acls([acl for acl in root.describe_acls() if acl not in acls], unfenced)
    root.create_acls(acls, unfenced)
    wait_until(lambda: root.describe_acls() == sorted(acls), "the broker has heard of the ACLs")


def settled(step: Callable[[], Any]) -> Any:
    """A young cluster's coordinators are not where they will be."""
    found: list[Any] = []

    def done() -> bool:
        try:
            found.append(step())
        except TryAgain:
            return False
        return True

    wait_until(done, "the cluster answers")
    return found[0]


def test_rights_of_its_release_are_enough_for_an_old_broker(walled: Cluster, root: ClusterAdmin) -> None:
    orders = TopicPartition("orders", 0)
    root.create_topics([NewTopicSpec("orders", 1, 1)], unfenced)
    settled(lambda: root.commit_group_offsets("billing", {orders: GroupPosition(0, "")}, unfenced))
    release = release_of(root.wire)
    printed = [acl for acl, _ in rights_of(MIRROR, SOURCE, OURS, roles=["plan"], version=release).grants]
    if walled.release.number < (2, 0):
        assert {acl.pattern_type for acl in printed} == {"LITERAL"}  # it knows no other

    def reads() -> tuple[list[str], list[TopicPartition]]:
        with ClusterAdmin(ClientConfig(walled.properties("mirror")), timeout_s=120) as mirror:
            mirror.topic_configs(["orders"])
            if walled.release.number >= (2, 6):
                mirror.quotas()
            with WireCluster(mirror.config) as wire:
                wire.log_starts([orders])
                if walled.release.number >= (2, 0):
                    wire.log_sizes([orders])
            groups = mirror.groups() if mirror.sees_group_coordinators() else []  # or some may be left out
            return [g.group_id for g in groups], list(mirror.group_offsets("billing"))

    allow(root, printed)
    assert settled(reads) == (["billing"], [orders])
    for missing in printed:
        if missing.name.startswith("airflow-mirror."):
            continue  # a ledger on the source, of a mirror in the other direction: its brokers are 3.0 at least
        if missing.name == "__consumer_offsets" and walled.release.number < (1, 0):
            continue  # it says the same of it as of a topic that nobody ever asked for
        less = [acl for acl in printed if acl != missing]
        if (missing.resource_type, missing.operation) == ("GROUP", "READ"):
            less.append(replace(missing, operation="DESCRIBE"))  # enough from 1.0 on
        allow(root, less)
        try:
            assert settled(reads) != (["billing"], [orders]), missing
        except MirrorError:
            pass


@pytest.mark.parametrize("walled", ["3.4.1", "3.9.1"], indirect=True)
def test_markers_in_bulk_take_what_is_printed_for_their_release(walled: Cluster, root: ClusterAdmin) -> None:
    release = release_of(root.wire)
    printed = [acl for acl, _ in rights_of(MIRROR, TARGET, OURS, roles=["plan"], version=release).grants]
    operation = "ALTER" if walled.release.number >= (3, 8) else "CLUSTER_ACTION"
    (bulk,) = (acl for acl in printed if acl.operation == operation)

    def tried() -> tuple[str, tuple[str, ...]]:
        with ClusterAdmin(ClientConfig(walled.properties("mirror"), "target"), timeout_s=120) as mirror:
            found = probe(mirror, MIRROR.name)
            return found.markers, found.lacks

    allow(root, printed)
    wait_until(lambda: tried() == ("direct", ()), "everything can be tried out")
    allow(root, [acl for acl in printed if acl != bulk])
    assert tried() == ("coordinator", (f"{operation} on the cluster",))
