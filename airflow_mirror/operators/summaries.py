"""Reduce summaries for XComs: counts and names, never more than a database row should hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_XCOM_BYTES = 40_000
# Later tasks take these as their Mirror and their plan, when this one has had its effect: with a text they would fail at
# each try. A Mirror is as long as its topics' names.
_EXECUTED_BY = frozenset({"fields", "hash", "mirror", "plan", "revision"})


def compact(summary: Mapping[str, Any], full: str = "the task's log", max_bytes: int = MAX_XCOM_BYTES) -> dict[str, Any]:
    """Return ``summary`` without its largest parts, until it fits into ``max_bytes`` as JSON.

    What later tasks execute by stays, however long it is. A list of lines stays one: whoever approves reads the first.

    :param full: where the complete summary is; said in place of what is left out.
    """
    kept = dict(summary)
    large = [key for key in summary if key not in _EXECUTED_BY and _size(summary[key]) > max_bytes // 40]
    for room in (max_bytes // 4, 0):  # some lines of each list, before none of any
        for key in sorted(large, key=lambda key: _size(summary[key]), reverse=True):
            if _size(kept) <= max_bytes:
                return kept
            kept[key] = _shortened(summary[key], full, room)
    return kept


def _shortened(value: Any, full: str, room: int) -> Any:
    if not isinstance(value, (list, tuple)) or not all(isinstance(line, str) for line in value):
        return f"left out, see {full}"
    shown = list[str]()
    for line in value:
        room -= _size(line)
        if room < 0:
            break
        shown.append(line)
    left = len(value) - len(shown)
    return [*shown, f"and {left:,} more, see {full}"] if left else shown


def _size(value: Any) -> int:
    return len(json.dumps(value, default=str))
