"""Decisions without a cluster: the same fold, and the same way to decide, on a list."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_mirror.ledger.deciding import catch_up, decide
from airflow_mirror.ledger.decisions import Change, Values
from airflow_mirror.ledger.fold import Fold
from tests.unit.ledger.patience import tries


class MemoryLedger:
    """See :class:`airflow_mirror.ledger.decisions.Decisions`. Pass ``records`` on for a second reader and writer."""

    def __init__(self, records: list[bytes] | None = None) -> None:
        self.records: list[bytes] = [] if records is None else records
        self._fold = Fold()

    def append(self, value: bytes) -> int:
        self.records.append(value)
        return len(self.records) - 1

    def read(self, start: int) -> Iterator[tuple[int, bytes | None]]:
        yield from enumerate(self.records[start:], start)

    def values(self) -> Values:
        catch_up(self, self._fold)
        return self._fold.values

    def decide(self, change: Change) -> Values | None:
        return decide(self, self._fold, lambda fold: change(fold.values), tries(9))
