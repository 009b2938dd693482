"""connect-mirror-maker.properties: precedence as MirrorMaker 2 has it, and nothing that passes unnoticed."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from airflow_mirror.compat import driver, files, properties
from airflow_mirror.compat.declared import Declared
from airflow_mirror.compat.flows import client_of
from airflow_mirror.compat.rows import Fate
from airflow_mirror.errors import InputError

HERE = Path(__file__).parent
APACHE = HERE / "apache"
LEVELS = HERE / "levels.properties"
FLOWS = HERE.parents[1] / "golden" / "mirrormaker_flows.txt"
# Connect asks for these, or MirrorMaker's classes set them: no file has them.
SET_BY_JAVA = {"name", "connector.class", "source.cluster.alias", "target.cluster.alias", "enabled"}
CLIENTS_OF_JAVA = {
    "sourceConsumer": ("source", "consumer"), "sourceAdmin": ("source", "admin"), "targetAdmin": ("target", "admin"),
}  # fmt: skip


def of_java() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for line in FLOWS.read_text(encoding="utf-8").splitlines():
        flow, who, key, value = line.split("\1")
        found[flow][who][key] = value
    return found


def declared(text: str) -> Declared:
    return driver.read(properties.parse(text))


def test_the_same_flows_are_enabled_as_in_mirrormaker() -> None:
    found = driver.read(properties.read(LEVELS))
    assert found.problems == ()
    assert ["->".join(pair) for pair in found.flows] == list(of_java()) == ["A->B", "us.east->A"]


@pytest.mark.parametrize("flow", ["A->B", "us.east->A"])
def test_a_flows_connectors_get_the_keys_that_mirrormaker_gives_them(flow: str) -> None:
    source, target = flow.split("->")
    ours = driver.read(properties.read(LEVELS)).flows[source, target]
    java = of_java()[flow]["connectors"]
    assert {key: one.value for key, one in ours.items() if key not in SET_BY_JAVA} == {
        key: value for key, value in java.items() if key not in SET_BY_JAVA
    }


@pytest.mark.parametrize("client", CLIENTS_OF_JAVA)
@pytest.mark.parametrize("flow", ["A->B", "us.east->A"])
def test_a_flows_clients_get_the_keys_that_mirrormaker_gives_them(flow: str, client: str) -> None:
    source, target = flow.split("->")
    ours = client_of(driver.read(properties.read(LEVELS)).flows[source, target], *CLIENTS_OF_JAVA[client])
    java = of_java()[flow][client]
    forced = {"client.id", "enable.auto.commit", "poll.timeout.ms"}  # poll.timeout.ms is no consumer's key
    if "auto.offset.reset" not in ours:
        forced |= {"auto.offset.reset"}  # MirrorMaker's default, as DEFAULTS has it
    assert {key: one.value for key, one in ours.items()} == {k: v for k, v in java.items() if k not in forced}


# --- Apache's examples -----------------------------------------------------------------------------------------------

CLUSTERS = {
    "us": "clusters = us-west, us-east\nus-west.bootstrap.servers = w:9092\nus-east.bootstrap.servers = e:9092\n",
    "enabled": "us-west->us-east.enabled = true\n",
}


def whole(name: str, *before: str, **edits: str) -> files.Brought:
    """What becomes of an example, which may need more lines, or a change, to be a whole file."""
    text = "".join(before) + (APACHE / f"{name}.properties").read_text(encoding="utf-8")
    for old, new in edits.items():
        text = text.replace(old, new)
    with TemporaryDirectory() as directory:
        file = Path(directory, "mm2.properties")
        file.write_text(text)
        return files.read([file])


def findings(name: str, *before: str, **edits: str) -> list[str]:
    """What is wrong with an example."""
    try:
        whole(name, *before, **edits)
    except InputError as e:
        return re.findall("(?m)^  - (.*)$", e.cause)
    return []


def test_the_file_of_the_distribution_is_taken_over_whole() -> None:
    found = files.read([APACHE / "distribution.properties"])
    assert list(found.mirrors) == [("A", "B"), ("B", "A")]
    assert found.mirrors["A", "B"]["replication_factor"] == 1
    assert found.connections["kafka_A"] == {"bootstrap.servers": "A_host1:9092, A_host2:9092, A_host3:9092"}
    assert {one.fate for one in found.noticed} == {Fate.HONOURED, Fate.MAPPED, Fate.WITHOUT_EFFECT}
    assert len(found.noticed) == 14


def test_the_first_example_is_taken_over_whole() -> None:
    (mirror,) = files.read([APACHE / "first.properties"]).mirrors.values()
    assert (mirror["name"], mirror["topics"]) == ("primary-to-secondary", ["foobar-topic", "quux-.*"])


def test_comments_behind_values_and_an_alias_with_a_dot_are_named() -> None:
    *comments, alias = findings("syntax")
    assert [line.partition(": Java knows")[0] for line in comments] == [
        "line 2: clusters", "line 6: topics", "line 10: us-west->us.east.topics",
    ]  # fmt: skip
    assert alias == (
        "us-west->us.east.topics: no cluster 'us.east' in clusters. The nearest known is 'us-east'. Correct or remove it."
    )


def test_an_alias_in_the_wrong_case_is_named() -> None:
    assert findings("active_active") == [
        "Us-east.bootstrap.servers: no cluster 'Us-east' in clusters. The nearest known is 'us-east'. Correct or remove "
        "it.",
        "us-east.bootstrap.servers: missing. Add it, such as us-east.bootstrap.servers = broker1:9092.",
    ]


def test_a_key_without_its_ending_is_named() -> None:
    assert findings("flows", CLUSTERS["us"]) == []  # Apache's own example, with a key of KIP-382: it runs, and is told
    told = {one.key: one for one in declared((APACHE / "flows.properties").read_text() + CLUSTERS["us"]).noticed}
    heartbeats = told["us-west->us-east.emit.heartbeats"]
    assert heartbeats.fate is Fate.WITHOUT_EFFECT and "the key ends in .enabled" in heartbeats.text
    (problem,) = declared(CLUSTERS["us"] + "us-west->us-east.enable = true").problems
    assert problem == "us-west->us-east.enable: no key of a flow. The nearest known is 'enabled'. Correct or remove it."


def test_clusters_that_are_not_declared_are_named() -> None:
    found = findings("active_passive")
    assert found[1:] == ["clusters: missing or empty. Add clusters = primary, secondary."]
    assert found[0].startswith("line 8: primary->secondary.topics: Java knows no comment behind a value")


def test_a_producers_compression_passes() -> None:
    assert findings("clients", CLUSTERS["us"], CLUSTERS["enabled"]) == []


def test_addresses_of_admin_clients_are_kept() -> None:
    without_compression = {"us-east.producer.compression.type": "# "}
    found = whole("clients", CLUSTERS["us"], CLUSTERS["enabled"], **without_compression)
    assert found.connections == {
        "kafka_us_west": {"bootstrap.servers": "w:9092", "admin.bootstrap.servers": "broker57-primary:9092"},
        "kafka_us_east": {"bootstrap.servers": "e:9092", "admin.bootstrap.servers": "broker8-secondary:9092"},
    }
    assert found.mirrors["us-west", "us-east"]["isolation"] == "read_committed"


@pytest.mark.parametrize("name", ["connect", "exactly_once", "security", "separator"])
def test_the_other_examples_are_taken_over(name: str) -> None:
    assert findings(name, CLUSTERS["us"], CLUSTERS["enabled"]) == []


def test_the_multi_cluster_example_is_taken_over_with_addresses() -> None:
    assert len(findings("multi_cluster")) == 6
    assert findings("multi_cluster", **{"...": "broker:9092"}) == []


@pytest.mark.parametrize("value", ["disabled", "preparing", "enabled"])
def test_each_word_for_exactly_once_is_told_to_be_a_delivery_that_repeats_nothing(value: str) -> None:
    text = "".join(f"{one}.bootstrap.servers = h:1\n" for one in "AB") + f"B.exactly.once.source.support = {value}\n"
    found = declared(f"clusters = A, B\nA->B.enabled = true\n{text}")
    (told,) = [one for one in found.noticed if one.key == "B.exactly.once.source.support"]
    assert told.fate is Fate.MAPPED
    assert told.text.startswith("delivery: ") and value in told.text and "idempotent" in told.text
    assert found.problems == ()


# --- nothing passes unnoticed ----------------------------------------------------------------------------------------


def test_every_key_is_noticed_or_refused() -> None:
    for text in (LEVELS.read_text(), *(file.read_text() for file in APACHE.glob("*.properties"))):
        found = declared(text)
        told = {one.key for one in found.noticed}
        left = [entry for entry in properties.parse(text) if entry.key not in told]
        said = " ".join(found.problems)  # by the line alone where no cluster has that name, nearly
        assert [one for one in left if f"{one.key}:" not in said and f"line {one.line}:" not in said] == []


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("consumer.isolation.level", "does not look for it here. It is a cluster's key: ALIAS.consumer.isolation.level"),
        ("request.timeout.ms", "does not look for it here. It is a client's key: ALIAS.consumer.request.timeout.ms"),
        ("A.replication.factor", "does not look for it in a cluster. It is a flow's key: A->B.replication.factor"),
        ("A.topics", "It is a flow's key: A->B.topics"),
        ("B->A.topics", "the flow is not enabled"),
    ],
)
def test_a_key_where_mirrormaker_does_not_look_is_named(key: str, text: str) -> None:
    (noticed,) = [one for one in driver.read(properties.read(LEVELS)).noticed if one.key == key]
    assert noticed.fate is Fate.WITHOUT_EFFECT
    assert noticed.text.endswith(text)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("clusterz = A", "clusterz: nobody knows it. The nearest known is 'clusters'."),
        (
            "s3cr3t",
            f"line {CLUSTERS['us'].count(chr(10)) + 1}: what stands there: nobody knows it. Correct or remove it.",
        ),
        ("refresh.topic.enabled = true", "The nearest known is 'refresh.topics.enabled'."),
        ("us-west.consumr.isolation.level = x", "The nearest known is 'consumer.isolation.level'."),
        ("us-west->us-west.topics = x", "a flow leads from one cluster to another."),
        ("us-west->us-east.enabled = yes", "us-west->us-east.enabled: neither true nor false"),
        ("eu.bootstrap.servers = x:1", "no cluster 'eu' in clusters."),
        ("key.converter = org.apache.kafka.connect.json.JsonConverter", "records pass as bytes"),
    ],
)
def test_what_nobody_knows_is_refused_with_the_nearest_known(line: str, problem: str) -> None:
    (found,) = declared(CLUSTERS["us"] + line).problems
    assert problem in found


def test_a_password_with_a_number_sign_is_no_comment() -> None:
    assert declared(CLUSTERS["us"] + "us-east.ssl.key.password = a #b").problems == ()


def test_the_longest_alias_that_fits_is_meant() -> None:
    found = declared("clusters = us, us.east\nus.east.bootstrap.servers = e:1\nus.bootstrap.servers = u:1")
    assert found.problems == ()
    assert [one.fate for one in found.noticed] == [Fate.HONOURED, Fate.WITHOUT_EFFECT, Fate.WITHOUT_EFFECT]
