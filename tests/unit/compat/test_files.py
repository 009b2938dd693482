"""A whole file: Mirrors, connections, and what is refused before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.compat import connectors, files, flags
from airflow_mirror.compat.rows import Fate
from airflow_mirror.config import ClientConfig, load
from airflow_mirror.errors import InputError, InvalidSetting
from airflow_mirror.mirror import Mirror

PACKAGE = "org.apache.kafka.connect.mirror."
BOTH_WAYS = """
clusters = dc-1, dc-2
dc-1.bootstrap.servers = one:9092
dc-2.bootstrap.servers = two:9092
dc-1->dc-2.enabled = true
dc-2->dc-1.enabled = true
"""


def write(tmp_path: Path, text: str, name: str = "mm2.properties") -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


def findings(error: InputError, file: Path) -> list[str]:
    """What is wrong with a file."""
    head, *lines = str(error).split("\n  - ")
    assert head == f"{file}: {len(lines)} finding(s); nothing was written:"
    return lines


def test_each_enabled_flow_becomes_a_mirror_between_two_connections(tmp_path: Path) -> None:
    there, back = Mirror.from_properties(write(tmp_path, BOTH_WAYS))
    assert (there.name, there.source, there.target, there.source_alias, there.target_alias) == (
        "dc-1-to-dc-2", "kafka_dc_1", "kafka_dc_2", "dc-1", "dc-2",
    )  # fmt: skip
    assert (back.name, back.source, back.target) == ("dc-2-to-dc-1", "kafka_dc_2", "kafka_dc_1")


def test_a_cluster_whose_roles_differ_has_a_connection_for_each(tmp_path: Path) -> None:
    file = write(tmp_path, BOTH_WAYS + "dc-1.producer.client.id = writer\n")
    found = files.read([file])
    assert found.connections == {
        "kafka_dc_1_source": {"bootstrap.servers": "one:9092"},
        "kafka_dc_1_target": {"bootstrap.servers": "one:9092", "client.id": "writer"},
        "kafka_dc_2": {"bootstrap.servers": "two:9092"},
    }
    assert found.mirrors["dc-2", "dc-1"]["target"] == "kafka_dc_1_target"


def given_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str) -> dict[str, Callable[[], object]]:
    """Each way in which somebody gives a cluster's addresses; a connection of Airflow's is the last one."""
    monkeypatch.setattr("airflow_mirror.config._READ_AGAIN", 0)
    monkeypatch.setenv("SRC", json.dumps({"bootstrap.servers": servers}))
    native = write(tmp_path, f"bootstrap.servers={servers}", "src.properties")
    driver = write(tmp_path, BOTH_WAYS.replace("one:9092", servers))
    config = {
        "connector.class": f"{PACKAGE}MirrorSourceConnector", "source.cluster.alias": "A", "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": servers, "target.cluster.bootstrap.servers": "b:1",
    }  # fmt: skip
    connector = write(tmp_path, json.dumps(config), "source.json")
    old = ["--whitelist=.*", f"--consumer.config={native}", f"--producer.config={native}"]
    return {
        "env": lambda: load("env:SRC"), "file": lambda: load(str(native)), "driver": lambda: files.read([driver]),
        "connector": lambda: files.read([connector]), "old tool": lambda: flags.read(old),
        "connection": lambda: ClientConfig({"bootstrap.servers": servers}, "source"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("servers", "says"),
    [("a:1;b:1", "holds several. Separate"), ("kafka://a:1", "is a URL of no"), ("::1:9092", "in brackets: write [::1]")],
)
def test_addresses_that_are_none_are_refused_with_what_to_write_however_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str, says: str
) -> None:
    for way, read in given_in_every_way(tmp_path, monkeypatch, servers).items():
        with pytest.raises(InputError) as caught:
            read()
        assert "bootstrap.servers address 1 " in str(caught.value).replace(": address", " address"), way
        assert says in str(caught.value), way


WITH_REFERENCES = (
    BOTH_WAYS.replace("one:9092", "${env:ADDRESSES}")
    + """
