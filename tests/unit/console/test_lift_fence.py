"""``airflow-mirror lift-fence``: the fence is found by what the target decides, and one that stays up is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.console import clusters
from airflow_mirror.console import lift_fence as command
from airflow_mirror.console.main import main
from airflow_mirror.cutover import lifting, other_fences, report_store
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.decision import CLOSED, LIFTED, OPENED, UP, FenceState, fence_state, note_copy
from airflow_mirror.cutover.fence import AclFence, CallableFence, _named, name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.platform import Platform, Side
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.errors import LedgerLost, LedgerMissing, MirrorError, TryAgain
from airflow_mirror.kafka.model import Acl
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import keep as keep_plan
from tests.builders import plan_of, rule, topic_plan
from tests.unit.cutover.builders import Acls
from tests.unit.ledger.memory import MemoryLedger, MemoryState

CALLS: list[str] = []


def gate(source: Any) -> CallableFence:
    """A fence of somebody's own; it does not open for the run that is stuck."""
    assert source.config.role == "source"
    return CallableFence(lambda: None, lambda: CALLS.append(source.config.bootstrap))


def stuck(source: Any) -> CallableFence:
    """A fence that does not open."""

    def off() -> None:
        raise LedgerMissing()

    return CallableFence(lambda: None, off)


ACLS = set[Any]()
PLAN = plan_of(
    Mirror(name="flow", source="kafka_dc1", target="kafka_dc2"), topic_plan("orders", {0: 0}, source_topic_id="id")
)


class Cluster(Acls):
    """An admin that is asked for nothing but ACLs."""

    has_authorizer = True

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(authorizer=self.has_authorizer)
        self.config, self.role, self.acls = config, config.role, ACLS

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Target(MemoryState):
    """The state on the target, and its ledger; they answer or not."""

    away: MirrorError | None = None

    def __init__(self) -> None:
        super().__init__()
        self.ledger = MemoryLedger()

    def read(self) -> dict[str, bytes]:
        if self.away is not None:
            raise self.away
        return super().read()

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        self.read()
        super().write(values, permit)

    def values(self) -> Values:
        self.read()
        return self.ledger.values()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    CALLS.clear(), ACLS.clear()
    one = Target()
    for module in (clusters, command):
        monkeypatch.setattr(module, "ClusterAdmin", Cluster)
    monkeypatch.setattr(Side, "ledger", property(lambda side: one if side.admin.role == "target" else None))
    monkeypatch.setattr(Side, "state", lambda *_, **__: one)
    monkeypatch.setattr(Side, "end_writing", lambda _, mirror: CALLS.append(f"lease of {mirror}"))
    monkeypatch.setattr(lifting, "require_over", lambda *_: None)
    keep_plan(PLAN, one, one.ledger)
    return one


def fenced(target: Target, run: str, phase: str = UP, plan_hash: str = PLAN.hash, **changes: Any) -> str:
    """A run that ended while its fence was up, on a host that is lost."""
    record = FenceRecord(kind="callable", intent={"topics": ["orders"]}, requested=time.time())
    report = CutoverReport(mirror="flow", plan_hash=plan_hash, fence=record, id=run)
    report.outcome = changes.pop("outcome", reports.RUNNING)
    for name, value in changes.items():
        setattr(record, name, value)
    report_store.ReportStore(target, "flow", run, None).save(report)
    state = FenceState(
        run=run, attempt=1, id=run, plan=plan_hash, revision=plan_hash, owner="o", max_fence_s=60.0, kind="callable",
        phase=phase, intent=Intent(topics=("orders",)).value(),
    )  # fmt: skip
    note_copy(target.ledger, "flow", state)
    return run


def lift(home: Path, *options: str, fence: str = "gate", source: bool = True) -> int:
    words = ["lift-fence", "--mirror", "flow", "--home", str(home), "--fence", f"{__name__}.{fence}"]
    for role in ("source", "target") if source else ("target",):
        (home / role).write_text(f"bootstrap.servers={role}:9092\n")
        words += [f"--{role}", str(home / role)]
    return main([*words, *options])


def phase(target: Target) -> str:
    found = fence_state(target.values(), "flow")
    assert found is not None
    return found.phase


