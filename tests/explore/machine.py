"""What code asks its machine for, given by the scheduler: threads, locks, queues, sleep, sockets, a selector.

For code that runs threads of its own and talks to a driven cluster through sockets, as a task of the copy does. While a
schedule runs, the modules of the package find these in place of `threading`, `time`, `socket` and the like
(:meth:`Machine.installed`); nothing else of the package is touched. A thread is an actor of its process, so it dies and
freezes with it. Bytes go through the package's own `Connection`, and requests to the broker's own handlers: only the
kernel and the network in between are ours. An answer takes :data:`ANSWER_S`.

Each request is one operation of the scheduler, its permit included, and what it was about is its name. What comes of an
answer that is lost, or a request that is late, is a connection that was reset.
"""

from __future__ import annotations

import random
import selectors
import socket
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow_mirror.copy.loop import crew
from airflow_mirror.wire.connection import Connection
from tests.driven import apis, protocol
from tests.driven.broker import Broker
from tests.driven.cluster import DrivenCluster
from tests.driven.protocol import Frame
from tests.explore.turns import PAST_S

if TYPE_CHECKING:
    from tests.explore.scheduler import Scheduler
    from tests.explore.turns import Actor, VirtualEvent

ANSWER_S = 0.01  # between a request and its answer
_PORTS = {"source": 9001, "target": 9002}
_FETCH = 1
_PACKAGE = "airflow_mirror."
_SOON_S = 1e-6  # sums of times are not exact
_READS_OF = {  # what requests that change nothing depend on, apart from logs
    "Metadata": "topic", "ApiVersions": "coordinator", "FindCoordinator": "coordinator", "DescribeTransactions": "lease",
}  # fmt: skip


class QuietBroker(Broker):
    """A broker that listens nowhere: sockets of a schedule hand requests to it."""

    def start(self) -> None:
        """Be there."""
        self.port = _PORTS[self.cluster.role]

    def stop(self) -> None:
        """Nothing is to be closed."""

    @property
    def running(self) -> bool:
        """True."""
        return True


class QuietCluster(DrivenCluster):
    """A driven cluster of one broker, with neither a thread nor a socket, on a schedule's time."""

    broker_type = QuietBroker

    def __init__(self, role: str, scheduler: Scheduler) -> None:
        self.clock_type = scheduler.brokers_clock  # type: ignore[assignment]
        super().__init__(role)


class Thread:
    """As `threading.Thread`: an actor of the process that starts it."""

    def __init__(
        self, machine: Machine, target: Callable[..., object], args: tuple[Any, ...] = (), name: str = "thread",
        daemon: bool | None = None,
    ) -> None:  # fmt: skip
        self._machine, self._body, self._name = machine, partial(target, *args), name
        self._background = bool(daemon)
        self._over = machine.s.event()
        self._actor: Actor | None = None
        self._is_awaited = False

    def start(self) -> None:
        """Begin."""
        s = self._machine.s
        assert s.me is not None
        name = self._machine.name_for(f"{s.me.process} {self._name}")
        self._actor = s.spawn(name, self._run, background=self._background)
        self._actor.rests = lambda: not self._is_awaited

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self._is_awaited = True
        while not self._over.wait(timeout) and timeout is None:
            pass  # somebody else let its caller go on

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return self._actor is not None and not self._over.is_set()

    def _run(self) -> None:
        try:
            self._body()
        finally:
            self._over.set()


class Condition:
    """As `threading.Condition`. Its lock is nothing: nobody else runs between two operations."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[VirtualEvent] = deque()

    def __enter__(self) -> Condition:
        return self

    def __exit__(self, *_: object) -> None: ...

    acquire = release = __exit__

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for news."""
        event = self._scheduler.event()
        self._waiting.append(event)
        return event.wait(timeout)

    def notify(self, n: int = 1) -> None:
        """Wake who waits longest."""
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft().set()

    def notify_all(self) -> None:
        """Wake everybody."""
        self.notify(len(self._waiting))


