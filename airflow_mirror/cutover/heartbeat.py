"""Whether the process of a cutover lives, on any host: nobody may lift the fence of one that is at work.

It gives signs in the target's ledger, as a tail does (:mod:`airflow_mirror.jobs.runner.active`), under the name that its
report holds. A lock on a file would tell only its own host. Producers are kept out meanwhile, so it gives them more often
than a tail, and counts as dead earlier. That may be wrong: one that was only frozen, and wakes up, finds what was decided
about its fence (:mod:`.decision`).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.decision import FenceState
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import CutoverRunning, MirrorError
from airflow_mirror.jobs.runner import cutover_signs
from airflow_mirror.jobs.runner.active import Heartbeat, JobId, Watch, process_of
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import FENCE, SIGN
from airflow_mirror.ledger.state import state_of

_LOG = logging.getLogger("airflow_mirror.cutover")
# Six signs fit into the silence. Behind a fence seconds count, and still an election (nine) must not pass for a death.
SIGN_EVERY_S = 2.0
SILENCE_S = cutover_signs.SILENCE_S
_PATIENCE_S = 5.0  # for one sign
_at_work = set[str]()  # jobs of this process, of which nobody has to be asked


def owner_of(mirror: str, process: Mapping[str, Any]) -> JobId:
    """Return the process of a cutover, as its fence has it. :raises LedgerNewer: it does not say which one that is."""
    try:
        return process_of(JobId, process, name=mirror)
    except KeyError as e:
        raise FENCE.unread(process, mirror) from e


@contextmanager
def signs_of_life(target: ClientConfig, report: CutoverReport) -> Iterator[None]:
    """Name this process in a report, and give signs in a thread of its own until the block ends."""
    # Another job for each call, also in one process: a retry is not heard in the place of the attempt that it takes over.
    me = JobId(name=report.mirror)
    # Named before the fence is decided: the record holds it, and whoever finds the fence listens for this very job.
    report.process = {name: getattr(me, name) for name in ("host", "where", "pid", "started", "job")}
    over = threading.Event()

    def give() -> None:
        with ClusterAdmin(target) as admin:
            # Connections of its own: a sign must not wait for what the cutover waits for.
            heartbeat = Heartbeat(state_of(admin, SIGN.below(me.name), patience_s=_PATIENCE_S), me)
            while True:
                last = over.is_set()
                try:
                    heartbeat.give(SUCCEEDED if last else RUNNING, phase=cutover_signs.PHASE)
                # A sign that can't be given is the target's silence, which observers don't count, since they could not
                # write either. The cutover goes on: whether it may act is asked at each effect.
                # Any other error ends this thread, and silence follows: a guard decides to lift, and the cutover's next
                # permit refuses.
                except MirrorError as e:
                    _LOG.warning("no sign of life in the target's ledger, and the cutover goes on: %s", e)
                # The last sign says that it has ended. Dies before it: silence says the same, some seconds later.
                if last:
                    return
                over.wait(SIGN_EVERY_S)

    thread = threading.Thread(target=give, name="signs", daemon=True)
    # Before the first sign: who asks in this very process must not listen for itself.
    _at_work.add(me.job)
    thread.start()
    try:
        yield
    finally:
        _at_work.discard(me.job)
        # The guard's pipe is closed by now (`run.run_cutover`): it hears this sign, looks whether a fence stands, and
        # goes or stays.
        over.set()
        # The last sign is given before this process can end: without it guards would listen for 12 s to find what they
        # know.
        thread.join()


def require_over(watch: Watch, mirror: str, fence: FenceState) -> None:
    """Return if the process of an attempt has ended, or is frozen; may listen for :data:`SILENCE_S`.

    :param watch: as :meth:`.platform.Side.watch_cutover`. :param fence: that it has raised.
    :raises CutoverRunning: it lives.
    :raises TryAgain: of another type: the target can't be asked.
    """
    # A source that returned, for whose fence nobody gives signs. Who stands by there is refused by its permits, and by
    # nothing else.
    if not fence.process:
        return
    one = owner_of(mirror, fence.process)
    # An earlier attempt in this process: its work is over, and nobody else can be it. No need to listen while producers
    # wait.
    if one.is_here and one.pid == os.getpid() and one.job not in _at_work:
        return
    # By signs, although a process on this host could be seen: one that is frozen is there, and raises no hand.
    if watch.settled(one, by_signs=True) == RUNNING:
        raise CutoverRunning(f"on host {one.host}; it gives signs of life")
