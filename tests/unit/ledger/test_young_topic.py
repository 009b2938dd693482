"""A ledger's topic that was created a moment ago: one broker shows it, another one has not heard of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import BrokerError, LedgerMissing
from airflow_mirror.ledger import decisions
from airflow_mirror.ledger.decisions import SETTINGS, Ledger
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


def created(monkeypatch: pytest.MonkeyPatch, *shown: bool) -> Ledger:
    """One whose topic was just created; whether the brokers that are asked after that show it, one after the other."""
    made, left = Ledger(cast("Any", None)), iter(shown)
    monkeypatch.setattr(decisions, "create", lambda *_: True)
    monkeypatch.setattr(Ledger, "_found", lambda _: THERE if next(left) else None)
    monkeypatch.setattr(Ledger, "_entries", lambda _: ENTRIES)
    made.create_topic()
    return made


def test_its_creator_does_not_call_it_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker has shown it, and the next one that is asked has not heard of it."""
    ledger = created(monkeypatch, False, False, True, False, True)
    assert ledger.topic() is THERE and ledger.topic() is THERE


def test_its_creator_says_in_the_end_that_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_NEWS_S", 0.0)
    with pytest.raises(LedgerMissing):
        created(monkeypatch, False).topic()
