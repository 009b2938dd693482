"""A ledger's topic that was created a moment ago: one broker shows it, another one has not heard of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import BrokerError, LedgerMissing
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger import decisions
from airflow_mirror.ledger.decisions import SETTINGS, Ledger
from airflow_mirror.wire.error_codes import ErrorCode

ENTRIES = {key: ConfigEntry(value=value) for key, value in SETTINGS.items()}
THERE = TopicInfo(DECISIONS, "id", 1, 1)


class Target:
    """A cluster whose brokers give these answers, one after the other; the last one for ever.

    :param shown: whether the broker that is asked shows the topic. :param told: what it says of its settings.
    """

    wire = None

    def __init__(self, shown: Sequence[bool] = (True,), told: Sequence[Any] = (ENTRIES,)) -> None:
        self._shown, self._told = list(shown), list(told)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {DECISIONS: THERE} if _next(self._shown) else {}

    def topic_configs(self, names: list[str]) -> Any:
        answer = _next(self._told)
        if isinstance(answer, Exception):
            raise answer
        return {DECISIONS: answer}

    def broker_count(self) -> int:
        return 1

    def create_topics(self, specs: list[NewTopicSpec], permit: Permit) -> None:
        assert [spec.name for spec in specs] == [DECISIONS]


def _next(answers: list[Any]) -> Any:
    return answers.pop(0) if len(answers) > 1 else answers[0]


def ledger(*told: Any) -> Ledger:
    return Ledger(cast("Any", Target(told=told)))


def refused(code: int) -> BrokerError:
    return BrokerError("read configs", code, "refused")


def test_broker_that_has_not_heard_of_it_is_asked_again() -> None:
    unknown = refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert ledger(unknown, unknown, ENTRIES).topic() == THERE


def test_other_refusal_is_final() -> None:
    with pytest.raises(BrokerError, match="refused"):
        ledger(refused(ErrorCode.INVALID_REQUEST), ENTRIES).topic()


def test_topic_that_nobody_hears_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_NEWS_S", 0.0)
    with pytest.raises(BrokerError, match="refused"):
        ledger(refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ENTRIES).topic()


def created(*shown: bool) -> Ledger:
    """One whose topic was just created; whether the brokers that are asked after that show it, one after the other."""
    made = Ledger(cast("Any", Target((False, True, *shown))))
    made.create_topic()
    return made


def test_its_creator_does_not_call_it_missing() -> None:
    """One broker has shown it, and the next one that is asked has not heard of it."""
    ledger = created(False, False, True, False, True)
    assert ledger.topic() == THERE and ledger.topic() == THERE


def test_its_creator_says_in_the_end_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_NEWS_S", 0.0)
    with pytest.raises(LedgerMissing):
        created(False).topic()
