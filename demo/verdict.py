"""What the referee and the live traffic found, as values. The demo's exit status follows from them alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from demo.clients import Partition


@dataclass(frozen=True)
class Difference:
    """The first place at which one partition differs. ``offset`` is the source's, or the target's if it has more."""

    partition: Partition
    offset: int
    what: str

    def __str__(self) -> str:
        return f"{self.partition} offset {self.offset}: {self.what}"


@dataclass
class TopicResult:
    """One topic on both sides.

    ``records`` and ``bytes`` were compared and are equal, up to the source's end; ``added`` stand behind it on the
    target. ``differences`` and ``offsets`` hold at most one place for each partition: of records, and of log bounds.
    """

    topic: str
    partitions: int = 0
    records: int = 0
    bytes: int = 0
    added: int = 0
    differences: list[Difference] = field(default_factory=list)
    offsets: list[Difference] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """One sentence for each partition that differs."""
        return [f"topic {d}" for d in (*self.offsets, *self.differences)]


@dataclass
class GroupResult:
    """One consumer group: what it had committed on the source, and what is committed on the target now."""

    group: str
    before: Mapping[Partition, int]
    after: Mapping[Partition, int]

    @property
    def problems(self) -> list[str]:
        """One sentence for each partition at which the group would continue elsewhere."""
        found = []
        for p in sorted({*self.before, *self.after}):
            before, after = self.before.get(p), self.after.get(p)
            if before != after:
                found.append(f"group {self.group!r} on {p}: stood at {_at(before)}, now at {_at(after)}")
        return found


def _at(offset: int | None) -> str:
    return "no offset" if offset is None else f"offset {offset}"


@dataclass
class TrafficResult:
    """What the live producer was promised and the live group saw, by sequence number, over both clusters."""

    acknowledged_source: int = 0
    acknowledged_target: int = 0
    refused: int = 0
    reread: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    silent_s: float = 0.0
    """Seconds between the last acknowledgement of the source and the first of the target."""

    @property
    def problems(self) -> list[str]:
        """What went wrong, with the first sequence numbers."""
        found = list(self.unexpected)
        if self.reread:
            found.append(f"live group: {len(self.reread)} records read twice, the first is number {self.reread[0]}")
        if self.lost:
            found.append(
                f"live group: {len(self.lost)} acknowledged records never read, the first is number {self.lost[0]}"
            )
        if not self.acknowledged_source or not self.acknowledged_target:
            found.append(
                f"live traffic: {self.acknowledged_source} records acknowledged by the source and "
                f"{self.acknowledged_target} by the target; without both nothing is shown"
            )
        return found


def count_traffic(
    source: Collection[int], target: Collection[int], refused: int, read: Iterable[int], silent_s: float,
    unexpected: Iterable[str] = (),
) -> TrafficResult:  # fmt: skip
    """Count by sequence numbers: acknowledged by ``source`` and ``target``, ``read`` by the group in all its lives.

    A number that was read but never acknowledged is no loss and no re-read: the acknowledgement may have got lost.
    """
    seen = Counter(read)
    return TrafficResult(
        acknowledged_source=len(source),
        acknowledged_target=len(target),
        refused=refused,
        reread=sorted(n for n, times in seen.items() if times > 1),
        lost=sorted(n for n in {*source, *target} if n not in seen),
        unexpected=list(unexpected),
        silent_s=silent_s,
    )


@dataclass
class Verdict:
    """All of it."""

    topics: list[TopicResult] = field(default_factory=list)
    groups: list[GroupResult] = field(default_factory=list)
    traffic: TrafficResult | None = None
    figures: dict[str, str] = field(default_factory=dict)
    """More lines for the table: fence, MB/s."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each phase took."""

    @property
    def problems(self) -> list[str]:
        """Everything that does not hold; empty when the migration is proven."""
        found = [problem for topic in self.topics for problem in topic.problems]
        found += [problem for group in self.groups for problem in group.problems]
        if not sum(t.records for t in self.topics):
            found.append("no record was compared: nothing is proven")
        return found + (self.traffic.problems if self.traffic else [])
