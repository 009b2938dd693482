"""What a failover keeps on the target: where the copy was cut, what lay beyond it, and which of its steps are done.

The cut is written before anything is decided, under a name of its own that the decision has: whoever decides has written
it whole. From then on applications may write, and nobody could find it again. It never changes after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.records import CUT, DONE, EXPORTED, RETURNED
from airflow_mirror.ledger.state import State

STEPS = ("writing", "groups", "settings", "grants")  # of each failover; one that has noted all of them is complete

# By group, positions beyond the target's last stable offset, each with that offset.
Beyond = Mapping[str, Mapping[TopicPartition, tuple[GroupPosition, int]]]


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where the copy ended.

    :param at_ms: when that was read. :param lost: see :meth:`.losses.Losses.to_dict`.
    :param offsets: by source partition, the first source offset that the target lacks, where it is known.
    :param beyond: positions that go back, as they stood then; None: whoever wrote it did not note them.
    """

    at_ms: int
    offsets: Mapping[TopicPartition, int]
    lost: Mapping[str, Any]
    beyond: Beyond | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        topics: dict[str, dict[int, int]] = {}
        for tp, offset in sorted(self.offsets.items()):
            topics.setdefault(tp.topic, {})[tp.partition] = offset
        rows = [
            [group, *tp, position.offset, position.metadata, stable]
            for group, its in (self.beyond or {}).items()
            for tp, (position, stable) in its.items()
        ]
        return {"at": self.at_ms, "cut": topics, "lost": self.lost} | ({} if self.beyond is None else {"beyond": rows})

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Cut:
        """Return what :meth:`to_dict` made."""
        offsets = {TopicPartition(topic, int(p)): int(o) for topic, of in found["cut"].items() for p, o in of.items()}
        beyond: dict[str, dict[TopicPartition, tuple[GroupPosition, int]]] = {}
        for group, topic, number, offset, metadata, stable in found.get("beyond", ()):
            beyond.setdefault(group, {})[TopicPartition(topic, number)] = GroupPosition(offset, metadata), stable
        noted = beyond if "beyond" in found else None
        return cls(at_ms=int(found["at"]), offsets=offsets, lost=found["lost"], beyond=noted)


class Record:
    """What one attempt keeps.

    :param state: of the keys of the mirror's failovers.
    """

    def __init__(self, state: State, mirror: str, attempt: str) -> None:
        self._state, self._mine = state, (mirror, attempt)

    def write_cut(self, cut: Cut) -> None:
        """Write where the copy ended, before that is decided."""
        # In pieces, each under this attempt's name: one that dies amid it leaves no whole cut, and no decision that
        # names it.
        self._state.write(CUT.put(cut.to_dict(), *self._mine))

    def forget_others(self, permit: Permit) -> None:
        """Remove what attempts that came to nothing have left, once this one is decided. :param permit: that it is."""
        mirror, attempt = self._mine
        # Notes of a returned source and of exports as well, of failovers before this one: they were about another cut.
        others = [key for key in self._state.read() if not key.startswith(f"{CUT.below(mirror)}{attempt}/")]
        if others:
            self._state.write(dict.fromkeys(others), permit)

    def cut(self) -> Cut:
        """Return where the copy ended.

        :raises InputError: it is not there.
        """
        cut = CUT.load(Cut.from_dict, self._state.read(), *self._mine)
        # Decided and not there: not an attempt that died, since the cut is written whole before; somebody has deleted
        # records.
        if cut is None:
            mirror, attempt = self._mine
            raise InputError(
                f"the target's ledger says that mirror {mirror!r} was failed over ({attempt}), and not where its copy "
                "ended",
                "records of it were deleted",
            )
        return cut

    def done(self) -> dict[str, Any]:
        """Return what the steps that are done found, by their names, in their order."""
        # Not there: nothing was noted, which is not the same as nothing was done. Each step can be done again.
        values = self._state.read()
        steps = sorted(DONE.under(values, *self._mine), key=_place)
        noted = ((step, DONE.get(values, *self._mine, step)) for step in steps)
        return {step: one["found"] for step, one in noted if one is not None}

    def lacks(self) -> list[str]:
        """Return the steps that are not noted to be done."""
        done = self.done()
        return [name for name in STEPS if name not in done]

    def write_done(self, step: str, found: Mapping[str, Any]) -> None:
        """Write that a step is done, and what it found."""
        # A key for each step: of two calls that complete at once the slower one must not forget for the other what that
        # has done, or it would do it again, when groups and settings are their owners'.
        self._state.write(DONE.put({"found": found}, *self._mine, step))

    def returned(self) -> dict[str, Any] | None:
        """Return what was found when the source had returned, and was fenced; None: that was not done."""
        found = RETURNED.get(self._state.read(), *self._mine)
        return None if found is None else found["found"]

    def write_returned(self, found: Mapping[str, Any]) -> None:
        """Write that, under a key of its own: the failover may be completed by another process just then."""
        self._state.write(RETURNED.put({"found": found}, *self._mine))

    def exported(self) -> dict[str, Any]:
        """Return what was noted about exports of the old source's topics, by topic."""
        values = self._state.read()
        found = {topic: EXPORTED.get(values, *self._mine, topic) for topic in EXPORTED.under(values, *self._mine)}
        return {topic: one["found"] for topic, one in found.items() if one is not None}

    def write_exported(self, topic: str, found: Mapping[str, Any]) -> None:
        """Note that a topic's export is finished and was read back, or that its topic is about to be deleted."""
        # A key for each topic: exports of thousands need no record that holds them all, and one that dies between two
        # loses none.
        self._state.write(EXPORTED.put({"found": found}, *self._mine, topic))


def _place(step: str) -> tuple[int, str]:
    """Return by what steps are sorted: in their order, and behind them those that not every failover has."""
    return (STEPS.index(step) if step in STEPS else len(STEPS)), step
