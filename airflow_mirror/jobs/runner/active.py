"""Which tail copies for a mirror, on any host: decided in the target's ledger, with signs of life in its state.

Starting a tail is a decision: ``active/<mirror>`` names one job. It is made by the job itself, so that nothing lies
between the decision and the one that it is about. A tail that lives is never replaced without being asked to; one that
has ended, or that has given no sign for :data:`SILENCE_S`, is.

A job writes a sign every few seconds, under a key of its own, and looks there for requests to stop. The time of the
others is never compared with one's own: silence is what an observer hears itself, and counts only while the observer
could have heard something, because its own writes to that topic were acknowledged. Who may *write* to the target is not
decided here: that is the lease, whatever anybody believes about who is alive.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from airflow_mirror.errors import LedgerNewer, MissingRight, TailRuns, TryAgain
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.state import FINAL, LOST, RUNNING, SUCCEEDED
from airflow_mirror.jobs.runner.wishes import Wishes
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.kinds import Kind, known
from airflow_mirror.ledger.records import ACTIVE, BULK, LOOK, MEMBER, SIGN, STOP, WISH
from airflow_mirror.ledger.state import State
from airflow_mirror.mirror import Mirror

T = TypeVar("T")

SIGN_EVERY_S = 5.0
SILENCE_S = 30.0  # an election takes nine seconds
_LOOK_EVERY_S = 1.0
_PROBE_EVERY_S = 5.0
_LONGEST_ERROR = 20_000
_LEFT = (SIGN, STOP, LOOK, BULK)  # what jobs, and who watched them, leave behind
_NEWER = "its sign of life was written by a newer version of airflow-mirror: install that version to see more"


@dataclass(frozen=True, kw_only=True)
class JobId:
    """Which process it is that gives signs of life: a tail, a bulk copy, one that shares, or one that cuts over.

    :param name: the mirror's.
    :param host: for people; ``where`` and ``pid`` and ``started`` identify its process (:mod:`.process`).
    :param job: another one for each start.
    :param bulk: a bulk copy, which nobody decided, and which says who it is, for whoever pauses the mirror.
    :param processes: it copies with so many processes what the tail deals to it, and takes its place when that one dies;
        0: it is none of these.
    """

    name: str = ""
    host: str = field(default_factory=process.hostname)
    where: str = field(default_factory=process.here)
    pid: int = field(default_factory=os.getpid)
    started: int | None = field(default_factory=lambda: process.started_at(os.getpid()))
    job: str = field(default_factory=lambda: uuid.uuid4().hex)
    bulk: bool = False
    processes: int = 0

    @property
    def said_as(self) -> Kind | None:
        """As what it says who it is; None: a decision does."""
        return BULK if self.bulk else MEMBER if self.processes else None

    def fields(self) -> dict[str, Any]:
        """Return it as JSON has it, without the mirror's name, which is in the key of its record."""
        return {key: one for key, one in asdict(self).items() if key != "name"}

    @property
    def is_here(self) -> bool:
        """Whether its process can be seen, and ended, from here."""
        return self.where == process.here()

    @property
    def is_gone(self) -> bool:
        """Whether it is certain that its process has ended. False proves nothing."""
        return self.is_here and self.started is not None and not process.is_alive(self.pid, self.started)


@dataclass(frozen=True, kw_only=True)
class ActiveTail(JobId):
    """The tail that may copy for a mirror.

    :param directory: its job directory on that host; empty for one that was started by hand without.
    :param mirror: its Mirror as a dict. :param plan: hash of its plan. :param inputs: see :class:`JobSpec`.
    :param application: of a cluster manager, if the driver runs in one.
    :param deals: it deals partitions to processes that share the mirror.
    """

    mirror: Mapping[str, Any]
    plan: str
    inputs: str
    directory: str
    application: str = ""
    deals: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.mirror["name"]))

    def differing(self, mirror: Mirror) -> list[str]:
        """Return the fields in which its Mirror differs from another one, as readable lines."""
        theirs, ours = self.mirror, mirror.to_dict()
        return [
            f"{key}: {theirs.get(key)!r} there, {ours.get(key)!r} asked for"
            for key in sorted({**theirs, **ours}.keys() - mirror.tail_ignores)
            if theirs.get(key) != ours.get(key)
        ]

    def value(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"v": ACTIVE.version, **self.fields()}


