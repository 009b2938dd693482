"""What applications keep in topics of their own, by names that people chose."""

from __future__ import annotations

import pytest

from airflow_mirror.extras.readiness.external_state import REGISTRY, Kept, elsewhere, modes, streams
from airflow_mirror.kafka.model import CONNECT


def kinds(*topics: str, groups: tuple[str, ...] = ()) -> dict[tuple[str, str], list[str]]:
    return {(one.kind, one.owner): list(one.topics) for one in elsewhere(topics, (), groups, {})}


@pytest.mark.parametrize(
    "topic", ["connect-offsets", "connect-configs", "connect-status", "dc1.connect_offset", "_connect-cdc-configs-v2"]
)
def test_topics_of_connect_are_found_under_many_names(topic: str) -> None:
    assert kinds(topic) == {(CONNECT, ""): [topic]}


@pytest.mark.parametrize("topic", ["orders", "disconnects", "connections", "connect-orders", "schemas", "my-changelog"])
def test_topics_of_applications_are_not_taken_for_internal_ones(topic: str) -> None:
    assert kinds(topic) == {}


def test_topics_of_streams_belong_to_the_longest_group() -> None:
    found = kinds(
        "app-v2-counts-changelog", "app-KSTREAM-REDUCE-0001-repartition", "gone-x-changelog",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0006-topic",
        groups=("app", "app-v2", "ap"),
    )  # fmt: skip
    assert found == {
        ("Kafka Streams", "app-v2"): ["app-v2-counts-changelog"],
        ("Kafka Streams", "app"): [
            "app-KSTREAM-REDUCE-0001-repartition", "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0006-topic"
        ],
        ("Kafka Streams", ""): ["gone-x-changelog"],
    }  # fmt: skip


def test_only_owners_that_are_known_have_topics() -> None:
    kept = elsewhere(["app-x-changelog", "gone-x-changelog"], ["app-x-changelog"], ["app"], {})
    assert streams(kept) == {"app": ["app-x-changelog"]}
    assert [(one.owner, one.missing) for one in kept] == [("", ["gone-x-changelog"]), ("app", [])]


def test_modes_of_the_registry_are_the_last_ones_of_each_subject() -> None:
    found = modes(
        [
            (b'{"keytype":"SCHEMA","subject":"orders","version":1,"magic":1}', b'{"mode":"none of ours"}'),
            (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"READWRITE"}'),
            (b'{"keytype":"MODE","subject":"pay","magic":0}', b'{"mode":"IMPORT"}'),
            (b'{"keytype":"MODE","subject":"old","magic":0}', b'{"mode":"IMPORT"}'),
            (b'{"keytype":"MODE","subject":"old","magic":0}', None),
            (b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"READONLY"}'),
            (b"\xff", b"1"), (None, None), (b"[]", b"[]"),
        ]
    )  # fmt: skip
    assert found == {"": "READONLY", "pay": "IMPORT"}
    assert modes([]) == {"": "READWRITE"}


def test_the_registrys_modes_stand_beside_its_topic() -> None:
    found: list[Kept] = elsewhere(["_schemas", "connect-offsets"], [], [], {"": "READONLY", "pay": "IMPORT"})
    assert [(one.kind, one.note) for one in found] == [
        (CONNECT, ""), (REGISTRY, ", modes: all subjects READONLY, pay IMPORT")
    ]  # fmt: skip
