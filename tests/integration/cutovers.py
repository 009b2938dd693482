"""Cutovers of one world, and what is seen of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.decision import FenceState, fence_state
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan.owned import owned_topics
from airflow_mirror.verify.remaining import verify_rest
from tests import cutting_over
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import HeardFence, World
from tests.waiting import wait_until

_TIMES = {f.name for f in dataclasses.fields(Limits)}


def cut_over(world: World, **changes: Any) -> CutoverReport:
    plan = changes.pop("plan", None) or world.plan()
    arguments: dict[str, Any] = {
        "fence": HeardFence(world.source),
        "accept_ledger_writers": ["User:*"],
        "store": world.kept(changes.pop("run_dir", None)),
        "verify": verify_rest(plan, world.source.config, world.target.config),
        "limits": dataclasses.replace(LIMITS, **{k: changes.pop(k) for k in _TIMES & changes.keys()}),
        **changes,
    }
    return cutting_over.cut_over(world.on, world.keep(plan), **arguments)


def decided(world: World) -> FenceState:
    """What is decided about the mirror's fence."""
    found = fence_state(Ledger(world.target).values(), world.mirror.name)
    assert found is not None
    return found


def opened_by(world: World) -> str | None:
    """The plan that opened the topic, as the ledger says."""
    owned = owned_topics(Ledger(world.target)).get(world.topic)
    return None if owned is None else owned.opened_by


def caught_up(world: World) -> None:
    wait_until(lambda: world.target.offsets(world.tps) == world.source.offsets(world.tps))


def on_disk(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((world.run_dir / "report.json").read_text())
    return found


def report_ends(report: CutoverReport) -> dict[TopicPartition, int]:
    return {TopicPartition(row["topic"], row["partition"]): row["end"] for row in report.ends}
