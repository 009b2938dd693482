"""What a pass found, in a few kilobytes, however much it found: of each list how long it is, and its first lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SHOWN = 10  # of each list
LONGEST = 300  # characters of a line


def brief(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report's values with their lists cut short."""
    return {
        name: {"count": len(value), "first": [line[:LONGEST] for line in sorted(value)[:_SHOWN]]}
        if isinstance(value, list)
        else value
        for name, value in values.items()
    }


def told(head: str, others: Iterable[tuple[Sequence[str], str]]) -> str:
    """Return one line: ``head``, and of each list that is not empty its length, what it lists, and an example."""
    return "; ".join([head, *(f"{len(found)} {what}, as {min(found)}" for found, what in others if found)])
