"""The figures of a drill, for people and programs."""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_mirror.drill.canaries import Canaries


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

    def failures(self, max_rpo_s: float, max_rto_s: float) -> list[str]:
        """Return what exceeds the limits, one line each."""
        lines = []
        if self.rpo_s > max_rpo_s:
            lines.append(f"RPO {self.rpo_s:.2f} s ({self.lost} records lost), allowed {max_rpo_s:g} s")
        if self.rto_s > max_rto_s:
            lines.append(f"RTO {self.rto_s:.2f} s, allowed {max_rto_s:g} s")
        if self.skipped or self.reread:
            lines.append(f"the group skipped {self.skipped} and re-read {self.reread} records")
        return lines

    def write(self, directory: Path) -> Path:
        """Write ``drill.json`` and ``drill.html``; return the JSON file."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "drill.json"
        path.write_text(json.dumps(self.to_dict(), indent=1), encoding="utf-8")
        rows = "".join(
            f"<tr><th>{html.escape(k)}</th><td>{html.escape(str(v))}</td></tr>" for k, v in self.to_dict().items()
        )
        head = "<!doctype html><meta charset=utf-8><title>Drill</title><h1>Disaster-recovery drill</h1>"
        (directory / "drill.html").write_text(f"{head}<table>{rows}</table>", encoding="utf-8")
        return path


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
