"""What a failover keeps on the target: where the copy was cut, and which of its steps are done.

The cut is written before anything is decided, under a name of its own that the decision has: whoever decides has written
it whole. From then on applications may write, and nobody could find it again. It never changes after that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.errors import InputError
from airflow_mirror.ledger.reading import readable
from airflow_mirror.ledger.state import State, in_pieces, whole
from airflow_mirror.partition import TopicPartition

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where the copy ended.

    :param at_ms: when that was read. :param lost: see :meth:`.losses.Losses.to_dict`.
    :param offsets: by source partition, the first source offset that the target lacks, where it is known.
    """

    at_ms: int
    offsets: Mapping[TopicPartition, int]
    lost: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return it as JSON."""
        topics: dict[str, dict[int, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            topics.setdefault(tp.topic, {})[tp.partition] = offset
        return json.dumps({"v": _VERSION, "at": self.at_ms, "cut": topics, "lost": self.lost}).encode()

    @classmethod
    def decode(cls, text: bytes) -> Cut:
        """Return what :meth:`encode` wrote. :raises LedgerNewer: a newer version of the package did."""
        found = readable(text, _VERSION, "where a copy was cut", "at", "cut", "lost")
        offsets = {TopicPartition(topic, int(p)): int(o) for topic, of in found["cut"].items() for p, o in of.items()}
        return cls(at_ms=int(found["at"]), offsets=offsets, lost=found["lost"])


class Record:
    """What one attempt keeps.

    :param state: of the keys that begin with :func:`prefix` of the mirror.
    """

    def __init__(self, state: State, mirror: str, attempt: str) -> None:
        self._state, self._mirror, self._attempt = state, mirror, attempt
        self._key = f"{prefix(mirror)}{attempt}"

    def write_cut(self, cut: Cut) -> None:
        """Write where the copy ended, before that is decided."""
        self._state.write(in_pieces(f"{self._key}/cut", cut.encode()))

    def forget_others(self) -> None:
        """Remove what attempts that came to nothing have left, once this one is decided."""
        others = [key for key in self._state.read() if not key.startswith(f"{self._key}/")]
        if others:
            self._state.write(dict.fromkeys(others))

    def cut(self) -> Cut:
        """Return where the copy ended.

        :raises InputError: it is not there.
        """
        text = whole(self._state.read(), f"{self._key}/cut")
        if text is None:
            raise InputError(
                f"the target's ledger says that mirror {self._mirror!r} was failed over ({self._attempt}), and not where "
                "its copy ended: records of it were deleted."
            )
        return Cut.decode(text)

    def done(self) -> dict[str, Any]:
        """Return what the steps that are done found, by their names, in their order."""
        value = self._state.read().get(f"{self._key}/done")
        return {} if value is None else readable(value, _VERSION, "what a failover has done", "steps")["steps"]

    def write_done(self, done: Mapping[str, Any]) -> None:
        """Write which steps are done."""
        self._state.write({f"{self._key}/done": json.dumps({"v": _VERSION, "steps": done}, default=str).encode()})

    def returned(self) -> dict[str, Any] | None:
        """Return what was found when the source had returned, and was fenced; None: that was not done."""
        value = self._state.read().get(f"{self._key}/returned")
        return None if value is None else readable(value, _VERSION, "a source that returned", "found")["found"]

    def write_returned(self, found: Mapping[str, Any]) -> None:
        """Write that, under a key of its own: the failover may be completed by another process just then."""
        self._state.write({f"{self._key}/returned": json.dumps({"v": _VERSION, "found": found}).encode()})

    def exported(self) -> dict[str, Any]:
        """Return what was noted about exports of the old source's topics, by topic."""
        start = f"{self._key}/export/"
        found = {key: value for key, value in self._state.read().items() if key.startswith(start)}
        said = {key: readable(value, _VERSION, "an export", "found")["found"] for key, value in found.items()}
        return {key.removeprefix(start): one for key, one in said.items()}

    def write_exported(self, topic: str, found: Mapping[str, Any]) -> None:
        """Note that a topic's export is finished and was read back, or that its topic is about to be deleted."""
        self._state.write({f"{self._key}/export/{topic}": json.dumps({"v": _VERSION, "found": found}).encode()})


def prefix(mirror: str) -> str:
    """Return what the keys of a mirror's failovers begin with."""
    return f"failover/{mirror}/"
