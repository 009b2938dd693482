"""Numbers and names of error codes, against tables that are not ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from kafka.errors import for_code

from airflow_mirror.errors import BrokerError, RequestRefused
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import Fenced, refusal

# Where librdkafka shortens a name (UNKNOWN_TOPIC_OR_PART), kafka-python has Kafka's own, and the other way round.
RENAMED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # KIP-392; before that NOT_LEADER_FOR_PARTITION
    ErrorCode.INVALID_TOPIC_EXCEPTION,  # TOPIC_EXCEPTION, INVALID_TOPIC
    ErrorCode.MESSAGE_TOO_LARGE,  # MSG_SIZE_TOO_LARGE, MESSAGE_SIZE_TOO_LARGE
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code > 0 and code not in RENAMED])
def test_each_code_has_the_name_that_other_clients_give_it(code: ErrorCode) -> None:
    others = {getattr(for_code(code), "message", None)}
    others |= {name for name, number in vars(KafkaError).items() if number == code}
    assert code.name in others


@pytest.mark.parametrize("code", [-1, *range(1, 134), 9999], ids=error_name)
def test_no_code_is_told_to_be_a_wrong_request_and_the_brokers_own_words_stay(code: int) -> None:
    error = refusal("create topic 'x'", code, "Create", "x", "User:mirror", "in its words")
    assert "sending it again" not in str(error)
    if isinstance(error, RequestRefused | BrokerError):
        assert f"{error_name(code)} ({code}): in its words" in str(error)


def test_a_writer_that_another_one_replaces_sends_nobody_to_find_it() -> None:
    """Most often that is a takeover that somebody has asked for."""
    said = str(Fenced("Produce", ErrorCode.PRODUCER_FENCED, 7, 1))
    assert said.endswith("another writer has taken over, and this one writes no more.") and "find" not in said


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (ErrorCode.POLICY_VIOLATION, "a policy of that cluster's owner refuses it"),
        (ErrorCode.INVALID_CONFIG, "exclude_configs of the Mirror leaves it out"),
        (ErrorCode.MESSAGE_TOO_LARGE, "raise its max.message.bytes"),
        (ErrorCode.SECURITY_DISABLED, "no authorizer"),
        (ErrorCode.INVALID_REPLICATION_FACTOR, "give a replication factor for which there are brokers"),
    ],
)
def test_what_a_code_says_has_its_remedy_behind_the_brokers_words(code: ErrorCode, remedy: str) -> None:
    refused = refusal("create topic 'x'", code, "Create", "x", "User:mirror", "at most 6 partitions")
    assert isinstance(refused, RequestRefused) and refused.detail == "at most 6 partitions"
    assert f"{code.name} ({code}): at most 6 partitions. " in str(refused) and remedy in str(refused)


def test_every_code_of_4_3_1_has_a_name() -> None:
    """No module asks for INVALID_FETCH_SIZE; another client knows it."""
    assert error_name(4) == "INVALID_FETCH_SIZE"
    assert [code for code in range(-1, 134) if error_name(code).startswith("error ")] == []


def test_code_of_a_newer_broker_is_shown_by_its_number() -> None:
    assert error_name(9999) == "error 9999"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
