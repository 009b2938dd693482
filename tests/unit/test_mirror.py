"""A Mirror's fields: what is refused by name; and its traces: what they are called, and what does not go with them."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.patterns import exact
from airflow_mirror.common.policy import DRILL_PREFIX, is_internal
from airflow_mirror.config import load
from airflow_mirror.errors import InputError, InvalidField
from airflow_mirror.mirror import Mirror

SHARED = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}


def mirror(**fields: Any) -> Mirror:
    return Mirror(**{"name": "m", "source": "src", "target": "dst", "source_alias": "A", **fields})


STRANGE: tuple[Any, ...] = (
    None, 5, -1, 10**400, 3.5, float("nan"), float("inf"), True, "", "\0", "ü", b"x", [], [1], [None], [[]], ["a", 5],
    [""], {}, {"a": 1}, {1: 2}, {"x"}, object(),
)  # fmt: skip


@pytest.mark.parametrize("field", [one.name for one in fields(Mirror)])
def test_a_value_of_any_kind_is_taken_or_refused_with_its_field(field: str) -> None:
    refused = 0
    for value in STRANGE:
        try:
            one = Mirror(**{"name": "m", "source": "src", "target": "dst", field: value})
        except InvalidField as e:
            assert e.field == field
            refused += 1
        else:
            assert Mirror.from_dict(json.loads(json.dumps(one.to_dict()))) == one
            assert hash(one)
    assert refused > 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topics:", r"topics=None: no list.*leave the field out, or give \[\]"),
        ("topics: 5", "topics=5: no list of names or patterns. Use one text"),
        ("topic: orders", r"topic='\(set\)': a Mirror has no such field.*nearest known is 'topics'"),
        ("qqq: 1", "no such field. Known: acl_interval_s, .*, use_defaults_from"),
        ("7: 1", r"7='\(set\)': a Mirror has no such field"),
        ("start: 2026-01-31", "start='2026-01-31': not text. Put it in quotes, with a zone"),
        ("start: 2026-01-31T00:00:00Z", "not text. Put it in quotes"),
    ],
)
def test_a_slip_in_a_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_text(f"name: m\nsource: src\ntarget: dst\n{text}\n")
    with pytest.raises(InvalidField, match=message):
        Mirror.from_file(file)


@pytest.mark.parametrize("key", ["sasl.password", "connection", "source", "target"])
@pytest.mark.parametrize("inner", ["{0}", "{{sasl.password: {0}}}"])
def test_no_error_shows_what_may_be_a_secret(tmp_path: Path, key: str, inner: str) -> None:
    """Settings of a connection in the file of a Mirror: errors stand in Airflow's logs."""
    if key in ("source", "target") and inner == "{0}":
        pytest.skip("a connection's name")
    file = tmp_path / "mirror.yaml"
    fields = {"name": "m", "source": "src", "target": "dst", key: inner.format("hunter2")}
    file.write_text("".join(f"{name}: {value}\n" for name, value in fields.items()), encoding="utf-8")
    with pytest.raises(InvalidField) as caught:
        Mirror.from_file(file)
    assert caught.value.field == key and "hunter2" not in f"{caught.value} {caught.value.lines} {caught.value!r}"


def test_a_key_without_a_value_names_no_principal(tmp_path: Path) -> None:
    """YAML reads None: it stayed, and whoever asked for a role by it failed with an AttributeError."""
    file = tmp_path / "mirror.yaml"
    file.write_text("name: m\nsource: a\ntarget: b\nown_principals:\n", encoding="utf-8")
    assert Mirror.from_file(file).own_principals == {}
    assert mirror(own_principals={"target": "User:m"}).own_principals == {"target": "User:m"}


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mirror.yaml"
    file.write_bytes(b"name: \xff\xfe")
    with pytest.raises(InputError, match=r"mirror.yaml': it is no text in UTF-8"):
        Mirror.from_file(file)
    with pytest.raises(InputError, match=r"source settings: file '.*mirror.yaml': it is no text in UTF-8"):
        load(str(file), "source")


@pytest.mark.parametrize("name", ["mirror.json", "mirror.yaml"])
def test_a_file_may_begin_with_a_byte_order_mark_and_is_not_nested_without_end(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text('\ufeff{"name": "m", "source": "src", "target": "dst"}')
    assert Mirror.from_file(file).name == "m"
    file.write_text("[" * 100_000)
    with pytest.raises(InputError, match=rf"{name}': it is nested too deeply"):
        Mirror.from_file(file)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source_registry": "http://r:8081"}, "source_registry=.*only one of both"),
        ({"source_registry": 7, "target_registry": "r"}, "source_registry=7"),
        ({"source_registry": "", "target_registry": "r"}, "source_registry=''.*no registry"),
        ({"source_registry": "r", "target_registry": "https://me:hush@r:8081"}, "target_registry='r:8081'.*password"),
    ],
)
def test_registries_are_named_both_and_without_a_secret(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField, match=message) as e:
        mirror(**fields)
    assert "hush" not in str(e.value)


