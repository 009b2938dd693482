"""Configs: who set a value, and changes on brokers that know only the replacement of everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import AlterConfigsResponse, DescribeConfigsResponse, IncrementalAlterConfigsResponse

from airflow_mirror.errors import BrokerError, InputError, MirrorError, MissingRight, RequestRefused
from airflow_mirror.kafka import configs
from airflow_mirror.kafka.admin import ConfigEntry
from airflow_mirror.kafka.model import NewConfigs
from airflow_mirror.kafka.permit import unfenced
from tests.unit.kafka.world import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, METADATA, World, world

RESULT = DescribeConfigsResponse.DescribeConfigsResult


def altered(code: int = 0, text: str = "") -> Callable[[Any], Any]:
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    return lambda request: AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            result(error_code=code, error_message=text, resource_type=2, resource_name=r.resource_name)
            for r in request.resources
        ],
    )


def changed(code: int = 0, text: str = "") -> Callable[[Any], Any]:
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return lambda request: IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            result(error_code=code, error_message=text, resource_type=2, resource_name=r.resource_name)
            for r in request.resources
        ],
    )


def described(code: int = 0, **fields: Any) -> Callable[[Any], Any]:
    config = RESULT.DescribeConfigsResourceResult
    return lambda request: DescribeConfigsResponse(
        throttle_time_ms=0,
        results=[
            RESULT(error_code=code, error_message="so", resource_type=r.resource_type, resource_name=r.resource_name,
                   configs=[config(**{"name": "k", "value": "v", "read_only": False, "is_sensitive": False} | fields)])
            for r in request.resources
        ],
    )  # fmt: skip


def old(w: World) -> World:
    del w.broker.served[INCREMENTAL_ALTER_CONFIGS]
    w.topics["t"] = (1, {"retention.ms": "5", "segment.ms": "6"})
    return w


@pytest.mark.parametrize(
    "number, source",
    [(1, "DYNAMIC_TOPIC_CONFIG"), (3, "DYNAMIC_DEFAULT_BROKER_CONFIG"), (4, "STATIC_BROKER_CONFIG"),
     (5, "DEFAULT_CONFIG"), (99, "UNKNOWN_CONFIG")],
)  # fmt: skip
def test_source_of_a_value_has_kafkas_name(number: int, source: str) -> None:
    with world() as w:
        w.answer(DESCRIBE_CONFIGS, described(config_source=number))
        entry = ConfigEntry(value="v", is_default=number == 5, source=source)
        assert w.admin.topic_configs(["t"]) == {"t": {"k": entry}}


def test_sensitive_value_never_leaves_the_answer() -> None:
    with world() as w:
        w.answer(DESCRIBE_CONFIGS, described(config_source=1, is_sensitive=True, value="hunter2"))
        (entry,) = w.admin.topic_configs(["t"])["t"].values()
        assert entry.value is None and entry.is_sensitive


def test_default_config_before_1_1_has_an_unknown_source() -> None:
    """It may come from the broker's file."""
    with world({DESCRIBE_CONFIGS: (0, 0)}) as w:
        w.answer(DESCRIBE_CONFIGS, described(is_default=True))
        assert w.admin.topic_configs(["t"])["t"]["k"] == ConfigEntry(value="v", source="UNKNOWN_CONFIG")
        w.answer(DESCRIBE_CONFIGS, described(is_default=False))
        assert w.admin.topic_configs(["t"])["t"]["k"] == ConfigEntry(value="v", source="DYNAMIC_TOPIC_CONFIG")
        assert w.admin.broker_configs()[1]["k"] == ConfigEntry(value="v", source="STATIC_BROKER_CONFIG")


def test_refusal_to_read_configs_names_topic_or_broker() -> None:
    with world() as w:
        with pytest.raises(BrokerError, match="read configs of topic 'absent'.*UNKNOWN_TOPIC_OR_PARTITION"):
            w.admin.topic_configs(["absent"])
        w.answer(DESCRIBE_CONFIGS, described(29, config_source=1))
        with pytest.raises(MissingRight, match="lacks DescribeConfigs on topic 't'"):
            w.admin.topic_configs(["t"])
        w.answer(DESCRIBE_CONFIGS, described(31, config_source=1))
        with pytest.raises(MissingRight, match="read configs of broker '1'.*lacks DescribeConfigs on cluster"):
            w.admin.broker_configs()


