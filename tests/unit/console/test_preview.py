"""``airflow-mirror preview``: of the mirror's last plan, with its words, and with an exit status that scripts can use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import preview as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.forecast import Forecast
from airflow_mirror.cutover.platform import Side
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan.kept import keep
from airflow_mirror.plan.model import Finding
from airflow_mirror.rollback import foresee
from airflow_mirror.verify.proof import Proofs
from tests.unit.cutover.builders import a_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState

PLAN = a_plan("orders")
WELL = Preview(
    mirror="flow", plan=PLAN.hash, revision=PLAN.hash, at=1.0, findings=[Finding("pass", "lag", "clusters", "none")],
    forecast=Forecast(steps={"drain": 2.5}),
)  # fmt: skip


class World:
    """What the command asks of, and what it finds."""

    def __init__(self) -> None:
        self.found, self.asked = WELL, list[tuple[Any, ...]]()
        self.ledger, self.state = MemoryLedger(), MemoryState()
        keep(PLAN, self.state, self.ledger)
        Proofs(self.state, "flow").add(PLAN, {"orders": "id"}, "batches", {TopicPartition("orders", 0): (0, 7)})

    def preview(self, *given: Any, **how: Any) -> Preview:
        self.asked.append((*given, how))
        return self.found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    target = SimpleNamespace(config="dst", topics=lambda names: {n: SimpleNamespace(topic_id="id") for n in names})

    @contextmanager
    def cluster(one: Any, *_: Any) -> Iterator[Any]:
        yield one if isinstance(one, str) else target

    maps = SimpleNamespace(positions=None, to_target=None)
    monkeypatch.setattr(command, "target_of", cluster)
    monkeypatch.setattr(command, "config_of", lambda name, _: name)
    monkeypatch.setattr(command, "ClusterAdmin", cluster)
    monkeypatch.setattr(command, "OffsetMaps", contextmanager(lambda *_: iter([maps])))
    monkeypatch.setattr(Side, "ledger", made.ledger)
    monkeypatch.setattr(Side, "state", lambda *_, **__: made.state)
    for name in ("airflow_mirror.ledger.state.state_of", "airflow_mirror.console.preview.state_of"):
        monkeypatch.setattr(name, lambda *_, **__: made.state)
    monkeypatch.setattr(command, "preview_cutover", made.preview)
    monkeypatch.setattr(foresee, "foresee", lambda plan, *_: Finding("warn", "way_back", "old source", plan.hash, "So."))
    return made


def run(*words: str, mirror: str = "flow") -> int:
    return main(["preview", "--target", "dst", "--mirror", mirror, *words])


def test_last_plan_is_looked_at_with_the_given_words(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == run("--source", "elsewhere", "--open-by-default", "true", "--max-fence-s", "30") == 0
    (on, _, plan, how), (other, _, _, more) = world.asked[:2]
    assert (plan.hash, on.source.admin, other.source.admin) == (PLAN.hash, PLAN.mirror.source, "elsewhere")
    assert (how["limits"].max_fence_s, more["limits"].max_fence_s) == (60.0, 30.0)
    assert isinstance(how["fence"], AclFence) and how["compared_to"] == {TopicPartition("orders", 0): 7}
    assert [one["fence"]._open_by_default for one in (how, more)] == [None, True]
    assert run("--accept-still-groups", "a", "b", "--leave-out-groups", "c") == 0
    groups = [(one[-1]["accept_still_groups"], one[-1]["leave_out_groups"]) for one in world.asked]
    assert groups == [((), ()), ((), ()), (["a", "b"], ["c"])]
    printed = capsys.readouterr().out.splitlines()
    said = ["predicted length of the fence: 2.5 s (drain 2.5)", "ok: lag: clusters: none."]
    assert printed[:3] == [*said, f"warn: way_back: old source: {PLAN.hash}. So."]


def test_exit_status_says_whether_a_fence_could_be_raised(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.found = replace(WELL, findings=[Finding("block", "lag", "orders-0", "stands still", "Look there.")])
    assert run("--json") == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["level"] == "block"
    assert run(mirror="flwo") == 2
    assert "--mirror flwo: the target's ledger knows no such mirror. Nothing was changed. There: flow." in (
        capsys.readouterr().err
    )