def active_tail(values: Values, mirror: str) -> ActiveTail | None:
    """Return the tail that is decided to copy for a mirror; None if none ever was.

    :raises LedgerNewer: a newer version of the package wrote it.
    """
    return ACTIVE.load(partial(process_of, ActiveTail), values, mirror)


def process_of(kind: type[T], found: Mapping[str, Any], **more: Any) -> T:
    """Return the process of a record's fields. What it does not say of it is not what this process is.

    :raises KeyError: it does not say which job that is.
    """
    nobody = {"host": "unknown", "where": "", "pid": 0, "started": None}
    return known(kind)({**nobody, **found, "job": found["job"], **more})


def said(kind: Kind, values: Mapping[str, bytes], mirror: str) -> list[JobId]:
    """Return the bulk copies of a mirror, or the processes that share it: those that have not left, killed ones too.

    :param kind: :data:`.records.BULK` or :data:`.records.MEMBER`. :param values: the state's.
    :raises LedgerNewer: a newer version of the package wrote one.
    """
    decode = partial(process_of, JobId, name=mirror)
    found = (kind.load(decode, values, mirror, job) for job in kind.under(values, mirror))
    return [one for one in found if one is not None]


def begin(ledger: Decisions, me: ActiveTail, watch: Watch, *, takeover: bool = False) -> None:
    """Decide that this job is the mirror's tail, unless another one lives.

    :param takeover: also if another one lives; that one stops when it sees it, or can't confirm its lease.
    :raises TailRuns: another one lives. Nothing was decided.
    """
    while True:
        there = active_tail(ledger.values(), me.name)
        if there is not None and not takeover and watch.settled(there) == RUNNING:
            raise TailRuns(me.name, there.host, there.directory)

        def change(values: Values, there: ActiveTail | None = there) -> Values | None:
            return {ACTIVE.key(me.name): me.value()} if active_tail(values, me.name) == there else None

        if ledger.decide(change) is not None:
            return


def with_plan(values: Values, mirror: str, plan_hash: str) -> Values:
    """Return what decides that a tail that has ended had another plan; nothing if the mirror never had a tail."""
    tail = active_tail(values, mirror)
    return {} if tail is None else {ACTIVE.key(mirror): replace(tail, plan=plan_hash).value()}


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A sign of life: what a job writes about itself. See :mod:`.status` for the fields.

    :param number: grows from sign to sign.
    :param heard: the wishes (:class:`.wishes.Wishes`) that it knows of.
    :param at: when, in seconds since the epoch, by its own clock: to be compared with other times of that job alone.
    """

    number: int
    state: str
    at: float = 0.0
    phase: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    follows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    heard: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    blame: str | None = None

    @property
    def followed(self) -> dict[str, Mapping[str, Any]]:
        """What follows the data, without those of which no pass has ended yet."""
        return {name: one for name, one in self.follows.items() if one.get("took_s", 0.0) is not None}

    def encode(self) -> bytes:
        """Return it as JSON."""
        return SIGN.encode(asdict(self))

    @classmethod
    def decode(cls, value: bytes | None) -> Sign | None:
        """Return the sign; None for none. One that can't be read says that its job lives, or that it has ended."""
        if value is None:
            return None
        try:
            return SIGN.decoded(known(Sign), value)
        except LedgerNewer as e:
            state = str(e.value.get("state")) if isinstance(e.value, dict) else ""
        return cls(number=hash(value), state=state if state in FINAL else RUNNING, notes=(_NEWER,))


