"""What goes wrong, and when: a test names a request and what shall be done to it.

    cluster.script.on("Produce", nth=3, fault=Fault.lost_answer())
    gate = cluster.script.on("EndTxn", fault=Fault(hold=True))    # gate.arrived.wait(); ...; gate.release()

A rule counts the requests that fit it, from 1. The first rule whose turn it is decides; without one a request is
answered as a broker does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode

WAIT_S = 240.0  # for what a test waits for; a machine may stand still for a minute


@dataclass(frozen=True)
class Request:
    """A request that arrived. ``number`` counts all requests of the cluster, from 0; ``message`` is decoded."""

    number: int
    broker: int
    api: str
    version: int
    client_id: str
    message: Any

    def __str__(self) -> str:
        return f"#{self.number} {self.api} v{self.version} to broker {self.broker} from {self.client_id}"


@dataclass(frozen=True)
class Fault:
    """What is done to a request. The default does nothing: the request is answered.

    :param before: called before anything else, in the broker's thread: a leader may be moved, a log truncated.
    :param hold: the request waits until its rule's gate is released.
    :param delay_s: it waits until the cluster's clock has moved on by so much.
    :param effect: whether what it asks for is done.
    :param code: error for ``partitions`` (for all, and for the request as a whole, when None). With ``effect`` the error
        is only said; without, what is asked of the others is done and answered.
    :param after: called when the effect is there and the answer is not sent.
    :param throttle_ms: put into the answer.
    :param answer_bytes: how much of the answer's frame is sent before the connection is reset; None: all, without reset.
    :param freeze: nothing is answered on this connection from now on, but for ``answer_bytes``, and it stays open.
    """

    before: Callable[[Request], object] | None = None
    hold: bool = False
    delay_s: float = 0.0
    effect: bool = True
    code: ErrorCode = ErrorCode.NONE
    partitions: Collection[TopicPartition] | None = None
    after: Callable[[Request], object] | None = None
    throttle_ms: int = 0
    answer_bytes: int | None = None
    freeze: bool = False

    def __post_init__(self) -> None:
        if self.effect and self.code and self.partitions is not None:
            raise ValueError("an error that is only said is said of all partitions")

    @classmethod
    def lost_answer(cls) -> Fault:
        """Done, but the connection is reset before the answer."""
        return cls(answer_bytes=0)

    @classmethod
    def cut_answer(cls, size: int) -> Fault:
        """Done; the connection is reset after ``size`` bytes of the answer."""
        return cls(answer_bytes=size)

    @classmethod
    def stuck_answer(cls, size: int) -> Fault:
        """Done; of the answer ``size`` bytes come, and then nothing more."""
        return cls(answer_bytes=size, freeze=True)

    @classmethod
    def not_arrived(cls) -> Fault:
        """The connection is reset before anything is done."""
        return cls(effect=False, answer_bytes=0)

    @classmethod
    def refused(cls, code: ErrorCode, partitions: Collection[TopicPartition] | None = None) -> Fault:
        """Answered with an error, and not done."""
        return cls(effect=False, code=code, partitions=partitions)

    @classmethod
    def done_but_refused(cls, code: ErrorCode) -> Fault:
        """Done, and answered with an error."""
        return cls(code=code)

    def refusal(self, tp: TopicPartition | None) -> ErrorCode:
        """Return the error for one partition, or for what belongs to none."""
        return self.code if self.partitions is None or tp in self.partitions else ErrorCode.NONE


@dataclass
class Rule:
    """A fault and the requests it is meant for.

    :ivar hits: the requests that met the fault.
    """

    api: str | None
    fault: Fault
    broker: int | None
    nth: int | None
    times: int | None
    when: Callable[[Request], bool] | None
    seen: int = 0
    hits: list[Request] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let go what is held, now and later."""
        self._released.set()

    def wait(self) -> None:
        """Wait until a request met the fault."""
        assert self.arrived.wait(WAIT_S), f"no {self.api} came to which this fault could happen"

    def stay(self) -> None:
        """Wait, in a broker's thread, until :meth:`release`."""
        self._released.wait(WAIT_S)

    def takes(self, request: Request) -> bool:
        """Count the request; say whether it is its turn."""
        if self.api not in (None, request.api) or self.broker not in (None, request.broker):
            return False
        if self.when is not None and not self.when(request):
            return False
        self.seen += 1
        if (self.nth is not None and self.seen != self.nth) or (self.times is not None and len(self.hits) >= self.times):
            return False
        self.hits.append(request)
        return True


class Script:
    """The rules of one cluster."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self._lock = threading.Lock()

    def on(
        self, api: str | None, fault: Fault, *, nth: int | None = None, times: int | None = 1, broker: int | None = None,
        when: Callable[[Request], bool] | None = None,
    ) -> Rule:  # fmt: skip
        """Add a rule.

        :param api: Kafka's name of the request, ``Produce``; None: any.
        :param nth: the nth of those that fit, from 1; None: from the first on.
        :param times: how often it happens; None: always.
        :param when: of the request, what else must be true.
        """
        rule = Rule(api, fault, broker, nth, times, when)
        with self._lock:
            self.rules.append(rule)
        return rule

    def clear(self) -> None:
        """Take all rules away, and let go what they hold."""
        with self._lock:
            for rule in self.rules:
                rule.release()
            self.rules.clear()

    def match(self, request: Request) -> Rule | None:
        """Return the rule whose turn it is; every rule counts the request."""
        with self._lock:
            taken = None
            for rule in self.rules:
                if taken is None and rule.takes(request):
                    taken = rule
            return taken
