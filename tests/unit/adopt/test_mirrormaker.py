"""What MirrorMaker 2 writes about itself, as 4.3.1 wrote it, and what is none of its own."""

from __future__ import annotations

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.adopt.mirrormaker import Flow, beats_of, replicated, states
from airflow_mirror.wire.records import Record


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value, [])


def offset(
    topic: str, partition: int, value: bytes | None, cluster: str = "A", connector: str = "MirrorSourceConnector"
) -> Record:
    where = f'{{"cluster":"{cluster}","partition":{partition},"topic":"{topic}"}}'
    return record(f'["{connector}",{where}]'.encode(), value)


def test_names_are_the_drivers_and_some_follow_the_separator() -> None:
    flow = Flow(source="A", target="B", separator="_")
    assert flow.workers == "A-mm2" and flow.offsets == "mm2-offsets.A.internal"
    assert flow.on_target == [
        "mm2-offsets.A.internal", "mm2-status.A.internal", "mm2-configs.A.internal", "A_checkpoints_internal",
        "mm2-offset-syncs_A_internal",
    ]  # fmt: skip
    assert flow.on_source == ["mm2-offset-syncs_B_internal"] and Flow(source="A").on_source == []


def test_offset_syncs_on_the_other_side_are_the_flows_back() -> None:
    here, there = (Flow(source="A", target="B", syncs_at=at) for at in ("source", "target"))
    assert "mm2-offset-syncs.A.internal" not in here.on_target and here.on_source == ["mm2-offset-syncs.B.internal"]
    assert "mm2-offset-syncs.A.internal" in there.on_target and there.on_source == []


def test_names_of_a_connect_cluster_win() -> None:
    flow = Flow(source="A", offset_topic="connect-offsets", status_topic="connect-status", group="connect-cluster")
    assert flow.offsets == "connect-offsets" and flow.workers == "connect-cluster" and flow.status == "connect-status"


def test_the_newest_offset_of_each_partition_counts() -> None:
    found = replicated(
        [
            offset("orders", 0, b'{"offset":10}'),
            offset("orders", 0, b'{"offset":7}'),  # set back by hand
            offset("orders", 1, b'{"offset":3}'),
            offset("orders", 1, None),  # removed
            offset("orders", 2, b'{"offset":5}', connector="older"),
            offset("orders", 2, b'{"offset":4}'),
            offset("orders", 3, b'{"offset":9}', cluster="C"),
            record(b'["jdbc",{"table":"orders"}]', b'{"offset":1}'),
            record(b"no json", b"none"),
            record(None, b"{}"),
            offset("orders", 4, b"broken"),
        ],
        "A",
    )
    assert found == {TopicPartition("orders", 0): 7, TopicPartition("orders", 2): 5}


def test_states_are_those_of_connectors_and_tasks() -> None:
    found = states(
        [
            record(b"status-connector-MirrorSourceConnector", b'{"state":"RUNNING"}'),
            record(b"status-task-MirrorSourceConnector-0", b'{"state":"RUNNING"}'),
            record(b"status-task-MirrorSourceConnector-0", b'{"state":"UNASSIGNED"}'),
            record(b"status-task-MirrorSourceConnector-1", b'{"state":"RUNNING"}'),
            record(b"status-task-MirrorSourceConnector-1", None),
            record(b"status-topic-orders", b'{"topic":{}}'),
        ]
    )
    assert found == {"connector-MirrorSourceConnector": "RUNNING", "task-MirrorSourceConnector-0": "UNASSIGNED"}


def test_heartbeats_are_told_apart_by_their_source() -> None:
    a, c = bytes.fromhex("000141000142"), bytes.fromhex("000143000142")
    assert beats_of([record(a, b""), record(c, b""), record(a, b""), record(None, b"")], "A") == 2
