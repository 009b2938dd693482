"""Keeps a mirror's tail running in the foreground: started, started again when it dies, ended with this process.

The tail is a job of this host as Airflow's tasks start it (:class:`.local.LocalRunner`), so whoever keeps it may be
killed: the tail goes on, and the next one that keeps it finds it by its directory. A tail that runs elsewhere is never
deposed. Plain processes share with it, and one of them takes its place. Where one of both is a Spark job, it is left
alone, and looked at: when it is gone, this one begins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.common.news import News
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import InputError, JobFailed, JobNeedsHuman, LedgerLost, LedgerMissing, MirrorError
from airflow_mirror.jobs.runner.active import Watch, active_tail
from airflow_mirror.jobs.runner.local import TAIL, Handle, LocalRunner
from airflow_mirror.jobs.runner.place import PLAIN
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import SIGN
from airflow_mirror.ledger.state import state_of

_LOOK_EVERY_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0  # before a tail that died is started again
WELL_AFTER_S = 300.0  # a tail that ran for so long did not die of how it was started
_ELSEWHERE_EVERY_S = 10.0
_TELL_EVERY_S = 60.0
GRACE_S = 120.0  # to finish what is in flight; a broker that does not answer takes a minute


@dataclass(frozen=True)
class Kept:
    """How keeping a tail ended.

    :param status: 0 cleanly, 1 failed or had to be killed, 2 its input is wrong.
    """

    name: str
    status: int


def keep(
    runner: LocalRunner, spec: JobSpec, secrets: Callable[[], Mapping[str, ClientConfig]], stopping: threading.Event,
    say: Callable[[str], None], words: Callable[[Mapping[str, Any]], str], grace_s: float = GRACE_S, *,
    fail_fast: bool = False,
) -> Kept:  # fmt: skip
    """Keep a mirror's tail running until ``stopping`` is set, or nothing but a person can help; may take ``grace_s``.

    What was wrong input at its start is final. Behind a tail that ran well it is tried again for some minutes: a password
    may have been changed, and not be in its file yet.

    :param spec: of the tail. :param secrets: returns the settings of ``source`` and ``target``, for each start.
    :param say: tells a person what happened, one line: what lasts when it changes, and once an hour.
    :param words: says how far a tail is, by its last report.
    :param fail_fast: a tail that dies is not started again.
    """
    name, pause, news, is_told = str(spec.mirror["name"]), _FIRST_PAUSE_S, News(), True
    forgiven_until = float("-inf")
    while not stopping.is_set():
        begun = time.monotonic()
        try:
            settings = secrets()
            if (host := _elsewhere(runner, name, settings["target"])) is not None:
                _leave_alone(host, stopping, say, news)
                continue
            handle = runner.ensure_started(TAIL, spec, settings)
            runs = f"its tail runs; log: {handle['dir']}/log.txt"
            if is_told:
                say(runs)
            # A start after a failure that nobody was told of again is said once it has lasted.
            if _watched(runner, handle, stopping, say, words, "" if is_told else runs):
                break
            runner.raise_for(handle)
        except JobNeedsHuman as e:
            say(f"not started again: {e}")
            return Kept(name, 1)
        except (MirrorError, OSError) as e:  # a full disk, say: only the next start shows whether it has passed
            if (now := time.monotonic()) - begun > WELL_AFTER_S:
                pause, forgiven_until = _FIRST_PAUSE_S, now + WELL_AFTER_S
            if isinstance(e, InputError) and (fail_fast or now >= forgiven_until):
                say(f"not started again: {e}")
                return Kept(name, 2)
            if fail_fast:
                say(f"given up (--fail-fast): {e}")
                return Kept(name, 1)
            # A job's error has the number of its start in it, so that no two are alike.
            is_told = news.has(f"{pause} {e.cause if isinstance(e, JobFailed) else e}", time.monotonic())
            if is_told:
                say(f"started again in {pause:g} s: {e}")
            stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        else:
            say("its tail was asked to stop, and has ended")
            return Kept(name, 0)
    else:
        return Kept(name, 0)
    return _ended(runner, handle, name, say, grace_s)


def _elsewhere(runner: LocalRunner, name: str, target: ClientConfig) -> str | None:
    """Return the host of a tail that lives, is not the runner's, and shares with nobody here; None: there is none.

    May listen for half a minute.
    """
    handle = runner.find(TAIL)
    if handle is not None and runner.reaches(handle) and runner.status(handle) == RUNNING:
        return None
    with ClusterAdmin(target) as admin:
        try:
            tail = active_tail(Ledger(admin).values(), name)
        except (LedgerMissing, LedgerLost):
            return None  # nobody knows; the tail's own start says so
        if tail is not None and tail.deals and runner.place.name == PLAIN:
            return None  # `follow` shares, whether it lives or not
        if tail is None or Watch(state_of(admin, SIGN.below(name))).settled(tail) != RUNNING:
            return None
        return tail.host


def _leave_alone(host: str, stopping: threading.Event, say: Callable[[str], None], news: News) -> None:
    line = f"its tail runs already, on host {host}; it is left alone, and this one waits"
    if news.has(line, time.monotonic()):
        say(line)
    stopping.wait(_ELSEWHERE_EVERY_S)


def _watched(
    runner: LocalRunner, handle: Handle, stopping: threading.Event, say: Callable[[str], None],
    words: Callable[[Mapping[str, Any]], str], once_it_lasts: str,
) -> bool:  # fmt: skip
    """Return once the tail has ended, or ``stopping`` is set: then True."""
    looked, news = time.monotonic(), News()
    while not stopping.wait(_LOOK_EVERY_S):
        if runner.status(handle) != RUNNING:
            return False
        if (now := time.monotonic()) - looked > _TELL_EVERY_S:
            looked = now
            if once_it_lasts:
                say(once_it_lasts)
                once_it_lasts = ""
            if news.has(line := words(runner.progress(handle)), now):
                say(line)
    return True


def _ended(runner: LocalRunner, handle: Handle, name: str, say: Callable[[str], None], grace_s: float) -> Kept:
    asked = time.monotonic()
    clean, report = runner.cancel(handle, grace_s), runner.progress(handle)
    if clean and runner.status(handle) == SUCCEEDED:
        say("ended cleanly")
        return Kept(name, 0)
    if clean and not report.get("error") and report.get("phase", "starting") == "starting":
        say("ended while it was starting; it had copied nothing")
        return Kept(name, 0)
    killed = f"it did not end by itself, and was killed after {time.monotonic() - asked:.0f} s; nothing is lost"
    gone = f"it ended without a last word; its log: {handle['dir']}/log.txt"
    say(report.get("error") or (gone if clean else killed))
    return Kept(name, 1)
