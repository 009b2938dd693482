"""Numbers and names of error codes, against tables that are not ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from kafka.errors import for_code

from airflow_mirror.wire.error_codes import ErrorCode, error_name

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


def test_code_of_a_newer_broker_is_shown_by_its_number() -> None:
    assert error_name(9999) == "error 9999"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
