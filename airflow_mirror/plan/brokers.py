"""Refuse brokers that a mirror can't work with, and tell what an old source can't report."""

from __future__ import annotations

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokersUnsupported
from airflow_mirror.wire.served import Without


def check_brokers(source: ClientConfig, target: ClientConfig) -> list[Without]:
    """Query the API versions of each broker; return what the source's brokers are too old to report.

    :raises BrokersUnsupported: names every broker and request.
    :raises ClusterUnreachable: no broker answered within 8 s.
    """
    from airflow_mirror.kafka.session import CONNECT_TIMEOUT_S
    from airflow_mirror.wire.cluster import WireCluster
    from airflow_mirror.wire.served import OLDEST, lacking, without

    lost: list[Without] = []
    for side, config in (("source", source), ("target", target)):
        with WireCluster(config, client_id="airflow-mirror.plan") as cluster:
            cluster.reach(CONNECT_TIMEOUT_S)
            if missing := list(lacking(cluster, side)):
                raise BrokersUnsupported(side, OLDEST[side], missing)
            if side == "source":
                lost = without(cluster)
    return lost
