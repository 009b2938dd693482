"""Both connections lead to one cluster, whose principal may only what a mirror's may there."""

from __future__ import annotations

import pytest

from airflow_mirror.errors import InputError, MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.script import Fault


def test_it_is_found_out_before_a_right_is_missed(source: DrivenCluster, target: DrivenCluster) -> None:
    """Somebody would grant rights to the wrong cluster, and hear of it then."""
    mirror = Mirror(name="m", source="old", target="new", topics=["t"], policy="prefix", source_alias="dc1")
    asks = lambda request: "dc1.t" in [t.name for t in request.message.topics or []]  # noqa: E731
    for cluster in (source, target):
        cluster.create("t")
        cluster.script.on("Metadata", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None, when=asks)
    with ClusterAdmin(source.config, timeout_s=2) as here, ClusterAdmin(target.config, timeout_s=2) as there:
        with pytest.raises(
            InputError, match=f"same_cluster: connections 'old' and 'new': both are .*{source.cluster_id}"
        ):
            build(mirror, here, here, probe_target=False)
        with pytest.raises(MissingRight, match="lacks Describe on topic 'dc1.t'"):
            build(mirror, here, there, probe_target=False)
