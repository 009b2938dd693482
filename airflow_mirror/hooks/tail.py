"""The mirror's tail as the target's ledger knows it: from any worker, whatever host it runs on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_mirror.errors import InputError, LedgerMissing, MirrorError
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.local import TAIL
from airflow_mirror.jobs.runner.status import error_of

if TYPE_CHECKING:
    from airflow_mirror.jobs.health.judging import TailFacts
    from airflow_mirror.jobs.runner.active import ActiveTail, Sign
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.mirror import Mirror

log = logging.getLogger(__name__)


class TailView:
    """Looks at the tail of one mirror. Keep it while looking: silence takes time. Belongs to one thread.

    :param target: connections to the target; the caller closes them.
    :param lost: the ``ended`` of another view, which has listened for that tail; it is lost until it gives another sign.
    :ivar ended: the tail that :meth:`living` has found to have ended, or to be lost, and its last sign; empty for none.
    """

    def __init__(self, target: ClusterAdmin, mirror: str, lost: str = "") -> None:
        from airflow_mirror.jobs.runner.active import Watch, heard_by
        from airflow_mirror.ledger import decisions
        from airflow_mirror.ledger import state as ledger_state

        self._mirror, self._target, self.ended = mirror, target, ""
        self._ledger = decisions.Ledger(target)
        self._state = ledger_state.state_of(target, *heard_by(mirror))
        self._watch = Watch(self._state, lost=lost)

    def tail(self) -> ActiveTail | None:
        """Return the tail that is decided to copy; None if none ever was.

        :raises LedgerMissing: there is no ledger. :raises LedgerLost: nobody knows.
        """
        from airflow_mirror.jobs.runner.active import active_tail

        return active_tail(self._ledger.values(), self._mirror)

    def living(self) -> ActiveTail | None:
        """Return the tail if it lives. Takes up to five seconds for one that does, thirty for one that fell silent."""
        tail = self.tail()
        if tail is None or self._watch.settled(tail) == state.RUNNING:
            return tail
        self.ended = self._watch.seen
        return None

    def is_writing_ended(self) -> bool:
        """Return whether a cutover, say, has ended all writing: a tail that lives ends then, and copies no more."""
        from airflow_mirror.copy.writer import lease

        return lease.is_writing_ended(self._target.wire, self._mirror)

    def source_id(self, tail: ActiveTail) -> str:
        """Return the id of the cluster that a tail copies from, as its plan says.

        :raises PlanNotKept: the target does not have the plan any more.
        """
        from airflow_mirror.plan import ledger_store

        return ledger_store.fetch_rule(tail.plan, self._mirror, self._target).source_cluster_id

    def status(self, tail: ActiveTail) -> str:
        """Return RUNNING, SUCCEEDED, FAILED or LOST, as far as is known by now. Errors as :meth:`Watch.status`."""
        return self._watch.status(tail)

    def is_sure(self, tail: ActiveTail) -> bool:
        """Return whether a tail whose :meth:`status` is RUNNING is known to live, as :meth:`Watch.is_sure`."""
        return self._watch.is_sure(tail)

    def sign(self, tail: ActiveTail) -> Sign | None:
        """Return the last sign that it gave."""
        return self._watch.sign(tail)

    def look(self, mirror: Mirror) -> TailFacts:
        """Return what the target knows of the tail, and how it differs from ``mirror``. Takes as long as :meth:`living`.

        A target without a ledger knows of none. :raises LedgerLost: nobody knows.
        """
        from airflow_mirror.jobs.health.judging import TailFacts
        from airflow_mirror.jobs.runner.wishes import Wishes
        from airflow_mirror.plan.owned import ended_by

        try:
            tail = self.living() or self.tail()
        except LedgerMissing:
            tail = None
        pause = Wishes.of(self._state.read(), self._mirror).pause
        if tail is None:
            return TailFacts(pause=pause)
        status, sign, ended = self.status(tail), self.sign(tail), ended_by(self._ledger.values(), self._mirror)
        return TailFacts(
            active=tail, status=status, sign=sign, pause=pause, differing=tail.differing(mirror), ended=ended
        )

    def require_not_paused(self) -> None:
        """Return unless the mirror is paused. :raises MirrorPaused: it is."""
        from airflow_mirror.jobs.runner.wishes import require_not_paused

        require_not_paused(self._state, self._mirror)

    def ask_to_stop(self, tail: ActiveTail, by: str) -> None:
        """Ask it to stop; it sees that within two seconds. :raises TryAgain: the target can't be written to."""
        from airflow_mirror.jobs.runner.active import ask_to_stop

        ask_to_stop(self._state, tail.name, tail.job, by)

    def raise_for(self, tail: ActiveTail) -> None:
        """Raise if it ended without success; the error's branch is that of its own error.

        :raises InputError: its input was wrong. :raises JobNeedsHuman: data are not what they must be.
        :raises JobFailed: anything else, its silence included.
        """
        status = self.status(tail)
        if state.is_active(status) or state.is_succeeded(status):
            return
        sign = self.sign(tail)
        if status == state.LOST or sign is None:
            raise error_of(TAIL, state.LOST, None, f"there is no sign of it any more from host {tail.host}", log_of(tail))
        raise error_of(TAIL, status, sign.blame, sign.error or "it does not say why", log_of(tail))


def replicates(mirror: Mirror) -> tuple[bool, str]:
    """Return whether the mirror's tail lives, on any host, and copies by the mirror's fields.

    :return: that, and the tail that has ended or is lost (:attr:`TailView.ended`): StartMirrorOperator's ``replaces``.
    :raises InputError: it lives, and copies from another cluster: it is another mirror of that name.
    :raises MirrorError: the target can't be asked.
    """
    from airflow_mirror.hooks.kafka import MirrorKafkaHook

    with MirrorKafkaHook(mirror.target, "target").admin() as target:
        view = TailView(target, mirror.name)
        found = view.look(mirror)
        if found.active is not None and found.runs:
            _require_same_source(view, found.active, mirror)
    return found.runs and not found.differing, view.ended


def _require_same_source(view: TailView, tail: ActiveTail, mirror: Mirror) -> None:
    """Refuse a mirror whose name another one has. Connections of one name lead elsewhere in another Airflow.

    Not left to the plan that a DAG makes next: where they share no topic, it would take the place of the other's.

    :raises InputError: names both clusters. Where one of them is not known, a tail that lives is left alone.
    """
    from airflow_mirror.hooks.kafka import MirrorKafkaHook

    try:
        theirs = view.source_id(tail)
        with MirrorKafkaHook(mirror.source, "source").admin() as source:
            ours = source.cluster_id()
    except MirrorError as e:
        log.info("whether the tail copies from the cluster of connection %r was not looked at: %s", mirror.source, e)
        return
    if ours != theirs:
        raise InputError(
            f"mirror {mirror.name!r}",
            f"its tail ({log_of(tail)}) copies from cluster {theirs}, and connection {mirror.source!r} leads to cluster "
            f"{ours} here: nothing of that one is copied",
            "Give the mirror of this cluster a name of its own, or correct the connection. To copy from it under this "
            "name, stop the tail first (StopMirrorOperator).",
        )


def log_of(tail: ActiveTail) -> str:
    """Return where the tail's log is, for people."""
    if tail.application:
        return f"the log of {tail.application}"
    return f"{tail.directory}/log.txt on host {tail.host}" if tail.directory else f"what it printed on host {tail.host}"
