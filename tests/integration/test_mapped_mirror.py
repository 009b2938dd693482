"""A mirror with mapped offsets, from its plan to its cutover and back, by the operators as a DAG runs them."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-mirror-mapped-"))
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

import pytest
from airflow.sdk.exceptions import AirflowFailException
from confluent_kafka import Consumer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.jobs.translate import main as translate_main
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.operators.cutover import CutoverOperator
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.offsets import TranslateConsumerOffsetsOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator
from airflow_mirror.sensors.catch_up import WaitForCatchUpSensor
from sandbox import Cluster
from tests.integration.copying import config, create, ends, read, write, write_transactions

pytestmark = pytest.mark.spark


def no_writers(_: ClusterAdmin) -> CallableFence:
    """Nobody writes in this test, so that there is nobody to keep out."""
    return CallableFence(lambda: None, lambda: None, lambda: True)


class FakeTI:
    dag_id, task_id, run_id, map_index, try_number, max_tries = "mapped", "t", "manual__1", -1, 1, 0
    stats_tags: dict[str, str] = {}

    def xcom_push(self, key: str, value: object) -> None:
        pass


class FakeStore(dict[str, Any]):
    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


@pytest.fixture
def mirror(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """A topic with holes, whose target holds records of somebody else."""
    for name, cluster in (("SRC", source_cluster), ("DST", target_cluster)):
        extra = {"bootstrap.servers": cluster.bootstrap}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AIRFLOW__MIRROR__POLL_INTERVAL", "0.2")
    create(source_cluster, topic_name, 2)
    create(target_cluster, topic_name, 2)
    with ClusterAdmin(config(target_cluster)) as admin:
        Ledger(admin).create()  # as a person does where the target holds data before the first plan
    write(target_cluster, topic_name, 13, seed=7)
    write(source_cluster, topic_name, 400, seed=1, codec="lz4")
    write_transactions(source_cluster, topic_name, seed=2, transactions=10, partitions=2)
    yield {
        "name": topic_name[-40:], "source": "src", "target": "dst", "topics": [topic_name], "offsets": "mapped",
        "groups": [f"{topic_name}.*"],
    }  # fmt: skip


def next_record(cluster: Cluster, topic: str, group: str, partition: int) -> Any:
    """Return what a group that has no member gets next in a partition; None at the end. Commits nothing."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "error",
    })  # fmt: skip
    from confluent_kafka import TopicPartition as Assigned

    (position,) = consumer.committed([Assigned(topic, partition)], timeout=120)
    consumer.assign([position])
    message = consumer.poll(120)
    consumer.close()
    assert message is not None
    if message.error():
        assert message.error().code() == -191, message.error()  # the end of the partition
        return None
    return message.timestamp(), message.key(), message.value(), message.headers()


@pytest.fixture
def source(source_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(source_cluster)) as admin:
        yield admin


@pytest.fixture
def target(target_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(target_cluster)) as admin:
        yield admin


def test_a_mapped_mirror_moves_groups_exactly_there_and_back(
    mirror: dict[str, Any], source_cluster: Cluster, target_cluster: Cluster, source: ClusterAdmin, target: ClusterAdmin,
    topic_name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    context: Any = {"ti": FakeTI(), "task_state_store": FakeStore()}

    def run(operator: Any, **kwargs: Any) -> Any:
        return operator(task_id="t", mirror=mirror, **kwargs).execute(context)

    planned = run(PlanMirrorOperator)
    assert planned["block"] == 0
    run = partial(run, plan=planned["hash"])
    run(CreateTargetTopicsOperator)
    run(SyncTopicConfigsOperator)
    run(StartMirrorOperator, mode="tail")
    try:
        write_transactions(source_cluster, topic_name, seed=3, transactions=3, partitions=2)
        caught_up = run(WaitForCatchUpSensor, samples=2, poke_interval=0.5, timeout=900)
        assert caught_up["lag_records"] == 0 and caught_up["partitions"] == 2

        # Groups in every kind of place: the start, a record, each hole there is, the end.
        here = {r[0] for r in read(source_cluster, topic_name)}
        end = ends(source_cluster, topic_name, 2)
        holes = sorted(set(range(end[0][2])) - here)
        places = {0: "exact", 5: "exact", holes[0]: "hole", holes[-1]: "hole", end[0][2]: "end"}
        for offset in places:
            position = {TopicPartition(topic_name, 0): GroupPosition(offset, "note")}
            source.commit_group_offsets(f"{topic_name}-{offset}", position, unfenced)

        dry = run(TranslateConsumerOffsetsOperator, dry_run=True)
        assert dry["problems"] == [] and dry["found"] == {"exact": 2, "hole": 2, "end": 1}
        deadline = time.monotonic() + 240  # the tail lets them follow, by the same map
        while run(TranslateConsumerOffsetsOperator, dry_run=True)["positions"] != {"same": len(places)}:
            assert time.monotonic() < deadline, "the groups don't follow"
            time.sleep(0.5)

        monkeypatch.setenv("THE_TARGET", config(target_cluster).dump())
        printed: dict[str, Any] = {}
        while printed.get("to_target") != {"offset": 18, "found": "record"}:  # the tail stores its map once a minute
            assert time.monotonic() < deadline, printed
            assert translate_main(["--target", "env:THE_TARGET", "--name", mirror["name"], topic_name, "0", "5"]) == 0
            printed = json.loads(capsys.readouterr().out.splitlines()[-1])
            time.sleep(0.5)

        done = run(
            CutoverOperator, fence="tests.integration.test_mapped_mirror.no_writers", quiet_s=0.5, level="records",
            accept_ledger_writers=["User:*"],
        )  # fmt: skip
        assert done["outcome"] == "cut_over" and len(done["groups"]) == len(places)
        assert done["records_verified"] == sum(len(read(source_cluster, topic_name, p)) for p in range(2))
        verified = run(VerifyMirrorOperator, level="records")
        assert verified["records"] == done["records_verified"] and verified["differences"] == []
    finally:
        stopped = StopMirrorOperator(task_id="t", mirror=mirror, grace_s=300).execute(context)
    assert stopped["tail"] == "SUCCEEDED", "the cutover has ended it"
    report = json.loads(Path(done["report"]).read_text())
    assert {g["positions"][0]["source_offset"]: g["positions"][0]["found"] for g in report["groups"]} == places
    for offset in places:
        group = f"{topic_name}-{offset}"
        expected = next_record(source_cluster, topic_name, group, 0)
        assert next_record(target_cluster, topic_name, group, 0) == expected, f"group at {offset}"
        assert (expected is None) == (offset >= holes[-1])

    # One group reads ten records on the target and returns.
    group, at = f"{topic_name}-5", TopicPartition(topic_name, 0)
    moved = GroupPosition(target.group_offsets(group)[at].offset + 10, "note")
    target.commit_group_offsets(group, {at: moved}, unfenced)
    with pytest.raises(AirflowFailException, match="allow_production=True"):
        run(TranslateConsumerOffsetsOperator, dry_run=False, back=True)
    back = run(TranslateConsumerOffsetsOperator, dry_run=False, back=True, allow_production=True)
    assert back["committed"] and back["positions"]["commit"] >= 1
    assert source.group_offsets(group)[at].offset == 15
    assert next_record(source_cluster, topic_name, group, 0) == next_record(target_cluster, topic_name, group, 0)