def test_change_names_only_the_keys_that_change() -> None:
    with world() as w:
        w.answer(INCREMENTAL_ALTER_CONFIGS, changed())
        w.admin.alter_topic_configs("t", unfenced, set={"a": "1"}, delete={"b"})
        ((resource,),) = [r.resources for r in w.asked(INCREMENTAL_ALTER_CONFIGS)]
        assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [("a", 0, "1"), ("b", 1, None)]
        w.answer(INCREMENTAL_ALTER_CONFIGS, changed(40, "a is no number"))
        with pytest.raises(RequestRefused, match="alter configs of topic 't'.*INVALID_CONFIG.*a is no number"):
            w.admin.alter_topic_configs("t", unfenced, set={"a": "x"})


def refusing(request: Any) -> Any:
    """Refuse what would be kept for ever; topic ``mute`` may not be altered."""
    response = changed()(request)
    for asked, result in zip(request.resources, response.responses, strict=True):
        if ("retention.ms", "-1") in [(c.name, c.value) for c in asked.configs]:
            result.error_code, result.error_message = 44, "not for ever"
        if asked.resource_name == "mute":
            result.error_code = 29
    return response


def test_changes_of_all_topics_are_validated_in_one_request() -> None:
    wanted = dict.fromkeys(("a", "mute"), NewConfigs({"retention.ms": "-1"}))
    wanted |= {"b": NewConfigs({"x": "1"}, {"y"}), "same": NewConfigs()}
    with world() as w:
        w.answer(INCREMENTAL_ALTER_CONFIGS, refusing)
        found = w.admin.refused_configs(wanted)
        assert isinstance(found["a"], RequestRefused) and (found["a"].code, found["a"].detail) == (44, "not for ever")
        assert isinstance(found["mute"], MissingRight) and found.keys() == {"a", "mute"}
        (request,) = w.asked(INCREMENTAL_ALTER_CONFIGS)
        assert request.validate_only and [r.resource_name for r in request.resources] == ["a", "mute", "b"]
        assert [(c.name, c.config_operation) for c in request.resources[2].configs] == [("x", 0), ("y", 1)]


def test_policy_of_both_kinds_goes_by_way_of_compact_where_the_cluster_wants_it() -> None:
    both = {"cleanup.policy": "delete,compact", "retention.ms": "5"}

    def policies(w: World) -> list[str]:
        asked = [c for r in w.asked(INCREMENTAL_ALTER_CONFIGS) for c in r.resources[0].configs]
        return [c.value for c in asked if c.name == "cleanup.policy"]

    with world() as w:
        w.topics["t"] = (1, {})
        w.answer(INCREMENTAL_ALTER_CONFIGS, changed(40, "not at once"), changed())
        w.admin.alter_topic_configs("t", unfenced, both)
        assert policies(w) == ["delete,compact", "compact", "delete,compact"]
    with world() as w:  # who judges the second step hears late of the first
        w.topics["t"] = (1, {})
        w.answer(INCREMENTAL_ALTER_CONFIGS, *map(changed, (40, 0, 40, 40, 0)))
        w.admin.alter_topic_configs("t", unfenced, both)
        assert policies(w) == ["delete,compact", "compact", *["delete,compact"] * 3]
    with world() as w:  # validated likewise: the second step can't be, before the first is done
        w.answer(INCREMENTAL_ALTER_CONFIGS, changed(44, "not at once"), changed())
        assert w.admin.refused_configs({"t": NewConfigs(both)}) == {}
        assert policies(w) == ["delete,compact", "compact"]
    with world() as w:  # what both steps have in them is refused
        w.topics["t"] = (1, {})
        w.answer(INCREMENTAL_ALTER_CONFIGS, changed(44, "not for 5"))
        with pytest.raises(RequestRefused, match="not for 5"):
            w.admin.alter_topic_configs("t", unfenced, both)
        assert w.admin.refused_configs({"t": NewConfigs(both)}).keys() == {"t"}
    with world() as w:
        w.answer(INCREMENTAL_ALTER_CONFIGS, changed(44, "no"), changed())
        with pytest.raises(RequestRefused):
            w.admin.alter_topic_configs("t", unfenced, {"cleanup.policy": "compact"})


