"""Permits: what an effect on a cluster asks right before its bytes, because its process may have been frozen until then.

Whoever was thought dead may wake up at any line, behind what somebody else has decided. So every request that changes
something others rely on takes a permit, and calls it last: it raises if the effect is no longer this process's to have.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from airflow_mirror.wire.connection import Check as Permit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Permit", "granted_freely", "recently", "unfenced"]


def unfenced() -> None:
    """Permit an effect that nobody else could have a say in: it is this job's own, or a person has asked for it."""


def granted_freely() -> AbstractContextManager[Permit]:
    """Return what such effects are done in, where others hold a right while they write."""
    return nullcontext(unfenced)


def recently(permit: Permit, clock: Callable[[], float], valid_s: float) -> Permit:
    """Return a permit that asks only if it has not within so many seconds, for effects that come by the hundred.

    :param clock: in seconds, which goes on while the process is frozen, or its machine sleeps.
    :param valid_s: less than what anybody else waits before they act on what they believe of this process.
    """
    asked = float("-inf")

    def check() -> None:
        nonlocal asked
        now = clock()
        if now - asked > valid_s:
            permit()
            asked = now

    return check
