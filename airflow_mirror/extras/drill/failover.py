"""Continue on the target, and count what is lost."""

from __future__ import annotations

import time

from airflow_mirror.config import ClientConfig
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.reading import everything, partitions_of, patiently, read_to, write_one
from airflow_mirror.extras.drill.report import DrillReport, measure


def fail_over(target: ClientConfig, canaries: Canaries, timeout_s: float = 60.0) -> DrillReport:
    """Set the group's positions on the target, let it continue there, write one record; then count what is lost.

    Offsets are identical, so a source position is valid as it is; one beyond the target's end shows lost records.

    :raises DrillMissed: the target has no such topic.
    :raises ClusterUnreachable, BrokerError: the target does not serve a request, or not all records in time.
    """
    from airflow_mirror.common.partition import TopicPartition
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.model import GroupPosition
    from airflow_mirror.kafka.permit import unfenced

    with ClusterAdmin(target) as admin:
        partitions = partitions_of(admin, canaries.topic)
        ends = {tp.partition: end for tp, end in admin.offsets(partitions, "latest").items()}
        positions = {p: min(canaries.positions.get(p, 0), ends[p]) for p in ends}
        wanted = {TopicPartition(canaries.topic, p): GroupPosition(o) for p, o in positions.items()}
        patiently(lambda: admin.commit_group_offsets(canaries.group, wanted, unfenced), timeout_s)
    moments: dict[str, float] = {}

    def first() -> None:
        moments["read"] = time.time()

    got = read_to(target, canaries.topic, canaries.group, positions, ends, timeout_s, first)
    write_one(target, canaries.topic, timeout_s)
    moments["write"] = time.time()
    held = everything(target, canaries.topic, ends, timeout_s)
    return measure(canaries, held, positions, got.rows, moments)
