"""Fetch sessions of one broker, by the rules of Kafka's FetchSessionCache and FetchManager (KIP-227).

Left out: which session is evicted for another one. A broker without room makes none, and a test takes them away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.refused import Refused

_NO_SESSION, _NEW = -1, 0  # epochs


@dataclass
class Kept:
    """A partition in a session: as it was asked for, and the high watermark and log start that were told last."""

    asked: Any
    told: tuple[int, int] | None = None

    def is_news(self, answer: Any) -> bool:
        """Return whether a response has to name the partition, and remember what it says."""
        told = answer.high_watermark, answer.log_start_offset
        news = bool(answer.records) or bool(answer.error_code) or told != self.told
        self.told = None if answer.error_code else told
        return news


@dataclass
class Session:
    """What one client has asked for. ``epoch``: of the next request; ``is_new``: this request names all.

    :param by_id: it names topics by their ids: then these stand in place of the names here.
    """

    by_id: bool = False
    number: int = 0
    epoch: int = 1
    is_new: bool = True
    kept: dict[TopicPartition, Kept] = field(default_factory=dict)

    def update(self, message: Any) -> None:
        """Take what a request names and forgets."""
        for topic in message.topics:
            for asked in topic.partitions:
                kept = self.kept.setdefault(TopicPartition(self._name(topic), asked.partition), Kept(asked))
                kept.asked = asked
        for topic in () if self.is_new else message.forgotten_topics_data:
            for partition in topic.partitions:
                self.kept.pop(TopicPartition(self._name(topic), partition), None)

    def _name(self, topic: Any) -> str:
        return str(topic.topic_id or UUID(int=0)) if self.by_id else str(topic.topic)

    def news(self, answers: dict[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        """Return what the response names of what was read. What had records is read last the next time."""
        told = {tp: one for tp, one in answers.items() if self.kept[tp].is_news(one) or self.is_new}
        for tp, one in told.items():
            if one.records:
                self.kept[tp] = self.kept.pop(tp)
        return told


class Sessions:
    """The sessions of a broker.

    :ivar slots: how many there may be.
    """

    def __init__(self) -> None:
        self.slots = 1000
        self._by_number: dict[int, Session] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def evict(self) -> None:
        """Lose all of them."""
        self._by_number.clear()

    def take(self, message: Any, *, by_id: bool) -> Session:
        """Return the session of a request, as the request has changed it; a new one is not kept yet.

        :param by_id: the request names topics by their ids.
        :raises Refused: there is no such session, its epoch is another, or it names topics in the other way.
        """
        if message.session_epoch in (_NO_SESSION, _NEW):
            self._by_number.pop(message.session_id, None)
            session = Session(by_id)
        else:
            known = self._by_number.get(message.session_id)
            if known is None:
                raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session = known
            if session.by_id != by_id:
                raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            if session.epoch != message.session_epoch:
                raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.epoch, session.is_new = session.epoch + 1, False
        session.update(message)
        return session

    def keep(self, message: Any, session: Session) -> int:
        """Keep a session, if there is room; return its number, 0 for none."""
        if session.is_new:
            if message.session_epoch != _NEW or not session.kept or len(self) >= self.slots:
                return 0
            self._last += 1
            session.number = self._last
            self._by_number[session.number] = session
        elif not session.kept:
            del self._by_number[session.number]
            return 0
        return session.number
