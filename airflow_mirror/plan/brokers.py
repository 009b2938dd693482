"""Can a mirror work with these brokers, and what is done without where the source's are old?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_mirror.errors import BrokersUnsupported
from airflow_mirror.plan.model import Finding

if TYPE_CHECKING:
    from airflow_mirror.config import ClientConfig
    from airflow_mirror.plan.situation import Situation
    from airflow_mirror.wire.served import Without


def check_brokers(source: ClientConfig, target: ClientConfig) -> list[Without]:
    """Ask each broker what it serves; return what the source's are too old to tell.

    :raises BrokersUnsupported: naming every broker and request.
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


def old_source(s: Situation) -> Iterator[Finding]:
    """Warn of each thing that the source can't tell."""
    for one in s.lost:
        yield Finding(
            "warn",
            "brokers",
            "source cluster",
            f"its brokers tell no {one.what} (Kafka {one.since} and later do): {one.effect}",
            "Nothing needs to be done; know it on the night of the migration.",
        )
