"""``airflow-mirror swap-fence``: finds the kept fence on the target, and says what it changes."""

from __future__ import annotations

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import swap_fence as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover.decision import OPENED, FenceState, note_copy
from airflow_mirror.cutover.fence import AclFence, name_of
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import keep as keep_plan
from tests.builders import plan_of, rule, topic_plan
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import Acls

PLAN = plan_of(
    Mirror(name="flow", source="kafka_dc1", target="kafka_dc2"), topic_plan("orders", {0: 0}, source_topic_id="id")
)


class Source(Acls):
    """A source with one writer; the principal is that of a certificate, which nobody knows here."""

    principal = None
    config = ClientConfig({"bootstrap.servers": "source:9092"}, "source")

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def source(away: None, dst: LedgerCluster, monkeypatch: pytest.MonkeyPatch) -> Source:
    one = Source(rule("orders", "WRITE", "ALLOW", "User:shop"))
    monkeypatch.setattr(command, "ClusterAdmin", lambda _: one)
    fence = AclFence(one)  # type: ignore[arg-type]
    intent = fence.intent(["orders"])
    fence.raise_(intent, name_of("flow", "monday", "i"), unfenced)
    keep_plan(PLAN, dst.state, dst.ledger)
    there = FenceState(
        run="monday", attempt=1, id="i", plan=PLAN.hash, revision=PLAN.revision, owner="o", max_fence_s=60.0,
        phase=OPENED, intent=intent.value(),
    )  # fmt: skip
    note_copy(dst.ledger, "flow", there)
    return one


def swap(*options: str, mirror: str = "flow") -> int:
    return main(["swap-fence", "--mirror", mirror, "--source", "src", "--target", "dst", *options])


def test_kept_fence_is_found_shown_and_swapped(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    there = set(source.acls)
    assert swap("--principal", "User:CN=mirror") == 0 and source.acls == there
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("would be: ") for line in lines) and len(lines) == 3
    assert swap("--principal", "User:CN=mirror", "--yes") == 0
    assert "ALLOW WRITE on topic orders for User:CN=mirror" in capsys.readouterr().out
    assert rule("orders", "WRITE", "DENY") not in source.acls
    assert rule("orders", "WRITE", "DENY", "User:shop") in source.acls


def test_principal_that_nobody_knows_is_asked_for(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert swap() == 2 and "which principal" in capsys.readouterr().err


def test_mirror_without_a_kept_fence_is_said(source: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert swap("--principal", "User:m", mirror="flo") == 1
    assert "no cutover of mirror 'flo' has finished with" in capsys.readouterr().err
