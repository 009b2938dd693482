"""Permits: what an effect on a cluster asks right before its bytes, because its process may have been frozen until then.

Whoever was thought dead may wake up at any line, behind what somebody else has decided. So every request that changes
something others rely on takes a permit, and calls it last: it raises if the effect is no longer this process's to have.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_mirror.common.clock import since_boot_s
from airflow_mirror.wire.connection import Check as Permit

__all__ = ["Permit", "recently", "since_boot_s", "unfenced"]

_ASK_EVERY_S = 2.0


def unfenced() -> None:
    """Permit an effect that nobody else could have a say in: it is this job's own, or a person has asked for it."""


def recently(permit: Permit, clock: Callable[[], float] = since_boot_s) -> Permit:
    """Return a permit that asks only if it has not within two seconds, for effects that come by the hundred.

    Who must see none afterwards waits for longer before they act on what they have decided.

    :param clock: in seconds, which goes on while the process is frozen, or its machine sleeps.
    """
    asked = float("-inf")

    def check() -> None:
        nonlocal asked
        now = clock()
        if now - asked > _ASK_EVERY_S:
            permit()
            asked = now

    return check
