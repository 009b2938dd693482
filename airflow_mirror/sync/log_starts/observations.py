"""What was seen of a source topic's log starts, in the target's state: one sight an hour, for a day.

Nothing is deleted that was not seen deleted at the source long before, by whatever process. So a sight is never changed:
it says what was so when it was taken, and is removed when a newer one is old enough. A process that was frozen adds one
that is true, and late. Without the sights (a state that was lost) waiting begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from airflow_mirror.ledger.records import START

FOREVER = 1 << 63
key, prefix = START.key, START.below  # of a mirror, a target topic and a number; of all of a mirror


class Retention(NamedTuple):
    """How long records stay: ``retention.ms`` and ``retention.bytes``, each at most :data:`FOREVER`."""

    ms: int
    bytes: int

    def covers(self, other: Retention) -> bool:
        """Return whether nothing may go by this one that has to stay by the other one."""
        return self.ms >= other.ms and self.bytes >= other.bytes

    def longest(self, other: Retention) -> Retention:
        """Return what covers both."""
        return Retention(max(self.ms, other.ms), max(self.bytes, other.bytes))


class Seen(NamedTuple):
    """One partition, in offsets of the target, as :class:`.deciding.Standing`.

    :param start: the source's log start offset.
    :param explained: up to where retention explains it, at most ``start``; what lies between was deleted by somebody.
    """

    start: int
    explained: int


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What was seen of one topic.

    :param number: counts the sights of a topic.
    :param at_ms: when, by the clock of the process that looked.
    :param ids: topic ids, of the source and of the target: a topic that was created again is another one.
    :param retention: the longer one of the source's and of what the target's will be when the mirror has ended.
    :param seen: by partition; one whose log starts at 0 is left out.
    """

    number: int
    at_ms: int
    ids: tuple[str, str]
    retention: Retention
    seen: Mapping[int, Seen]


def dump(sight: Sight) -> bytes:
    """Return a sight as JSON, without what its key says."""
    content = {
        "at": sight.at_ms,
        "ids": sight.ids,
        "retention": sight.retention,
        "seen": [[partition, *seen] for partition, seen in sorted(sight.seen.items())],
    }
    return START.encode(content)


def topic_of(name: str) -> str:
    """Return the target topic of a sight's key."""
    return name.split("/")[2]


def load(name: str, value: bytes) -> Sight | None:
    """Return the sight of a key; None if it says something that this version can't read: perhaps a longer retention."""
    names = START.match(name)
    return None if names is None else START.one(partial(_sight, names["number"]), value)


def _sight(number: str, content: Mapping[str, Any]) -> Sight:
    source_id, target_id = content["ids"]
    ms, size = map(int, content["retention"])
    seen = {int(p): Seen(int(start), int(explained)) for p, start, explained in content["seen"]}
    return Sight(
        number=int(number), at_ms=int(content["at"]), ids=(str(source_id), str(target_id)),
        retention=Retention(ms, size), seen=seen,
    )  # fmt: skip