@pytest.mark.parametrize("refusal", [40, 29])
def test_topic_gets_its_policy_back_where_only_the_first_of_two_steps_is_allowed(
    refusal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left on ``compact`` it would lose records that nobody wanted compacted."""
    monkeypatch.setattr(configs, "_HEARD_WITHIN_S", 0.01)
    with world() as w:
        w.topics["t"] = (1, {"cleanup.policy": "delete"})
        answers = iter([40, 0])

        def judged(request: Any) -> Any:
            (policy,) = [c.value for c in request.resources[0].configs if c.name == "cleanup.policy"]
            return changed(0 if policy == "delete" else next(answers, refusal))(request)

        w.answer(INCREMENTAL_ALTER_CONFIGS, judged)
        with pytest.raises(MirrorError, match="alter configs of topic 't'"):
            w.admin.alter_topic_configs("t", unfenced, {"cleanup.policy": "compact,delete", "retention.ms": "5"})
        (last,) = w.asked(INCREMENTAL_ALTER_CONFIGS)[-1].resources
        assert [(c.name, c.config_operation, c.value) for c in last.configs] == [
            ("cleanup.policy", 0, "delete"), ("retention.ms", 1, None)
        ]  # fmt: skip


def test_changes_are_validated_by_an_old_broker_with_all_overrides() -> None:
    with world() as w:
        old(w).answer(ALTER_CONFIGS, altered(44, "not for ever"))
        (refused,) = w.admin.refused_configs({"t": NewConfigs({"retention.ms": "-1"}, {"segment.ms"})}).values()
        assert isinstance(refused, RequestRefused) and refused.detail == "not for ever"
        (request,) = w.asked(ALTER_CONFIGS)
        ((resource,), validate_only) = request.resources, request.validate_only
        assert validate_only and [(c.name, c.value) for c in resource.configs] == [("retention.ms", "-1")]


def test_nothing_to_change_asks_nobody() -> None:
    with world() as w:
        w.admin.alter_topic_configs("t", unfenced)
        assert not w.broker.asked


def test_old_broker_gets_all_overrides_with_the_change_in_them() -> None:
    with world() as w:
        old(w).answer(ALTER_CONFIGS, altered())
        w.admin.alter_topic_configs("t", unfenced, set={"cleanup.policy": "compact"}, delete={"segment.ms"})
        ((resource,),) = [r.resources for r in w.asked(ALTER_CONFIGS)]
        assert [(c.name, c.value) for c in resource.configs] == [("cleanup.policy", "compact"), ("retention.ms", "5")]


def test_altering_topic_with_hidden_value_on_old_broker_is_refused() -> None:
    """AlterConfigs would make the broker forget that value."""
    with world() as w:
        old(w).answer(DESCRIBE_CONFIGS, described(config_source=1, is_sensitive=True))
        with pytest.raises(InputError, match="topic 't' overrides k, whose value the broker hides"):
            w.admin.alter_topic_configs("t", unfenced, set={"cleanup.policy": "compact"})
        assert not w.asked(ALTER_CONFIGS)


def test_refusal_of_an_old_broker_is_told_in_its_words() -> None:
    with world() as w:
        old(w).answer(ALTER_CONFIGS, altered(40, "no such policy"))
        with pytest.raises(RequestRefused, match="alter configs of topic 't'.*no such policy"):
            w.admin.alter_topic_configs("t", unfenced, set={"cleanup.policy": "x"})


def test_each_broker_answers_for_itself() -> None:
    with world() as w:
        w.answer(DESCRIBE_CONFIGS, described(config_source=4))
        assert list(w.admin.broker_configs()) == [1] and w.asked(METADATA)
        ((resource,),) = [r.resources for r in w.asked(DESCRIBE_CONFIGS)]
        assert (resource.resource_type, resource.resource_name) == (4, "1")
