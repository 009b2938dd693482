"""What somebody probably meant by a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SLIP = 3  # characters that somebody typed too many


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names it, with a blank before; empty if nothing comes near."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" The nearest known is {by_lower[found[0]]!r}." if found else ""


def nearest_key(key: str, known: Iterable[str]) -> str:
    """Return :func:`nearest`, but for what is longer by more than a slip: the rest of a secret may stand with a key.

    A line that ends with a backslash goes on with the next one.
    """
    return nearest(key, (one for one in known if is_slip(key, [one])))


def is_slip(name: str, known: Iterable[str]) -> bool:
    """Return whether it is not longer by more than a slip than one of these."""
    return any(len(name) <= len(one) + _SLIP for one in known)
