"""A target with a mirror to retire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.policy import STATE, WISHES
from airflow_mirror.console.main import main
from airflow_mirror.cutover.decision import FenceState, note_copy
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.records import KINDS
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror


def state_of(mirror: str) -> dict[str, bytes]:
    """Return a record of each kind that lies in the state, and of one that nobody knows."""
    rows = [kind for kind in KINDS if kind.topic in (STATE, WISHES)]
    keys = (kind.key(mirror, *["x"] * (len(kind.names) - 1)) + "/0/1" * kind.in_pieces for kind in rows)
    return {**dict.fromkeys(keys, b"{}"), f"future/{mirror}/x": b"{}"}


PLANNED = replace(
    plan_of(a_mirror(name="m"), topic_plan("t", {0: 0}, source_topic_id="id")), known_topics={"before": "identical"}
)


class Target:
    """A target on which everything that happens is written down, in order."""

    config = wire = None

    def __init__(self) -> None:
        self.ledger, self.state = MemoryLedger(), MemoryState()
        self.log: list[str] = []
        self.held, self.maps = False, ["m/t/t-0"]
        self.positions = {"airflow-mirror:m:progress": 3, "airflow-mirror:m2:progress": 1}

    def topics(self, names: Any) -> Mapping[str, Any]:
        return {}

    def group_offsets(self, group: str) -> dict[int, int]:
        return dict.fromkeys(range(self.positions.get(group, 0)), 0)

    def forget_group_offsets(self, group: str, positions: Any, permit: Permit) -> None:
        permit()
        self.positions[group] -= len(positions)
        self.log.append(f"forget {group}")

    def end_writing(self, mirror: str) -> None:
        self.held = False
        self.log.append(f"writing of {mirror} ends, topics {'are' if self.given_up else 'NOT'} given up")

    @property
    def given_up(self) -> bool:
        topics = [one for key, one in self.ledger.values().items() if key.startswith("topic/")]
        return all(one["released"] for one in topics if one.get("mirror") == "m")


class Maps:
    """The offset maps of one mirror."""

    def __init__(self, target: Target, mirror: str) -> None:
        self._target = target
        assert mirror == "m"

    def names(self, _: object) -> list[str]:
        return list(self._target.maps)

    def remove_all(self, _: object, permit: Permit) -> None:
        permit()
        self._target.maps.clear()


def own(target: Target, mirror: str, *topics: str, opened: str | None = None) -> None:
    value = {"v": 1, "topic_id": "x", "mirror": mirror, "source_id": "A", "opened_by": opened, "opened_at": opened}
    target.ledger.decide(lambda _: {f"topic/{topic}": value for topic in topics})


def run(home: Path, *options: str) -> int:
    return main(["retire", "--target", "dst", "--mirror", "m", "--home", str(home), *options])


def fenced(target: Target, phase: str, kind: str = "acl") -> None:
    state = FenceState(
        run="monday", attempt=1, id="i", plan="x", revision="x", owner="o", max_fence_s=60.0, phase=phase,
        process={"host": "w-3"}, kind=kind,
    )  # fmt: skip
    note_copy(target.ledger, "m", state)
    ReportStore(target.state, "m", "monday", None).save(CutoverReport(mirror="m", plan_hash="x"))
