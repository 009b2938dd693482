"""What ends a mirror, or takes topics from it: it must be at rest, and is changed step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.runner.active import Watch, active_tail
from airflow_mirror.jobs.runner.state import RUNNING
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.wire.cluster import WireCluster


class Step(NamedTuple):
    """A part of the change, a step of its own.

    :param lines: what it is about. Without any there is nothing to do.
    """

    name: str
    lines: list[str]
    do: Callable[[], object]


def not_over(mirror: str, why: str, otherwise: str) -> InputError:
    """Return the error for a mirror that is to be retired, and still does something."""
    return InputError(f"mirror {mirror!r} is still active", f"{why}. Nothing was changed", otherwise)


def require_at_rest(mirror: str, ledger: Decisions, target: WireCluster, watch: Watch, *, may_be_held: bool) -> None:
    """Return if nothing of the mirror runs.

    :param may_be_held: also if its writer lease is held: by a job that was killed, or by one that nobody knows of.
    :raises InputError: it still does something.
    """
    tail = active_tail(ledger.values(), mirror)
    if tail is not None and watch.settled(tail) == RUNNING:
        cause = f"its tail runs on host {tail.host!r} and gives signs of life"
        raise not_over(mirror, cause, "Stop it first (StopMirrorOperator).")
    if not may_be_held and lease.is_anybody_writing(target, mirror):
        raise not_over(
            mirror, "a job holds its writer lease, and may be copying: a bulk copy, say",
            "If none runs, it was killed: --end-writing takes the lease and waits until nothing can be written.",
        )  # fmt: skip
