"""The ledger of a target cluster: whether it is there, whether it is the right one, what it says, and how to decide.

The topic of decisions is created once, by the first plan onto empty topics or by ``airflow-mirror ledger init``. Its
first decision holds the topic's id. From then on a topic that is gone, has another id, begins above offset 0 or may
delete records is a ledger that was lost, never a new one: what was decided in it is unknown, and "nothing was" would let
a mirror write into topics that are in production. Where it is gone, or empty, whatever else mirrors have left tells a
ledger that was lost from one that never was.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from airflow_mirror.common.policy import DECISIONS, MAPS, OWN_IDS, STATE, WISHES, is_lease
from airflow_mirror.errors import BrokerError, InputError, LedgerLost, LedgerMissing, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.ledger import deciding
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.log import DecisionLog
from airflow_mirror.ledger.records import BEGIN
from airflow_mirror.ledger.topic import create
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wording import some

Values = Mapping[str, Any]
Change = Callable[[Values], Values | None]
T = TypeVar("T")

# Without these, records could be deleted, lost by an election, or bear the time of a writer's clock.
SETTINGS = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "unclean.leader.election.enable": "false",
}
_TRACES = (STATE, MAPS, WISHES)  # which a lost ledger leaves behind
_PATIENCE_S = 60.0
_LOOK_AGAIN_S = 2.0
_NEWS_S = 30.0  # until every broker has heard of a new topic
_DOUBT_S = 25.0  # with an attempt of 15 s longer than it takes until several brokers are believed that there is none


class Decisions(Protocol):
    """What was decided, and a way to decide."""

    def values(self) -> Values:
        """Return the newest values by key."""

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        """Set what ``change`` returns for the newest values, all or nothing; None: nothing is to be changed.

        :param change: called again if somebody else decided meanwhile. What it raises ends the call. What it looks up by
            ``get`` is so still when the decision comes to be, as what it sets is.
        :param until_ms: void if the broker appends it at this time of its clock, or later.
        :return: what was set.
        :raises DecidedLate: it did. :raises Undecided: nobody knows whether it was.
        """

    def time_ms(self, key: str) -> int:
        """Return when a key was last set, as far as was read, by the broker's clock; 0: never."""


