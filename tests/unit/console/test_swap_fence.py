"""``airflow-mirror swap-fence``: finds the kept fence on the target, and says what it changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.cutover.decision import OPENED, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import keep as keep_plan
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.memory.rules import Rules

PLAN = plan_of(
    Mirror(name="flow", source="kafka_dc1", target="kafka_dc2"), topic_plan("orders", {0: 0}, source_topic_id="id")
)


@pytest.fixture
def rules(src: DrivenCluster, dst: LedgerCluster) -> Rules:
    """Those of a source with one writer, and with a fence that a finished cutover has kept."""
    src.rules = Rules(now=frozenset({rule("orders", "WRITE", "ALLOW", "User:shop")}))
    with ClusterAdmin(src.config) as admin:
        fence = AclFence(admin)
        intent = fence.intent(["orders"])
        fence.raise_(intent, name_of("flow", "monday", "i"), unfenced)
    keep_plan(PLAN, dst.state, dst.ledger)
    there = FenceState(
        run="monday", attempt=1, id="i", plan=PLAN.hash, revision=PLAN.revision, owner="o", max_fence_s=60.0,
        phase=OPENED, intent=intent.value(),
    )  # fmt: skip
    note_copy(dst.ledger, "flow", there)
    return src.rules


def swap(*options: str, mirror: str = "flow", source: str = "src") -> int:
    return main(["swap-fence", "--mirror", mirror, "--source", source, "--target", "dst", *options])


def test_kept_fence_is_found_shown_and_swapped(rules: Rules, capsys: pytest.CaptureFixture[str]) -> None:
    there = rules.now
    assert swap("--principal", "User:CN=mirror") == 0 and rules.now == there
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("would be: ") for line in lines) and len(lines) == 3
    assert swap("--principal", "User:CN=mirror", "--yes") == 0
    assert "ALLOW WRITE on topic orders for User:CN=mirror" in capsys.readouterr().out
    assert rule("orders", "WRITE", "DENY") not in rules.now
    assert rule("orders", "WRITE", "DENY", "User:shop") in rules.now


def test_principal_that_nobody_knows_is_asked_for(rules: Rules, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        Path("src").read_text()
        + "security.protocol=SSL\nssl.certificate.location=mirror.pem\nssl.key.location=mirror.pem\n"
    )
    Path("by_certificate").write_text(text)
    assert swap(source="by_certificate") == 2 and "which principal" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mirror", "User:", ":mirror"])
def test_what_is_no_principal_is_not_decided_to_be_spared(
    rules: Rules, dst: LedgerCluster, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """It was decided for good: with the right one behind it, the fence "spares mirror already"."""
    there, decided = rules.now, dst.ledger.values()
    assert swap("--principal", name, "--yes") == 2
    assert f"--principal={name!r}\n  why: no principal" in capsys.readouterr().err
    assert rules.now == there and dst.ledger.values() == decided
    assert swap("--principal", "User:mirror", "--yes") == 0


def test_mirror_without_a_kept_fence_is_said(rules: Rules, capsys: pytest.CaptureFixture[str]) -> None:
    assert swap("--principal", "User:m", mirror="flo") == 1
    assert "no cutover of mirror 'flo' has finished with" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_no_rule_of_another_cluster_is_swapped_or_decided(
    rules: Rules, src: DrivenCluster, dst: LedgerCluster, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """Rules of another cluster's topics of the same names were decided, and its fence was swapped."""
    there, decided = rules.now, dst.ledger.values()
    src.cluster_id = "another"
    assert swap("--principal", "User:m", *options) == 2
    said = capsys.readouterr()
    assert "the source is cluster another\n  why: mirror 'flow' copied from s" in said.err and said.out == ""
    assert rules.now == there and dst.ledger.values() == decided
