"""The sandbox with real brokers: ready means usable, nodes die and come back, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient, NewTopic

from sandbox import Cluster, DiskFull, NodeFailed, PortInUse
from sandbox.home import _base
from sandbox.yarn import YarnCluster, processes_below
from tests.integration.copying import wait_until
from tests.listening import listeners

pytestmark = pytest.mark.tools

REPOSITORY = Path(__file__).parents[2]


def create(properties: dict[str, str], topic: str, partitions: int = 1, replicas: int = -1) -> None:
    admin = AdminClient(properties)  # held: a future dies with its client
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(60)


def cluster_id(cluster: Cluster) -> str:
    admin = AdminClient(cluster.properties())
    return str(admin.describe_cluster().result(60).cluster_id)


def acl(topic: str, principal: str, operation: str, permission: str) -> kafka_admin.AclBinding:
    return kafka_admin.AclBinding(
        kafka_admin.ResourceType.TOPIC, topic, kafka_admin.ResourcePatternType.LITERAL, principal, "*",
        kafka_admin.AclOperation[operation], kafka_admin.AclPermissionType[permission],
    )  # fmt: skip


def produce(properties: dict[str, str], topic: str, values: list[bytes | None]) -> None:
    errors: list[KafkaError] = []
    producer = Producer(properties | {"acks": "all", "log_level": "0"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(240) == 0
    if errors:
        raise KafkaException(errors[0])


def is_refused(properties: dict[str, str], topic: str) -> bool:
    try:
        produce(properties, topic, [b"probe"])
    except KafkaException as e:
        return bool(e.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED)
    return False


def consume(properties: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(properties | {"group.id": "sandbox-test", "enable.auto.commit": "false"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes | None] = []
        deadline = time.monotonic() + 240
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
        return values
    finally:
        consumer.close()


def gone(pid: int, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


# --- the shared clusters ----------------------------------------------------------------------------------------------


def test_two_clusters_are_two_and_take_what_real_ones_take(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    values = [b"", None, b"\x00\xff" * 5000, "gruß".encode(), b"last"]
    create(source_cluster.properties(), topic_name)
    produce(source_cluster.properties(), topic_name, values)
    assert consume(source_cluster.properties(), topic_name, len(values)) == values
    assert cluster_id(source_cluster) != cluster_id(target_cluster)
    assert topic_name not in AdminClient(target_cluster.properties()).list_topics(timeout=60).topics


def test_misspelt_topic_is_not_created(source_cluster: Cluster, topic_name: str) -> None:
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        produce(source_cluster.properties() | {"topic.metadata.propagation.max.ms": "100"}, topic_name, [b"x"])
    assert topic_name not in AdminClient(source_cluster.properties()).list_topics(timeout=60).topics


def test_forked_copy_of_this_process_can_not_stop_the_cluster(source_cluster: Cluster) -> None:
    """Airflow and multiprocessing fork; a copy of the cluster object is no claim on the cluster."""
    pid = os.fork()
    if pid == 0:
        source_cluster.stop()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert source_cluster.alive(1) and source_cluster.directory.exists()


# --- life and death ---------------------------------------------------------------------------------------------------


def test_killed_node_returns_at_its_address_with_its_data(topic_name: str) -> None:
    """A paused node answers nothing until it is resumed."""
    with Cluster("mortal", overrides={"log.retention.ms": "-1"}) as cluster:
        bootstrap, directory, properties = cluster.bootstrap, cluster.directory, cluster.properties()
        create(properties, topic_name)
        produce(properties, topic_name, [b"before"])
        pid = cluster.pid(1)
        assert pid is not None
        for _ in range(2):  # a second time: what the first kill left behind must not matter
            cluster.kill(1)
            assert gone(pid) and not cluster.alive(1) and cluster.pid(1) is None
            cluster.restart(1)
            pid = cluster.pid(1)
            assert pid is not None and cluster.bootstrap == bootstrap
        produce(properties, topic_name, [b"after"])
        assert consume(properties, topic_name, 2) == [b"before", b"after"]

        cluster.pause(1)
        assert cluster.alive(1)
        with pytest.raises(KafkaException):
            AdminClient(properties | {"log_level": "0"}).list_topics(timeout=2)
        cluster.resume(1)
        cluster.wait_ready()
        produce(properties, topic_name, [b"awake"])
        assert "Kafka Server started" in cluster.log_path(1).read_text()
        cluster.pause(1)  # a frozen node must not hold up the end
    assert gone(pid) and not directory.exists()
    cluster.stop()


def test_three_nodes_with_authorizer_lose_one_and_obey_acls(topic_name: str) -> None:
    with Cluster("secured", nodes=3, authorizer=True) as cluster:
        admin = AdminClient(cluster.admin_properties())
        create(cluster.admin_properties(), topic_name)
        alice, mirror = cluster.properties("alice"), cluster.properties("mirror")
        produce(alice, topic_name, [b"while nothing is forbidden"])
        produce(cluster.properties(), topic_name, [b"nor asked who"])
        # The same rules first on the topic, then on a probe with the same leader: what it obeys there, it obeys here.
        probe, known = f"{topic_name}-probe", admin.list_topics(topic_name, timeout=60)
        partition = known.topics[topic_name].partitions[0]
        replicas = sorted(partition.replicas, key=lambda node_id: node_id != partition.leader)
        admin.create_topics([NewTopic(probe, 1, replica_assignment=[replicas])])[probe].result(60)
        for topic in (topic_name, probe):
            rules = [acl(topic, "User:alice", "WRITE", "DENY"), acl(topic, "User:mirror", "ALL", "ALLOW")]
            for future in admin.create_acls(rules).values():
                future.result(60)
        for refused in (alice, cluster.properties()):  # denied; not mentioned
            wait_until(lambda user=refused: is_refused(user, probe), "the leader obeys the rules")
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                produce(refused, topic_name, [b"no"])
        cluster.kill(2)
        produce(mirror, topic_name, [b"mirror may"])
        produce(cluster.admin_properties(), topic_name, [b"admin may anything"])
        cluster.restart(2)
        wait_until(lambda: len(admin.list_topics(timeout=60).brokers) == 3, "all know that the node is back")
        assert len(consume(cluster.admin_properties(), topic_name, 4)) == 4


def test_own_directory_keeps_data_and_cluster_id_across_starts(tmp_path: Path, topic_name: str) -> None:
    ids = set()
    for attempt in (1, 2):
        with Cluster("kept", data_dir=tmp_path / "kept") as cluster:
            ids.add(cluster_id(cluster))
            if attempt == 1:
                create(cluster.properties(), topic_name)
                produce(cluster.properties(), topic_name, [b"kept"])
            else:
                assert consume(cluster.properties(), topic_name, 1) == [b"kept"]
    assert len(ids) == 1


# --- starts that fail ---------------------------------------------------------------------------------------------------


def test_setting_that_kafka_refuses_is_quoted_and_nothing_is_left() -> None:
    with pytest.raises(NodeFailed, match=r"(?s)'wrong', node 1 ended with status 1 .*soon.*log.retention.ms"):
        Cluster("wrong", overrides={"log.retention.ms": "soon"}).start()
    assert not [path for path in _base().iterdir() if path.name.startswith("wrong-")]


def test_port_of_another_cluster_is_refused(source_cluster: Cluster) -> None:
    port = int(source_cluster.bootstrap.rpartition(":")[2])
    with pytest.raises(PortInUse, match=f"port {port}"):
        Cluster("late", ports=[port]).start()


@pytest.fixture(params=["24k", "4k"])
def tiny_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system that is full before a node runs, or before there is one."""
    path = tmp_path / "tiny"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_disk_that_fills_up_during_the_start_is_named(tiny_disk: Path) -> None:
    with pytest.raises(DiskFull, match=f"no space for Kafka's data in {tiny_disk}"):
        Cluster("cramped", data_dir=tiny_disk / "data", min_free_mb=0).start()