class Queue:
    """As `queue.SimpleQueue`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._items: deque[Any] = deque()
        self._news = Condition(scheduler)

    def put(self, item: Any) -> None:
        """Add something."""
        self._items.append(item)
        self._news.notify()

    def get(self) -> Any:
        """Return what is first, once there is something."""
        while not self._items:
            self._news.wait()
        return self._items.popleft()


class Pipe:
    """Both ends of a socket pair of which nobody needs more than that there is something."""

    def __init__(self) -> None:
        self.has_news = False
        self.wake: Callable[[], object] = lambda: None

    def setblocking(self, _: bool) -> None: ...

    def close(self) -> None: ...

    def send(self, content: bytes) -> int:
        """Wake the other end."""
        self.has_news = True
        self.wake()
        return len(content)

    def recv(self, _: int) -> bytes:
        """Take what is there."""
        if not self.has_news:
            raise BlockingIOError
        self.has_news = False
        return b"."


class Socket:
    """A client's socket to a broker of a schedule.

    :ivar due: when the next answer can be read; None: none is on its way.
    """

    def __init__(self, machine: Machine, broker: Broker, timeout_s: float) -> None:
        self._machine, self._broker, self._timeout_s = machine, broker, timeout_s
        self._sent = b""
        self._answers: deque[tuple[float, Callable[[], bytes]]] = deque()
        self._got = b""
        self._is_reset = False
        self.frozen = threading.Event()  # as a broker's link has it

    @property
    def due(self) -> float | None:
        """See above."""
        if self._got or self._is_reset:
            return 0.0
        return self._answers[0][0] if self._answers else None

    def sendmsg(self, buffers: list[Any], *_: object) -> int:
        """Take a request, or a part of it."""
        content = b"".join(buffers)
        self._sent += content
        while len(self._sent) >= 4 and len(self._sent) - 4 >= (size := int.from_bytes(self._sent[:4], "big")):
            frame, self._sent = self._sent[4 : 4 + size], self._sent[4 + size :]
            self._ask(protocol.parse(frame))
        return len(content)

    def _ask(self, frame: Frame) -> None:
        wait_s = self._machine.waits_s(self._broker.cluster, frame)
        now = self._machine.s.now
        if wait_s:
            self._answers.append((now + wait_s, partial(self._answer, frame)))
            return
        content = self._answer(frame)
        self._answers.append((now + ANSWER_S, lambda: content))

    def _answer(self, frame: Frame) -> bytes:
        told: list[bytes] = []
        link: Any = SimpleNamespace(send=told.append, frozen=self.frozen)
        if not self._broker._answer(link, frame):
            self._is_reset = True
        return b"".join(told)

    def recv_into(self, view: memoryview, _: int = 0, flags: int = 0) -> int:
        """Fill as much of the view as is there; a call that may block fills it, or waits as long as its limit."""
        s = self._machine.s
        until = s.now + self._timeout_s
        while len(self._got) < len(view):
            if self._answers and self._answers[0][0] <= s.now + _SOON_S:
                self._got += self._answers.popleft()[1]()
            elif self._is_reset or flags & socket.MSG_DONTWAIT:
                break
            elif s.now >= until:
                raise BlockingIOError
            else:
                s.sleep(min([until, *(due for due, _ in self._answers)]) - s.now)
        if not self._got and not self._is_reset:
            raise BlockingIOError
        count = min(len(view), len(self._got))
        view[:count], self._got = self._got[:count], self._got[count:]
        return count

    def recv(self, size: int, flags: int) -> bytes:
        """Look at what is there, and leave it."""
        assert flags == socket.MSG_PEEK | socket.MSG_DONTWAIT
        if self._answers and self._answers[0][0] <= self._machine.s.now + _SOON_S:
            self._got += self._answers.popleft()[1]()
        if not self._got and not self._is_reset:
            raise BlockingIOError
        return self._got[:size]

    def setsockopt(self, *_: object) -> None: ...

    settimeout = close = setsockopt

    def fileno(self) -> int:
        """One that nobody looks at."""
        return 0


class Selector:
    """As `selectors.DefaultSelector`, of connections and pipes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._news = scheduler, Condition(scheduler)
        self._keys: dict[int, SimpleNamespace] = {}

    def __enter__(self) -> Selector:
        return self

    def __exit__(self, *_: object) -> None: ...

    def register(self, fileobj: Any, _: int, data: Any = None) -> None:
        """Look at it as well."""
        if isinstance(fileobj, Pipe):
            fileobj.wake = self._news.notify_all
        self._keys[id(fileobj)] = SimpleNamespace(fileobj=fileobj, data=data)

    modify = register

    def unregister(self, fileobj: Any) -> None:
        """Look at it no more."""
        del self._keys[id(fileobj)]

    def select(self, timeout: float) -> list[tuple[SimpleNamespace, int]]:
        """Return what can be read, once there is something, or the time is over."""
        s = self._scheduler
        until = s.now + timeout
        while True:
            dues = [(due, key) for key in self._keys.values() if (due := _due(key.fileobj)) is not None]
            ready = [(key, selectors.EVENT_READ) for due, key in dues if due <= s.now + _SOON_S]
            if ready or s.now >= until - _SOON_S:
                return ready
            self._news.wait(min([until, *(due for due, _ in dues)]) - s.now)


