"""Topics: what a lost answer may mean, and what a refusal says."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import pytest
from kafka.protocol.admin import CreatePartitionsResponse, CreateTopicsResponse, DeleteTopicsResponse

from airflow_mirror.errors import BrokerError, MissingRight, RequestRefused, TryAgain
from airflow_mirror.kafka.admin import NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.errors import ApiNotServed
from tests.unit.kafka.world import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    LOST,
    METADATA,
    World,
    world,
)

SPEC = NewTopicSpec("orders", 3, 2, {"retention.ms": "-1"})


def created(code: int = 0, text: str | None = None, throttle_ms: int = 0) -> Any:
    result = CreateTopicsResponse.CreatableTopicResult

    def answer(request: Any) -> Any:
        results = [result(name=t.name, error_code=code, error_message=text) for t in request.topics]
        return CreateTopicsResponse(throttle_time_ms=throttle_ms, topics=results)

    return answer


def grown(code: int, text: str = "") -> Any:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    return lambda request: CreatePartitionsResponse(
        throttle_time_ms=0, results=[result(name=t.name, error_code=code, error_message=text) for t in request.topics]
    )


def deleted(code: int) -> Any:
    result = DeleteTopicsResponse.DeletableTopicResult
    return lambda request: DeleteTopicsResponse(
        responses=[result(name=name, error_code=code) for name in request.topic_names]
    )


def test_matching_topic_behind_a_lost_answer_is_ours() -> None:
    with world() as w:
        w.topics["orders"] = (3, {"retention.ms": "-1"})
        w.answer(CREATE_TOPICS, LOST, created(36))
        w.admin.create_topics([SPEC], unfenced)
        assert len(w.asked(CREATE_TOPICS)) == 2


def test_a_topic_is_not_asked_for_again_once_something_else_is_decided() -> None:
    """A request is repeated for longer than a lease lasts; its process may sleep even longer in between."""
    asked = 0

    def permit() -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise TryAgain("taken over")

    with world() as w:
        w.answer(CREATE_TOPICS, LOST, created(0))
        with pytest.raises(TryAgain, match="taken over"):
            w.admin.create_topics([SPEC], permit)
        assert len(w.asked(CREATE_TOPICS)) == 1


@pytest.mark.parametrize(
    "there", [(4, {"retention.ms": "-1"}), (3, {"retention.ms": "1000"}), (3, {"retention.ms": "-1", "segment.ms": "1"})]
)
def test_differing_topic_behind_a_lost_answer_is_somebody_elses(
    there: tuple[int, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mirror.kafka.topics._NEWS_S", 0.1)
    with world() as w:
        w.topics["orders"] = there
        w.answer(CREATE_TOPICS, LOST, created(36, "Topic 'orders' already exists."))
        with pytest.raises(BrokerError, match="source cluster: create topic 'orders'.*already exists") as e:
            w.admin.create_topics([SPEC], unfenced)
        assert e.value.code == 36


def test_existing_topic_without_a_lost_answer_is_an_error() -> None:
    """It is one even if the topic is as asked."""
    with world() as w:
        w.topics["orders"] = (3, {"retention.ms": "-1"})
        w.answer(CREATE_TOPICS, created(36))
        with pytest.raises(BrokerError):
            w.admin.create_topics([SPEC], unfenced)
        assert not w.asked(DESCRIBE_CONFIGS)


def test_creation_that_timed_out_may_have_been_done() -> None:
    with world() as w:
        w.topics["orders"] = (3, {"retention.ms": "-1"})
        w.answer(CREATE_TOPICS, created(7), created(36))
        w.admin.create_topics([SPEC], unfenced)


def test_controller_that_moved_is_looked_up_again() -> None:
    with world() as w:
        w.answer(CREATE_TOPICS, created(41), created())
        w.admin.create_topics([SPEC], unfenced)
        assert len(w.asked(METADATA)) >= 2 and len(w.asked(CREATE_TOPICS)) == 2


def test_throttled_creation_is_sent_again_after_the_throttle_time() -> None:
    with world() as w:
        w.answer(CREATE_TOPICS, created(89, throttle_ms=30), created())
        w.admin.create_topics([SPEC], unfenced)
        assert len(w.asked(CREATE_TOPICS)) == 2


def test_first_refusal_is_raised_after_all_were_asked() -> None:
    """The error has the broker's words."""
    result = CreateTopicsResponse.CreatableTopicResult
    answers = {"a": (0, None), "b": (40, "Unknown topic config name: no.such."), "c": (0, None)}
    with world() as w:
        w.answer(CREATE_TOPICS, lambda request: CreateTopicsResponse(topics=[
            result(name=t.name, error_code=code, error_message=text)
            for t in request.topics for code, text in [answers[t.name]]
        ]))  # fmt: skip
        with pytest.raises(RequestRefused, match="create topic 'b'.*INVALID_CONFIG.*Unknown topic config name: no.such"):
            w.admin.create_topics([NewTopicSpec(name, 1, 1) for name in "abc"], unfenced)
        (request,) = w.asked(CREATE_TOPICS)
        assert [t.name for t in request.topics] == ["a", "b", "c"]


def test_missing_right_names_the_acl_that_is_missing() -> None:
    with world() as w:
        w.answer(CREATE_TOPICS, created(29, "Authorization failed."))
        with pytest.raises(
            MissingRight, match="User:ANONYMOUS lacks Create on topic 'orders'.*--operation Create --topic"
        ):
            w.admin.create_topics([SPEC], unfenced)