# --- nothing stays behind -----------------------------------------------------------------------------------------------


def up(cache: Path, *arguments: str) -> tuple[subprocess.Popen[str], list[int], Path]:
    """Start ``python -m sandbox up`` with a state file of its own; return it, its nodes' pids, and their directory."""
    cache.mkdir()
    real = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow_mirror"
    (cache / "airflow_mirror").mkdir()
    for jars in real.glob("kafka-*"):
        (cache / "airflow_mirror" / jars.name).symlink_to(jars)
    process = subprocess.Popen(
        [sys.executable, "-m", "sandbox", "up", "--clusters", "cli", *arguments],
        cwd=REPOSITORY, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, stdout=subprocess.PIPE, text=True,
        # A shell starts what runs in its background deaf to Ctrl-C, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as output:
        assert output.readline().startswith("cli  127.0.0.1:")
    found = status(cache)
    return process, found["pids"], Path(found["directory"])


def status(cache: Path) -> dict[str, Any]:
    out = subprocess.run(
        [sys.executable, "-m", "sandbox", "status", "--json"],
        cwd=REPOSITORY, env=os.environ | {"XDG_CACHE_HOME": str(cache)}, capture_output=True, text=True,
    ).stdout  # fmt: skip
    clusters = json.loads(out)["clusters"]
    return dict(clusters[0]) if clusters else {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["ctrl-c", "sigterm", "kill-9"])
def test_up_ends_and_no_broker_stays(tmp_path: Path, number: signal.Signals, source_cluster: Cluster) -> None:
    process, pids, directory = up(tmp_path / "cache")
    try:
        process.send_signal(number)
        assert process.wait(180) == (-9 if number == signal.SIGKILL else 0)
        assert all(gone(pid) for pid in pids) and status(tmp_path / "cache") == {}
    finally:
        process.kill()  # its brokers follow it, so that a test that fails leaves none to its neighbours
        process.wait()
    if number == signal.SIGKILL:
        assert directory.exists(), "nobody was left to delete it ..."
        with pytest.raises(DiskFull):
            Cluster("next", min_free_mb=10**9).start()
    assert not directory.exists(), "... so the next start does"
    assert source_cluster.alive(1) and source_cluster.directory.exists(), "and only that"


def test_down_stops_what_runs_in_the_background(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    real = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow_mirror"
    (tmp_path / "airflow_mirror").mkdir()
    for jars in real.glob("kafka-*"):
        (tmp_path / "airflow_mirror" / jars.name).symlink_to(jars)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sandbox", *arguments], cwd=REPOSITORY, env=environment, capture_output=True, text=True
        )

    started = run("up", "--detach", "--clusters", "cli", "--set", "log.retention.ms=-1")
    try:
        assert started.returncode == 0 and started.stdout.startswith("cli  127.0.0.1:"), started.stderr
        pids = json.loads(run("status", "--json").stdout)["clusters"][0]["pids"]
        assert run("up").returncode == 2
    finally:
        stopped = run("down")
    assert stopped.stdout == "stopped cli\n" and all(gone(pid) for pid in pids)
    assert run("status").returncode == 1


def test_program_that_forgets_to_stop_leaves_nothing() -> None:
    program = "from sandbox import Cluster; c = Cluster('forgot').start(); print(c.pid(1), c.directory)"
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    pid, _, directory = done.stdout.strip().partition(" ")
    assert gone(int(pid)) and not Path(directory).exists()


def test_yarn_listens_on_this_machine_alone_and_leaves_nothing() -> None:
    with YarnCluster() as yarn:
        assert yarn.applications("nobody") == []
        running, directory = processes_below(yarn.directory), yarn.directory
        listening = listeners(running)
        assert running and listening and [one for one in listening if not one.is_local] == []
    assert not directory.exists() and not [pid for pid in running if Path(f"/proc/{pid}").exists()]
