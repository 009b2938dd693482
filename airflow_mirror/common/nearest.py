"""What somebody probably meant by a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names it, with a blank before; empty if nothing comes near."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" The nearest known is {by_lower[found[0]]!r}." if found else ""
