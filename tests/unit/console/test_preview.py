"""``airflow-mirror preview``: of the mirror's last plan, with its words, and with an exit status that scripts can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import preview as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.forecast import Forecast
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.request import Clusters, CutoverRequest, Limits
from airflow_mirror.cutover.rollback import foresee
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import keep
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import a_plan

PLAN = a_plan("orders")
WELL = Preview(
    mirror="flow", plan=PLAN.hash, revision=PLAN.hash, at=1.0, findings=[Finding("pass", "lag", "clusters", "none")],
    forecast=Forecast(steps={"drain": 2.5}),
)  # fmt: skip


class World:
    """What the command asks of, and what it finds."""

    def __init__(self, dst: LedgerCluster) -> None:
        self.found, self.asked = WELL, list[tuple[CutoverRequest, str, str]]()
        self.proves: Any = None
        keep(PLAN, dst.state, dst.ledger)

    @contextmanager
    def connected(
        self, request: CutoverRequest, source: ClientConfig, target: ClientConfig, prove: Any
    ) -> Iterator[Clusters]:
        self.asked.append((request, source.bootstrap, target.bootstrap))
        self.proves = prove
        with ClusterAdmin(source) as here, ClusterAdmin(target) as there:
            yield Clusters(on=Platform.of(here, there), fence=AclFence(here), verify=lambda _: [])


@pytest.fixture
def world(dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(dst)
    for name, server in ((PLAN.mirror.source, "planned"), ("elsewhere", "elsewhere")):
        Path(name).write_text(f"bootstrap.servers={server}:1\n")
    monkeypatch.setattr(command, "connected", made.connected)
    monkeypatch.setattr(command, "require_planned", lambda *_: None)
    monkeypatch.setattr(command, "preview_cutover", lambda *_: made.found)
    monkeypatch.setattr(foresee, "foresee", lambda plan, *_: Finding("warn", "way_back", "old source", plan.hash, "So."))
    return made


def run(*words: str, mirror: str = "flow") -> int:
    return main(["preview", "--target", "dst", "--mirror", mirror, *words])


def test_last_plan_is_looked_at_with_the_given_words(
    world: World, dst: LedgerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == run("--source", "elsewhere", "--open-by-default", "true", "--max-fence-s", "30") == 0
    assert run("--accept-still-groups", "a", "b", "--leave-out-groups", "c", "--allow-rewind", "--quiet-s", "2") == 0
    there = dst.config.bootstrap
    assert [one[1:] for one in world.asked] == [("planned:1", there), ("elsewhere:1", there), ("planned:1", there)]
    groups = {"accept_still_groups": ["a", "b"], "leave_out_groups": ["c"]}
    assert [one for one, *_ in world.asked] == [
        CutoverRequest(plan=PLAN),
        CutoverRequest(plan=PLAN, open_by_default=True, limits=Limits(max_fence_s=30)),
        CutoverRequest(plan=PLAN, **groups, allow_rewind=True, limits=Limits(quiet_s=2)),  # type: ignore[arg-type]
    ]
    printed = capsys.readouterr().out.splitlines()
    said = ["predicted length of the fence: 2.5 s (drain 2.5)", "ok: lag: clusters: none"]
    assert printed[:3] == [*said, f"warn: way_back: old source: {PLAN.hash}. So."]


def test_registries_that_are_named_are_asked_instead_of_the_plans(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (run(), world.proves) == (0, None)
    assert run("--source-registry", "http://old:8081") == 2
    assert "only one of both registries" in capsys.readouterr().err
    assert run("--source-registry", "http://old:8081", "--target-registry", "http://new:8081") == 0
    how = world.proves.keywords
    assert [(how[side].role, how[side].url) for side in ("here", "there")] == [
        ("source", "http://old:8081"), ("target", "http://new:8081"),
    ]  # fmt: skip
    assert run("--source-registry", "nowhere.properties", "--target-registry", "http://new:8081") == 2
    assert "neither an address nor a file" in capsys.readouterr().err


def test_exit_status_says_whether_a_fence_could_be_raised(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.found = replace(WELL, findings=[Finding("block", "lag", "orders-0", "stands still", "Look there.")])
    assert run("--json") == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["level"] == "block"
    assert run(mirror="flwo") == 2
    assert (
        "mirror 'flwo'\n  why: the target's ledger knows no such mirror. Nothing was changed\n  do:  Give one of flow."
        in (capsys.readouterr().err)
    )