config.providers = env
config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider
dc-1.security.protocol = SASL_SSL
dc-1.sasl.mechanism = PLAIN
dc-1.sasl.jaas.config = ${env:LOGIN}
dc-2->dc-1.target.admin.sasl.jaas.config = ${env:LOGIN_OF_WRITERS}
dc-2->dc-1.target.producer.sasl.jaas.config = ${env:LOGIN_OF_WRITERS}
dc-1.consumer.isolation.level = ${env:ISOLATION}
"""
)
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hidden";'


def test_mirrors_are_the_same_where_no_secret_is_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is made where secrets are, and named where they are not, whatever they turn out to be."""
    file = write(tmp_path, WITH_REFERENCES)
    monkeypatch.setenv("ISOLATION", "read_committed")
    without = Mirror.from_properties(file)
    assert [(one.source, one.target) for one in without] == [
        ("kafka_dc_1_source", "kafka_dc_2"), ("kafka_dc_2", "kafka_dc_1_target"),
    ]  # fmt: skip
    for name, value in {"ADDRESSES": "one:9092", "LOGIN": LOGIN, "LOGIN_OF_WRITERS": LOGIN}.items():
        monkeypatch.setenv(name, value)
    found = files.read([file])
    assert [Mirror.from_dict(one) for one in found.mirrors.values()] == without
    assert without[0].isolation == "read_committed"
    assert found.connections.keys() == {"kafka_dc_1_source", "kafka_dc_1_target", "kafka_dc_2"}


def test_all_findings_are_listed_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, BOTH_WAYS + "topic = x\ndc-1->dc-2.transforms = y\n")
    with pytest.raises(InputError) as e:
        files.read([file])
    assert [finding.partition(":")[0] for finding in findings(e.value, file)] == ["topic", "dc-1->dc-2.transforms"]


def test_a_file_without_an_enabled_flow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no flow is enabled"):
        files.read([write(tmp_path, "clusters = A, B")])


@pytest.mark.parametrize("flows", [("a-b->a.b", "a.b->a-b"), ("a-b->a.b",), ("a-b->c", "c->a.b"), ("c->a-b", "c->a.b")])
def test_clusters_whose_names_would_be_one_are_refused(tmp_path: Path, flows: tuple[str, ...]) -> None:
    """Also where one is only read, and the other only written to: a mirror would read from the wrong cluster."""
    text = "clusters = a-b, a.b, c\n" + "".join(f"{one}.bootstrap.servers = {one}:1\n" for one in ("a-b", "a.b", "c"))
    with pytest.raises(InputError, match="would both be called 'kafka_a_b'"):
        files.read([write(tmp_path, text + "".join(f"{flow}.enabled = true\n" for flow in flows))])


def test_a_refused_key_that_no_enabled_flow_uses_is_noticed_and_passes(tmp_path: Path) -> None:
    text = BOTH_WAYS + "transforms = x\ndc-1->dc-2.transforms =\ndc-2->dc-1.transforms =\n"
    (line,) = [one for one in files.read([write(tmp_path, text)]).noticed if one.key == "transforms"]
    assert line.fate is Fate.WITHOUT_EFFECT
    assert line.text.startswith("no enabled flow uses it; refused otherwise: records pass as bytes")


def test_a_client_that_moves_no_data_of_a_flow_is_told_to_be_without_effect(tmp_path: Path) -> None:
    """MirrorMaker reads the target, and writes to the source, only what is its own."""
    text = BOTH_WAYS.replace("dc-2->dc-1.enabled = true", "") + (
        "dc-1.producer.compression.type = gzip\ndc-2.consumer.auto.offset.reset = latest\n"
        "dc-1.consumer.isolation.level = read_committed\ndc-2.producer.client.id = w\n"
    )
    found = files.read([write(tmp_path, text)])
    fates = {one.key: (one.fate, one.text) for one in found.noticed}
    for key in ("dc-1.producer.compression.type", "dc-2.consumer.auto.offset.reset"):
        assert fates[key] == (Fate.WITHOUT_EFFECT, "only topics of MirrorMaker's own were read or written with it")
    assert fates["dc-1.consumer.isolation.level"][0] is Fate.MAPPED
    (mirror,) = found.mirrors.values()
    assert (mirror["start"], mirror["isolation"]) == ("earliest", "read_committed")
    assert found.connections["kafka_dc_2"]["client.id"] == "w"


