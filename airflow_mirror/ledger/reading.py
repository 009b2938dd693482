"""What a record of the ledger says to this version of the package, whichever version wrote it.

Versions work beside each other. A field that this one does not know is left out, and one that is missing has its default.
A record of another version is an error with a name, :class:`LedgerNewer`: whoever must decide about that very thing
stops, and whoever walks over the records of all mirrors leaves it alone, and lists it where people look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from airflow_mirror.errors import LedgerNewer

T = TypeVar("T")


def readable(value: object, version: int, about: str, *needed: str) -> dict[str, Any]:
    """Return a record, which has its version in ``v``.

    :param value: as decisions have it, or the bytes of the state, which are JSON. :param about: what it is about.
    :param needed: fields that it must have.
    :raises LedgerNewer: it is none, of another version, or lacks one of these.
    """
    found = value
    if isinstance(value, bytes):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            pass
    if not isinstance(found, dict) or found.get("v") != version or not found.keys() >= {*needed}:
        raise LedgerNewer(about, found)
    return found


def known(kind: type[T], found: Mapping[str, Any], about: str) -> T:
    """Return the fields of a record that a dataclass has.

    :raises LedgerNewer: it lacks one that has no default.
    """
    return exactly(kind, {name: found[name] for name in kind.__dataclass_fields__ if name in found}, about)  # type: ignore[attr-defined]


def exactly(kind: type[T], found: Mapping[str, Any], about: str) -> T:
    """As :func:`known`, of what means something else without one of its fields: a rule that is half read allows more.

    :raises LedgerNewer: also for a field that is not known.
    """
    try:
        return kind(**found)
    except TypeError:
        raise LedgerNewer(about, found) from None
