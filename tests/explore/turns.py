"""What a schedule is made of: actors, their steps, and virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from greenlet import greenlet

from airflow_mirror.errors import TryAgain
from tests.explore.deviations import REST, Event

if TYPE_CHECKING:
    from tests.explore.scheduler import Scheduler

T = TypeVar("T")
PAST_S = 1_790_000_000.0  # since the epoch, when every schedule begins
STEP_S = 0.002  # what an operation takes
LOST_S = 15.0  # how long an answer is waited for that does not come
CUT_S = 8.0  # how long a cluster is tried that can't be reached
# Who waits until everybody else rests goes on after this time at the latest: a guard may wait for just that one.
PATIENCE_S = 1200.0


class Vanished(GeneratorExit):
    """Ends an actor that was killed: each of its operations raises it, and does nothing.

    A BaseException, and one that a generator may raise that is closed when it is collected.
    """


class StoryUntold(AssertionError):
    """An event of a story never came: the code does something else by now."""


class Asked(NamedTuple):
    """An operation that an actor is about to do.

    :ivar at: the role of the cluster that it reaches; "" for none.
    :ivar touches: what it depends on or changes, as ``acl:TOPIC``, ``group:app``, ``ledger:fence/flow``; ``*`` behind the
        colon for all of a kind.
    :ivar may_be_late: whether it may be applied after its answer was given up.
    """

    what: str
    nth: int
    effect: bool
    at: str
    touches: frozenset[str]
    may_be_late: bool


class Step(NamedTuple):
    """A place of a schedule at which something else may happen.

    :ivar is_first: no operation of this actor came between its last effect, or its beginning, and this one.
    :ivar is_again: its last effect was the same: a report that is written again.
    :ivar others: who could go on instead.
    """

    number: int
    actor: str
    asked: Asked
    is_first: bool
    is_again: bool
    others: tuple[str, ...]

    @property
    def event(self) -> Event:
        """Its name in a story."""
        return self.actor, self.asked.what, self.asked.nth


@dataclass(eq=False)
class Actor:
    """Somebody who does something.

    :param process: actors of the same one are killed and frozen together; default: one of its own.
    :param starts: when, in seconds.
    :param last: starts once everybody rests who came before.
    :param after: starts only if that holds then, as a retry after a failure.
    :param fragile: whether something may happen to it.
    :param background: it goes on for ever, so that the schedule ends without it.
    :param rests: of one in the background: whether nothing is left for it to do; default: whenever it sleeps.
    :param stop: what a deviation sets to ask it to stop.
    """

    name: str
    body: Callable[[], Any]
    process: str = ""
    starts: float = 0.0
    last: bool = False
    after: Callable[[], bool] | None = None
    fragile: bool = True
    background: bool = False
    rests: Callable[[], bool] | None = None
    stop: VirtualEvent | None = None
    # What became of it.
    state: str = "new"  # ready, frozen, hung, done, dead
    result: Any = None
    error: BaseException | None = None
    began: float = math.nan
    silent_since: float = math.inf  # when its process last stood still or ended
    cut: str = ""  # the cluster that it can't reach
    # Of the scheduler.
    asks: Asked | None = field(default=None, repr=False)
    wake: float = 0.0
    thaws: float = REST
    still_since: float = 0.0
    was_effect: bool = True
    last_effect: str = ""
    refused: int = 0
    thread: Thread | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.process = self.process or self.name

    @property
    def is_over(self) -> bool:
        """Whether it ended, one way or the other."""
        return self.state in ("done", "dead")


class Thread(greenlet):
    actor: Actor


class Clock:
    """Time that passes when everybody sleeps. Handed to the code in place of the module `time`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def time(self) -> float:
        """Return seconds since the epoch."""
        return PAST_S + self._scheduler.now

    def monotonic(self) -> float:
        """Return seconds since the schedule began."""
        return self._scheduler.now

    def sleep(self, seconds: float, /) -> None:
        """Let others go on, and time pass."""
        self._scheduler.sleep(seconds)


class BrokersClock:
    """The time of brokers."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return round((PAST_S + self._scheduler.now) * 1000)


class VirtualEvent:
    """As `threading.Event`; it is waited for on virtual time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._is_set = scheduler, False
        self._waiting: list[Actor] = []

    def is_set(self) -> bool:
        """Return whether it was set."""
        return self._is_set

    def set(self) -> None:
        """Wake who waits for it."""
        self._is_set = True
        for actor in self._waiting:
            actor.wake = min(actor.wake, self._scheduler.now)
        self._waiting.clear()

    def clear(self) -> None:
        """Take it back."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for at most so many seconds; return whether it is."""
        if not self._is_set:
            if (me := self._scheduler.me) is not None:
                self._waiting.append(me)
            self._scheduler.sleep(math.inf if timeout is None else timeout)
        return self._is_set


def no_answer() -> NoReturn:
    """Raise what a client raises that gave up waiting."""
    raise TryAgain("no broker answered")
