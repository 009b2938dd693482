"""Pause a mirror, resume it, or set its rate: what the commands and the operator do, on whatever host its jobs run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.common.clock import SYSTEM, Clock
from airflow_mirror.errors import InvalidField, TryAgain
from airflow_mirror.jobs.runner.active import JobId, Watch, active_tail, heard_by, said
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import BULK, WISH_LOOK
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.plan.ledger_store import unknown_mirror
from airflow_mirror.plan.owned import mirrors

VERBS = ("pause", "resume", "rate")
RESTS = "RESTS"
_EVERY_S = 1.0
_PATIENCE_S = 60.0  # a job ends what is in flight; a large transaction takes its time


@dataclass(frozen=True, kw_only=True)
class Paced:
    """What is wished of a mirror now, and how its jobs are.

    :param jobs: each with :data:`RESTS`, or its status (:class:`.Watch`).
    """

    mirror: str
    wishes: Wishes
    jobs: list[tuple[JobId, str]]

    @property
    def alive(self) -> list[tuple[JobId, str]]:
        """The jobs that run."""
        return [(one, status) for one, status in self.jobs if status in (RESTS, RUNNING)]

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        lines = [f"{self.mirror}: {'; '.join(self.wishes.lines()) or 'no pause, and the rate of the Mirror'}"]
        for one, status in self.alive:
            does = "rests" if status == RESTS else "follows within seconds"
            lines.append(f"its {_what(one)} on host {one.host} {does}")
        return lines if self.alive else [*lines, "nothing copies for it now: a job that is started keeps to it"]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        tail, status = next(((one, status) for one, status in self.jobs if not one.bulk), (None, "none"))
        bulk = [{"host": one.host, "state": status.lower()} for one, status in self.alive if one.bulk]
        found: Mapping[str, Any] = {"tail": status.lower(), "host": None if tail is None else tail.host}
        return {"mirror": self.mirror, **asdict(self.wishes), **found, "bulk_copies": bulk}


def pace(
    target: ClusterAdmin, mirror: str, verb: str, rate: str = "default", by: str = "", clock: Clock = SYSTEM, *,
    is_wished: bool = False, wished: Callable[[], object] = lambda: None,
) -> Paced:  # fmt: skip
    """Set or take back a wish, and wait for the jobs that run: of a pause, until they rest.

    :param verb: one of :data:`VERBS`. :param rate: see :func:`rate_wish`. :param by: who wishes; "": of this process.
    :param clock: by which it waits.
    :param is_wished: by an earlier try of the same call: what somebody has wished since stays, and is only waited for.
    :param wished: is called once the wish stands.
    :raises InvalidField: ``rate`` is none. :raises InputError: the target knows no such mirror.
    :raises TryAgain: a job does not rest yet. The pause stands.
    """
    wanted = rate_wish(rate, by) if verb == "rate" else None
    ledger, state = Ledger(target), state_of(target, *heard_by(mirror))
    values = ledger.values()
    known = mirrors(values)
    if mirror not in known:
        raise unknown_mirror(mirror, known)
    before = Wishes.of(state.read(), mirror)
    if is_wished:
        pass
    elif verb == "rate":
        wish(state, mirror, "rate", wanted)
    elif verb == "resume":
        wish(state, mirror, "pause", None)
    elif before.pause is None:  # who paused first, and since when, stays
        wish(state, mirror, "pause", Wish.now(by=by))
    # Dies before it: a try behind that wishes once more, also what somebody has taken back in between.
    wished()
    pause = Wishes.of(state.read(), mirror).pause
    tail = active_tail(values, mirror)
    jobs = [*(() if tail is None else (tail,)), *said(BULK, state.read(), mirror)]
    found = {one.job: (one, _settled(state, one, pause, clock)) for one in jobs}
    return Paced(mirror=mirror, wishes=Wishes.of(state.read(), mirror), jobs=list(found.values()))


def rate_wish(text: str, by: str = "") -> Wish | None:
    """Return the wish for a rate; None for the Mirror's own.

    :param text: bytes per second, ``none`` for no limit, or ``default``. :param by: as of :func:`pace`.
    :raises InvalidField: it is none of these.
    """
    if text == "default":
        return None
    if text == "none":
        return Wish.now(by=by)
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise InvalidField("rate", text, "not a rate", "Give bytes per second such as 20000000, or none, or default.")
    return Wish.now(int(text), by)


def _settled(state: State, job: JobId, pause: Wish | None, clock: Clock) -> str:
    """Return how a job is: RESTS, once it does, if that is what is wished of it and it runs.

    :param pause: the wish to rest. Nobody waits for one that is taken back meanwhile.
    """
    watch = Watch(state, clock.monotonic, clock.sleep, look=WISH_LOOK)  # who may wish may write nothing else
    found, asked = watch.settled(job), clock.monotonic()
    while pause is not None and (found := watch.status(job)) == RUNNING:
        wished = Wishes.of(state.read(), job.name)
        if wished.pause != pause:
            return found
        sign = watch.sign(job)
        if sign is not None and (sign.phase, sign.heard) == ("paused", asdict(wished)):
            return RESTS
        if clock.monotonic() - asked > _PATIENCE_S:
            waited = clock.monotonic() - asked
            raise TryAgain(
                f"mirror {job.name!r} is paused, but its {_what(job)} on host {job.host!r} still copies after "
                f"{waited:.0f} s",
                "it may have to finish a large batch",
                "Run the command again, which waits once more. If it never rests, it does not reach the target: stop it "
                "(StopMirrorOperator; a bulk copy ends with its task).",
            )
        clock.sleep(_EVERY_S)
    return found


def _what(job: JobId) -> str:
    return "bulk copy" if job.bulk else "tail"
