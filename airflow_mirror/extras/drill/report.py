"""The figures of a drill: what was lost, and how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.store import Drill


@dataclass(frozen=True, kw_only=True)
class DrillReport:
    """The figures of one drill. Times in seconds.

    :param lost: canaries that the source had acknowledged and the target does not hold.
    :param skipped: canaries on the target, at or after the group's position, that the group did not receive.
    :param reread: canaries before its position that it received again.
    """

    topic: str
    acknowledged: int
    on_target: int
    lost: int
    rpo_s: float
    rto_s: float
    first_read_s: float
    first_write_s: float
    skipped: int
    reread: int

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


def over(drill: Drill) -> dict[str, tuple[float, float]]:
    """Return what was measured and what is wanted, of each figure that is above its objective."""
    figures = drill.figures
    return {key: (figures[key], most) for key, most in drill.wanted.items() if figures and figures[key] > most}


def failures(drill: Drill) -> list[str]:
    """Return what fails a drill, one line each: also what it did not come to."""
    return [*_measured(drill), *_way_back(drill.failback), *_unnoticed(drill.rehearsal)]


def _measured(drill: Drill) -> Iterator[str]:
    figures = drill.figures
    if not figures:
        yield "nothing was measured: a task before the failover failed, or the run was ended"
        return
    for key, (found, most) in over(drill).items():
        lost = f" ({figures['lost']} records lost)" if key == "rpo_s" else ""
        yield f"{key.removesuffix('_s').upper()} {found:.2f} s{lost}, wanted at most {most:g} s"
    if figures["skipped"] or figures["reread"]:
        yield f"the group skipped {figures['skipped']} and re-read {figures['reread']} records"


def _way_back(back: Mapping[str, Any]) -> Iterator[str]:
    if not back:
        yield "there was no failback: its task failed, or the run was ended"
    if not back or back.get("left_out"):
        return
    yield from (f"failback: {one}" for one in back["differing"])
    if back["nowhere"]:
        yield f"failback: {back['nowhere']} acknowledged records are on neither side"
    if back["skipped"] or back["reread"]:
        yield f"failback: the group skipped {back['skipped']} and re-read {back['reread']} records"


def _unnoticed(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from (f"rehearsal of {row['fault']}: {row['how']}" for row in rows if row["noticed_s"] is None)


def measure(
    canaries: Canaries,
    held: set[tuple[int, int, str]],
    positions: dict[int, int],
    got: list[tuple[int, int, str]],
    moments: dict[str, float],
) -> DrillReport:
    """Count what was lost, skipped and read again.

    :param held: ``(partition, offset, key)`` of everything that the target held at the failover.
    :param positions: where the group continued, by partition.
    :param got: the records that it received, as in ``held``.
    :param moments: when it read (``read``) and when a record was acknowledged (``write``), seconds since the epoch.
    """
    disaster_s = canaries.disaster_ms / 1000
    # Same partition, same offset, same key: a canary elsewhere was not copied correctly.
    lost = [row for row in canaries.acked if row[:3] not in held]
    due = {row for row in held if row[1] >= positions[row[0]]}
    read_s = max(0.0, moments.get("read", moments["write"]) - disaster_s)
    write_s = max(0.0, moments["write"] - disaster_s)
    return DrillReport(
        topic=canaries.topic,
        acknowledged=len(canaries.acked),
        on_target=len(canaries.acked) - len(lost),
        lost=len(lost),
        rpo_s=round(max((canaries.disaster_ms - row[3]) / 1000 for row in lost) if lost else 0.0, 3),
        rto_s=round(max(read_s, write_s), 3),
        first_read_s=round(read_s, 3),
        first_write_s=round(write_s, 3),
        skipped=len(due - set(got)),
        reread=len({row for row in got if row[1] < positions[row[0]]}),
    )
