"""Reduce summaries for XComs: counts and names, never more than a database row should hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_XCOM_BYTES = 40_000


def compact(summary: Mapping[str, Any], full: str = "the task's log", max_bytes: int = MAX_XCOM_BYTES) -> dict[str, Any]:
    """Return ``summary`` without its largest parts until it fits into ``max_bytes`` as JSON.

    :param full: where the complete summary is; replaces the omitted parts.
    """
    kept = dict(summary)
    while _size(kept) > max_bytes:
        largest = max(kept, key=lambda key: _size(kept[key]))
        kept[largest] = f"left out, see {full}"
    return kept


def _size(value: Any) -> int:
    return len(json.dumps(value, default=str))