def test_no_copy_depends_on_registries() -> None:
    assert {"source_registry", "target_registry"} <= mirror().tail_ignores & mirror(sync_acls=True).tail_ignores


@pytest.mark.parametrize(
    ("given", "traces"),
    [
        ((), ()),
        ("", ()),
        ("offset-syncs, heartbeats", ("heartbeats", "offset-syncs")),
        (["checkpoints", "checkpoints"], ("checkpoints",)),
        (("heartbeats", "offset-syncs", "checkpoints"), ("heartbeats", "checkpoints", "offset-syncs")),
    ],
)
def test_traces_are_a_list_or_one_text(given: Any, traces: tuple[str, ...]) -> None:
    one = mirror(traces=given)
    assert one.traces == traces
    assert Mirror.from_dict(one.to_dict()) == one


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"traces": "heartbeats, checkpoint"}, "traces='checkpoint'.*unknown.*heartbeats, checkpoints, offset-syncs"),
        ({"traces": 7}, "traces=7.*no list"),
        ({"traces": [7]}, "traces=7.*unknown"),
        ({"traces": "checkpoints", "partitioning": "by_key"}, "by_key"),
        ({"traces": "offset-syncs", **SHARED}, "shared"),
        ({"traces": "heartbeats", "source_alias": "a.b"}, "source_alias='a.b'.*before '.'"),
        ({"traces": "checkpoints", "source_alias": "a b"}, "source_alias='a b'.*no name of a topic"),
        ({"traces": "checkpoints", "source_alias": "a" * 240}, "no name of a topic"),
        ({"target_alias": 7}, "target_alias"),
        ({"trace_replication_factor": 0}, "trace_replication_factor"),
        ({"heartbeat_interval_s": 0}, "heartbeat_interval_s"),
        ({"checkpoint_interval_s": True}, "checkpoint_interval_s"),
    ],
)
def test_traces_that_could_not_be_right_are_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField, match=message):
        mirror(**fields)


def test_heartbeats_go_with_everything() -> None:
    assert mirror(traces="heartbeats", partitioning="by_key").traces == ("heartbeats",)
    assert mirror(traces="heartbeats", **SHARED).traces == ("heartbeats",)


def test_topics_of_traces_have_the_names_that_java_looks_for() -> None:
    every = "heartbeats, checkpoints, offset-syncs"
    assert mirror(traces=every).trace_topics == (
        "heartbeats", "A.heartbeats", "A.checkpoints.internal", "mm2-offset-syncs.A.internal",
    )  # fmt: skip
    assert mirror(traces=every, separator="_").trace_topics == (
        "heartbeats", "A_heartbeats", "A_checkpoints_internal", "mm2-offset-syncs_A_internal",
    )  # fmt: skip
    assert mirror(traces="checkpoints", source_alias=None).trace_topics == ("src.checkpoints.internal",)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, "heartbeats"),
        ({}, "A.heartbeats"),
        ({"policy": "prefix"}, "heartbeats"),
        ({"policy": "prefix", "separator": "_"}, "heartbeats"),
    ],
)
def test_a_topic_that_would_lie_where_heartbeats_are_written_is_not_selected(fields: dict[str, Any], left: str) -> None:
    assert mirror(**fields).selects_topic(left), "without traces it is a topic as others"
    assert not mirror(traces="heartbeats", **fields).selects_topic(left)
    for other in ("payments.heartbeats", "B.heartbeats", "heartbeats2"):
        assert mirror(traces="heartbeats", **fields).selects_topic(other), "it may be an application's"


@pytest.mark.parametrize("separator", [None, 7, "", "/"], ids=str)
@pytest.mark.parametrize("traces", [[], ["heartbeats"]], ids=str)
def test_a_separator_that_is_none_is_refused_by_its_field(separator: Any, traces: list[str]) -> None:
    with pytest.raises(InvalidField, match="separator="):
        mirror(separator=separator, traces=traces)


def test_a_drills_topic_is_the_mirrors_alone_that_names_it() -> None:
    """A tail of all topics would claim it before the drill's own mirror does, and keep a dead topic on the target."""
    topic = f"{DRILL_PREFIX}20261115T030000"
    for one in (mirror(topics=[".*"]), mirror(topics=[f"{DRILL_PREFIX}.*"], internal_topics=True)):
        assert not one.selects_topic(topic) and not one.names_topic(topic)
    for named in (topic, exact(topic)):
        assert mirror(topics=[named]).selects_topic(topic) and not mirror(topics=[named]).selects_topic(f"{topic}.faults")
    assert mirror(topics=[".*"]).selects_topic("mirror-drills"), "its name only begins alike"


def test_internal_topics_with_another_separator_are_not_selected() -> None:
    for name in ("A_checkpoints_internal", "mm2-offset-syncs_A_internal"):
        assert not mirror(separator="_").selects_topic(name)
    assert not mirror().selects_topic("A.checkpoints.internal")
    assert mirror().selects_topic("flink_checkpoints_internal")
    assert is_internal("A-checkpoints-internal", "-") and not is_internal("checkpoints-internal", "-")
