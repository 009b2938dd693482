"""What becomes of a key: the row that every key of the older tools has. The rows are data, in ``keys.toml``."""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from typing import Any


class Fate(enum.Enum):
    """What becomes of a key."""

    HONOURED = "honoured"
    """It means here what it meant there."""
    MAPPED = "mapped"
    """Another name or form has its meaning here."""
    WITHOUT_EFFECT = "without effect"
    """What it was for needs no setting here, or is not there."""
    REFUSED = "refused"
    """Without it the flow would be another one than its owner wants, and it can't be kept."""


@dataclass(frozen=True)
class Range:
    """The numbers that a client or a Mirror takes, both ends included.

    :param decimals: not only whole ones.
    """

    least: int
    most: int
    decimals: bool = field(default=False, kw_only=True)

    @classmethod
    def of(cls, text: str, *, decimals: bool = False) -> Range:
        """Return the range that ``least..most`` says."""
        return cls(*map(int, text.split("..")), decimals=decimals)

    @classmethod
    def each(cls, spans: Mapping[str, Iterable[str]], *, decimals: bool = False) -> dict[str, Range]:
        """Return the ranges of keys, given the keys by ``least..most``."""
        return {key: cls.of(span, decimals=decimals) for span, keys in spans.items() for key in keys}

    def refuses(self, value: str) -> bool:
        """Return whether ``value`` is none of them."""
        form = r"-?[0-9]{1,19}(\.[0-9]{1,19})?" if self.decimals else "-?[0-9]{1,19}"
        return not (re.fullmatch(form, value) and self.least <= Decimal(value) <= self.most)

    def nearest(self, number: int) -> int:
        """Return the one of them that is nearest to ``number``."""
        return min(max(number, self.least), self.most)

    def __str__(self) -> str:
        return f"{'' if self.decimals else 'whole '}number from {self.least} to {self.most}"


@dataclass(frozen=True)
class Row:
    """One key, or all that begin with it where it ends with ``*``.

    :param becomes: the name here, for HONOURED and MAPPED: a field of a Mirror, or a setting of a connection.
    :param why: a sentence without its full stop.
    :param harmless: values of a REFUSED key that change nothing, so that they pass.
    :param otherwise: what is otherwise here, by the value that it is otherwise of.
    :param within: numbers that are kept; any other one from 0 on becomes the nearest of them.
    """

    key: str
    fate: Fate
    becomes: str = ""
    why: str = ""
    harmless: tuple[str, ...] = field(default=(), kw_only=True)
    otherwise: Mapping[str, str] = field(default_factory=dict, kw_only=True, hash=False)
    within: Range | None = field(default=None, kw_only=True)

    def covers(self, key: str) -> bool:
        """Return whether this row is about ``key``."""
        return key.startswith(self.key[:-1]) if self.key.endswith("*") else key == self.key

    def refuses(self, value: str) -> bool:
        """Return whether the key can't be kept with this value."""
        return self.fate is Fate.REFUSED and value.strip() not in self.harmless

    def changes(self, value: str) -> str:
        """Return what is otherwise here with this value; empty: nothing is."""
        if self.within is not None and value.isdecimal() and self.within.refuses(value):
            return f"{self.within.nearest(int(value))} here, {self.why}"
        return self.otherwise.get(value, "")


@dataclass(frozen=True)
class Noticed:
    """What became of one key of a file. It never holds a value: that may be a secret.

    :param key: as the file has it, with alias or flow.
    :param text: what it became, and why.
    :param changed: this value is another one here, or means something else, which the first lines of a run say.
    """

    key: str
    fate: Fate
    text: str
    changed: bool = False

    @classmethod
    def by(cls, row: Row, key: str, value: str) -> Noticed:
        """Return what a row says of ``key`` with this value."""
        if row.fate is Fate.REFUSED and not row.refuses(value):
            return cls(key, Fate.WITHOUT_EFFECT, "this value changes nothing")
        if its := row.changes(value.strip()):
            return cls(key, row.fate, f"{row.becomes}: {its}", changed=True)
        said = [row.why or row.becomes] if row.fate is Fate.HONOURED else [row.becomes, row.why]
        return cls(key, row.fate, ": ".join(filter(None, said)))


class Table:
    """Rows by key. A row of one key wins over one of a prefix."""

    def __init__(self, *rows: Row) -> None:
        self.rows = rows
        self._exact = {row.key: row for row in rows if not row.key.endswith("*")}
        self._prefixes = sorted((row for row in rows if row.key.endswith("*")), key=lambda row: -len(row.key))
        if len({row.key for row in rows}) != len(rows):
            raise ValueError("a key has two rows")

    def find(self, key: str) -> Row | None:
        """Return the row of a key; None: nobody knows it."""
        return self._exact.get(key) or next((row for row in self._prefixes if row.covers(key)), None)

    @property
    def keys(self) -> list[str]:
        """The keys that have a row of their own."""
        return list(self._exact)

    def __add__(self, other: Table) -> Table:
        """Return both tables' rows."""
        return Table(*self.rows, *other.rows)

    def but(self, *rows: Row) -> Table:
        """Return this table with these rows instead of its own ones of the same keys."""
        instead = {row.key for row in rows}
        return Table(*(row for row in self.rows if row.key not in instead), *rows)


def _rows(table: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of a table of ``keys.toml``, whose head says how they are written."""
    for kind, fate in (("no_effect", Fate.WITHOUT_EFFECT), ("refused", Fate.REFUSED)):
        for group in table.get(kind, ()):
            yield from (Row(key, fate, why=group["why"]) for key in group["keys"])
    for key, its in table.items():
        if isinstance(its, list):  # a group
            continue
        if "refused" in its:
            yield Row(key, Fate.REFUSED, why=its["refused"], harmless=tuple(its.get("harmless", ())))
        elif "mapped" in its:
            more: dict[str, Any] = {"within": Range.of(its["within"])} if "within" in its else {}
            yield Row(key, Fate.MAPPED, its["mapped"], its.get("why", ""), otherwise=its.get("otherwise", {}), **more)
        else:
            yield Row(key, Fate.HONOURED, its["honoured"] or key, its.get("why", ""))


_FILE = tomllib.loads(files("airflow_mirror.compat").joinpath("keys.toml").read_text("utf-8"))
DEFAULTS: Mapping[str, str] = _FILE.pop("defaults")
NUMBERS = Range.each(_FILE.pop("numbers"))
TABLES: Mapping[str, Table] = {name: Table(*_rows(table)) for name, table in _FILE.items()}
