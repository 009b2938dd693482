"""A ledger's topic that was created a moment ago: one broker shows it, another one has not heard of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import BrokerError
from airflow_mirror.ledger import decisions
from airflow_mirror.ledger.decisions import SETTINGS, Ledger
from airflow_mirror.policy import DECISIONS
from airflow_mirror.wire.error_codes import ErrorCode

THERE: Any = SimpleNamespace(partitions=1, topic_id="id")
ENTRIES = {key: SimpleNamespace(value=value) for key, value in SETTINGS.items()}


def ledger(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Ledger:
    """One whose brokers give these answers about its settings, one after the other."""
    left = iter(answers)

    def topic_configs(names: list[str]) -> Any:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return {DECISIONS: answer}

    made = Ledger.__new__(Ledger)
    monkeypatch.setattr(made, "_target", SimpleNamespace(topic_configs=topic_configs), raising=False)
    monkeypatch.setattr(Ledger, "_there", lambda _: THERE)
    return made


def refused(code: int) -> BrokerError:
    return BrokerError("read configs", code, "refused")


def test_broker_that_has_not_heard_of_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert ledger(monkeypatch, unknown, unknown, ENTRIES).topic() is THERE


def test_other_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerError, match="refused"):
        ledger(monkeypatch, refused(ErrorCode.INVALID_REQUEST), ENTRIES).topic()


def test_topic_that_nobody_hears_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_NEWS_S", 0.0)
    with pytest.raises(BrokerError, match="refused"):
        ledger(monkeypatch, refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ENTRIES).topic()
