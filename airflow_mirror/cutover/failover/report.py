"""What a failover says of itself: for people, and as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.cutover.failover import check as checks
from airflow_mirror.plan.direction import Direction

_LISTED = 50
_LEFT = 500  # lines of what a step has left undone: its note is one record


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a step has found, as lines for people.

    :param left: what was not done, and why. :param again: a later call may do it.
    """

    done: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    again: bool = False

    def note(self, before: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what is noted of it: how many lines, how many of these were left, and the first of both.

        :param before: the note of a call that has left something for this one.
        """
        earlier, count = ([], 0) if before is None else (_parts(before)[1], before["count"] - before["left"])
        lines = [*self.left[:_LEFT], *[*earlier, *self.done][:_LISTED]]
        found = {"count": count + len(self.left) + len(self.done), "left": len(self.left), "lines": lines}
        return found | ({"again": True} if self.again else {})


def _parts(note: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the lines of a step's note: of what was left, and of what was done."""
    at = min(note.get("left", 0), _LEFT)
    return note["lines"][:at], note["lines"][at:]


@dataclass(kw_only=True)
class FailoverReport:
    """A failover, as far as it got.

    :param lost: see :meth:`.losses.Losses.to_dict`, at the cut.
    :param steps: what each step that is done has found.
    :param took_s: seconds of this call.
    :param fenced_by: as in :class:`.check.Check`.
    :param returned: what was found when the source had returned (:mod:`.returned`); None: nobody has fenced it.
    :param others: as in :class:`.check.Check`.
    """

    mirror: str
    direction: Direction
    lost: dict[str, Any]
    steps: dict[str, Any] = field(default_factory=dict)
    took_s: float = 0.0
    fenced_by: list[str] = field(default_factory=list)
    returned: dict[str, Any] | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values in a few kilobytes."""
        return {
            "mirror": self.mirror,
            "direction": self.direction.value(),
            "lost": self.lost,
            "steps": self.steps,
            "fenced_by": self.fenced_by,
            "returned": self.returned,
            "others": checks.left_out(self.others),
            "took_s": round(self.took_s, 3),
            "text": self.lines(),
        }

    def lines(self) -> list[str]:
        """Return what there is to say, for people."""
        least, most = self.lost["at_least"], self.lost["at_most"]
        much = "nobody knows how much" if most is None else f"at least {least:,} records, at most about {most:,}"
        if self.lost.get("missed_s") is not None:
            much += f"; if the source was only cut off, and went on, {self.lost['until_now']:,}"
        lines = [
            f"mirror {self.mirror!r} was failed over at {self.direction.at}: its target topics are in production",
            *map(checks.fence_line, self.fenced_by),
            f"lost: {much}",
        ]
        # Of all steps what was not done: a person has to know that before what was.
        for name, found in self.steps.items():
            lines += [f"{name}: {line}" for line in _parts(found)[0]]
        lines += checks.left_out(self.others)
        for name, found in self.steps.items():
            lines += [f"{name}: {line}" for line in _parts(found)[1]]
            if not found["lines"]:
                lines.append(f"{name}: nothing to do")
            if (more := found["count"] - len(found["lines"])) > 0:
                lines.append(f"{name}: and {more} more")
        if self.returned is not None:
            lines += [f"the source returned, and was fenced at {self.returned['at']}", *self.returned["took"]]
        return lines
