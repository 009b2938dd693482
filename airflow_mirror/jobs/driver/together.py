"""Several tails in one process, each of a mirror and under a lease of its own: a dead source stops nothing but its own.

The first MirrorMaker and the Go mirror maker read several sources into one target like that.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar

from airflow_mirror.common.signals import pause, stop_by_signals
from airflow_mirror.copy.results import summarise
from airflow_mirror.errors import AuthenticationFailed, ClusterUnreachable, InputError, MirrorError, TryAgain
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.driver.entry import Outcome
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.keeping import WELL_AFTER_S
from airflow_mirror.wire.errors import StoppedByQuota

log = logging.getLogger(__name__)

T = TypeVar("T")
FollowOne = Callable[[TailRequest], Outcome]
"""Follows one source until the event is set with which it was made."""

_AGAIN_S = 10.0


def follow_together(
    jobs: Mapping[str, TailRequest], of_several: Callable[[threading.Event], AbstractContextManager[FollowOne]]
) -> int:
    """Follow all sources until SIGTERM or SIGINT; print one summary of all, and return the exit status.

    One that ends because of what may pass is begun again. One that only a person can help ends alone.

    :param jobs: the arguments of each, by the mirror's name.
    :return: 0 all ended cleanly; 1 one failed, or had failed for good when it was stopped; 2 wrong input, of all of them.
    """
    entry.log_to_stderr()
    stopping = threading.Event()
    stop_by_signals(stopping)
    try:
        with of_several(stopping) as one, ThreadPoolExecutor(len(jobs)) as pool:
            running = {
                name: pool.submit(_keep_one, name, partial(one, job), stopping, () if job.fail_fast else TryAgain)
                for name, job in jobs.items()
            }
            ended = {name: future.result() for name, future in running.items()}
    except MirrorError as e:  # what they share: none of them has begun
        print(f"error: {e.lines}", file=sys.stderr)
        return 2 if isinstance(e, InputError) else 1
    for name, (_, error) in ended.items():
        if error is not None:
            print(f"error: {name}: {error.lines}", file=sys.stderr)
    print(json.dumps({"mirrors": {name: summary for name, (summary, _) in ended.items()}}), flush=True)
    errors = [error for _, error in ended.values() if error is not None]
    wrong = [error for error in errors if isinstance(error, InputError)]
    return 0 if not errors else 2 if len(wrong) == len(ended) else 1


def _keep_one(
    name: str, follow: Callable[[], Outcome], stopping: threading.Event, again: type[MirrorError] | tuple[()]
) -> Outcome:  # fmt: skip
    summary, error = keep(name, follow, stopping, again)
    if error is not None and not stopping.is_set():
        log.error("%s has ended, the others go on: %s", name, error)
    return summary, error


def waited_for(fail_fast: bool | None) -> type[MirrorError] | tuple[()]:
    """Return what a tail of its own is begun again after (:func:`keep`): clusters that are away, and nothing else."""
    return () if fail_fast else ClusterUnreachable


def until_there(name: str, ask: Callable[[], T], again: type[MirrorError] | tuple[()]) -> T:
    """Return an answer that needs clusters, once they are there.

    The caller has called :func:`.stop_by_signals`: while nobody hears, a signal ends the process where it stands.

    :param again: after which errors it is asked again. :raises NotBegun: a signal came meanwhile.
    """
    said = _complaints(name)
    while True:
        try:
            return ask()
        except MirrorError as e:
            if not isinstance(e, again):
                raise
            said.of(e)
            if not pause(_AGAIN_S):
                raise entry.NotBegun from None


def _complaints(name: str) -> Complaints:
    return Complaints(log, f"{name} begins again every {_AGAIN_S:.0f} s: %s", each_change=True)


def keep(
    name: str, follow: Callable[[], Outcome], stopping: threading.Event, again: type[MirrorError] | tuple[()]
) -> Outcome:  # fmt: skip
    """Follow a source until stopped; return how it ended.

    :param again: after which errors it is begun again: () after none. Else also after a login that was refused, for some
        minutes once it has run well: a password that was changed may not be in its file yet.
    """
    said, forgiven_until = _complaints(name), float("-inf")
    while True:
        begun = time.monotonic()
        try:
            summary, error = follow()
        except StoppedByQuota as e:  # nothing was begun
            log.info("%s", e)
            return summarise([], 0.0), None
        except MirrorError as e:
            summary, error = {}, e
        if error is None:
            log.info("%s has ended, as it was asked to", name)
            return summary, error
        now = time.monotonic()
        if now - begun > WELL_AFTER_S:
            forgiven_until = now + WELL_AFTER_S
        is_forgiven = bool(again) and isinstance(error, AuthenticationFailed) and now < forgiven_until
        if not (is_forgiven or isinstance(error, again)):
            return summary, error
        said.of(error)
        if stopping.wait(_AGAIN_S):
            return summary, error


def keep_alone(name: str, follow: Callable[[], Outcome], stopping: threading.Event, fail_fast: bool | None) -> Outcome:
    """Follow the only source of a process until stopped; return how it ended. Who only waited for a cluster ends well.

    Beside others one is named that was never reached: they would make the whole look well.
    """
    summary, error = keep(name, follow, stopping, waited_for(fail_fast))
    only_waited = stopping.is_set() and isinstance(error, ClusterUnreachable) and not summary
    return (summarise([], 0.0), None) if only_waited else (summary, error)