def test_a_killed_cutovers_fence_is_lifted_from_a_host_without_files(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    assert lift(tmp_path) == 0
    assert phase(target) == LIFTED and CALLS == ["source:9092"]
    assert capsys.readouterr().out.splitlines() == ["run monday: lifted: callable, topics orders"]
    found = report_store.ReportStore(target, "flow", "monday", None).load()
    assert found is not None and found.outcome == reports.BACKED_OUT
    assert lift(tmp_path) == 0
    assert "no fence of mirror 'flow' is up" in capsys.readouterr().out and len(CALLS) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"], "nothing is written to this host"


def test_an_opening_that_was_cut_off_is_no_finished_cutover(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "cut off", phase=OPENED)
    assert lift(tmp_path) != 0 and "run the cutover again" in capsys.readouterr().err and CALLS == []
    assert lift(tmp_path, "--include-retained") == 0 and phase(target) == CLOSED


def test_a_finished_cutovers_fence_stays_unless_told(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "done", phase=OPENED, outcome=reports.DONE, kept=True)
    assert lift(tmp_path) == 0
    assert phase(target) == OPENED and CALLS == [] and "--include-retained lifts it" in capsys.readouterr().out
    assert lift(tmp_path, "--include-retained") == 0
    assert phase(target) == CLOSED
    assert CALLS == ["lease of flow", "source:9092"]  # no tail may copy what is written then


def test_report_that_can_not_be_read_keeps_no_fence_up(target: Target, tmp_path: Path) -> None:
    target.write({"report/flow/broken/000001-x/0/1": b"{"})
    fenced(target, "good")
    assert lift(tmp_path) == 0 and phase(target) == LIFTED


def test_fence_that_does_not_open_is_an_error(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fenced(target, "monday")
    assert lift(tmp_path, fence="stuck") == 1
    assert phase(target) == "lifting" and "callable, topics orders" in capsys.readouterr().err
    assert lift(tmp_path) == 0 and phase(target) == LIFTED, "the next call goes on with it"


@pytest.mark.parametrize(
    ("away", "said"),
    [(TryAgain("no broker answered"), "no broker answered"), (LedgerLost("it was deleted"), "why: it was deleted")],
)
def test_function_lifts_nothing_by_the_file_where_the_target_can_not_tell(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str], away: MirrorError, said: str
) -> None:
    """A fence by ACL comes down by its name at the source; a function has none there."""
    fenced(target, "monday")
    report = report_store.ReportStore(target, "flow", "monday", None).load()
    assert report is not None
    report.save(tmp_path / "flow" / "runs" / "monday")
    target.away = away
    assert lift(tmp_path, source=False) == 2 and "which cluster is the source" in capsys.readouterr().err
    assert lift(tmp_path) == 1
    printed = capsys.readouterr()
    assert f"the target can't be asked ({away})" in printed.err
    assert "nothing there names a callable's attempt" in printed.err and CALLS == []
    (elsewhere := tmp_path / "elsewhere").mkdir()
    assert lift(elsewhere) == 1 and said in capsys.readouterr().err


def test_source_is_that_of_the_plan_that_was_cut_over(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    asked = []

    def config_of(name: str, role: str) -> ClientConfig:
        asked.append((role, name))
        return ClientConfig({"bootstrap.servers": "b:1"}, role)

    monkeypatch.setattr(command, "config_of", config_of)
    assert lift(tmp_path, source=False) == 0
    assert asked == [("source", "kafka_dc1")]
    fenced(target, "tuesday", plan_hash="0" * 64)
    assert lift(tmp_path, source=False) == 2
    assert "which cluster is the source" in capsys.readouterr().err


def test_rule_that_nothing_explains_is_said_and_removed_when_told(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request of an owner that is long gone came late."""
    late = rule("orders", "WRITE", "DENY")
    ACLS.add(late)
    assert lift(tmp_path) == 1
    assert "no record explains: DENY WRITE on topic orders" in (err := capsys.readouterr().err) and late in ACLS
    assert "--unexplained removes them" in err
    assert lift(tmp_path, "--unexplained") == 0 and not ACLS
    ACLS.add(rule("elsewhere", "WRITE", "DENY"))
    assert lift(tmp_path) == 0


def test_gateway_that_was_shut_behind_its_lifting_is_opened_when_told(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner slept before the call, and thawed without the target; no rule is there, nor an authorizer."""
    monkeypatch.setattr(Cluster, "has_authorizer", False)
    fenced(target, "monday")
    assert lift(tmp_path) == 0 and phase(target) == LIFTED and CALLS == ["source:9092"]
    assert lift(tmp_path) == 0 and CALLS == ["source:9092"], "nothing is decided about it any more"
    assert lift(tmp_path, "--unexplained") == 0 and CALLS == ["source:9092"] * 2
    assert "has let everybody in" in capsys.readouterr().out
    fenced(target, "tuesday", phase=OPENED)
    assert lift(tmp_path, "--unexplained") == 1 and CALLS == ["source:9092"] * 2, "behind an open target it stands"


def test_rule_that_another_mirrors_fence_may_explain_is_left_alone(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has cut the same topics over, to another cluster: without the rule both of its clusters would take writes."""
    its, name = rule("orders", "WRITE", "DENY"), Acl(
        resource_type="GROUP", name=name_of("other", "r1", "1"), pattern_type="LITERAL",
        principal="User:airflow-mirror-fence", host="*", operation="DESCRIBE", permission="DENY",
    )  # fmt: skip
    ACLS.update([its, name])
    assert lift(tmp_path) == 0 and lift(tmp_path, "--unexplained") == 1
    assert its in ACLS and "other:r1:1" in capsys.readouterr().err


def test_a_mirror_that_nobody_knows_is_named_with_those_that_are_known(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    (tmp_path / "dst").write_text("bootstrap.servers=dst:9092\n")
    monkeypatch.setitem(sys.modules, "airflow_mirror.hooks.home", None)
    assert main(["lift-fence", "--mirror", "flwo", "--target", str(tmp_path / "dst")]) == 2
    assert "the target does not know it. It knows: flow." in capsys.readouterr().err


def test_fence_that_goes_up_while_rules_are_looked_at_explains_them(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check beside a cutover that begins, or ends, raises no alarm."""
    left, seen = AclFence.left, list[str]()

    def meanwhile(self: AclFence, *given: Any, **named: Any) -> Any:
        if not seen:
            seen.append(fenced(target, "monday"))
        return left(self, *given, **named)

    monkeypatch.setattr(AclFence, "left", meanwhile)
    ACLS.add(rule("orders", "WRITE", "DENY"))
    sides = (Cluster(ClientConfig({"bootstrap.servers": "b:1"}, role)) for role in ("source", "target"))
    on = Platform(*(Side(one) for one in sides))  # type: ignore[arg-type]
    assert other_fences.unexplained(on, "flow") == [] and seen


def test_fences_of_other_mirrors_are_told_from_ones_own(target: Target) -> None:
    fence = AclFence(Cluster(ClientConfig({"bootstrap.servers": "b:1"}, "source")))  # type: ignore[arg-type]
    for mirror in ("flow", "flow-2"):
        fence._source.create_acls([_named(name_of(mirror, "monday", "1"), "DESCRIBE")], unfenced)
    assert fence.others("flow") == ["flow-2:monday:1"]
