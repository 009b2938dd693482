"""``airflow-mirror preview``: of the mirror's last plan, with its words, and with an exit status that scripts can use."""

from __future__ import annotations

import json

import pytest

from airflow_mirror.console import preview as command
from airflow_mirror.console.main import main, parser
from airflow_mirror.console.registries import prover_of
from airflow_mirror.console.request import request_of
from airflow_mirror.cutover.forecast import Forecast
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.preview import Preview
from airflow_mirror.cutover.request import Clusters, CutoverRequest
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.ledger import LedgerCluster
from tests.memory.rules import Rules
from tests.unit.console.conftest import named
from tests.unit.cutover.builders import a_plan
from tests.unit.plan.builders import a_mirror

WORDS = ["--target", "dst", "--mirror", "flow"]


class World:
    """A mirror whose topic is copied, and whose plan names its source by the file ``src``."""

    def __init__(self, src: DrivenCluster, dst: LedgerCluster) -> None:
        self.src, self.dst = src, dst
        dst.rules = Rules()
        for cluster in (src, dst):
            Writer(cluster.create("t").logs[0]).plain(3)
        self.plan = self.planned()
        keep(self.plan, dst.state, dst.ledger)
        topic_id = dst.admin.topics(["t"])["t"].topic_id
        dst.ledger.decide(
            lambda _: {"topic/t": Owned(topic_id=topic_id, mirror="flow", source_id=src.cluster_id).value()}
        )

    def planned(self) -> Plan:
        with ClusterAdmin(self.src.config) as admin:
            topic = topic_plan("t", {0: 0}, source_topic_id=admin.topics(["t"])["t"].topic_id)
        clusters = {"source_cluster_id": self.src.cluster_id, "target_cluster_id": self.dst.cluster_id}
        return plan_of(a_mirror(name="flow", source="src"), topic, **clusters)

    def run(self, *words: str, mirror: str = "flow") -> int:
        return main(["preview", "--target", "dst", "--mirror", mirror, *words])


@pytest.fixture
def world(src: DrivenCluster, dst: LedgerCluster) -> World:
    return World(src, dst)


def test_words_are_those_of_a_cutover_of_the_last_plan() -> None:
    plan = a_plan("orders")

    def asked(*words: str) -> CutoverRequest:
        return request_of(parser("preview").parse_args([*WORDS, *words]), plan)

    groups = {"accept_still_groups": ["a", "b"], "leave_out_groups": ["c"]}
    assert asked() == CutoverRequest(plan=plan)
    assert asked("--open-by-default", "true", "--max-fence-s", "30") == CutoverRequest(
        plan=plan, open_by_default=True, limits=Limits(max_fence_s=30)
    )
    assert asked(
        "--accept-still-groups", "a", "b", "--leave-out-groups", "c", "--allow-rewind", "--quiet-s", "2"
    ) == CutoverRequest(plan=plan, **groups, allow_rewind=True, limits=Limits(quiet_s=2))  # type: ignore[arg-type]


def test_last_plan_is_looked_at_between_its_clusters(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing blocks it watches for ten seconds who writes: those are left out here."""
    well = [Finding("pass", "lag", "clusters", "none")]

    def looked(request: CutoverRequest, clusters: Clusters, _: object) -> Preview:
        assert (clusters.on.source.admin.role, clusters.on.target.admin.role) == ("source", "target")
        return Preview(
            mirror="flow", plan=request.plan.hash, revision=request.plan.revision, at=1.0, findings=well,
            forecast=Forecast(steps={"drain": 2.5}),
        )  # fmt: skip

    monkeypatch.setattr(command, "preview_cutover", looked)
    assert world.run() == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert (first, second) == ("predicted length of the fence: 2.5 s (drain 2.5)", "ok: lag: clusters: none")
    assert third.startswith("warn: way_back: old source: no way back after opening")
    with DrivenCluster("source") as other:
        named(other, "elsewhere")
        assert world.run("--source", "elsewhere") == 2
        assert f"it is {other.cluster_id}, and mirror 'flow' was planned for" in capsys.readouterr().err


def test_registries_that_are_named_are_asked_instead_of_the_plans(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    def proves(*words: str) -> object:
        return prover_of(parser("preview").parse_args([*WORDS, *words]), world.plan.mirror)

    assert proves() is None
    assert world.run("--source-registry", "http://old:8081") == 2
    assert "only one of both registries" in capsys.readouterr().err
    how = proves("--source-registry", "http://old:8081", "--target-registry", "http://new:8081").keywords  # type: ignore[attr-defined]
    assert [(how[side].role, how[side].url) for side in ("here", "there")] == [
        ("source", "http://old:8081"), ("target", "http://new:8081"),
    ]  # fmt: skip
    assert world.run("--source-registry", "nowhere.properties", "--target-registry", "http://new:8081") == 2
    assert "neither an address nor a file" in capsys.readouterr().err


def test_exit_status_says_whether_a_fence_could_be_raised(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.src.rules = None
    assert world.run("--json") == 1
    blocks = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["level"] == "block"]
    assert [one["check"] for one in blocks] == ["fence_rights"]
    assert not world.src.asked("CreateAcls")
    assert world.run(mirror="flwo") == 2
    assert (
        "mirror 'flwo'\n  why: the target's ledger knows no such mirror. Nothing was changed\n  do:  Give one of flow."
        in (capsys.readouterr().err)
    )
