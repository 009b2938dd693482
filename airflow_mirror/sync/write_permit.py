"""The right to write what follows the data: a lease that was confirmed seconds ago, until somebody says stop.

Only the mirror's writer may write it: of group positions, say, a second one would take the first one's for foreign. And
whoever ends the writing, as a cutover does, sets them himself. A process may be frozen at any line, so the right is
checked right before the bytes of each request go to the kernel, and nothing is set later than :data:`lease.VALID_S`
after a confirmed request. A cutover and a new job wait that long after they took the lease.

What is left is a process that is frozen between that check and the system call behind it, or whose bytes the network
delivers late. It may set the positions of that one request, as they were when it was frozen. Kafka refuses them where the
group has members. Where it has none, a job that runs meanwhile finds a position that is not its own, and reports it
(ADR 18; ADR 37 says why no transaction fences it). Of deleted records ADR 22 says the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.copy.writer.lease_watch import LeaseProof
from airflow_mirror.errors import TryAgain
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.wire.cluster import WireCluster


class Stopped(TryAgain):
    """Nothing more is to be written."""


class WritePermit:
    """See the module.

    :param token: returns the lease: a driver may take its own again.
    """

    def __init__(self, token: Callable[[], LeaseToken]) -> None:
        self._token = token
        self._proof: LeaseProof | None = None
        self._ended = threading.Event()
        self.writing = threading.Lock()  # held by whoever writes

    def confirm(self, target: WireCluster) -> None:
        """Ask the coordinator whether the lease is still ours.

        :raises LeaseLost: it is not. :raises LeaseUnconfirmed: nobody knows. :raises Stopped: see :meth:`end`.
        """
        token = self._token()
        if self._proof is None or self._proof.token != token:
            self._proof = LeaseProof(target, token)
        self._proof.confirm()
        self.check()

    def check(self) -> None:
        """Return if something may be written now, without asking anybody; errors as above."""
        self.require_going()
        assert self._proof is not None
        self._proof.check()

    def require_going(self) -> None:
        """Return unless it has ended: who is only reading may stop. :raises Stopped: it has."""
        if self._ended.is_set():
            raise Stopped("the job ends, and what follows the data is no longer written")

    @contextmanager
    def granted(self, target: WireCluster) -> Iterator[Permit]:
        """Confirm it, and hold it while the block writes; yields :meth:`check`. Errors as of :meth:`confirm`."""
        self.confirm(target)
        with self.writing:
            self.check()
            yield self.check

    def end(self) -> None:
        """End it for good. When this returns, nothing is being written, and nothing will be."""
        self._ended.set()
        with self.writing:
            pass