class Ledger:
    """The decisions on a target cluster, as one thread sees them; see :class:`Decisions`.

    :param target: connections for it; the caller closes them.
    :param patience_s: how long one decision is tried.
    """

    def __init__(self, target: ClusterAdmin, patience_s: float = _PATIENCE_S) -> None:
        self._target, self._patience_s = target, patience_s
        self._fold, self._young, self._is_doubted = Fold(), Backoff(0.0), False

    def sound_out(self) -> None:
        """Begin to ask for a ledger that may be absent: it takes seconds to believe so, in which others can be asked.

        :raises ClusterUnreachable: no broker answered.
        """
        self._target.wire.sound_out([DECISIONS, *_TRACES])

    def create(self) -> None:
        """Create the ledger unless it is there. May be repeated, and called by several at once.

        :raises LedgerLost: there is one, and it is not as it must be.
        """
        self.create_topic()
        # Dies behind the creation: a topic without a beginning, which counts as no ledger (`peek`), and the next call
        # begins it. Of several that create at once one decision is applied; all of them name the id of the topic that
        # is there.
        begin = BEGIN.put({"topic_id": self.topic().topic_id})
        self._decide(lambda values: None if values.keys() & begin else begin)
        # Read back: if somebody deleted the topic meanwhile, and it was created once more, its beginning names another
        # id.
        self.values()

    def begin(self) -> None:
        """Create the ledger unless it is there, as who is the first to write on a target has to, before anything else.

        The topics of the state without decisions are what a lost ledger leaves.

        :raises LedgerLost: there is what a ledger leaves behind, and none.
        """
        try:
            self.values()
        except LedgerMissing:  # also one whose creation was cut short
            self.create()

    def adopt(self) -> None:
        """Decide that the topic as it is now is the ledger: its records were brought back (:mod:`.export`)."""
        begin = BEGIN.put({"topic_id": self.topic().topic_id})
        # Until this record is there the records were brought into a topic that no reader accepts (LedgerLost). It is
        # the switch.
        self._decide(lambda values: None if BEGIN.at(values) == BEGIN.at(begin) else begin)

    def values(self) -> Values:
        """Read what was decided until now.

        :raises LedgerMissing: there is no ledger, and never was.
        :raises LedgerLost: it is not the one that was created, or not complete.
        :raises LedgerNewer: a newer version of the package has made it.
        """
        # The settings are looked at before the log: a topic whose records may vanish must not be gone by, whatever it
        # says now.
        return self._or_lost(lambda: self._read(self.topic()))

    def was_there(self) -> bool:
        """Return whether there is a ledger after all, read a moment later; False: nothing tells that there ever was one.

        Leases tell for a week, groups for longer. Who may not see all, or asks old brokers, goes by the rest.

        :raises LedgerLost: there is none, and what mirrors with a ledger leave behind; names what there is.
        """
        # "There never was one" lets a plan create it and write to topics. So each trace that mirrors leave is asked
        # for, on its own: one question that is refused must not hide the answer to another.
        left, unlisted = list[str](), set[str]()
        for name in _TRACES:
            with suppress(InputError):
                if self._target.topics([name]):
                    left.append(f"topic {name}")
                else:
                    unlisted.add(name)
        with suppress(InputError):
            groups = [one.group_id for one in self._target.groups(every=True)]
            left += [f"group {one!r}" for one in groups if one.startswith(OWN_IDS[0])]
        with suppress(InputError):
            left += [f"writer lease {one!r}" for one in self._target.transactional_ids().values() if is_lease(one)]
        if not left:
            with suppress(InputError):  # by the word of more than one broker, as the ledger's own absence
                left += [f"topic {name}" for name in unlisted - self._gone(unlisted)]
        if not left:
            return False
        time.sleep(_LOOK_AGAIN_S)  # it may have been created this moment, by somebody whose broker heard of it first
        try:
            self._read(self._there())
        except LedgerMissing:
            raise LedgerLost(f"topic {DECISIONS} is gone, or empty, and these are left: {some(left)}") from None
        return True

    def _or_lost(self, step: Callable[[], T]) -> T:
        """Take a step, and once more where the ledger that it did not find is there. Errors as :meth:`values`."""
        try:
            return step()
        except LedgerMissing:  # before anything was appended: a log with a record is not missing (`_of`)
            if not self.was_there():
                raise
        return step()

    def peek(self) -> Values:
        """Read what was decided until now, as somebody who decides nothing here; nothing if there is no ledger.

        Needs no right to see the topic's settings: what they have already cost shows in the log.

        :raises LedgerLost: it is not the one that was created, or not complete.
        """
        try:
            return self._read(self._there())
        except LedgerMissing:  # also one whose creation was cut short
            return {}

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        """See :class:`Decisions`. Errors of :meth:`values` as well."""
        return self._or_lost(lambda: self._decide_in(self.topic(), change, until_ms))

    def _decide_in(self, topic: TopicInfo, change: Change, until_ms: int | None) -> Values | None:
        # The topic is looked at before each decision: a record in one that was set to delete would be a decision that
        # some readers never see.
        def known(values: Values) -> Values | None:
            # At each try: created again since, the record would go into a ledger that has forgotten all that this one
            # rests on.
            self._of(topic)
            return change(values)

        return self._decide(known, until_ms)

    def time_ms(self, key: str) -> int:
        """See :class:`Decisions`."""
        return self._fold.time_ms(key)

    def _read(self, topic: TopicInfo) -> Values:
        # Record by record: what fails half-way keeps what was applied, and the next call reads on behind it.
        deciding.catch_up(DecisionLog(self._target.wire), self._fold)
        return self._of(topic)

    def _of(self, topic: TopicInfo) -> Values:
        """Return what was read, which must be the ledger that began in this topic."""
        begin = BEGIN.get(self._fold.values)
        if begin is None and self._fold.end == 0:
            raise LedgerMissing()
        if begin is None or begin.get("topic_id") != topic.topic_id:
            raise LedgerLost(f"topic {DECISIONS} was created again (its id is {topic.topic_id})")
        return self._fold.values

    def _decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        # Given up is not undone: a record without an answer may apply later. `Undecided` says so, and who calls again
        # reads first.
        deadline = time.monotonic() + self._patience_s

        def again() -> bool:
            time.sleep(random.uniform(0.01, 0.2))  # writers that met each other must not meet again
            return time.monotonic() < deadline

        log = DecisionLog(self._target.wire)
        return deciding.decide(log, self._fold, change, again, until_ms)

    def _there(self) -> TopicInfo:
        topic = self._listed(self._young)
        if topic is None:
            if not self._is_doubted:
                with suppress(TryAgain):  # what a lost ledger leaves behind, too: one by one, each would take seconds
                    self.sound_out()
            self._is_doubted = True
            # A broker that has just started lists no topic: by its word alone a ledger would be lost, or never have been.
            if self._gone([DECISIONS]):
                # This process has read decisions there: it was deleted under us. Without that it may never have been.
                raise LedgerLost(f"topic {DECISIONS} was deleted") if self._fold.end else LedgerMissing()
            if (topic := self._listed(Backoff(_NEWS_S))) is None:
                raise TryAgain(
                    f"topic {DECISIONS}", "a broker does not list it, and others have it",
                    "One that has just started may not know it yet.",
                )  # fmt: skip
        if self._is_doubted:
            self._target.wire.expect(DECISIONS)  # somebody has created it since
            self._is_doubted = False
        return topic

    def _gone(self, topics: Collection[str]) -> set[str]:
        """Return those topics that do not exist by the word of several brokers. :raises TryAgain: it can't be known."""
        backoff = Backoff(_DOUBT_S)
        while True:
            try:
                return self._target.wire.refresh_present(topics)
            except TryAgain:
                # Where one broker can't be reached, the others are believed after half a minute, and no sooner: an
                # attempt gives up before, and a process that asks once would never know.
                if backoff.expired:
                    raise
            backoff.pause()

    def _listed(self, backoff: Backoff) -> TopicInfo | None:
        while (topic := self._target.topics([DECISIONS]).get(DECISIONS)) is None and not backoff.expired:
            backoff.pause()  # this broker has not heard of it yet
        return topic

    def create_topic(self) -> None:
        """Create the topic, without a decision, unless it is there. Use :meth:`create`."""
        if create(self._target, DECISIONS, SETTINGS):
            # We, or somebody else in this moment, made it: for a while brokers that don't know it are late, not right.
            self._young = Backoff(_NEWS_S)

    def topic(self) -> TopicInfo:
        """Return the topic, which has the settings that it must have.

        :raises LedgerMissing: it is not there. :raises LedgerLost: it was, or decisions may be missing.
        """
        topic = self._there()
        entries = self._entries()
        # As they are now. Who changes one behind this look is found by the next decision; records that were deleted by
        # then show in the log, which no longer begins at 0 (`DecisionLog.read`).
        wrong = [
            f"{key}={entries[key].value} instead of {value}"
            for key, value in SETTINGS.items()
            if key in entries and entries[key].value != value
        ]
        if topic.partitions != 1:
            wrong.append(f"{topic.partitions} partitions instead of 1")
        if wrong:
            raise LedgerLost(f"topic {DECISIONS} has {', '.join(wrong)}, so that decisions may be missing")
        return topic

    def _entries(self) -> Mapping[str, ConfigEntry]:
        """Return the settings of the topic, which is there. A moment after its creation not every broker knows it."""
        backoff = Backoff(_NEWS_S)
        while True:
            try:
                return self._target.topic_configs([DECISIONS])[DECISIONS]
            except BrokerError as e:
                if e.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or backoff.expired:
                    raise
            backoff.pause()
