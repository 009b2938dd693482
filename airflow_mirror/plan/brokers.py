"""Refuse brokers that a mirror can't work with, and tell what an old source can't report."""

from __future__ import annotations

from typing import NamedTuple

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokersUnsupported
from airflow_mirror.wire.served import Without


class Told(NamedTuple):
    """What the API versions of both clusters' brokers tell.

    :param lost: what the source's are too old to report. :param drops_old_clients: the source serves clients that the
        target refuses. :param served: names of the requests that the target serves.
    """

    lost: list[Without]
    drops_old_clients: bool
    served: frozenset[str]


def check_brokers(source: ClientConfig, target: ClientConfig) -> Told:
    """Query the API versions of each broker.

    :raises BrokersUnsupported: names every broker and request.
    :raises ClusterUnreachable: no broker answered within 8 s.
    """
    from airflow_mirror.kafka.session import CONNECT_TIMEOUT_S
    from airflow_mirror.wire.cluster import WireCluster
    from airflow_mirror.wire.served import OLDEST, lacking, served_by_any, serves_old_clients, without

    lost, old, served = list[Without](), dict[str, bool](), frozenset[str]()
    for side, config in (("source", source), ("target", target)):
        with WireCluster(config, client_id="airflow-mirror.plan") as cluster:
            cluster.reach(CONNECT_TIMEOUT_S)
            if missing := list(lacking(cluster, side)):
                raise BrokersUnsupported(side, OLDEST[side], missing)
            old[side] = serves_old_clients(cluster)
            if side == "source":
                lost = without(cluster)
            else:
                served = served_by_any(cluster)
    return Told(lost, old["source"] and not old["target"], served)