@pytest.mark.parametrize("where", ["", "dc-1->dc-2.", "dc-1."])
def test_a_clients_key_without_its_client_is_told_where_it_belongs(tmp_path: Path, where: str) -> None:
    found = files.read([write(tmp_path, BOTH_WAYS + f"{where}linger.ms = 5\n")])
    (line,) = [one for one in found.noticed if one.key.endswith("linger.ms")]
    assert line.fate is Fate.WITHOUT_EFFECT and line.text.endswith("It is a client's key: ALIAS.producer.linger.ms")


# --- three connectors ------------------------------------------------------------------------------------------------


def connector(kind: str, **more: Any) -> dict[str, Any]:
    config = {
        "connector.class": f"{PACKAGE}Mirror{kind}Connector", "source.cluster.alias": "A", "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "a:1", "target.cluster.bootstrap.servers": "b:1",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter", "tasks.max": 4,
    }  # fmt: skip
    return config | {key.replace("__", "."): value for key, value in more.items()}


def test_what_connects_worker_would_fill_in_is_never_taken_literally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's file declares the providers, and is not here: the reference would become the password."""
    monkeypatch.setenv("PASSWORD", "hidden")
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${vars:PASSWORD}";'
    one = connector("Source") | {
        "source.cluster.security.protocol": "SASL_SSL", "source.cluster.sasl.mechanism": "PLAIN",
        "source.cluster.sasl.jaas.config": login,
    }  # fmt: skip
    file = write(tmp_path, json.dumps(one), "source.json")
    with pytest.raises(
        InputError, match=r"sasl.jaas.config: Connect's worker replaces \$\{vars:PASSWORD\}, and its file"
    ):
        files.read([file])
    declared = {
        "config.providers": "vars",
        "config.providers.vars.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    }
    found = files.read([write(tmp_path, json.dumps(one | declared), "source.json")])
    assert found.connections["kafka_A"]["sasl.password"] == "hidden"
    assert {line.fate for line in found.noticed if "config.providers" in line.key} == {Fate.MAPPED}


def test_three_connectors_are_one_flow(tmp_path: Path) -> None:
    each = [
        connector("Source", topics="orders", sync__topic__acls__enabled=False, groups="not its own"),
        {
            "name": "cp",
            "config": connector("Checkpoint", groups="g.*", sync__group__offsets__enabled="true", topics=".*"),
        },
        connector("Heartbeat"),
    ]
    paths = [write(tmp_path, json.dumps(one), f"{i}.json") for i, one in enumerate(each)]
    (mirror,) = Mirror.from_properties(*paths)
    assert (mirror.topics, mirror.groups, mirror.sync_groups, mirror.sync_acls) == (("orders",), ("g.*",), True, False)
    assert (mirror.name, mirror.source, mirror.target) == ("A-to-B", "kafka_A", "kafka_B")
    keys = [one.key for one in files.read(paths).noticed]
    assert "MirrorCheckpointConnector: groups" in keys
    assert len(keys) == len(set(keys)) == sum(len(one.get("config", one)) for one in each)
    listed = write(tmp_path, json.dumps(each), "all.json")
    assert Mirror.from_properties(listed) == [mirror]
    by_name = {
        one: {"info": {"name": one, "config": each[0] if one == "s" else each[1]["config"]}} for one in ("s", "cp")
    }
    expanded = Mirror.from_properties(write(tmp_path, json.dumps(by_name), "expanded.json"))
    assert expanded == Mirror.from_properties(*paths[:2]), "as GET /connectors?expand=info has them"


@pytest.mark.parametrize("package", ["", PACKAGE])
def test_the_alias_of_a_connectors_class_is_read(tmp_path: Path, package: str) -> None:
    """Connect takes a class also without its package, and without Connector."""
    one = connector("Source", topics="orders") | {"connector.class": f"{package}MirrorSource"}
    (mirror,) = Mirror.from_properties(write(tmp_path, json.dumps(one), "c.json"))
    assert mirror.topics == ("orders",)


@pytest.mark.parametrize("side", ["source", "target"])
def test_what_mirrormaker_drops_below_a_cluster_of_a_connector_is_told(tmp_path: Path, side: str) -> None:
    """AWS's examples for MSK Connect have these, in each of the three connectors."""
    dropped = {
        f"{side}.cluster.{key}"
        for key in ("linger.ms", "receive.buffer.bytes", "max.poll.records", "max.request.size", "message.max.bytes")
    }
    one = connector("Source", clusters="A,B") | dict.fromkeys(dropped, "33554432")
    found = files.read([write(tmp_path, json.dumps(one), "source.json")])
    told = {line.key.removeprefix("MirrorSourceConnector: "): line for line in found.noticed}
    assert {told[key].fate for key in (*dropped, "clusters")} == {Fate.WITHOUT_EFFECT}
    assert "addresses, encryption and login alone" in told[f"{side}.cluster.receive.buffer.bytes"].text
    assert [*found.connections.values()] == [{"bootstrap.servers": "a:1"}, {"bootstrap.servers": "b:1"}]


@pytest.mark.parametrize("key", ["source.cluster.security.protcol", "source.cluster.ssl.truststore", "target.cluster.x"])
def test_a_misspelt_key_of_a_connectors_cluster_is_still_refused(tmp_path: Path, key: str) -> None:
    """It may be the one that asks for TLS."""
    with pytest.raises(InputError, match="nobody knows it"):
        files.read([write(tmp_path, json.dumps(connector("Source") | {key: "SSL"}), "source.json")])


def of_three(tmp_path: Path, source: dict[str, Any], checkpoint: dict[str, Any], **heartbeat: Any) -> Path:
    each = [connector("Source") | source, connector("Checkpoint") | checkpoint, connector("Heartbeat") | heartbeat]
    return write(tmp_path, json.dumps(each), "all.json")


def test_what_only_another_connectors_file_says_is_told_to_be_without_effect(tmp_path: Path) -> None:
    login = {"source.cluster.sasl.mechanism": "PLAIN", "target.producer.linger.ms": "5", "replication.factor": "3"}
    theirs = {"sync.group.offsets.enabled": "true", "emit.heartbeats.interval.seconds": "9", "groups": "g"}
    policy = {"replication.policy.separator": "_"}
    file = of_three(tmp_path, theirs | policy, login | policy, **login, **policy)
    (mirror,) = Mirror.from_properties(file)
    assert (mirror.sync_groups, mirror.groups, mirror.heartbeat_interval_s) == (False, (".*",), 1.0)
    told = {one.key: one for one in files.read([file]).noticed}
    dropped = [(kind, key) for kind in ("Checkpoint", "Heartbeat") for key in login] + [("Source", key) for key in theirs]
    for kind, key in dropped:
        one = told[f"Mirror{kind}Connector: {key}"]
        assert one.fate is Fate.WITHOUT_EFFECT, one
    assert (
        told["MirrorCheckpointConnector: replication.factor"].text == "only what MirrorSourceConnector has of it counts"
    )
    (said,) = {told[f"MirrorSourceConnector: {key}"].text for key in ("groups", "sync.group.offsets.enabled")}
    assert said == "only what MirrorCheckpointConnector has of it counts"
    assert told["MirrorHeartbeatConnector: replication.policy.separator"].fate is not Fate.WITHOUT_EFFECT


def test_keys_of_a_connector_that_is_not_enabled_are_told(tmp_path: Path) -> None:
    file = of_three(tmp_path, {}, {"enabled": "false", "sync.group.offsets.enabled": "true", "topics": "x"})
    told = {one.key: one for one in files.read([file]).noticed}
    for key in ("sync.group.offsets.enabled", "topics", "source.cluster.bootstrap.servers"):
        one = told[f"MirrorCheckpointConnector: {key}"]
        assert (one.fate, one.text) == (Fate.WITHOUT_EFFECT, "the connector is not enabled")
    assert told["MirrorCheckpointConnector: enabled"].fate is Fate.HONOURED


BEFORE_4_0 = r".*[\-\.]internal, .*\.replica, __.*"  # the default then
MOVES = {"sync.group.offsets.enabled": "true"}


@pytest.mark.parametrize(
    ("source", "checkpoint", "wrong"),
    [
        ({"topics": "a, b"}, {"topics": "a"}, ["topics"]),
        ({}, {"topics": "a"}, ["topics"]),
        ({"topics": "a,b"}, {"topics": "b, a, c"}, []),
        ({"topics": "a,b"}, {"topics": "c,.*"}, []),
        ({"topics": "a"}, {}, []),
        ({}, {"topics.exclude": "a"}, ["topics.exclude"]),
        ({}, {"topics.blacklist": "a"}, ["topics.blacklist"]),
        ({"topics.exclude": "a, b"}, {"topics.exclude": "b"}, []),
        ({"topics.blacklist": "a, b"}, {"topics.exclude": "b"}, []),
        ({"topics.exclude": "a"}, {"topics.exclude": ""}, []),
        ({"topics.exclude": "a"}, {}, []),
        ({}, {"topics.exclude": BEFORE_4_0}, []),
        ({}, {"topics.blacklist": BEFORE_4_0}, []),
        ({"topics.exclude": BEFORE_4_0}, {"topics.exclude": r"mm2.*\.internal, .*\.replica, __.*"}, []),
        ({}, {"topics.exclude": f"{BEFORE_4_0}, a"}, ["topics.exclude"]),
        ({"topics.exclude": "a"}, {"topics.exclude": BEFORE_4_0}, ["topics.exclude"]),
        ({"topics": "a"}, {"topics": "b", "topics.exclude": "c", "sync.group.offsets.enabled": "false"}, []),
        ({"topics": "a"}, {"topics": "b", "enabled": "false"}, []),
    ],
)
def test_groups_that_would_move_in_more_topics_than_they_did_are_refused(
    tmp_path: Path, source: dict[str, Any], checkpoint: dict[str, Any], wrong: list[str]
) -> None:
    file = of_three(tmp_path, source, MOVES | checkpoint)
    found = list[str]()
    try:
        files.read([file])
    except InputError as e:
        found = findings(e, file)
    assert [line.split(": ")[:2] for line in found] == [["MirrorCheckpointConnector", key] for key in wrong]


def test_a_filter_of_topics_of_a_checkpoint_connector_is_refused(tmp_path: Path) -> None:
    file = of_three(tmp_path, {}, MOVES | {"topic.filter.class": "com.example.Own"})
    with pytest.raises(InputError, match="MirrorCheckpointConnector: topic.filter.class: a filter is code of Java"):
        files.read([file])
    default = "org.apache.kafka.connect.mirror.DefaultTopicFilter"
    assert files.read([of_three(tmp_path, {}, MOVES | {"topic.filter.class": default})]).mirrors


def test_a_connector_of_connects_own_file_syntax_is_read(tmp_path: Path) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in connector("Source", name="s").items())
    (mirror,) = Mirror.from_properties(write(tmp_path, text))
    assert not mirror.sync_groups


