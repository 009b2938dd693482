"""Views of the ledger and of state, as one actor's :class:`.Ledger` and :class:`.StateLog`.

The same fold, and the same way to decide, on lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger import deciding
from airflow_mirror.ledger.decisions import Change, Values
from airflow_mirror.ledger.fold import Fold, decode
from tests.memory.asking import Ask, at_once, touching
from tests.memory.wire import out_of_reach

if TYPE_CHECKING:
    from tests.memory.cluster import MemoryCluster

_BY_CHANCE = re.compile("[0-9a-f]{12,}")
_PAUSE_S = 0.1
_LIKE = 20  # pauses without a clock


class MemoryLedger:
    """See :class:`airflow_mirror.ledger.decisions.Decisions`.

    :param clock: monotonic() and sleep(); None: nothing waits, and a decision is tried some times.
    :param patience_s: how long one decision is tried.
    """

    def __init__(
        self, cluster: MemoryCluster, ask: Ask = at_once, clock: Any = None, patience_s: float = 20.0
    ) -> None:  # fmt: skip
        self._cluster, self._ask, self._clock, self._patience_s = cluster, ask, clock, patience_s
        self._fold = Fold()

    def append(self, value: bytes) -> int | None:
        """See :class:`.deciding.Log`."""
        decision = decode(value)
        keys = sorted(decision.expects) if decision is not None else []
        words = in_words(decision.sets) if decision is not None else "nothing that can be read"
        return self._ask(
            f"{self._cluster.role}: decide {words}",
            lambda: self._cluster.decide(value), effect=True, at=self._cluster.role, touches=touching("ledger", *keys),
            lost=lambda: None, may_be_late=True,
        )  # fmt: skip

    def read(self, start: int) -> Iterable[tuple[int, bytes | None, int]]:
        """See :class:`.deciding.Log`."""
        what = f"{self._cluster.role}: read the ledger"
        return self._ask(
            what,
            lambda: [(at, one, one.at_ms) for at, one in enumerate(self._cluster.decisions[start:], start)],
            at=self._cluster.role, touches=touching("ledger"), lost=out_of_reach(self._cluster.role, what),
        )  # fmt: skip

    def values(self) -> Values:
        """See :class:`.Decisions`."""
        deciding.catch_up(self, self._fold)
        return self._fold.values

    peek = values

    def begin(self) -> None:
        """See :class:`.Decisions`. It is there."""

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        """See :class:`.Decisions`."""
        return deciding.decide(self, self._fold, change, self._again(), until_ms)

    def time_ms(self, key: str) -> int:
        """See :class:`.Decisions`."""
        return self._fold.time_ms(key)

    def _again(self) -> Any:
        if self._clock is None:
            left = iter(range(_LIKE))
            return lambda: next(left, None) is not None
        deadline = self._clock.monotonic() + self._patience_s

        def again() -> bool:
            self._clock.sleep(_PAUSE_S)
            return bool(self._clock.monotonic() < deadline)

        return again


class MemoryState:
    """See :class:`airflow_mirror.ledger.state.State`.

    :param prefixes: of the keys that are read; without any, none is.
    """

    def __init__(self, cluster: MemoryCluster, *prefixes: str, ask: Ask = at_once) -> None:
        self._cluster, self._prefixes, self._ask = cluster, prefixes, ask

    def read(self) -> Mapping[str, bytes]:
        """See :class:`.State`."""
        kinds = [prefix.partition("/")[0] for prefix in self._prefixes]

        def found() -> dict[str, bytes]:
            return {k: v for k, v in self._cluster.state.items() if k.startswith(self._prefixes)}

        what = f"{self._cluster.role}: read state {','.join(self._prefixes)}"
        return self._ask(
            what, found, at=self._cluster.role, touches=touching("state", *kinds),
            lost=out_of_reach(self._cluster.role, what),
        )  # fmt: skip

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        """See :class:`.State`."""
        if not values:
            return
        state = self._cluster.state

        def do() -> None:
            for key, value in values.items():
                state.pop(key, None)
                if value is not None:
                    state[key] = value

        what = f"{self._cluster.role}: write state {','.join(sorted(set(map(_kind_of, values))))}"
        kinds = {key.partition("/")[0] for key in values}
        self._ask(
            what, do, effect=True, at=self._cluster.role, touches=touching("state", *kinds),
            check=permit, lost=out_of_reach(self._cluster.role, what),
        )  # fmt: skip


def _kind_of(key: str) -> str:
    """Return what a key is about: its first three parts, without a name that is another one each time."""
    *parts, last = key.split("/")[:3]
    return "/".join(parts if _BY_CHANCE.fullmatch(last) else [*parts, last])


def in_words(sets: Mapping[str, Any]) -> str:
    """Return what a decision sets: its keys, with the phase, the run and the attempt of those that have them."""
    parts = []
    for key, value in sorted(sets.items()):
        phase = value.get("phase") if isinstance(value, dict) else None
        run = f" ({value.get('run')}.{value.get('attempt')})" if phase else ""
        parts.append(f"{key} {phase}{run}" if phase else f"{key} ended" if value is None else key)
    return ", ".join(parts)
