"""Take over what a real MirrorMaker 2 leaves behind: killed in the middle, with a separator, exactly-once delivery."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.main import main
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.sync.maps import MapSource, mapped_range
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionPair
from airflow_mirror.wire.cluster import WireCluster
from benchmarks.mirrormaker import TARGET
from benchmarks.referee import Answers, check_offsets, contents
from sandbox import Cluster
from sandbox.ports import reserve
from tests.integration.copying import await_stable, config, copy, create, ends, ranges_of, wait_until
from tests.integration.mirrormaker_once import running, settings_of, stop, write_file
from tests.integration.test_adopt import alias_of, mirror_of, replace_target

pytestmark = pytest.mark.parity

COUNT = 6000


def fill(cluster: Cluster, topic: str, numbers: range, *, transactions: bool, seed: int = 1) -> None:
    """Write numbered records, in transactions of which a third is aborted or in none."""
    rng = random.Random(seed)
    conf = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 2}
    producer = Producer({**conf, "transactional.id": f"{topic}-{numbers.start}"} if transactions else conf)
    if not transactions:
        for number in numbers:
            producer.produce(topic, rng.randbytes(rng.randint(1, 300)), str(number), partition=0)
        assert producer.flush(240) == 0
        return
    producer.init_transactions(240)
    for first in range(numbers.start, numbers.stop, 200):
        producer.begin_transaction()
        for number in range(first, min(first + 200, numbers.stop)):
            producer.produce(topic, rng.randbytes(rng.randint(1, 300)), str(number), partition=0)
        producer.flush(240)
        producer.abort_transaction(240) if rng.random() < 0.33 else producer.commit_transaction(240)
    await_stable(cluster, topic)


def records_on(target: Cluster, topic: str) -> int:
    with ClusterAdmin(config(target)) as admin:
        if topic not in admin.topics([topic]):
            return 0
        return admin.offsets([TopicPartition(topic, 0)], "latest")[TopicPartition(topic, 0)]


def begin_ledger(target: Cluster) -> None:
    with ClusterAdmin(config(target)) as admin:
        Ledger(admin).create()


def stored_map(target: Cluster, mirror: str, topic: str) -> OffsetMap:
    one = mapped_range("", topic, 0)
    with WireCluster(config(target)) as wire:
        found = MapStore(mirror).load(wire, one)
    assert found is not None
    return found


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def goes_on(source: Cluster, target: Cluster, topic: str, there: str, mirror: str) -> None:
    """Copy the rest by our mirror; require that nothing was lost, and nothing came twice beyond what was."""
    before = contents(target, there, "read_committed")
    ranges = [replace_target(one, there) for one in ranges_of(source, topic)]
    copy(source, target, ranges, mirror=mirror)
    after = contents(target, there, "read_committed")
    new = [number for _, number in after[len(before) :]]
    committed = [number for _, number in contents(source, topic, "read_committed")]
    assert after[: len(before)] == before
    known = {number for _, number in before}
    assert new == [number for number in committed if number not in known]
    assert {number for _, number in after} >= set(committed)
    pair = PartitionPair(source_topic=topic, target_topic=there, partition=0, mapped=True)
    maps = MapSource(mirror, True)
    (verdict,) = compare_partitions([pair], config(source), config(target), maps=maps)
    assert verdict.equal, verdict.first_difference


def committed_offsets(target: Cluster, topic: str) -> int:
    """Return how many records a storage topic has."""
    with ClusterAdmin(config(target)) as admin:
        if topic not in (found := admin.topics([topic])):
            return 0
        partitions = range(found[topic].partitions)
    with WireCluster(config(target)) as wire:
        return sum(len(list(TopicLog(wire, topic, p).read(TopicLog(wire, topic, p).start()))) for p in partitions)


def test_killed_and_started_again_it_is_taken_over_exactly(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    alias, name = alias_of(topic_name), mirror_of(topic_name)
    there = f"{alias}_{topic_name}"
    to = f"to{alias}"  # names of its topics that differ from others' by "_" for "." would collide with them
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, range(COUNT), transactions=True)
    begin_ledger(target_cluster)
    file = write_file(
        settings_of(
            alias, topic_name, source_cluster, target_cluster, to, replication__policy__separator="_",
            sync__group__offsets__enabled="true", sync__group__offsets__interval__seconds="1",
            emit__checkpoints__interval__seconds="1", refresh__groups__interval__seconds="1", groups=f"{topic_name}.*",
        ),
        tmp_path,
    )  # fmt: skip
    at, on_target = TopicPartition(topic_name, 0), TopicPartition(there, 0)
    with ClusterAdmin(config(source_cluster)) as admin:
        for behind in (50, 1000):
            position = GroupPosition(ends(source_cluster, topic_name)[0][2] - behind)
            admin.commit_group_offsets(f"{topic_name}-{behind}", {at: position}, unfenced)
    arguments = [
        "adopt", "--config", str(file), "--flow", f"{alias}->{to}", "--name", name, "--isolation", "read_committed",
    ]  # fmt: skip

    with running(file) as child:  # it commits its offsets once a minute
        wait_until(lambda: records_on(target_cluster, there) >= COUNT // 2, "MirrorMaker 2 copies", 400)
        child.kill()
    sent = records_on(target_cluster, there)
    with running(file) as child:
        wait_until(lambda: records_on(target_cluster, there) >= sent + COUNT, "it copies again from the start", 400)
        with ClusterAdmin(config(target_cluster)) as admin:
            wait_until(lambda: bool(admin.group_offsets(f"{topic_name}-1000")), "it sets its groups", 400)
        assert main([*arguments, "--watch", "3", "--yes"]) == 2, "it runs"
        said = capsys.readouterr().err
        assert f"group '{alias}-mm2' has members" in said and "heartbeats: " in said, said
        stop(child)
    fill(source_cluster, topic_name, range(COUNT, COUNT + 1000), transactions=True, seed=2)

    arguments += ["--watch", "3"]
    dry = told(arguments, capsys)
    done = told([*arguments, "--yes"], capsys)
    assert {key: value for key, value in done["sum"].items()} == dry["sum"]
    everything = contents(source_cluster, topic_name, "read_uncommitted")
    committed = contents(source_cluster, topic_name, "read_committed")
    copies = contents(target_cluster, there, "read_committed")
    numbers = [number for _, number in copies]
    aborted = {number for _, number in everything} - {number for _, number in committed}
    assert done["sum"]["records"] == done["sum"]["copies"] == len(copies)
    assert done["sum"]["repeated"] == len(copies) - len(set(numbers)) > 0
    assert done["sum"]["aborted"] == sum(number in aborted for number in numbers) > 0
    assert not done["sum"]["missing"] and not done["sum"]["unknown"] and not done["sum"]["ambiguous"]
    assert done["partitions"][0]["replicated"] is not None, "it commits when it is stopped"

    found = stored_map(target_cluster, name, there)
    answers = Answers(committed, copies)
    checked = check_offsets(lambda offset: found.to_target(offset).offset, answers, 10_000, everything[0][0])
    assert checked == 10_000
    with ClusterAdmin(config(target_cluster)) as admin:
        for move in done["groups"]["moves"]:
            exact = answers.place(move["source_offset"])
            assert admin.group_offsets(move["group"])[on_target].offset == exact == move["target_offset"]
            assert move["before"] is not None and move["before"] <= exact
        assert len(done["groups"]["moves"]) == 2 and done["groups"]["read_again"] >= 0
    goes_on(source_cluster, target_cluster, topic_name, there, name)


def test_exactly_once_delivery_leaves_markers_and_no_repetition(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    alias, name = alias_of(topic_name), mirror_of(topic_name)
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, range(COUNT), transactions=True)
    begin_ledger(target_cluster)
    storage, rest = f"offsets-of-{alias}", reserve(alias)  # workers call each other by the address that is given here
    settings = settings_of(
        alias, topic_name, source_cluster, target_cluster, dedicated__mode__enable__internal__rest="true",
        listeners=f"http://{rest.address}",
        replication__policy__class="org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        offset__storage__topic=storage,
    )  # fmt: skip
    settings[f"{TARGET}.exactly.once.source.support"] = "enabled"
    settings[f"{alias}.consumer.isolation.level"] = "read_committed"
    file = write_file(settings, tmp_path)
    committed = len(contents(source_cluster, topic_name, "read_committed"))
    with running(file) as child:
        wait_until(lambda: records_on(target_cluster, topic_name) >= committed // 2, "MirrorMaker 2 copies", 400)
        child.kill()
    with running(file) as child:
        wait_until(lambda: records_on(target_cluster, topic_name) >= committed, "it goes on", 400)
        wait_until(
            lambda: len(contents(target_cluster, topic_name, "read_committed")) >= committed, "it has everything", 400
        )
        stop(child)
    rest.release()
    fill(source_cluster, topic_name, range(COUNT, COUNT + 500), transactions=False)
    await_stable(target_cluster, topic_name)

    done = told(
        [
            "adopt", "--config", str(file), "--flow", f"{alias}->{TARGET}", "--name", name, "--watch", "3", "--yes",
        ],
        capsys,
    )  # fmt: skip
    assert done["sum"]["copies"] == done["sum"]["records"] == committed
    assert not any(done["sum"][kind] for kind in ("repeated", "aborted", "missing", "unknown", "ambiguous"))
    assert done["partitions"][0]["replicated"] is not None, f"read from {storage}"
    answers = Answers(
        contents(source_cluster, topic_name, "read_committed"), contents(target_cluster, topic_name, "read_committed")
    )
    found = stored_map(target_cluster, name, topic_name)
    assert len(found) > 1, "markers on the target make runs"
    check_offsets(lambda offset: found.to_target(offset).offset, answers, 10_000, 0)
    goes_on(source_cluster, target_cluster, topic_name, topic_name, name)


def test_the_steps_of_the_page_as_they_are_written(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Stop MirrorMaker, adopt by its file, run the same file: until then the topic has the retention of MirrorMaker."""
    alias = alias_of(topic_name)
    there = f"{alias}.{topic_name}"
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, range(500), transactions=False)
    begin_ledger(target_cluster)
    file = write_file(settings_of(alias, topic_name, source_cluster, target_cluster), tmp_path)
    with running(file) as child:
        wait_until(lambda: records_on(target_cluster, there) >= 500, "MirrorMaker 2 copies", 400)
        stop(child)
    fill(source_cluster, topic_name, range(500, 600), transactions=False)
    told(["adopt", "--config", str(file), "--flow", f"{alias}->{TARGET}", "--watch", "3", "--yes"], capsys)
    command = [sys.executable, "-m", "airflow_mirror.console.main", "run", str(file), "--home", str(tmp_path / "home")]
    with (tmp_path / "run.log").open("w") as out:
        tail = subprocess.Popen([*command, "--clusters", TARGET], stdout=out, stderr=out)
    try:
        wait_until(lambda: records_on(target_cluster, there) >= 600, "our tail goes on", 120)
        tail.send_signal(signal.SIGTERM)
        assert tail.wait(120) == 0, (tmp_path / "run.log").read_text()
    finally:
        tail.kill()
    numbers = [number for _, number in contents(target_cluster, there, "read_uncommitted")]
    assert sorted(map(int, numbers)) == list(range(600))