class Heartbeat:
    """What a job says about itself, and what it is told. Belongs to one thread.

    :param clock: monotonic, in seconds.
    """

    def __init__(self, state: State, me: JobId, clock: Callable[[], float] = time.monotonic) -> None:
        self._state, self._me, self._clock, self._number = state, me, clock, 0
        self._given = float("-inf")

    @property
    def is_due(self) -> bool:
        """Whether it is time for a sign; one that could not be given is not tried at once."""
        return self._clock() - self._given >= SIGN_EVERY_S

    @property
    def _mine(self) -> tuple[str, ...]:
        return left_by(self._me)

    def give(self, state: str, **content: Any) -> None:
        """Write a sign. :raises TryAgain: it is not known to be written."""
        self._number, self._given = self._number + 1, self._clock()
        if content.get("error"):
            content["error"] = content["error"][:_LONGEST_ERROR]  # thousands of partitions may have failed
        sign = Sign(number=self._number, state=state, at=round(time.time(), 3), **content)
        me = self._me
        values = {SIGN.key(me.name, me.job): sign.encode()}
        if (kind := me.said_as) is not None and kind.at(self._state.read(), me.name, me.job) is None:
            values |= kind.put(me.fields(), me.name, me.job)  # again, if it was taken for dead
        self._state.write(values)

    def stop_requested_by(self) -> str | None:
        """Return who asked this job to stop; None if nobody did."""
        return stop_requested_by(self._state.read(), self._me)

    def values(self) -> Mapping[str, bytes]:
        """Return what the mirror's jobs say, and what is wished of it, by key."""
        return self._state.read()

    def wishes(self) -> Wishes:
        """Return what is wished of the mirror. :raises LedgerNewer: it can't be read."""
        return Wishes.of(self._state.read(), self._me.name)

    def forget_others(self, permit: Permit) -> None:
        """Remove what earlier jobs of the mirror have left; nothing of a kind that this version does not know.

        :param permit: that no later one has begun: its signs, and who asked it to stop, would go.
        """
        left = (k for k in self._state.read() for kind in _LEFT if (n := kind.match(k)) and n["mirror"] == self._me.name)
        self._state.write({key: None for key in left if key not in self._mine}, permit)

    def forget(self) -> None:
        """Remove what this job has left."""
        self._state.write({key: None for key in self._state.read() if key in self._mine})


