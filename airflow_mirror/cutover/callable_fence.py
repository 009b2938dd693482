"""A fence by the means of the platform, which a function of the site's own returns (`fence.fence_of`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from inspect import signature

from airflow_mirror.cutover.intent import Intent
from airflow_mirror.kafka.permit import Permit

__all__ = ["CallableFence"]


class CallableFence:
    """Fence with the means of the platform: a gateway, a feature flag, a deployment scaled to 0.

    One that takes ``permit`` gets it, and calls it right before each of its effects: it raises if something else was
    decided since, and the function passes that on. One that does not is called right behind it, and does late what it
    does if its process sleeps in between.

    :param on: stops the writers; returns once they have stopped. May be called again.
    :param off: lets them in again. Called after any failure, even in a new process, so it must not need ``on``'s state.
    :param check: returns whether the fence is in place; by default that is assumed, and proven by the log end offsets.
    """

    kind = "callable"

    def __init__(
        self, on: Callable[..., object], off: Callable[..., object], check: Callable[[], bool] = lambda: True
    ) -> None:
        self._on, self._off, self._check = on, off, check

    def intent(self, topics: Sequence[str]) -> Intent:
        """Return the topics; there is nothing to describe."""
        return Intent(topics=tuple(sorted(topics)))

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        """Call ``on``."""
        _called(self._on, permit)

    def lift(self, intent: Intent, name: str, permit: Permit) -> None:
        """Call ``off``."""
        _called(self._off, permit)

    def is_up(self, intent: Intent) -> bool:
        """Call ``check``."""
        return self._check()


def _called(function: Callable[..., object], permit: Permit) -> None:
    takes: Collection[str] = ()
    with suppress(TypeError, ValueError):  # what has no signature, as some that are compiled, takes none
        takes = signature(function).parameters
    # Also for a function that takes none. Frozen behind it, such a one does late what it does, and nothing at the source
    # tells.
    permit()
    if "permit" in takes:
        function(permit=permit)
    else:
        function()
