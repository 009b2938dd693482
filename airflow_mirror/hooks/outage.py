"""Looks, again and again, whether a mirror has an outage. Only its target is asked, so any host that reaches that can."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_mirror.hooks.kafka import MirrorKafkaHook
from airflow_mirror.hooks.tail import TailView
from airflow_mirror.mirror import Mirror

if TYPE_CHECKING:
    from airflow_mirror.cutover.failover.outage import Outage


class OutageProbe:
    """Asks a target about one of its mirrors. Not for two threads at once; after an error make another one.

    :param target: connection. :param mirror: the mirror's name.
    :param lost_after_s: see :func:`.outage.source_lost`.
    :param unhealthy: also whether its tail says, or what became of it, that the mirror is not well.
    """

    def __init__(self, target: str, mirror: str, lost_after_s: float, unhealthy: bool) -> None:
        from airflow_mirror.cutover.platform import Side
        from airflow_mirror.sync.ends import notes

        self._mirror, self._lost_after_s, self._unhealthy = mirror, lost_after_s, unhealthy
        self._admin = MirrorKafkaHook(target, "target").admin()
        self._on = Side(self._admin)
        self._noted = self._on.state(notes.prefix(mirror))

    def look(self) -> Outage | None:
        """Return what is wrong now; None: nothing. Errors as :func:`.outage.source_lost`."""
        from airflow_mirror.cutover.failover.outage import source_lost

        lost = source_lost(self._on, self._noted, self._mirror, self._lost_after_s)
        return self._ill() if lost is None and self._unhealthy else lost

    def _ill(self) -> Outage | None:
        """Judge as CheckMirrorOperator and the page do, as far as the target alone tells. No tail, no judgement."""
        from airflow_mirror.cutover.failover.outage import UNHEALTHY, Outage
        from airflow_mirror.jobs.health.judging import OF_THE_TAIL, Facts, Limits, judge
        from airflow_mirror.plan.findings import BLOCK

        view = TailView(self._admin, self._mirror)
        tail = view.tail()
        facts = None if tail is None else view.look(Mirror.from_dict(dict(tail.mirror)))
        if facts is None or facts.ended:
            return None
        facts = replace(facts, differing=())  # from itself: an older version noted fewer fields
        wrong = [str(one) for one in judge(Facts(tail=facts), Limits(), OF_THE_TAIL) if one.level == BLOCK]
        return Outage(what=UNHEALTHY, since_ms=int(time.time() * 1000), evidence="; ".join(wrong)) if wrong else None

    def close(self) -> None:
        """Close its connections."""
        self._admin.close()
