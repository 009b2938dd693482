"""The tail's lease is short while a cutover runs (ADR 55): seen here, at its coordinator, and believed of nobody.

What counts is one description that stood for seven seconds: producer id, epoch and mark. Whoever changes the mark takes
an epoch, so that what is the same at both ends was the same in between.
"""

from __future__ import annotations

from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire.transactions import TransactionDescription


def look(run: Attempt) -> None:
    """Note whether the mirror's lease is short, and since when that is known. Only reads."""
    try:
        seen = run.on.target.seen_short(run.mirror.name)
    except MirrorError:  # what nobody can see is not short; a right that is missing is a finding of the preview
        seen = None
    if seen != run.short:
        # Behind the answer: what was true when it was given is true from here on at the latest.
        run.short, run.short_since = seen, run.now()


def wait(run: Attempt) -> None:
    """Wait, before the fence, until a lease that is short was so for long enough; not for one that is not.

    It costs nobody anything: producers write meanwhile. Errors as :meth:`.Attempt.pause`.
    """
    look(run)
    # A tail that begins a turn, or renews by another epoch, makes it begin anew: once, rather than for ever.
    until = run.now() + 2 * lease.HANDOVER_S
    while run.short is not None and (left := run.short_since + lease.HANDOVER_S - run.now()) > 0 and run.now() < until:
        run.pause(left)
        look(run)


def ripe(run: Attempt) -> TransactionDescription | None:
    """Return the description behind which a taking waits for less: the one that was seen long enough ago."""
    # How it is now is looked at by the taking itself, right before its request.
    return run.short if run.short is not None and run.now() - run.short_since >= lease.HANDOVER_S else None
