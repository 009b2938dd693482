"""Connections that lead to other clusters than a mirror was planned for: who goes by its plan says so, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import InputError, VerificationFailed
from airflow_mirror.jobs.driver.prepare import prepare_to_copy
from airflow_mirror.jobs.driver.verify import Comparing, _here, verify
from airflow_mirror.jobs.request import BulkRequest, VerifyRequest
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.topics import create_target_topics
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster

RECORDS = 20


@dataclass
class World:
    """A mirror whose copy differs from its source in each record.

    :ivar named: file with the source's settings; :meth:`lead` makes them lead to a cluster.
    """

    source: DrivenCluster
    target: LedgerCluster
    plan: Plan
    named: Path
    file: Path

    def lead(self, cluster: DrivenCluster) -> None:
        """Have what names the source lead to a cluster."""
        self.named.write_text("".join(f"{key}={value}\n" for key, value in cluster.config.properties.items()))

    def clusters(self) -> dict[str, Any]:
        """Return what names both clusters and the plan, in a job's request."""
        return {"source": str(self.named), "target": self.target.reference, "plan": str(self.file)}


@pytest.fixture
def world(source: DrivenCluster, ledger_target: LedgerCluster, tmp_path: Path) -> World:
    target = ledger_target
    Writer(source.create("orders").logs[0]).plain(RECORDS)
    mirror = Mirror(name="m", source="old", target="new", topics=["orders"])
    with ClusterAdmin(source.config) as here:
        plan = build(mirror, here, target.admin, probe_target=False)
        create_target_topics(plan, target.admin, unfenced)
        claim(target.ledger, plan, target.admin, lambda _: [plan.source_cluster_id])
    Writer(target.topics["orders"].logs[0]).plain(RECORDS, size=21)
    world = World(source, target, plan, tmp_path / "named.properties", tmp_path / "plan.json")
    world.file.write_text(plan.to_json())
    world.lead(source)
    return world


def compared(world: World, behind: Callable[[], object] = lambda: None, spot_checks: int = 0) -> Any:
    """Compare as the job does. :param behind: called once both sides were read."""
    request = VerifyRequest(mirror=world.plan.mirror, level="records", spot_checks=spot_checks, **world.clusters())

    @contextmanager
    def comparing() -> Iterator[Comparing]:
        tasks, compare = _here(request)

        def and_then(*asked: Any) -> Any:
            found = compare(*asked)
            behind()
            return found

        yield Comparing(tasks, and_then)

    status: Any = SimpleNamespace(update=lambda *_: None)
    return verify(request, status, comparing)


def test_target_is_not_proven_by_itself(world: World) -> None:
    """What a comparison proves, a cutover compares no more."""
    found, error = compared(world)
    assert isinstance(error, VerificationFailed) and found["proven"] == []
    world.lead(world.target)
    looks = list[str]()
    with pytest.raises(InputError, match=f"source cluster: it is {world.target.cluster_id}, and mirror 'm' was planned"):
        compared(world, lambda: looks.append("one"))
    assert not looks


@pytest.mark.parametrize("spot_checks", [0, 5])
def test_source_that_leads_elsewhere_once_it_is_compared_proves_nothing(world: World, spot_checks: int) -> None:
    with world.target.changing():
        world.target.topics["orders"].logs[0].truncate(0)
        Writer(world.target.topics["orders"].logs[0]).plain(RECORDS)
    found, error = compared(world, spot_checks=spot_checks)
    assert error is None and found["proven"] == [("orders", 0, 0, RECORDS)]
    with pytest.raises(InputError, match="source cluster: it is"):
        compared(world, lambda: world.lead(world.target), spot_checks)


def test_nothing_is_claimed_for_a_copy_of_another_source(world: World) -> None:
    before = dict(world.target.ledger.values())
    request = BulkRequest(mirror=world.plan.mirror, **world.clusters())
    prepare_to_copy(request)
    world.lead(world.target)
    with pytest.raises(InputError, match="source cluster: it is"):
        prepare_to_copy(request)
    assert world.target.ledger.values() == before
