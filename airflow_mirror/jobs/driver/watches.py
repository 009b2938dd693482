"""What a tail's driver watches while it copies, and what would be a reason to end."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_mirror.common.closing import Closing
from airflow_mirror.config import load
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import AuthenticationFailed
from airflow_mirror.jobs.driver.held_lease import HeldLease
from airflow_mirror.jobs.driver.prepare import CopyJob
from airflow_mirror.jobs.runner.complaints import Complaints
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.finite_hold import FiniteHold
from airflow_mirror.sync.hold import HoldWatch
from airflow_mirror.sync.loops import LoopWatch
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0  # for a decision, of which nothing depends on how soon it is made


class Watches(Closing):
    """That the target's topics stay on hold, and that no record returns to where it comes from.

    A context manager, which closes the connections. For one thread.

    :param gone: source topics that are not copied any more, and why; part of the job's notes.
    :ivar hold: see :class:`HoldWatch`.
    """

    def __init__(self, job: CopyJob, held: HeldLease, status: StatusFile, gone: Mapping[str, str]) -> None:
        target = load(job.target, "target")
        self._status, self._gone = status, gone
        self._outlives = job.outlives
        self._refused = Complaints(log, "what is watched beside the copy was not looked at: %s")
        self._wire, self._target = WireCluster(target), ClusterAdmin(target)
        self._source = ClusterAdmin(load(job.source, "source"))
        self.hold = HoldWatch(job.plan, self._target, lambda: lease.confirm(self._wire, held.token), ids=job.target_ids)
        self._finite = FiniteHold(job.plan, self._source)
        self._loops = LoopWatch(
            job.plan, Ledger(self._source).peek, Ledger(self._target, _PATIENCE_S), self._target, ids=job.target_ids
        )

    def look(self) -> None:
        """Look at what it is time to look at. Call it often.

        :raises NeedsHuman: somebody else sets a topic's settings back, or the mirror is part of a ring.
        :raises HoldTooShort: the hold is about to end before the source's records do.
        :raises AuthenticationFailed: a cluster refuses the login, and nobody can tell this job another one.
        """
        try:
            self._look()
        except AuthenticationFailed as e:
            if not self._outlives(e):
                raise
            self._refused.of(e)  # what was copied is not in doubt; the next look reads the settings again

    def _look(self) -> None:
        self._finite.look_in_turn()
        if self.hold.look_in_turn():
            self.tell()
        self._loops.look_in_turn()

    def follow(self, job: CopyJob) -> None:
        """Watch the topics of this job from now on."""
        self.hold.follow(job.plan, job.target_ids)
        self._finite.follow(job.plan)
        self._loops.follow(job.plan, job.target_ids)

    def tell(self) -> None:
        """Write the job's notes anew."""
        # The last ones are shown. Topics that are gone, which only become more, stand in the report about topics as well.
        self._status.update(notes=[*self._gone.values(), *self.hold.notes])

    def close(self) -> None:
        """Close the connections."""
        for connections in (self._wire, self._target, self._source):
            connections.close()
