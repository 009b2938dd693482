"""Decisions and state without a cluster: the same fold, and the same way to decide, on a list; and a dictionary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.deciding import catch_up, decide
from airflow_mirror.ledger.decisions import Change, Values
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.records import MAP, kind_of
from tests.unit.ledger.patience import tries


def require_row(key: str, value: object) -> None:
    """Fail if nobody has a row for what is written. A test that plays a newer version calls its kind ``future``."""
    if value is not None and "/" in key and not key.startswith("future/"):
        assert kind_of(key) or MAP.match(key), f"no row for {key!r} in airflow_mirror/ledger/records.py"


class Appended(bytes):
    """A record's value, with the time at which the broker appended it."""

    at_ms = 0


class MemoryLedger:
    """See :class:`airflow_mirror.ledger.decisions.Decisions`. Pass ``records`` on for a second reader and writer.

    :ivar now_ms: the broker's time, of what comes next.
    """

    def __init__(self, records: list[bytes] | None = None) -> None:
        self.records: list[bytes] = [] if records is None else records
        self.now_ms = 1_000_000
        self._fold = Fold()

    def append(self, value: bytes) -> int:
        appended = Appended(value)
        appended.at_ms = self.now_ms
        self.records.append(appended)
        return len(self.records) - 1

    def read(self, start: int) -> Iterator[tuple[int, bytes | None, int]]:
        for offset, value in enumerate(self.records[start:], start):
            yield offset, value, getattr(value, "at_ms", 0)

    def create(self) -> None:
        """It is there."""

    begin = sound_out = create

    def values(self) -> Values:
        catch_up(self, self._fold)
        return self._fold.values

    peek = values

    def decide(self, change: Change, until_ms: int | None = None) -> Values | None:
        def checked(values: Values) -> Values | None:
            sets = change(values)
            for key, value in (sets or {}).items():
                require_row(key, value)
            return sets

        return decide(self, self._fold, checked, tries(9), until_ms)

    def time_ms(self, key: str) -> int:
        return self._fold.time_ms(key)


class MemoryState:
    """See :class:`airflow_mirror.ledger.state.State`.

    :param fails_at: its process dies when it would write this value; None: never.
    :param knows_all: takes also what has no row, as a newer version writes it.
    """

    def __init__(self, fails_at: int | None = None, *, knows_all: bool = False) -> None:
        self.fails_at, self._knows_all = fails_at, knows_all
        self._values: dict[str, bytes] = {}
        self._written = 0

    def read(self) -> dict[str, bytes]:
        return dict(self._values)

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        permit()
        for key, value in values.items():
            if self._written == self.fails_at:
                raise KeyboardInterrupt
            self._written += 1
            require_row(key, None if self._knows_all else value)
            self._values.pop(key, None)
            if value is not None:
                self._values[key] = value
