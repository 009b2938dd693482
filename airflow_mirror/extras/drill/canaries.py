"""What the source had acknowledged when it was lost; passed between the steps of a drill as a JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from airflow_mirror.common.files import replace_file
from airflow_mirror.errors import InputError


@dataclass(kw_only=True)
class Canaries:
    """What the source acknowledged before the disaster.

    :param acked: ``[partition, offset, id, acknowledged at (epoch ms)]`` per record.
    :param positions: next offset to read of the drill's group, by partition, from its last commit.
    :param disaster_ms: when the source was lost, epoch ms.
    :param written_on_ms: when a canary was acknowledged that was sent after that, epoch ms: writing had not stopped.
    """

    topic: str
    group: str
    acked: list[tuple[int, int, str, int]] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    disaster_ms: int = 0
    written_on_ms: int = 0

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Canaries:
        """Read what ``save`` wrote.

        :raises InputError: nothing was written there.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                str(path), "there are no canaries", "Run LoseSourceOperator first, in the same DAG run."
            ) from None
        values["positions"] = {int(p): o for p, o in values["positions"].items()}
        values["acked"] = [tuple(row) for row in values["acked"]]
        return cls(**values)