def test_brokers_words_never_repeat_a_secret() -> None:
    with world(sasl_password="hunter2", security_protocol="PLAINTEXT") as w:
        w.answer(CREATE_TOPICS, created(44, "no hunter2 today"))
        with pytest.raises(RequestRefused, match="no [*]{3} today") as e:
            w.admin.create_topics([SPEC], unfenced)
        assert "hunter2" not in str(e.value)


def test_topic_that_is_unknown_behind_a_lost_deletion_is_deleted() -> None:
    with world() as w:
        w.answer(DELETE_TOPICS, LOST, deleted(3))
        w.admin.delete_topics(["orders"], unfenced)
    with world() as w:
        w.answer(DELETE_TOPICS, deleted(3))
        with pytest.raises(BrokerError, match="delete topic 'orders'.*UNKNOWN_TOPIC_OR_PARTITION"):
            w.admin.delete_topics(["orders"], unfenced)


def test_topic_is_deleted_by_its_id_and_no_other_of_its_name() -> None:
    topic_id = uuid.UUID("9c2d0b5e-0c8e-4a52-bb36-6d1f30b3e2aa")
    known = base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
    result = DeleteTopicsResponse.DeletableTopicResult

    def answered(code: int) -> Any:
        return lambda request: DeleteTopicsResponse(
            throttle_time_ms=0, responses=[result(name=None, topic_id=request.topics[0].topic_id, error_code=code)]
        )

    with world() as w:
        w.answer(DELETE_TOPICS, LOST, answered(100))
        w.admin.delete_topic("orders", known, unfenced)  # UNKNOWN_TOPIC_ID: it is gone
        (asked,) = {(one.topics[0].name, one.topics[0].topic_id) for one in w.asked(DELETE_TOPICS)}
        assert asked == (None, topic_id)
        w.answer(DELETE_TOPICS, answered(29))
        with pytest.raises(MissingRight, match="orders"):
            w.admin.delete_topic("orders", known, unfenced)
    with world({DELETE_TOPICS: (1, 5)}) as w, pytest.raises(ApiNotServed):
        w.admin.delete_topic("orders", known, unfenced)


def test_growth_behind_a_lost_answer_is_seen_in_partition_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_mirror.kafka.topics._NEWS_S", 0.1)
    with world() as w:
        w.topics["orders"] = (5, {})
        w.answer(CREATE_PARTITIONS, LOST, grown(37, "Topic already has 5 partition(s)."))
        w.admin.grow_partitions("orders", 5, unfenced)
        w.answer(CREATE_PARTITIONS, LOST, grown(37, "Topic currently has 5 partitions, which is higher than 4."))
        with pytest.raises(
            RequestRefused, match="grow to 4 partitions topic 'orders'.*INVALID_PARTITIONS.*higher than 4"
        ):
            w.admin.grow_partitions("orders", 4, unfenced)


def test_broker_too_old_to_grow_a_topic_is_named_beforehand() -> None:
    with world() as w:
        del w.broker.served[CREATE_PARTITIONS]
        with pytest.raises(ApiNotServed, match="CreatePartitions"):
            w.admin.grow_partitions("orders", 5, unfenced)


def test_topics_are_described_whatever_the_order_of_their_partitions() -> None:
    with world() as w:
        w.topics = {"a": (2, {}), "b": (1, {})}
        assert w.admin.topics(["b", "a", "absent"]) == {"a": TopicInfo("a", "", 2, 2), "b": TopicInfo("b", "", 1, 2)}
        assert w.admin.topic_names() == ["a", "b"] and w.admin.topics() == w.admin.topics(["a", "b"])


def test_broker_that_never_answers_means_try_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as w:
        assert w.admin.broker_count() == 1
        w.answer(DELETE_TOPICS, LOST)
        monkeypatch.setattr(w.admin, "timeout_s", 0.3)
        with pytest.raises(TryAgain, match="DeleteTopics"):
            w.admin.delete_topics(["orders"], unfenced)


def test_old_brokers_are_asked_in_their_newest_version() -> None:
    def versions(w: World) -> set[int]:
        return {message.version for _key, message in w.broker.asked}

    with world({METADATA: (0, 4), CREATE_TOPICS: (0, 2)}) as w:
        w.topics = {"a": (2, {})}
        w.answer(CREATE_TOPICS, created())
        w.admin.topics()
        w.admin.create_topics([SPEC], unfenced)
        assert versions(w) == {4, 2}


def test_request_that_was_never_sent_leaves_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is lost before the request: a topic that exists, or is gone, then is somebody else's doing."""
    with world() as w:
        w.topics["orders"] = (3, {"retention.ms": "-1"})
        real = w.broker.answers[METADATA]
        w.answer(CREATE_TOPICS, created(36))
        w.answer(DELETE_TOPICS, deleted(3))
        for call in (
            lambda: w.admin.create_topics([SPEC], unfenced),
            lambda: w.admin.delete_topics(["orders"], unfenced),
        ):
            w.admin.close()
            w.answer(METADATA, LOST, real)
            with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS|UNKNOWN_TOPIC_OR_PARTITION"):
                call()


def test_list_of_all_topics_is_asked_again_rather_than_partial() -> None:
    def one_without_partitions(request: Any) -> Any:
        answer = real(request)
        answer.topics[0].partitions, answer.topics[0].error_code = [], 5
        return answer

    with world() as w:
        w.topics = {"a": (2, {}), "b": (1, {})}
        real = w.broker.answers[METADATA]
        w.answer(METADATA, one_without_partitions, real)
        assert w.admin.topic_names() == ["a", "b"]