def test_what_is_wrong_with_connectors_is_named(tmp_path: Path) -> None:
    each = [
        connector("Checkpoint", replication__policy__separator="_", topic="x"), connector("Heartbeat", enabled=False),
        {"connector.class": "com.example.Sink"},
    ]  # fmt: skip
    file = write(tmp_path, json.dumps(each), "c.json")
    with pytest.raises(InputError) as e:
        files.read([file])
    assert findings(e.value, file) == [
        "MirrorCheckpointConnector: topic: nobody knows it. The nearest known is 'topics'. Correct or remove it.",
        "connector 3: connector.class: no connector of MirrorMaker 2. Leave it out.",
        "MirrorSourceConnector: none from A to B: nothing would be copied. Give its file, too.",
    ]
    file = write(tmp_path, json.dumps([connector("Source"), each[0] | {"topic": ""}, connector("Source")]), "c.json")
    with pytest.raises(InputError) as e:
        files.read([file])
    assert [line.split(": ")[1] for line in findings(e.value, file)] == ["topic", "there are two from A to B. Give one.",
                                                                      "replication.policy.separator"]  # fmt: skip


def test_a_drivers_file_and_connectors_are_not_mixed(tmp_path: Path) -> None:
    driver = write(tmp_path, BOTH_WAYS)
    source = write(tmp_path, json.dumps(connector("Source")), "s.json")
    for paths in ([driver, source], [driver, driver], []):
        with pytest.raises(InputError, match="is read at a time"):
            files.read(paths)


