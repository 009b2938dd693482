"""What looks at targets and at mirrors: one reader of each, in threads, while somebody asks."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from typing import Any

from airflow.models.connection import Connection
from airflow.sdk import conf
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_mirror.common.clock import SYSTEM, Clock
from airflow_mirror.console.status import View
from airflow_mirror.errors import InputError, LedgerMissing
from airflow_mirror.hooks.form import TYPES
from airflow_mirror.ledger.records import LAST_PLAN
from airflow_mirror.mirror import Mirror
from airflow_mirror.page.closely import ClientsLook, GroupsLook, MirrorLook, ReportsLook
from airflow_mirror.page.course import Courses, Seen
from airflow_mirror.page.look import Look
from airflow_mirror.page.rows import dag_in, row_of
from airflow_mirror.page.single import Single, Threads
from airflow_mirror.plan import ledger_store

FRESH_S = 3.0  # of a target
CLOSELY_FRESH_S = 10.0  # of one mirror: both clusters are asked, for some ten seconds
_CONNECTIONS_FRESH_S = 15.0
_FORGOTTEN_S = 300.0  # nobody asked for so long: its connections are closed
# For targets, for those that did not answer the last time, and for mirrors: nobody's closer look keeps the list
# waiting, nor do clusters that are away keep those waiting that answer.
_THREADS = 8, 2, 4


class TargetLook(Look):
    """What the ledger of one target says: ``mirrors``, ``newer``, or ``error`` with the mirrors as they were before.

    ``planned``: by name of all mirrors that were ever planned, also those that have not begun, the DAG that has planned
    it; None: it notes none. ``at``: when it was heard last; None: never.
    """

    def __init__(self, courses: Courses, clock: Clock, conn_id: str) -> None:
        super().__init__(conn_id)
        self._courses, self._clock = courses, clock
        self._view: View | None = None
        self._mirrors: list[dict[str, Any]] = []
        self._planned_ones: dict[str, str | None] = {}
        self._at: float | None = None
        self._plans: dict[str, tuple[str, Mirror | None]] = {}  # by mirror

    def __call__(self) -> dict[str, Any]:
        """Look."""
        before = {"mirrors": self._mirrors, "planned": self._planned_ones, "error": None, "at": self._at}
        return {"target_id": self.conn_id, **before, **self._told(self._look)}

    def _look(self) -> dict[str, Any]:
        if self._changed() or self._view is None:
            self._target = self._admin(self.conn_id, "target")
            self._view = View(self._target, self._clock)
        try:
            rows = self._view.rows()
        except LedgerMissing:
            rows = []  # a source, or a cluster that no mirror writes to
        self._mirrors = [row_of(self.conn_id, self._view, row, self._planned) for row in rows]
        self._planned_ones = {name: dag_in(self._view, name) for name in LAST_PLAN.under(self._view.values)}
        self._at = now = time.time()
        self._courses.see(self._mirrors, now)
        newer = sorted(self._view.newer)
        return {"mirrors": self._mirrors, "planned": self._planned_ones, "newer": newer, "at": now}

    def _planned(self, mirror: str, plan_hash: str) -> Mirror | None:
        if self._plans.get(mirror, ("",))[0] != plan_hash:
            try:
                found = ledger_store.fetch_rule(plan_hash, mirror, self._target).mirror
            except InputError:  # not kept, or not readable: the list does without
                found = None
            self._plans[mirror] = plan_hash, found
        return self._plans[mirror][1]


class Looks:
    """All looks of this process.

    :param fresh_s: for how long what a target said is not asked for again. :param closely_fresh_s: and of one mirror.
    :param clock: by which signs of life are listened for.
    """

    def __init__(
        self, fresh_s: float = FRESH_S, closely_fresh_s: float = CLOSELY_FRESH_S, clock: Clock = SYSTEM
    ) -> None:  # fmt: skip
        self._fresh_s, self._closely_fresh_s, self._clock = fresh_s, closely_fresh_s, clock
        self._targets, self._silent, self._mirrors = (Threads(most) for most in _THREADS)
        # In a thread of its own: each request waits for them, and targets that are away may take all others.
        self._ids = Single(target_ids, _CONNECTIONS_FRESH_S, Threads(1))
        self._lock = threading.Lock()  # guards which looks there are: each request is a thread of its own
        self._looks: dict[tuple[str, ...], tuple[Look, Single[dict[str, Any]]]] = {}
        self._courses = defaultdict[str, Courses](Courses)  # outlive the looks, which close their connections

    def targets(self, wait_s: float) -> list[dict[str, Any]]:
        """Return what each target said last; ``looking``: nothing yet, and ``wait_s`` are over.

        Nobody waits for one that did not answer the last time: it would take all of that of each request.
        """
        looking: dict[str, Any] = {"mirrors": [], "planned": {}, "error": None, "looking": True}
        if (ids := self._ids.get(wait_s)) is None:  # nobody knows yet which there are
            return [{"target_id": "", **looking}]
        makes = {one: partial(TargetLook, self._courses[one], self._clock, one) for one in ids}
        singles = [self._single(make, self._fresh_s, self._targets, one) for one, make in makes.items()]
        are_silent = [one.last is not None and one.last["error"] is not None for one in singles]
        reading = [one.begin(self._silent if it_is else None) for one, it_is in zip(singles, are_silent, strict=True)]
        wait([future for future, it_is in zip(reading, are_silent, strict=True) if not it_is], wait_s)
        self.forget()
        return [one.last or {"target_id": id_, **looking} for id_, one in zip(ids, singles, strict=True)]

    def mirror(self, conn_id: str, name: str, wait_s: float) -> dict[str, Any] | None:
        """Return what was found of a mirror last; None: nothing yet."""
        single = self._single(partial(MirrorLook, conn_id, name), self._closely_fresh_s, self._mirrors, conn_id, name)
        single.begin()  # it takes ten seconds: what there is is told while it goes on
        return single.last or single.get(wait_s)

    def groups(self, conn_id: str, name: str, wait_s: float) -> dict[str, Any] | None:
        """Return where a mirror's groups stood last, asked while somebody has unfolded one; None: nothing yet."""
        make = partial(GroupsLook, conn_id, name)
        return self._single(make, self._closely_fresh_s, self._mirrors, conn_id, name, "groups").get(wait_s)

    def clients(self, conn_id: str, name: str, wait_s: float) -> dict[str, Any] | None:
        """Return who reads and writes a mirror's topics, asked for this or a moment ago; None: not yet."""
        make = partial(ClientsLook, conn_id, name)
        single = self._single(make, self._closely_fresh_s, self._mirrors, conn_id, name, "clients")
        reading = single.begin()
        wait([reading], wait_s)
        return single.last if reading.done() else None  # nobody takes what was before for an answer

    def course(self, conn_id: str, mirror: str) -> list[Seen]:
        """Return what was seen of a mirror's figures for some hours; see :mod:`.course`."""
        return self._courses[conn_id].of(mirror)

    def reports(self, conn_id: str, mirror: str, wait_s: float) -> dict[str, Any] | None:
        """Return what a target said last of the reports of a mirror's cutovers; None: nothing yet."""
        make = partial(ReportsLook, conn_id, mirror)
        return self._single(make, self._fresh_s, self._mirrors, conn_id, mirror, "reports").get(wait_s)

    def _single(self, make: Callable[[], Any], fresh_s: float, threads: Threads, *key: str) -> Single[dict[str, Any]]:
        with self._lock:
            if (found := self._looks.get(key)) is None:
                look = make()
                found = self._looks[key] = look, Single(look, fresh_s, threads)
            found[1].asked = time.monotonic()  # about to be: until then, what is handed out is not forgotten
            return found[1]

    def forget(self, asked_s_ago: float = _FORGOTTEN_S) -> None:
        """Close the connections of what nobody has asked for since."""
        with self._lock:
            now = time.monotonic()
            over = [key for key, (_, one) in self._looks.items() if now - one.asked >= asked_s_ago and one.rests]
            left = [self._looks.pop(key)[0] for key in over]
        for look in left:  # not with the lock: that may take a moment, and each request needs it
            look.close()


def target_ids() -> list[str]:
    """Return the ids of the connections that may lead to targets: ``[mirror] targets``, or all that lead to clusters."""
    named = str(conf.get("mirror", "targets", fallback="") or "").replace(",", " ").split()
    if named:
        return named
    with create_session() as session:
        return sorted(session.scalars(select(Connection.conn_id).where(Connection.conn_type.in_(TYPES))))
