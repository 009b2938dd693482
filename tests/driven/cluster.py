"""A Kafka cluster inside the test's process, with a clock of its own and a script of what goes wrong."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple, Self

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import apis, protocol
from tests.driven.broker import Broker
from tests.driven.clock import Clock
from tests.driven.groups import Groups
from tests.driven.log import PartitionLog
from tests.driven.protocol import Frame
from tests.driven.refused import Refused
from tests.driven.release import RELEASES
from tests.driven.script import Fault, Request, Rule, Script
from tests.driven.transactions import Transactions
from tests.driven.validation import TopicConfig
from tests.memory.rules import Rules

log = logging.getLogger(__name__)

GROUP, TRANSACTION = 0, 1  # kinds of coordinator


class Outcome(NamedTuple):
    """What is sent: ``content`` (None: nothing is), or its first ``only`` bytes, and then a reset."""

    content: bytes | None = None
    only: int | None = None
    freeze: bool = False


@dataclass
class Topic:
    """A topic. ``leaders`` has the broker of each partition, -1 for none; ``settings`` what requests have set."""

    name: str
    topic_id: uuid.UUID
    logs: list[PartitionLog]
    leaders: dict[int, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def as_it_is(self) -> Topic:
        """Return a copy that does not change with it."""
        return replace(self, logs=[log.as_it_is() for log in self.logs], leaders=dict(self.leaders))

    def set(self, changes: Mapping[str, str | None]) -> None:
        """Set settings, by Kafka's names; None: back to its default."""
        self.settings = {key: value for key, value in (self.settings | dict(changes)).items() if value is not None}
        changed = topic_config({key: value for key, value in self.settings.items() if key in _FIELDS})
        for name, _ in (_FIELDS[key] for key in changes if key in _FIELDS):
            setattr(self.logs[0].config, name, getattr(changed, name))


