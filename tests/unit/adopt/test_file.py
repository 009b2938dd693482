"""What MirrorMaker 2's file says about one flow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mirror.compat import driver, properties
from airflow_mirror.errors import InputError
from airflow_mirror.extras.adopt.file import flow_of, read
from tests.unit.compat.test_driver import LEVELS, of_java

OWN_SEPARATOR = "replication.policy.internal.topic.separator.enabled"

FILE = """\
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->B.enabled = true
A->B.topics = orders.*
replication.policy.separator = _
B.offset.storage.topic = where-it-is
B.group.id = workers
status.storage.topic = what-it-does
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "connect-mirror-maker.properties"
    path.write_text(FILE)
    return path


def test_a_flow_has_its_mirror_its_clusters_and_its_names(file: Path) -> None:
    found = read([file])
    assert found.mirror.naming.target_topic("orders") == "A_orders"
    assert (found.source.bootstrap, found.target.bootstrap) == ("a:9092", "b:9092")
    assert (found.flow.source, found.flow.target) == ("A", "B")
    assert found.flow.offsets == "where-it-is" and found.flow.status == "what-it-does"
    assert found.flow.workers == "workers" and found.flow.checkpoints == "A_checkpoints_internal"
    assert read([file], "A -> B").flow == found.flow


def test_a_flow_that_is_not_enabled_or_one_of_several_has_to_be_named(file: Path) -> None:
    with pytest.raises(InputError, match=r"--flow B->A: no such flow: enabled are A->B"):
        read([file], "B->A")
    file.write_text(f"{FILE}A->C.enabled = true\n")
    with pytest.raises(InputError, match="several flows: name one"):
        read([file])
    assert read([file], "A->C").target.bootstrap == "c:9092"


def test_a_reference_stands_for_a_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFSETS", "found-out")
    file.write_text(
        FILE.replace("where-it-is", "${env:OFFSETS}")
        + "config.providers = env\n"
        + "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    assert read([file]).flow.offsets == "found-out"


def test_connectors_name_their_topics_and_their_workers_are_named_elsewhere(tmp_path: Path) -> None:
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector", "source.cluster.alias": "A",
        "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:1", "target.cluster.bootstrap.servers": "b:1",
        "replication.policy.separator": "_", "offset.storage.topic": "the worker's, if anybody's", **dict.fromkeys(
            ("key.converter", "value.converter"), "org.apache.kafka.connect.converters.ByteArrayConverter"
        ),
    }  # fmt: skip
    path = tmp_path / "source.json"
    path.write_text(json.dumps(config))
    follows = read([path])
    assert follows.mirror.naming.target_topic("orders") == "A_orders"
    assert (follows.flow.checkpoints, follows.flow.offsets) == ("A_checkpoints_internal", "mm2-offsets.A.internal")
    untraced = {f"emit.{kind}.enabled": False for kind in ("checkpoints", "offset-syncs")}
    path.write_text(json.dumps({**config, **untraced, OWN_SEPARATOR: False}))
    assert read([path]).flow.checkpoints == "A.checkpoints.internal"
    assert read([path]).flow.syncs_at == "source"
    path.write_text(json.dumps({**config, "offset-syncs.topic.location": "target"}))
    assert read([path]).flow.syncs_at == "target"


@pytest.mark.parametrize("pair", [("A", "B"), ("us.east", "A")], ids="->".join)
def test_names_are_those_that_mirrormaker_makes_of_its_file(pair: tuple[str, str]) -> None:
    separator = {("A", "B"): "-", ("us.east", "A"): "_"}[pair]
    ours, java = flow_of(driver.read(properties.read(LEVELS)), pair, separator), of_java()["->".join(pair)]
    workers, topics = java["workers"], java["topics"]
    assert (ours.offsets, ours.status, ours.workers) == (
        workers["offset.storage.topic"], workers["status.storage.topic"], workers["group.id"],
    )  # fmt: skip
    assert workers["config.storage.topic"] in ours.on_target
    assert (ours.checkpoints, ours.on_source) == (topics["checkpoints"], [topics["offset-syncs"]])
