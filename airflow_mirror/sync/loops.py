"""Watch that no record returns to a cluster that it came from, while a tail runs.

Plans that are made at the same time don't see each other: each of a ring of mirrors may have been allowed. Each tail says
on its target where its records come from, and says so again when its source's ledger names other clusters. So every
cluster of the ring gets around it, one tail further with each look, until one meets its own target.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from airflow_mirror.errors import LedgerLost, LedgerMissing, LedgerNewer, MissingRight, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.upstream import Upstream, upstream_of

log = logging.getLogger(__name__)

EVERY_S = 10.0  # a ring of n tails is stopped after at most n looks: one of five within a minute


class LoopWatch:
    """Looks where a plan's records come from. For one thread.

    :param read_source: returns what the source's ledger says, nothing if it has none.
    :param ledger: of ``target``.
    :param clock: monotonic, in seconds.
    :param ids: see :func:`.ownership.claim`.
    """

    def __init__(
        self, plan: Plan, read_source: Callable[[], Values], ledger: Decisions, target: ClusterAdmin,
        clock: Callable[[], float] = time.monotonic, ids: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._ids = ids
        self._plan, self._read_source, self._ledger, self._target = plan, read_source, ledger, target
        self._clock = clock
        self._looked = float("-inf")
        self._said: Upstream | None = None

    def follow(self, plan: Plan, ids: Mapping[str, str] | None = None) -> None:
        """Look where this plan's records come from, from now on."""
        self._plan, self._ids, self._said = plan, ids, None

    def look_in_turn(self) -> None:
        """Look if it is time; see :meth:`look`."""
        if self._clock() - self._looked >= EVERY_S:
            self._looked = self._clock()
            self.look()

    def look(self) -> None:
        """Look once, and say on the target where the records come from if that has changed.

        Copying does not wait for a ledger: where one can't be read or written now, the next look tries again.

        :raises NeedsHuman: records would return to the target.
        :raises TopicsOwned: topics belong to another mirror. :raises MirrorCutOver: topics are in production.
        """
        try:
            found = upstream_of(self._plan, self._read_source())
            if found != self._said:
                claim(self._ledger, self._plan, self._target, found.of, self._ids)
                self._said = found
        except (TryAgain, LedgerLost, LedgerMissing, LedgerNewer, MissingRight) as e:
            log.warning("it is not known whether records return to the target: %s", e)
