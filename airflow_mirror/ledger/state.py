"""What has one writer: values by key in a compacted topic of the target, the newest of each key.

A plan, a job's sign of life, a request to stop. What people wish of a mirror has a topic of its own, so that who may ask
for a pause can't write the rest, which is what others go by. Nothing here needs a comparison with what others wrote,
because nobody else writes these keys: those of a job carry the version of the decision that made it the mirror's. So a
process that was frozen, and is no longer the one, writes keys that nobody reads any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol

from airflow_mirror.common.policy import STATE, WISHES
from airflow_mirror.errors import InputError, MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.appending import Appender, Batch
from airflow_mirror.ledger.kinds import MOST_BYTES
from airflow_mirror.ledger.records import WISH
from airflow_mirror.ledger.topic import ReadOn, TopicLog, batch_of, create
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import UnknownTopic
from airflow_mirror.wire.records import Record

SETTINGS = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
# So that little of it is stale, and all of it can be read in seconds.
WISHED = {
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(64 << 20),
    "segment.ms": "3600000",
    "unclean.leader.election.enable": "false",
}
_WISH = WISH.below()
_PATIENCE_S = 60.0
_LOG = logging.getLogger(__name__)

Values = Mapping[str, bytes]


class State(Protocol):
    """Values by key; each key has one writer."""

    def read(self) -> Values:
        """Return the newest values."""

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        """Set values, in this order; None removes a key.

        :param permit: of who is not a key's one writer: asked right before the bytes of each request. What it raises ends
            the call, and what was not sent yet is not written.
        :raises TryAgain: not all of them are known to be written. Those that are not will be, before any later ones.
        """


def state_of(target: ClusterAdmin, *prefixes: str, patience_s: float = _PATIENCE_S, keys_only: bool = False) -> State:
    """Return the state on a target cluster, in one topic or in both; see :class:`StateLog`."""

    def of(topic: str, some: Iterable[str], *created: str) -> StateLog:
        # Dies between the two: the topic of wishes alone. The next writer of the state finds no state yet, and creates
        # both.
        def create_it() -> None:
            for name in () if topic in target.topics([topic]) else created:
                create(target, name, SETTINGS, WISHED)

        return StateLog(target.wire, some, create_it, topic, patience_s, keys_only)

    wishes = [prefix for prefix in prefixes if prefix.startswith(_WISH) or not prefix]
    others = [prefix for prefix in prefixes if not prefix.startswith(_WISH)]
    # Whoever begins the state creates the topic of wishes before it: who may only wish may create nothing.
    logs = [] if wishes and not others else [of(STATE, others, WISHES, STATE)]
    logs += [of(WISHES, wishes, WISHES)] if wishes else []
    return logs[0] if len(logs) == 1 else _Both(*logs)


class _Both:
    """The state, and the wishes; see :class:`State`."""

    def __init__(self, state: StateLog, wishes: StateLog) -> None:
        self._state, self._wishes = state, wishes

    def read(self) -> Values:
        """See :class:`State`. Each topic has keys of its own, whatever somebody writes there."""
        kept = {key: value for key, value in self._state.read().items() if not key.startswith(_WISH)}
        return kept | {key: value for key, value in self._wishes.read().items() if key.startswith(_WISH)}

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        """See :class:`State`."""
        # Who dies, or fails, between the two has set what is in the state alone. Of the wishes nothing waits in memory by
        # then: who calls has to do all of it again.
        for log, wishes in ((self._state, False), (self._wishes, True)):
            if some := {key: value for key, value in values.items() if key.startswith(_WISH) is wishes}:
                log.write(some, permit)


class StateLog:
    """The state in a topic, as one thread sees it; see :class:`State`.

    :param target: connections; the caller closes them.
    :param prefixes: of the keys that are kept; others are only read over.
    :param create: creates the topic unless it is there.
    :param patience_s: how long one call of :meth:`write` tries.
    :param keys_only: keep no values in memory; those that are read are empty.
    """

    def __init__(
        self,
        target: WireCluster,
        prefixes: Iterable[str],
        create: Callable[[], None],
        topic: str = STATE,
        patience_s: float = _PATIENCE_S,
        keys_only: bool = False,
    ) -> None:
        self._log = TopicLog(target, topic)
        self._prefixes, self._appender = tuple(prefixes), Appender(self._log, target, create, patience_s)
        self._keys_only = keys_only
        self._values: dict[str, bytes] = {}
        self._read = ReadOn()
        self._waiting: dict[str, bytes | None] = {}
        self._sent: dict[str, bytes | None] = {}  # once or more; a broker may have it

    def read(self) -> Values:
        """See :class:`State`. Nothing if there is no topic.

        :raises MissingRight: no READ on it.
        """
        try:
            # A reader that stops or fails amid it keeps what it has applied, and the next call reads on behind that
            # record.
            for record in self._read.records(self._log, self._again):
                self._apply(record)
        except UnknownTopic:
            # Not created yet, or deleted. That is no proof that nobody lives or wishes anything: whether a ledger was
            # lost, its decisions say (`decisions`), and who must know asks these first.
            self._values, self._read.topic_id = {}, None
        return self._values

    def _again(self) -> None:
        if self._read.topic_id is not None:
            _LOG.error("topic %s was created again, or has lost its newest records", self._log.topic)
        # What an election has lost, or somebody deleted, was never said. Writers that live say it again: signs of life
        # within seconds; a plan is written again by its tail.
        self._values = {}

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        """See :class:`State`. The topic is created if it is not there.

        :raises MissingRight: no WRITE on it, or no right to create it.
        :raises RequestRefused: a value is too large for the brokers.
        """
        # Nothing is sent yet. What waits from a call that failed goes first, unless this one has a newer value of its
        # key.
        for key, value in values.items():
            self._waiting.pop(key, None)  # so that it is the last one again
            self._waiting[key] = value
        refused = False

        def asked() -> None:
            nonlocal refused
            # Before the question: whatever it raises, also a TryAgain, is told from a broker's that way.
            refused = True
            permit()
            refused = False

        while self._sent or self._waiting:
            # What was sent without an answer is settled first: of two values of a key the older one must not come last.
            if not self._sent:
                # Moved before the first byte is sent: whatever interrupts this, each value is in one of the two, and
                # comes to be sent. Dies between two batches: the first is there, the next is not. So who replaces a
                # value puts the removal of the old one last, as reports do, and a value in pieces counts only when all
                # of them are there (`kinds.whole`).
                self._sent = {key: self._waiting.pop(key) for key in list(fitting(self._waiting))}
            batch = Batch(partial(batch_of, self._sent), len(self._sent), ", ".join(self._sent))
            try:
                self._appender.settle(batch, asked)
            except MirrorError as e:
                if refused:  # a later call must not write before its own what nobody permits any more
                    self._appender.forget()
                    self._sent, self._waiting = {}, {}
                elif isinstance(e, InputError):  # refused for good: what comes later must not wait for it
                    self._sent = {}
                raise
            self._sent = {}

    def _apply(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(self._prefixes):
            return
        # The position says which was written last: of two reports of one number, say, by a process that was thought
        # dead.
        self._values.pop(key, None)  # in the order in which they were written
        if record.value is not None:
            self._values[key] = b"" if self._keys_only else bytes(record.value)


def fitting(values: Mapping[str, bytes | None]) -> Iterator[str]:
    """Yield the keys of as many as fit into a batch, at least one."""
    size = 0
    for key, value in values.items():
        if size and size + len(key) + len(value or b"") > MOST_BYTES:
            return
        size += len(key) + len(value or b"")
        yield key
