"""What one pass found and did, in a few kilobytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.sync.brief import LONGEST, brief, told


@dataclass(kw_only=True)
class FollowReport:
    """One pass over all groups. A group or position that was not written stands in one of the lists, with its cause.

    :param groups: groups that follow, with at least one position.
    :param positions: positions on the target that are the source's, or held.
    :param written: those of them that this pass set.
    :param held: positions that are held at the target's end.
    :param left_alone: positions that are not the mirror's, or have no place on the target.
    :param active: groups with members on the target.
    :param gone: groups that have followed, and that the source no longer has.
    :param left_out: topics whose positions don't follow; that the source lists no group at all.
    :param failed: groups that could not be read or written.
    :param took_s: seconds.
    """

    groups: int = 0
    positions: int = 0
    written: int = 0
    held: list[str] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)
    active: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    took_s: float = 0.0

    def __str__(self) -> str:
        """One line that stays the same while nothing happens but groups moving on."""
        others = (
            (self.held, "positions held at the target's end"),
            (self.left_alone, "left alone"),
            (self.active, "groups active on the target"),
            (self.gone, "gone at the source"),
            (self.left_out, "left out"),
            (self.failed, "groups failed"),
        )
        return told(f"{self.groups} follow", others)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values. Of each list: how long it is, and its first lines."""
        alone = len(self.left_alone)
        said = [f"{alone} position(s) left alone, as {min(self.left_alone)[:LONGEST]}"] if alone else []
        return {"said": said, **brief(vars(self))}
