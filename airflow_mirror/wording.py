"""Numbers, times and lists in words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime

_ACTIVE = re.compile(r"[\\`*\[\]<|&]|^[#+=~>-]")


def plain(text: object) -> str:
    """Return Markdown that shows a text as it is, on one line. Names are whatever their owners chose.

    What begins a link, code, HTML, a heading or another cell is escaped, and what is no printable character is spelled
    out: a line break could fake a line that nobody said, and a mark of direction what a line says.
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return _ACTIVE.sub(r"\\\g<0>", shown)


def some(items: Iterable[str], most: int = 5, between: str = ", ") -> str:
    """Return the first few items, and how many more there are."""
    everything = list(items)
    more = f" and {len(everything) - most} more" if len(everything) > most else ""
    return between.join(everything[:most]) + more


def listed(items: Iterable[str], most: int | None = None) -> str:
    """Return the same with a line for each item; without ``most`` of all."""
    everything = list(items)
    left = 0 if most is None else len(everything) - most
    return "\n".join([*(f"  - {item}" for item in everything[:most]), *([f"  and {left} more"] if left > 0 else [])])


def first_lines(lines: Iterable[str], most: int) -> list[str]:
    """Return the first lines, and one that says how many more there are."""
    everything = list(lines)
    left = len(everything) - most
    return everything if left <= 0 else [*everything[:most], f"and {left:,} more"]


def wrapped(text: str, first: str = "", width: int = 110) -> str:
    """Return a text in lines of that width, indented below what the first begins with; names are not broken."""
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=" " * len(first),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def folded(text: str, width: int) -> str:
    """Return a text whose lines take several where they are longer than that: items of lists, and those with a label.

    A command stays on one line, to be copied; so does a line of neither kind.
    """
    return "\n".join(_folded(line, width) for line in text.splitlines())


def _folded(line: str, width: int) -> str:
    label = re.match(r"  - |  \w+: ", line)
    if label is None or len(line) <= width or (label[0] != "  - " and " --" in line):
        return line
    return wrapped(line[label.end() :], label[0], width)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 partition``, ``2,000 partitions``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(bytes_: int) -> str:
    """Format a number of bytes: ``780 B``, ``1.2 MB``."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if bytes_ >= factor:
            return f"{bytes_ / factor:,.1f} {unit}"
    return f"{bytes_} B"


def duration(seconds: float) -> str:
    """Format a duration: ``1 s``, ``3 min``, ``7 d``."""
    for unit, factor in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:,.0f} {unit}"
    return f"{max(1, round(seconds))} s"


def minute(seconds: float) -> str:
    """Format a time, in seconds since 1970: ``2026-11-28 10:02 UTC``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
