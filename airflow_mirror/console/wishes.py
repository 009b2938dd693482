"""``airflow-mirror pause``, ``resume`` and ``rate``: what a mirror's copy is to do, whoever carries it out."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from time import monotonic, sleep
from typing import Any

from airflow_mirror.console.clusters import add_target, target_of
from airflow_mirror.console.command import add_json, add_mirror, command
from airflow_mirror.console.request import unknown_mirror
from airflow_mirror.errors import InvalidField, TryAgain
from airflow_mirror.jobs.runner.active import JobId, Watch, active_tail, heard_by, said
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.jobs.runner.wishes import Wish, Wishes, wish
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import BULK, WISH_LOOK
from airflow_mirror.ledger.state import State, state_of
from airflow_mirror.plan.ownership import mirrors

_PAUSE = """\
Pause a mirror: its tail, or the bulk copy that runs, ends what is in flight, copies nothing, and stays ready, on whatever
host; waited for. This holds until 'resume', also for a tail that is started meanwhile. A bulk copy that is started,
catch-up sensors and cutovers of the mirror are refused then, and say who paused it.

Groups and settings go on following, groups up to what was copied. Records that the source deletes during the pause are
lost to the mirror: the tail names them when it is resumed.

Exit status: 0 nothing is copied; 1 the pause stands, and a job does not rest yet; 2 wrong input.
"""
_RESUME = """\
Let a paused mirror copy again, from where it was.
"""
_RATE = """\
Change a mirror's largest average rate. A tail or a bulk copy that runs copies at it within seconds, one that is started
later from its start. It holds for every job of the mirror, whatever its max_bytes_per_second says, until 'default'.
"""
_EVERY_S = 1.0
_PATIENCE_S = 60.0  # a job ends what is in flight; a large transaction takes its time


def add(commands: Any) -> None:
    """Add the commands."""
    for name, text in (
        ("pause", _PAUSE),
        ("resume", _RESUME),
        ("rate", _RATE),
    ):
        example = f"\nexamples:\n  airflow-mirror {name} --target dst.properties --mirror dc1-to-dc2"
        p = command(commands, name, text + example + (" 20000000" if name == "rate" else ""), _run)
        add_target(p)
        add_mirror(p)
        add_json(p, "what is wished now, and of the jobs")
        p.set_defaults(verb=name)
    p.add_argument(
        "rate", metavar="BYTES|none|default",
        help="bytes per second, of all its tasks together; none: no limit; default: as the Mirror says",
    )  # fmt: skip


def _run(arguments: argparse.Namespace) -> None:
    name, verb = arguments.mirror, arguments.verb
    rate = _rate(arguments.rate) if verb == "rate" else None
    with target_of(arguments) as target:
        ledger, state = Ledger(target), state_of(target, *heard_by(name))
        values = ledger.values()
        known = mirrors(values)
        if name not in known:
            raise unknown_mirror(name, known)
        before = Wishes.of(state.read(), name)
        if verb == "rate":
            wish(state, name, "rate", rate)
        elif verb == "resume":
            wish(state, name, "pause", None)
        elif before.pause is None:  # who paused first, and since when, stays
            wish(state, name, "pause", Wish.now())
        tail = active_tail(values, name)
        jobs = [*(() if tail is None else (tail,)), *said(BULK, state.read(), name)]
        found = {one.job: (one, _settled(state, one)) for one in jobs}
        _tell(arguments, Wishes.of(state.read(), name), list(found.values()))


def _settled(state: State, job: JobId) -> str:
    """Return how a job is: RESTS, once it does, if that is what is wished of it and it runs."""
    watch = Watch(state, look=WISH_LOOK)  # who may wish may write nothing else
    found, asked = watch.settled(job), monotonic()
    wished = Wishes.of(state.read(), job.name)
    while wished.pause is not None and (found := watch.status(job)) == RUNNING:
        sign = watch.sign(job)
        if sign is not None and (sign.phase, sign.heard) == ("paused", asdict(wished)):
            return "RESTS"
        if monotonic() - asked > _PATIENCE_S:
            waited = monotonic() - asked
            raise TryAgain(
                f"mirror {job.name!r} is paused, but its {_what(job)} on host {job.host!r} still copies after "
                f"{waited:.0f} s",
                remedy="It may have to finish a large batch: run the command again, which waits once more. If it never "
                "rests, it does not reach the target: stop it (StopMirrorOperator; a bulk copy ends with its task).",
            )
        sleep(_EVERY_S)
    return found


def _what(job: JobId) -> str:
    return "bulk copy" if job.bulk else "tail"


def _tell(arguments: argparse.Namespace, wishes: Wishes, jobs: list[tuple[JobId, str]]) -> None:
    alive = [(one, status) for one, status in jobs if status in ("RESTS", RUNNING)]
    if arguments.json:
        tails = [(one, status) for one, status in jobs if not one.bulk]
        tail, status = tails[0] if tails else (None, "none")
        bulk = [{"host": one.host, "state": status.lower()} for one, status in alive if one.bulk]
        found = {"tail": status.lower(), "host": None if tail is None else tail.host, "bulk_copies": bulk}
        print(json.dumps({"mirror": arguments.mirror, **asdict(wishes), **found}, indent=1))
        return
    print(f"{arguments.mirror}: {'; '.join(wishes.lines()) or 'no pause, and the rate of the Mirror'}")
    for one, status in alive:
        print(f"its {_what(one)} on host {one.host} {'rests' if status == 'RESTS' else 'follows within seconds'}")
    if not alive:
        print("nothing copies for it now: a job that is started keeps to it")


def _rate(text: str) -> Wish | None:
    """Return the wish for a rate; None for the Mirror's own."""
    if text == "default":
        return None
    if text == "none":
        return Wish.now()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidField("rate", text, "not a rate", "Give bytes per second such as 20000000, or none, or default.")
    return Wish.now(int(text))