class DrivenCluster:
    """Brokers on loopback ports; use it in a ``with`` block. Its methods may be called from any thread.

    :param role: for errors: ``source``, ``target``.
    :param brokers: how many, with the ids 1, 2, ...
    :param version: one of `release.RELEASES`.
    :ivar requests: everything that was asked, in the order of arrival.
    :ivar script: what goes wrong.
    :ivar coordinators: broker of each kind of coordinator (GROUP, TRANSACTION), -1 for none.
    :ivar rules: its ACLs, which are told and kept, and bind nobody; None: it has no authorizer.
    :ivar settings: more of the settings that clients get, ``socket.timeout.ms`` for example.
    :ivar long_poll_s: real time after which a fetch without news is answered as if its own time were over.
    """

    clock_type, broker_type = Clock, Broker

    def __init__(self, role: str = "cluster", brokers: int = 1, version: str = "4.4.0") -> None:
        self.release = RELEASES[version]
        self.role, self.cluster_id = role, uuid.uuid4().hex[:22]
        self.clock, self.script = self.clock_type(), Script()
        self.requests: list[Request] = []
        self.topics: dict[str, Topic] = {}
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        self.groups = Groups()
        self.rules: Rules | None = None
        self.transactions = Transactions(self.clock, self.groups, self.log, self.release)
        self.coordinators = {GROUP: 1, TRANSACTION: 1}
        self.settings: dict[str, str] = {}
        self.long_poll_s = 0.005
        self._errors: list[Exception] = []
        served = self.release.served({key: handler.SERVED for key, handler in apis.BY_KEY.items()})
        self.brokers = {i: self.broker_type(self, i, served) for i in range(1, brokers + 1)}

    # --- life ---------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
        if kind is None and self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """Stop all brokers."""
        self.script.clear()
        for broker in self.brokers.values():
            broker.close()

    def failed(self, error: Exception) -> None:
        """Keep a broker's own error: the ``with`` block raises the first."""
        log.error("the driven broker failed", exc_info=error)
        self._errors.append(error)

    @property
    def config(self) -> ClientConfig:
        """How clients reach it."""
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())
        return ClientConfig({"bootstrap.servers": servers} | self.settings, self.role)

    # --- topics -------------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, config: TopicConfig | None = None) -> Topic:
        """Create a topic, or create it again: another id, empty logs. Leaders are dealt out in turn."""
        with self.lock:
            brokers = sorted(self.brokers)
            config = config or TopicConfig()
            logs = [PartitionLog(TopicPartition(name, p), config, self.clock, self.release) for p in range(partitions)]
            leaders = {p: brokers[p % len(brokers)] for p in range(partitions)}
            self.topics[name] = Topic(name, uuid.uuid4(), logs, leaders)
            self.news.notify_all()
            return self.topics[name]

    def grow(self, name: str, total: int) -> None:
        """Add partitions to a topic."""
        with self.changing():
            topic, brokers = self.topics[name], sorted(self.brokers)
            for p in range(len(topic.logs), total):
                topic.logs.append(PartitionLog(TopicPartition(name, p), topic.logs[0].config, self.clock, self.release))
                topic.leaders[p] = brokers[p % len(brokers)]

    def delete(self, name: str) -> None:
        """Delete a topic."""
        with self.lock:
            del self.topics[name]
            self.news.notify_all()

    def log(self, tp: TopicPartition) -> PartitionLog:
        """Return a partition's log.

        :raises Refused: there is none.
        """
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.logs):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.logs[tp.partition]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change something that fetches wait for."""
        with self.lock:
            yield
            self.news.notify_all()

    # --- what happens to a cluster ------------------------------------------------------------------------------------

    def move_leader(self, tp: TopicPartition, to: int) -> None:
        """Make a broker the leader, of the next epoch; -1: none."""
        with self.changing():
            topic, log = self.topics[tp.topic], self.log(tp)
            topic.leaders[tp.partition] = to
            log.begin_epoch(log.epoch + 1)

    def move_coordinator(self, kind: int, to: int, *, repeat_markers: bool = False) -> None:
        """Make a broker the coordinator of all groups (GROUP) or transactional ids (TRANSACTION); -1: none."""
        with self.changing():
            self.coordinators[kind] = to
            if kind == TRANSACTION and to >= 0:
                self.transactions.fail_over(repeat=repeat_markers)

    def kill(self, node_id: int) -> None:
        """Let a broker die: its partitions go to the next one that runs, or have no leader."""
        with self.changing():
            self.brokers[node_id].stop()
            others = [i for i, broker in sorted(self.brokers.items()) if broker.running]
            heir = others[0] if others else -1
            for topic in self.topics.values():
                for p, leader in topic.leaders.items():
                    if leader == node_id:
                        self.move_leader(TopicPartition(topic.name, p), heir)
            for kind, coordinator in self.coordinators.items():
                if coordinator == node_id:
                    self.move_coordinator(kind, heir)

    def cut_off(self, node_id: int) -> None:
        """Cut a broker off from the others, not from who reads: it goes on leading what it has led, as it was."""
        with self.changing():
            self.brokers[node_id].heard = {name: topic.as_it_is() for name, topic in self.topics.items()}

    def restart(self, node_id: int) -> None:
        """Start a broker that died. Where there is no leader it leads; what it remembers of producers is in its logs."""
        with self.changing():
            self.brokers[node_id].start()
            for topic in self.topics.values():
                for p, leader in topic.leaders.items():
                    if leader == -1:
                        tp = TopicPartition(topic.name, p)
                        self.log(tp).recover()
                        self.move_leader(tp, node_id)
            for kind, coordinator in self.coordinators.items():
                if coordinator == -1:
                    self.move_coordinator(kind, node_id)

    def advance(self, seconds: float) -> None:
        """Move the clock: transactions time out, delayed answers and long polls become due."""
        with self.changing():
            self.clock.advance(seconds)
            self.transactions.time_out()

    def expire_producers(self) -> None:
        """Have every partition forget the producers whose last record is a day old, as brokers do every ten minutes."""
        with self.lock:
            for topic in self.topics.values():
                for log in topic.logs:
                    log.producers.expire(self.clock.now_ms)

    # --- requests -----------------------------------------------------------------------------------------------------

    def asked(self, *apis: str) -> list[Request]:
        """Return the requests of some kinds, in order."""
        with self.lock:
            return [r for r in self.requests if r.api in apis]

    def serve(self, broker: Broker, frame: Frame) -> Outcome:
        """Answer a request as the script says."""
        kind = protocol.request_class(frame.key)
        message = kind.decode(frame.body, version=frame.version)
        with self.lock:
            request = Request(
                len(self.requests), broker.node_id, protocol.api_name(frame.key), frame.version, frame.client_id, message
            )
            self.requests.append(request)
            rule = self.script.match(request)
        if rule is None:
            return Outcome(self._answer(broker, frame, message, Fault()))
        return self._disturbed(broker, frame, request, rule)

    def _disturbed(self, broker: Broker, frame: Frame, request: Request, rule: Rule) -> Outcome:
        fault = rule.fault
        rule.arrived.set()
        if fault.before is not None:
            fault.before(request)
        if fault.hold:
            rule.stay()
        if fault.delay_s:
            self._wait_for_clock(fault.delay_s)
        content = None
        if fault.effect and fault.code:  # done first, and then said not to be
            self._answer(broker, frame, request.message, Fault())
        if fault.effect or fault.code:
            content = self._answer(broker, frame, request.message, fault)
        if fault.after is not None:
            fault.after(request)
        if fault.freeze:
            return Outcome(content if fault.answer_bytes else None, fault.answer_bytes, freeze=True)
        return Outcome(b"" if content is None and fault.answer_bytes is not None else content, fault.answer_bytes)

    def _answer(self, broker: Broker, frame: Frame, message: Any, fault: Fault) -> bytes | None:
        with self.lock:
            refusal = (lambda _: ErrorCode.UNSUPPORTED_VERSION) if frame.too_new else fault.refusal
            response = apis.BY_KEY[frame.key].answer(broker, message, refusal)
            if frame.key in apis.WRITES:  # else every question would have every long poll read its logs again
                self.news.notify_all()
        if response is None:
            return None
        if fault.throttle_ms:
            response.throttle_time_ms = fault.throttle_ms
        return protocol.answer_frame(frame, response)

    def _wait_for_clock(self, delay_s: float) -> None:
        with self.news:
            due = self.clock.now_ms + delay_s * 1000
            self.news.wait_for(lambda: self.clock.now_ms >= due or not any(b.running for b in self.brokers.values()))


_FIELDS: dict[str, tuple[str, Any]] = {
    "max.message.bytes": ("max_message_bytes", int),
    "segment.bytes": ("segment_bytes", int),
    "cleanup.policy": ("cleanup_policy", str),
    "retention.ms": ("retention_ms", int),
    "message.timestamp.type": ("append_time", lambda text: text == "LogAppendTime"),
    "message.timestamp.before.max.ms": ("timestamp_before_max_ms", int),
    "message.timestamp.after.max.ms": ("timestamp_after_max_ms", int),
}  # by Kafka's names, those of TopicConfig


def topic_config(settings: Mapping[str, str]) -> TopicConfig:
    """Return the settings of a topic from Kafka's names.

    :raises KeyError: for one that the driven broker does not know.
    """
    return TopicConfig(**{_FIELDS[key][0]: _FIELDS[key][1](value) for key, value in settings.items()})
