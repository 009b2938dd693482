"""A view of the cluster's logs and coordinators, as one actor's :class:`airflow_mirror.wire.cluster.WireCluster`.

Watermarks are read straight from the logs. What the code asks by requests of its own (the writer lease, a fetch of
records) goes to the driven broker's handlers, so that the code itself runs: `lease.take` is three requests here as well,
and somebody may come in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import handover
from airflow_mirror.copy.writer.lease import _FIRST_END_MS, _FIRST_MARK_MS
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ConnectionLost, UnknownTopic, refusal
from airflow_mirror.wire.topology import Leader
from tests.driven import apis, protocol
from tests.driven.protocol import Frame
from tests.driven.refused import Refused
from tests.memory.asking import NOTHING, Ask, at_once, touching

if TYPE_CHECKING:
    from airflow_mirror.errors import MirrorError
    from airflow_mirror.wire.connection import Check
    from tests.driven.log import PartitionLog
    from tests.memory.cluster import MemoryCluster

T = TypeVar("T")

_FIND_COORDINATOR, _INIT, _DESCRIBE, _FETCH = 10, 22, 65, 1
_ALONE = frozenset({_FIND_COORDINATOR, 3, 18})  # where things are, which never changes here
# What a broker of 4.4.0 is known by (`wire.served`); no request is sent in these versions.
_RELEASE = {0: (0, 13), 1: (0, 18), 2: (0, 11), 3: (0, 13)}


def out_of_reach(role: str, what: str) -> Callable[[], Any]:
    """Return what raises the error of a client that got no answer."""

    def lost() -> Any:
        raise ConnectionLost(role, "memory", what, "timed out")

    return lost


class MemoryConnection:
    """A connection to a broker: requests as objects, answered by the driven broker's handlers."""

    def __init__(self, wire: MemoryWire, node_id: int) -> None:
        self._wire, self.node_id = wire, node_id
        self.address, self.closed, self.timeout_s = f"memory:{node_id}", False, 10.0
        served = {key: handler.SERVED for key, handler in apis.BY_KEY.items()}
        self.api_versions = wire.cluster.release.served(served) | _RELEASE
        self._answers: list[Any] = []

    def newest(self, api_key: int, lowest: int, highest: int) -> int:
        """Return the newest version that both sides know."""
        return min(highest, apis.BY_KEY[api_key].SERVED[1])

    def serves(self, api_key: int, version: int) -> bool:
        """Say whether a version is served."""
        return api_key not in apis.BY_KEY or version <= apis.BY_KEY[api_key].SERVED[1]

    def request(self, message: Any, version: int, check: Check | None = None) -> Any:
        """Send a request and return the answer."""
        cluster, key = self._wire.cluster, message.API_KEY
        node: Any = cluster.brokers[self.node_id]

        def answer() -> Any:
            return apis.BY_KEY[key].answer(node, message, lambda _: ErrorCode.NONE)

        if key in _ALONE:
            return answer()
        words, touches = _said(message)
        what = f"{cluster.role}: {words}"
        return self._wire.ask(
            what, answer, effect=key in apis.WRITES, at=cluster.role, touches=touches, check=check,
            lost=out_of_reach(cluster.role, what),
        )  # fmt: skip

    def send(
        self, api_key: int, version: int, buffers: list[bytes], flexible: bool = False, check: Check | None = None,
        *, wait: bool = True,
    ) -> int:  # fmt: skip
        """As :meth:`request`, of bytes; the answer is kept for :meth:`receive`."""
        frame = Frame(api_key, version, 0, "", memoryview(b"".join(bytes(b) for b in buffers)))
        message = protocol.request_class(api_key).decode(frame.body, version=version)
        if api_key == _FETCH:
            message.max_wait_ms = 0
        response = self.request(message, version, check)
        self._answers.append(memoryview(bytes(response.encode(version=version))))
        return len(self._answers) - 1

    def throttle(self, ms: int) -> None:
        """See :meth:`.Connection.throttle`; here no quota is exceeded."""
        assert not ms

    def receive(self, correlation_id: int) -> memoryview:
        """Return the answer to what was sent."""
        found: memoryview = self._answers[correlation_id]
        return found

    def close(self) -> None:
        """Nothing to close."""


