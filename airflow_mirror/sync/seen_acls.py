"""Rules of writers that the target lacks until its topics are open: what a failover grants when the source is gone.

Rules of readers follow while a tail runs; those of writers come when a cutover has opened the target, from the source as
it is then. In a disaster there is no source. So whoever lets rules follow notes which are left for that moment.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict

from airflow_mirror.kafka.model import Acl
from airflow_mirror.ledger.reading import exactly, readable
from airflow_mirror.ledger.state import State, in_pieces, whole

_VERSION = 1


def prefix(mirror: str) -> str:
    """Return what the keys of a mirror's note begin with."""
    return f"acls/{mirror}/"


def changed(mirror: str, noted: Mapping[str, bytes], rules: Collection[Acl]) -> dict[str, bytes | None]:
    """Return what is to be written so that these rules are noted; nothing if they are.

    :param noted: values of the target's state.
    :raises LedgerNewer: a newer version of the package wrote them.
    """
    _read(mirror, noted)
    text = json.dumps({"v": _VERSION, "rules": [asdict(rule) for rule in sorted(rules)]}, separators=(",", ":"))
    pieces = in_pieces(f"{prefix(mirror)}later", text.encode())
    if dict(noted) == pieces:
        return {}
    return {**pieces, **{key: None for key in noted if key not in pieces}}


def last_seen(mirror: str, state: State) -> tuple[Acl, ...] | None:
    """Return the rules that were noted; None if nobody has let rules follow.

    :raises LedgerNewer: a newer version of the package wrote them.
    """
    return _read(mirror, state.read())


def _read(mirror: str, noted: Mapping[str, bytes]) -> tuple[Acl, ...] | None:
    text = whole(noted, f"{prefix(mirror)}later")
    if text is None:
        return None
    about = f"the rules of writers of {mirror!r}"
    return tuple(exactly(Acl, rule, about) for rule in readable(text, _VERSION, about, "rules")["rules"])