class Watch:
    """Observes the tail of a mirror. Belongs to one thread; keep it, because silence takes time.

    :param state: of the keys of the mirror's jobs.
    :param clock: monotonic, in seconds. :param pause: sleeps so many seconds.
    :param silence_s: how long a job that gives no sign counts as RUNNING; more than twice ``probe_every_s``, and than the
        time between two signs.
    :param probe_every_s: after so much silence the observer looks whether anybody can write signs.
    :param lost: a job, and its last sign (:attr:`seen`), that another observer has listened for: lost until it gives
        another sign.
    :param look: what it writes to look whether anybody can write.
    :param decides: something rests on what it finds. Who only shows it need not have the right to write there: without
        that right silence counts as it is read. It may look away for hours, and takes no sign of then for one it heard.
    :ivar seen: the job that was last asked for, and its last sign; for another observer.
    """

    def __init__(
        self,
        state: State,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        silence_s: float = SILENCE_S,
        probe_every_s: float = _PROBE_EVERY_S,
        lost: str = "",
        look: Kind = LOOK,
        decides: bool = True,
    ) -> None:
        self._state, self._clock, self._pause, self._lost, self._look = state, clock, pause, lost, look
        self.seen = ""
        self._silence_s, self._probe_every_s = silence_s, probe_every_s
        self._decides, self._may_write = decides, True
        self._job = ""
        self._number: int | None = None
        self._heard = self._probed = self._looked = clock()
        self._lives = False

    def sign(self, tail: JobId) -> Sign | None:
        """Return its last sign."""
        return Sign.decode(SIGN.at(self._state.read(), tail.name, tail.job))

    def status(self, tail: JobId) -> str:
        """Return RUNNING, SUCCEEDED, FAILED or LOST, as far as is known by now.

        :raises TryAgain: the state can't be read; that is no silence.
        """
        now = self._clock()
        looked, self._looked = self._looked, now
        try:
            sign = self.sign(tail)
        except TryAgain:
            self._heard = now
            raise
        self.seen = f"{tail.job}/{sign.number}/{sign.at}" if sign is not None else f"{tail.job}/"
        if sign is not None and sign.state in FINAL:
            return sign.state
        if tail.is_gone or self.seen == self._lost:
            return LOST
        if (kind := tail.said_as) is not None and kind.at(self._state.read(), tail.name, tail.job) is None:
            return SUCCEEDED  # or failed: it took its leave, and copies no more
        number = None if sign is None else sign.number
        if tail.job != self._job:
            self._job, self._number, self._lives, self._heard, self._probed = tail.job, number, False, now, now
        elif number not in (None, self._number):  # a sign that its successor removed is none
            # Not for who decides: a sensor that takes a sample each minute would wait for a sign for ever.
            self._lives = self._decides or now - looked < self._silence_s
            self._number, self._heard, self._probed = number, now, now
        elif self._may_write and now - self._probed >= self._probe_every_s:
            self._probe(tail, now)
            now = self._probed = self._clock()
        return RUNNING if now - self._heard < self._silence_s else LOST

    def settled(self, tail: JobId, *, by_signs: bool = False) -> str:
        """Return the status, RUNNING only once it has given a sign while we looked; may take ``silence_s``.

        :param by_signs: also if its process can be seen from here: it may be frozen.
        """
        while (found := self.status(tail)) == RUNNING and not (self._lives or (self.is_sure(tail) and not by_signs)):
            self._pause(_LOOK_EVERY_S)
        return found

    def is_sure(self, tail: JobId) -> bool:
        """Return whether a tail that is RUNNING has given a sign while we looked, or can be seen from here."""
        return self._lives or tail.is_here

    def _probe(self, tail: JobId, now: float) -> None:
        """Write to the topic ourselves: while nobody can, silence means nothing, and does not count."""
        try:
            self._state.write({self._look.key(tail.name): str(now).encode()})
            self._heard += self._clock() - now
        except TryAgain:
            self._heard = self._clock()
        except MissingRight:
            if self._decides:
                raise
            self._may_write = False


def ask_to_stop(state: State, mirror: str, job: str, by: str) -> None:
    """Ask the tail ``job`` of a mirror to stop, wherever it runs. It sees that within two seconds."""
    state.write(STOP.put({"by": by}, mirror, job))


def left_by(job: JobId) -> tuple[str, ...]:
    """Return the keys that a job leaves behind."""
    return tuple(kind.key(job.name, job.job) for kind in (SIGN, STOP, job.said_as) if kind is not None)


def stop_requested_by(values: Mapping[str, bytes], tail: JobId) -> str | None:
    """Return who asked a job to stop; None if nobody did.

    :param values: the state's.
    """
    value = STOP.at(values, tail.name, tail.job)
    if value is None:
        return None
    try:
        return str(json.loads(value).get("by", "somebody"))  # whichever version has asked
    except (ValueError, AttributeError):
        return "somebody"


def heard_by(mirror: str) -> tuple[str, str]:
    """Return what the keys begin with by which a mirror's jobs hear of each other, and what is wished of them."""
    return SIGN.below(mirror), WISH.below(mirror)


def ended(mirror: str) -> dict[str, None]:
    """Return what decides, beside what else a decision sets, that no tail copies for a mirror any more."""
    return {ACTIVE.key(mirror): None}
