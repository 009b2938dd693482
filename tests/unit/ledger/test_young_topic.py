"""A ledger's topic that one broker shows and another one has not heard of: it, or that broker, is a moment old."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import BrokerError, LedgerMissing, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, NewTopicSpec, TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger import decisions
from airflow_mirror.ledger.decisions import SETTINGS, Ledger, Values
from airflow_mirror.ledger.records import BEGIN
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault, Request

ENTRIES = {key: ConfigEntry(value=value) for key, value in SETTINGS.items()}
THERE = TopicInfo(DECISIONS, "id", 1, 1)


class Target:
    """A cluster whose brokers give these answers, one after the other; the last one for ever.

    :param shown: whether the broker that is asked shows the topic. :param told: what it says of its settings.
    :param gone: what is believed to be gone, once several brokers were asked.
    """

    def __init__(
        self, shown: Sequence[bool] = (True,), told: Sequence[Any] = (ENTRIES,), gone: Collection[str] = (DECISIONS,)
    ) -> None:
        self._shown, self._told = list(shown), list(told)
        self.wire = SimpleNamespace(
            refresh_present=lambda names: set(names).intersection(gone), expect=lambda _: None,
            sound_out=lambda _: None,
        )  # fmt: skip

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


def _asks_for_it(request: Request) -> bool:
    return any(topic.name == DECISIONS for topic in request.message.topics or ())


def has_just_started(cluster: LedgerCluster) -> None:
    """Have the broker that is asked next know no topic."""
    unknown = Fault.refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.script.on("Metadata", unknown, times=1, when=_asks_for_it)


@pytest.mark.parametrize("ask", [Ledger.values, Ledger.peek, lambda ledger: ledger.decide(dict)])
def test_broker_that_has_just_started_does_not_make_it_missing_nor_lost(
    ledger_target: LedgerCluster, ask: Callable[[Ledger], Values]
) -> None:
    """By its word alone nothing was decided, and what was read before is lost."""
    with ClusterAdmin(ledger_target.config) as admin:
        ledger = Ledger(admin)
        for _ in range(2):
            has_just_started(ledger_target)
            assert ask(ledger).keys() == {BEGIN.key()}


@pytest.mark.parametrize("late", range(1, 6))
def test_one_that_was_asked_for_before_it_was_created_begins_whichever_answer_is_late(late: int) -> None:
    """All brokers had said that there is none: the next one that had not heard of it was believed at once."""
    with DrivenCluster("target", 2) as cluster, ClusterAdmin(cluster.config) as admin:
        ledger, asked = Ledger(admin), list[Request]()
        with pytest.raises(LedgerMissing):
            ledger.values()

        def is_late(request: Request) -> bool:
            asked.extend([request] if _asks_for_it(request) else [])
            return len(asked) == late

        cluster.script.on("Metadata", Fault.refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), times=1, when=is_late)
        ledger.create()
        assert ledger.values().keys() == {BEGIN.key()}


def test_one_that_others_have_and_nobody_lists_may_be_listed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_NEWS_S", 0.0)
    with pytest.raises(TryAgain, match="others have it"):
        Ledger(cast("Any", Target((False,), gone=()))).peek()