def _due(watched: Any) -> float | None:
    if isinstance(watched, Pipe):
        return 0.0 if watched.has_news else None
    found: float | None = 0.0 if watched.closed else watched._socket.due
    return found


class Machine:
    """What all processes of a schedule run on.

    :ivar names: of topics, by id: for the names of requests.
    """

    def __init__(self, scheduler: Scheduler, *clusters: QuietCluster) -> None:
        self.s = scheduler
        self.names: dict[uuid.UUID, str] = {}
        self._brokers = {one.brokers[1].port: one.brokers[1] for one in clusters}
        self._taken: dict[str, int] = {}
        self._send = Connection.send

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the package find all that here."""
        machine = self

        def send(
            it: Connection, api_key: int, api_version: int, buffers: Any, flexible: bool = False,
            check: Callable[[], None] | None = None, *, wait: bool = True,
        ) -> int:  # fmt: skip
            return machine._ask(it, Frame(api_key, api_version, 0, "", _joined(buffers)), buffers, flexible, check, wait)

        with mock.patch.object(crew, "SimpleQueue", partial(Queue, self.s)), mock.patch.object(Connection, "send", send):
            stands_in = self._modules()
            changed = [
                (module, name, real)
                for module in list(sys.modules.values()) if module.__name__.startswith(_PACKAGE)
                for name, (real, _) in stands_in.items() if getattr(module, name, None) is real
            ]  # fmt: skip
            for module, name, _ in changed:
                setattr(module, name, stands_in[name][1])
            try:
                yield
            finally:
                for module, name, real in changed:
                    setattr(module, name, real)

    def name_for(self, name: str) -> str:
        """Return a name that nobody has yet."""
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name} {count}"

    def waits_s(self, cluster: DrivenCluster, frame: Frame) -> float:
        """Return how long a long poll that finds nothing waits; 0.0: the answer comes at once."""
        if frame.key != _FETCH:
            return 0.0
        asked = protocol.request_class(frame.key).decode(frame.body, version=frame.version)
        by_id = {one.topic_id: one for one in cluster.topics.values()}
        for topic in asked.topics:
            known = cluster.topics.get(topic.topic) or by_id.get(topic.topic_id)
            if known is None or any(known.logs[p.partition].last_stable != p.fetch_offset for p in topic.partitions):
                return 0.0
        return float(asked.max_wait_ms / 1000)

    def _modules(self) -> dict[str, tuple[Any, Any]]:
        """Return what stands in for each module of Python's, by its name."""
        s, clock = self.s, self.s.clock
        quick = SimpleNamespace(
            time=clock.time, monotonic=clock.monotonic, perf_counter=clock.monotonic, thread_time=clock.monotonic,
            sleep=clock.sleep, clock_gettime=lambda _: PAST_S + s.now, CLOCK_BOOTTIME=time.CLOCK_BOOTTIME,
            strftime=time.strftime, gmtime=time.gmtime,
        )  # fmt: skip
        threads = SimpleNamespace(
            Thread=partial(Thread, self), Event=s.event, Lock=partial(Condition, s), RLock=partial(Condition, s),
            Condition=partial(Condition, s), get_ident=threading.get_ident,
        )  # fmt: skip
        sockets = _Sockets(self)
        chance = SimpleNamespace(sample=lambda all_of, k: list(all_of)[:k], uniform=lambda low, high: (low + high) / 2)
        names = SimpleNamespace(UUID=uuid.UUID, uuid4=lambda: uuid.UUID(hex=s.new_id()))
        return {
            "time": (time, quick), "threading": (threading, threads), "socket": (socket, sockets),
            "random": (random, chance), "uuid": (uuid, names),
            "selectors": (selectors, SimpleNamespace(
                DefaultSelector=partial(Selector, s), EVENT_READ=selectors.EVENT_READ, EVENT_WRITE=selectors.EVENT_WRITE,
            )),
        }  # fmt: skip

    def connect(self, port: int, timeout_s: float) -> Socket:
        """Return a socket to the broker at a port."""
        return Socket(self, self._brokers[port], timeout_s)

    def _ask(
        self, it: Connection, frame: Frame, buffers: Any, flexible: bool, check: Callable[[], None] | None, wait: bool
    ) -> int:
        if it.closed:
            return self._send(it, frame.key, frame.version, buffers, flexible, check, wait=wait)
        broker = self._brokers[it.port]
        role = broker.cluster.role
        what, touches = self._told(role, frame)

        def do() -> int:
            if it.closed:  # since then: it is late
                broker.cluster.serve(broker, frame)
                return 0
            return self._send(it, frame.key, frame.version, buffers, flexible, wait=wait)

        def reset() -> int:
            it.close()
            return 0

        effect = frame.key in apis.WRITES
        return self.s.ask(
            f"{role}: {what}", do, effect=effect, at=role, touches=touches, check=check, lost=reset, may_be_late=effect,
            patience_s=0.0,
        )  # fmt: skip

    def _told(self, role: str, frame: Frame) -> tuple[str, frozenset[str]]:
        """Return what a request is about, and what it touches."""
        api = protocol.api_name(frame.key)
        if role == "source":
            return api, frozenset({"source"})
        message = protocol.request_class(frame.key).decode(frame.body, version=frame.version)
        if ids := getattr(message, "transactional_ids", None) or getattr(message, "transactional_id", None):
            name = ids if isinstance(ids, str) else ids[0]
            return f"{api} {name}", frozenset({f"lease:{name}"})
        named = getattr(message, "topic_data", None) or getattr(message, "topics", None) or ()
        topics = sorted({self._topic(one) for one in named})
        kind = _READS_OF.get(api, "log")
        return f"{api} {','.join(topics)}".strip(), frozenset({f"{kind}:{name}" for name in topics} or {f"{kind}:*"})

    def _topic(self, one: Any) -> str:
        if isinstance(one, str):
            return one
        name = getattr(one, "name", "") or getattr(one, "topic", "")
        return str(name or self.names[one.topic_id])


class _Sockets:
    """The module `socket`, of which two functions are ours."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def create_connection(self, address: tuple[str, int], timeout: float) -> Socket:
        return self._machine.connect(address[1], timeout)

    def socketpair(self) -> tuple[Pipe, Pipe]:
        both = Pipe()
        return both, both


def _joined(buffers: Any) -> memoryview:
    return memoryview(b"".join(bytes(one) for one in buffers))
