"""The scenarios of copies, and what must hold of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.copy.writer import lease
from tests.explore import copying
from tests.explore.copying import TOPIC, World
from tests.explore.deviations import REST, Deviation
from tests.explore.scenario import Invariant, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.explore.scheduler import Scheduler
    from tests.explore.turns import Asked

LAST = "Z"  # who copies on once everybody rests
# Shorter than a confirmation is valid (6 s), longer than a handover (7 s), and than Spark's patience (10 s).
FREEZES = (4.0, 9.0, 20.0, REST)


def opened(w: World) -> None:
    """A bulk copy whose task Spark loses and runs again; who opens the target comes last."""
    copying.heartbeat(w)
    copying.driver(w, "D")
    copying.lose(w, "Net", last=True)
    copying.next_owner(w, "O", last=True)


def jobs(w: World) -> None:
    """A bulk copy whose task Spark loses and runs again, and the next job, at once or after it."""
    copying.heartbeat(w)
    copying.driver(w, "D")
    copying.lose(w, "Net", last=True)
    copying.driver(w, "N", last=True)


def tail(w: World) -> None:
    """A tail whose task Spark loses; another job takes the lease for a while; who opens the target comes last."""
    copying.heartbeat(w)
    copying.producer(w, "App", (5.0, 21.0))
    copying.tail(w, "T", 26.0)
    copying.lose(w, "Net", last=True)
    copying.driver(w, "N", starts=7.0)
    copying.next_owner(w, "O", last=True)


def recreated(w: World) -> None:
    """Tasks follow a source; somebody deletes the target's topic and creates it again."""
    copying.heartbeat(w)
    copying.producer(w, "App", (7.0, 10.0))
    copying.driver(w, "D")
    copying.person(w, "P", last=True)


def source_recreated(w: World) -> None:
    """Tasks follow a source; somebody deletes its topic, creates it again, and fills it beyond where it ended."""
    copying.heartbeat(w)
    copying.producer(w, "App", (7.0, 10.0))
    copying.driver(w, "D")
    copying.owner(w, "P", last=True)


def _order(w: World) -> str:
    here = w.here
    for at, row in enumerate(w.there):
        if at >= len(here) or here[at] != row:
            return f"record {at} of the target is {row}, the source's {here[at : at + 1]}"
    return ""


def _done(w: World) -> str:
    if len(w.there) >= len(w.here) or w.is_created_again:
        return ""
    told = [a.name for a in w.drivers if a.result and all(r.done and not r.error for r in a.result) and a.name != LAST]
    return f"{told} were told so; the target has {len(w.there)} of {len(w.here)} records" if told else ""


def _missing(w: World) -> str:
    if w.opened_at is not None or w.is_created_again or w.here == w.there:
        return ""
    return f"the target has {len(w.there)} of {len(w.here)} records"


def _in_another_topic(w: World) -> str:
    if not w.is_target_new:
        return ""
    return "; ".join(f"{log.tp} has {log.end} offsets" for log in w.target.topics[TOPIC].logs if log.end)


ALL = (
    Invariant("each record is on the target once, where it was, in its order", _order),
    Invariant("nothing is written to the target by the mirror once it is open", lambda w: "; ".join(w.wrong)),
    Invariant("nothing is written into a topic that was created again", _in_another_topic),
    Invariant("who is told that it is done has all", _done, at_end=True),
    Invariant("nothing is missing once everybody has ended", _missing, at_end=True),
)


def _built(build: Callable[[World], None], scheduler: Scheduler, **given: Any) -> World:
    w = World(scheduler, **given)
    build(w)

    def final() -> None:
        if not w.is_created_again:
            copying.driver(w, LAST, last=True, fragile=False)

    scheduler.at_rest.append(final)
    return w


def _is_late(longest_s: float, deviation: Deviation, asked: Asked) -> bool:
    """A batch that somebody on the way holds, and that is applied once another one may write.

    Our own socket is reset, so that its kernel delivers nothing more. Sequences refuse what comes late while the broker
    knows the producer, and nobody waits for longer than a handover (docs/design.md).
    """
    return deviation.kind == "late" and "Produce" in asked.what and deviation.seconds > longest_s


def _scenario(name: str, build: Callable[[World], None], *, forgets: bool = False, **given: Any) -> Scenario:
    made = partial(_built, build, forgets=forgets, **given)
    made.__doc__ = build.__doc__
    known = partial(_is_late, 0.0 if forgets else lease.VALID_S)
    return Scenario(name, made, ALL, freezes=FREEZES, accepts=known)


SCENARIOS = (
    _scenario("copy", opened, forgets=True),
    _scenario("copy_mapped", opened, forgets=True, mode=MAPPED),
    _scenario("copy_jobs", jobs, forgets=True),
    _scenario("copy_late", jobs),
    _scenario("copy_holed", jobs, holed=True, forgets=True),
    _scenario("copy_tail", tail, forgets=True, follows=6.0),
    _scenario("copy_recreated", recreated, follows=12.0),
    _scenario("copy_source_recreated", source_recreated, follows=12.0, changes=True),
)