def test_the_brokers_default_of_replicas_is_taken_and_what_comes_of_it_is_said(tmp_path: Path) -> None:
    found = files.read([write(tmp_path, f"{BOTH_WAYS}replication.factor = -1\n")])
    assert {Mirror.from_dict(fields).replication_factor for fields in found.mirrors.values()} == {None}
    (said,) = [one for one in found.noticed if one.key == "replication.factor"]
    assert said.changed and said.text.startswith("replication_factor: a new topic has as many replicas as on the source")


def test_what_becomes_another_value_behind_a_reference_is_said_once(tmp_path: Path) -> None:
    """The file has the reference alone; the flows have what it stands for."""
    write(tmp_path, "long = 7200\nfine = 600\nreplicas = -1\n", "held.properties")
    of_file = f"${{file:{tmp_path}/held.properties"
    text = f"""{BOTH_WAYS}
config.providers = file
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
refresh.topics.interval.seconds = {of_file}:long}}
emit.heartbeats.interval.seconds = {of_file}:fine}}
dc-1->dc-2.sync.topic.acls.interval.seconds = 5
replication.factor = {of_file}:replicas}}
"""
    found = files.read([write(tmp_path, text)])
    assert [fields["topic_interval_s"] for fields in found.mirrors.values()] == [3600.0, 3600.0]
    said = {one.key: one.text for one in found.noticed if one.changed}
    assert said.keys() == {
        "refresh.topics.interval.seconds", "dc-1->dc-2.sync.topic.acls.interval.seconds", "replication.factor"
    }  # fmt: skip
    assert said["refresh.topics.interval.seconds"] == "topic_interval_s: 3600 here, from a second to an hour"
    assert len([one for one in found.noticed if one.changed]) == 3


@pytest.mark.parametrize("value", [["orders", "payments"], None, {"a": 1}])
@pytest.mark.parametrize("key", ["topics", "topics.exclude"])
def test_a_connectors_value_that_is_no_text_is_not_taken_for_one(key: str, value: Any, tmp_path: Path) -> None:
    """A list would be a class of characters, and nothing would remove the default."""
    file = write(tmp_path, json.dumps(connector("Source") | {key: value}), "c.json")
    with pytest.raises(InvalidSetting, match=f"c.json': {key} has no text as its value. Write it as one text") as e:
        files.read([file])
    assert "payments" not in str(e.value)


def test_connectors_may_begin_with_a_byte_order_mark_and_have_numbers_as_they_are_written(tmp_path: Path) -> None:
    text = '\ufeff{"one": 1.10, "other": 1e400, "third": true}'
    assert connectors.of_json(write(tmp_path, text, "c.json")) == [{"one": "1.10", "other": "1e400", "third": "true"}]


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "holds no JSON"), ("[1]", "something else than a connector"), ("[" * 100_000, "nested too deeply")],
)
def test_a_file_that_is_no_connector_is_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        files.read([write(tmp_path, text, "c.json")])
