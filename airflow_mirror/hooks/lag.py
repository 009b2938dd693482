"""One sample of a mirror's lag, with its settings from Airflow. Used by the sensor and by its trigger."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import JobNotRunning
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.kafka.held import named
from airflow_mirror.sync import lag

if TYPE_CHECKING:
    from airflow_mirror.mirror import Mirror
    from airflow_mirror.plan import Plan
    from airflow_mirror.sync.maps import OffsetMaps


log = logging.getLogger(__name__)

_NAMED = 5  # what waits for a transaction


class LagProbe:
    """Samples a mirror's lag and checks its tail. Keeps its connections between samples.

    :param plan: the plan that the mirror executes. What has joined it since is looked at as well, from the next look on.
    :param require_tail: whether it is an error if no tail runs.
    """

    def __init__(self, mirror: Mirror, plan: Plan, require_tail: bool = True) -> None:
        from airflow_mirror.hooks.kafka import configs_of
        from airflow_mirror.kafka.admin import ClusterAdmin
        from airflow_mirror.ledger.decisions import Ledger

        self._mirror, self._require_tail = mirror, require_tail
        self._plan = plan
        self._view: TailView | None = None
        self._course = lag.Course()
        configs = configs_of(mirror)
        self._source, self._target = ClusterAdmin(configs["source"]), ClusterAdmin(configs["target"])
        self._ledger = Ledger(self._target)
        self._maps = self._maps_of(self._plan)

    def _maps_of(self, plan: Plan) -> OffsetMaps:
        from airflow_mirror.sync.maps import OffsetMaps

        return OffsetMaps(plan, self._source.config, self._target.config)

    def close(self) -> None:
        """Close the connections."""
        self._maps.close()
        self._source.close()
        self._target.close()

    @property
    def seen(self) -> dict[str, Any]:
        """All samples, for a cutover's report: the ``mirror``, and its ``course`` (:class:`.sync.lag.Course`)."""
        return {"mirror": self._mirror.name, "course": self._course.rows}

    def look(self, judge: lag.CatchUp, now_s: float) -> tuple[bool, dict[str, Any]]:
        """Return whether the mirror has caught up with what is committed, the lag in figures, and what is not in it.

        Where the tail must run, it has caught up once its tail has given a sign: five seconds more at most.

        :param now_s: seconds of a monotonic clock.
        :raises JobNotRunning: the tail does not run; JobNeedsHuman and others: the tail reported a cause.
        :raises MirrorPaused: the mirror is paused, and the tail must run.
        :raises NeedsHuman: names the partitions. :raises TryAgain: the source has not all of the plan's topics.
        :raises LedgerLost: nobody knows what has joined the plan.
        """
        lives = not self._require_tail or self._is_tail_sure()
        self._amend()
        lags = self.lags()
        self._course.add(time.time(), lags)
        self.require_planned_topics()
        # A tail that died hours ago counts as running until an observer has heard thirty seconds of silence.
        done, found = judge.look(lags, now_s) and lives, lag.summary(lags)
        if judge.held:
            found["open_transactions"] = [str(one) for one in named(self._source, judge.held[:_NAMED])]
            if done:
                told = self._mirror.name, "; ".join(found["open_transactions"])
                log.warning("%s has caught up with what is committed. Not with the log: %s", *told)
        return done, found

    def lags(self) -> list[lag.PartitionLag]:
        """Return the lag of each partition. :raises TryAgain: the source does not list all of the plan's topics."""
        found = lag.measure(self._plan, self._source, self._target, self._maps.positions if self._maps else None)
        lag.require_whole(self._plan, found)
        return found

    def require_planned_topics(self) -> None:
        """Return if the source still has each topic of the plan. Errors as :func:`.sync.lag.require_planned_topics`."""
        lag.require_planned_topics(self._plan, self._source)

    def _amend(self) -> None:
        """Take in what the tail has added to the plan: a topic that has just appeared is the one that is behind."""
        from airflow_mirror.plan.ledger_store import with_amendments

        plan = with_amendments(self._plan, self._target, self._ledger)
        if plan.revision == self._plan.revision:
            return
        log.info("%s: topics have joined its plan, which is now revision %s", plan.mirror.name, plan.revision[:12])
        self._maps.close()
        self._plan, self._maps = plan, self._maps_of(plan)

    def _is_tail_sure(self) -> bool:
        """Return whether the tail is known to live; False: nothing else is known yet. Errors as :meth:`look`."""
        self._view = self._view or TailView(self._target, self._mirror.name)
        tail = self._view.tail()
        self._view.require_not_paused()
        status = "never started" if tail is None else self._view.status(tail)
        if tail is not None and state.is_active(status):
            return self._view.is_sure(tail)
        if tail is not None:
            self._view.raise_for(tail)
        raise JobNotRunning(TAIL, status, "Run the task that starts it (StartMirrorOperator, mode='tail') again.")