class MemoryWire:
    """See the module.

    :param principal: of the actor, for :meth:`write_answers`.
    """

    timeout_s, patient, write_timeout_ms = 0.0, False, 5000  # an answer that is lost is not asked for again

    def __init__(self, cluster: MemoryCluster, ask: Ask = at_once, principal: str = "User:mirror") -> None:
        self.cluster, self.ask, self.principal = cluster, ask, principal
        self.role = cluster.role
        self.settings = SimpleNamespace(principal=principal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Nothing to close."""

    hurry = close

    def forget(self, topic: str) -> None:
        """See WireCluster; nothing is kept here."""

    # --- topology -----------------------------------------------------------------------------------------------------

    def broker_ids(self) -> list[int]:
        """See WireCluster."""
        return sorted(self.cluster.brokers)

    def connection(self, node_id: int) -> MemoryConnection:
        """See WireCluster."""
        return MemoryConnection(self, node_id)

    def dedicated(self, node_id: int, timeout_s: float | None = None) -> MemoryConnection:
        """See WireCluster."""
        return self.connection(node_id)

    def any_connection(self, asked: Collection[int] = ()) -> MemoryConnection:
        """See WireCluster."""
        return self.connection(min(self.cluster.brokers))

    def leader(self, tp: TopicPartition) -> Leader:
        """See WireCluster."""
        return Leader(self.cluster.topics[tp.topic].leaders[tp.partition], self._log("Metadata", tp).epoch)

    def refresh(self, topics: Iterable[str] = ()) -> None:
        """See WireCluster; nothing is kept here."""
        names = sorted(topics)
        self._ask(
            f"metadata of {','.join(names)}", lambda: [self._topic(name) for name in names], touching("topic", *names)
        )

    def refresh_present(self, topics: Iterable[str]) -> set[str]:
        """See WireCluster."""
        names = sorted(topics)
        return self._ask(
            f"metadata of {','.join(names)}", lambda: {n for n in names if n not in self.cluster.topics},
            touching("topic", *names),
        )  # fmt: skip

    def sound_out(self, topics: Iterable[str]) -> None:
        """See WireCluster; absence is believed at once here."""

    def expect(self, topic: str) -> None:
        """See WireCluster; nothing is kept here."""

    def partitions(self, topic: str) -> int:
        """See WireCluster."""
        return self._ask(f"partitions of {topic}", lambda: len(self._topic(topic).logs), touching("topic", topic))

    def topic_id(self, topic: str) -> str:
        """See WireCluster."""
        found: str = self._ask(f"id of {topic}", lambda: self._topic(topic).topic_id, touching("topic", topic))
        return found

    # --- offsets ------------------------------------------------------------------------------------------------------

    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See WireCluster."""
        return self._each("log starts", tps, lambda log: log.log_start)

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See WireCluster."""
        return self._each("log ends", tps, lambda log: log.end)

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See WireCluster."""
        return self._each("high watermarks", tps, lambda log: log.high_watermark)

    def last_stable(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See WireCluster."""
        return self._each("last stable offsets", tps, lambda log: log.last_stable)

    def offsets_for_time(self, tps: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        """See WireCluster."""
        return self._each(f"offsets for {ts_ms}", tps, lambda log: log.offset_for_time(ts_ms, log.high_watermark)[1])

    def log_sizes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See WireCluster."""
        return self._each("log sizes", tps, lambda log: sum(len(batch.content) for batch in log.batches))

    def write_answers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """See WireCluster: CORRUPT_MESSAGE of a leader that would let the principal write."""
        wanted = list(tps)
        may, may_not = ErrorCode.CORRUPT_MESSAGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED

        def answers() -> dict[TopicPartition, int]:
            return {tp: int(may if self.cluster.allows(self.principal, "WRITE", tp) else may_not) for tp in wanted}

        return self._ask("whether leaders let it write", answers, touching("acl", "TOPIC")) if wanted else {}

    def delete_records(self, offsets: Mapping[TopicPartition, int], check: Check) -> dict[TopicPartition, int]:
        """See WireCluster."""
        what = f"delete records below {', '.join(f'{tp}@{offset}' for tp, offset in sorted(offsets.items()))}"

        def delete() -> dict[TopicPartition, int]:
            return {tp: self._found(what, tp, lambda log, o=o: log.delete_records(o)) for tp, o in offsets.items()}

        return self._ask(what, delete, touching("log", *{tp.topic for tp in offsets}), effect=True, check=check)

    # --- inside -------------------------------------------------------------------------------------------------------

    def ask_each(
        self, what: str, tps: Iterable[TopicPartition], ask: object, operation: str
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, MirrorError]]:
        """See WireCluster; of the offsets that followers ask for, and every leader answers."""
        return {"log start": self.log_starts, "last stable offset": self.last_stable}[what](tps), {}

    def _each(
        self, what: str, tps: Iterable[TopicPartition], of: Callable[[PartitionLog], int]
    ) -> dict[TopicPartition, int]:
        wanted = list(dict.fromkeys(tps))
        if not wanted:
            return {}
        names = sorted({tp.topic for tp in wanted})
        return self._ask(
            f"{what} of {','.join(names)}",
            lambda: {tp: of(self._log(what, tp)) for tp in wanted},
            touching("log", *names),
        )

    def _ask(
        self, what: str, do: Callable[[], T], touches: frozenset[str] = NOTHING, *, effect: bool = False,
        check: Check | None = None,
    ) -> T:  # fmt: skip
        what = f"{self.role}: {what}"
        return self.ask(
            what, do, effect=effect, at=self.role, touches=touches, check=check, lost=out_of_reach(self.role, what)
        )

    def _topic(self, name: str) -> Any:
        if name not in self.cluster.topics:
            raise UnknownTopic(f"{self.role} cluster, Metadata", name)
        return self.cluster.topics[name]

    def _log(self, what: str, tp: TopicPartition) -> PartitionLog:
        return self._found(what, tp, lambda log: log)

    def _found(self, what: str, tp: TopicPartition, of: Callable[[PartitionLog], T]) -> T:
        try:
            return of(self.cluster.log(tp))
        except Refused as e:
            asked = f"{self.role} cluster, {what} of {tp}"
            raise refusal(asked, e.code, "Describe", tp.topic, self.principal) from None


def _said(message: Any) -> tuple[str, frozenset[str]]:
    """Return a request in words, the same each time, and what it touches."""
    key = message.API_KEY
    if key == _DESCRIBE:
        (name,) = message.transactional_ids
        return f"who holds {name}", touching("lease", name)
    if key == _INIT:
        name, mark = message.transactional_id, message.transaction_timeout_ms
        does = "take over"
        if mark == handover.RELEASED_MS:
            does = "give back"
        elif mark != handover.HELD_MS:
            does = "mark to end writing" if mark >= _FIRST_END_MS else "mark" if mark >= _FIRST_MARK_MS else "begin"
        return f"{does} {name}", touching("lease", name)
    if key == _FETCH:
        names = sorted(topic.topic for topic in message.topics)
        return f"read {','.join(names)}", touching("log", *names)
    name = getattr(message, "transactional_id", None) or ""
    return f"{type(message).__name__.removesuffix('Request')} {name}".strip(), touching("lease", name)
