"""Rules of writers that the target lacks until its topics are open: what a failover grants when the source is gone.

Rules of readers follow while a tail runs; those of writers come when a cutover has opened the target, from the source as
it is then. In a disaster there is no source. So whoever lets rules follow notes which are left for that moment.

A note says of which generation of the direction it is (0: none was decided yet), and counts for no other: in between the
target was in production, where rules may have been revoked, and a mirror that copies to it again may let none follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import NamedTuple

from airflow_mirror.kafka.model import Acl
from airflow_mirror.ledger.kinds import Kind
from airflow_mirror.ledger.records import LATER
from airflow_mirror.ledger.state import State

prefix = LATER.below  # of a mirror


def once(kind: Kind, mirror: str, opening: str) -> dict[str, bytes]:
    """Return a note that something was done behind an opening: from then on it is production's to change.

    :param kind: ``GRANTED`` or ``LIMITED``.
    """
    return kind.put({"opening": opening}, mirror)


def was_done(kind: Kind, mirror: str, opening: str, noted: Mapping[str, bytes]) -> bool:
    """Return whether that was done behind this opening already."""
    note = kind.get(noted, mirror)
    return note is not None and note["opening"] == opening


def changed(
    mirror: str, noted: Mapping[str, bytes], rules: Collection[Acl], generation: int = 0
) -> dict[str, bytes | None]:  # fmt: skip
    """Return what is to be written so that these rules are noted; nothing if they are.

    :param noted: values of the target's state. :param generation: of the mirror's direction while they follow.
    :raises LedgerNewer: a newer version of the package wrote them.
    """
    _read(mirror, noted)
    of = {"generation": generation} if generation else {}
    pieces = LATER.put({"rules": [asdict(rule) for rule in sorted(rules)], **of}, mirror)
    if dict(noted) == pieces:
        return {}
    return {**pieces, **{key: None for key in noted if key not in pieces}}


def last_seen(mirror: str, state: State, generation: int = 0) -> tuple[Acl, ...] | None:
    """Return the rules that were noted; None if nobody has let rules follow since this generation of the direction.

    :raises LedgerNewer: a newer version of the package wrote them.
    """
    note = _read(mirror, state.read())
    return note.rules if note is not None and note.generation == generation else None


class _Note(NamedTuple):
    generation: int
    rules: tuple[Acl, ...]


def _read(mirror: str, noted: Mapping[str, bytes]) -> _Note | None:
    # A rule that is half read would allow more: a field that is not known is one too many.
    return LATER.load(
        lambda note: _Note(note.get("generation", 0), tuple(Acl(**rule) for rule in note["rules"])), noted, mirror
    )
