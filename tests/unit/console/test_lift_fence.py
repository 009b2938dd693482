"""``airflow-mirror lift-fence``: the fence is found by what the target decides, and one that stays up is said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from time import time as now
from typing import Any

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.copy.writer.lease import HANDOVER_S
from airflow_mirror.cutover import other_fences, report_store
from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import CLOSED, LIFTED, OPENED, UP, FenceState, fence_state
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.fence import AclFence, _named
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport, FenceRecord
from airflow_mirror.errors import LedgerLost, LedgerMissing, MirrorError, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import Acl
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import keep as keep_plan
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault
from tests.memory.rules import Rules
from tests.unit.console.conftest import Time, named

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


PLAN = plan_of(
    Mirror(name="flow", source="kafka_dc1", target="kafka_dc2"), topic_plan("orders", {0: 0}, source_topic_id="id")
)


class Target:
    """A target with a plan, and the source that it is about, which has an authorizer."""

    def __init__(self, src: DrivenCluster, dst: LedgerCluster, time: Time) -> None:
        self.src, self.dst, self.time = src, dst, time
        self.ledger, self.state = dst.ledger, dst.state
        src.rules = Rules()
        src.create("orders")
        time.meanwhile = lambda seconds: CALLS.append("lease of flow") if seconds == HANDOVER_S else None
        keep_plan(PLAN, dst.state, dst.ledger)

    @property
    def called(self) -> str:
        """What a gate notes."""
        return self.src.config.bootstrap

    @property
    def rules(self) -> frozenset[Acl]:
        """Those of the source."""
        return self.src.rules.now if self.src.rules is not None else frozenset()

    def add(self, *rules: Acl) -> None:
        """Add rules to the source."""
        self.src.rules = Rules(now=self.rules | set(rules))

    def lift(self, home: Path, *options: str, fence: str = "gate", source: bool = True) -> int:
        words = ["lift-fence", "--mirror", "flow", "--home", str(home), "--fence", f"{__name__}.{fence}"]
        words += ["--target", "dst", *(["--source", "src"] if source else [])]
        return main([*words, *options], self.time)


@pytest.fixture
def target(src: DrivenCluster, dst: LedgerCluster, time: Time) -> Target:
    CALLS.clear()
    return Target(src, dst, time)


def fenced(target: Target, run: str, phase: str = UP, plan_hash: str = PLAN.hash, **changes: Any) -> str:
    """A run that ended while its fence was up, on a host that is lost."""
    kind = changes.pop("kind", "callable")
    record = FenceRecord(kind=kind, intent={"topics": ["orders"]}, requested=now())
    report = CutoverReport(mirror="flow", plan_hash=plan_hash, fence=record, id=run)
    report.outcome = changes.pop("outcome", reports.RUNNING)
    for name, value in changes.items():
        setattr(record, name, value)
    report_store.ReportStore(target.state, "flow", run, None).save(report)
    state = FenceState(
        run=run, attempt=1, id=run, plan=plan_hash, revision=plan_hash, owner="o", max_fence_s=60.0, kind=kind,
        phase=phase, intent=Intent(topics=("orders",)).value(), kept=changes.get("kept", True),
    )  # fmt: skip
    note_copy(target.ledger, "flow", state)
    return run


def phase(target: Target) -> str:
    found = fence_state(target.ledger.values(), "flow")
    assert found is not None
    return found.phase


def test_a_killed_cutovers_fence_is_lifted_from_a_host_without_files(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    there = sorted(path.name for path in tmp_path.iterdir())
    assert target.lift(tmp_path) == 0
    assert phase(target) == LIFTED and [target.called] == CALLS
    assert capsys.readouterr().out.splitlines() == ["run monday: lifted: callable, topics orders"]
    found = report_store.ReportStore(target.state, "flow", "monday", None).load()
    assert found is not None and found.outcome == reports.BACKED_OUT
    assert target.lift(tmp_path) == 0
    assert "no fence of mirror 'flow' is up" in capsys.readouterr().out and len(CALLS) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == there, "nothing is written to this host"


def test_an_opening_that_was_cut_off_is_no_finished_cutover(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "cut off", phase=OPENED)
    assert target.lift(tmp_path) != 0 and "run the cutover again" in capsys.readouterr().err and CALLS == []
    assert target.lift(tmp_path, "--include-retained") == 0 and phase(target) == CLOSED


def test_fence_that_was_not_to_be_kept_is_lifted_though_its_cutover_has_ended(target: Target, tmp_path: Path) -> None:
    """Its process died right before it had lifted it; whoever types this must not hear that it stays on purpose."""
    fenced(target, "done", phase=OPENED, outcome=reports.DONE, kept=False)
    assert target.lift(tmp_path) == 0 and phase(target) == CLOSED and target.called in CALLS


def test_a_finished_cutovers_fence_stays_unless_told(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "done", phase=OPENED, outcome=reports.DONE, kept=True)
    assert target.lift(tmp_path) == 0
    assert phase(target) == OPENED and CALLS == [] and "--include-retained lifts it" in capsys.readouterr().out
    assert target.lift(tmp_path, "--include-retained") == 0
    assert phase(target) == CLOSED
    assert ["lease of flow", target.called] == CALLS  # no tail may copy what is written then


def test_report_that_can_not_be_read_keeps_no_fence_up(target: Target, tmp_path: Path) -> None:
    target.state.write({"report/flow/broken/000001-x/0/1": b"{"})
    fenced(target, "good")
    assert target.lift(tmp_path) == 0 and phase(target) == LIFTED


def test_fence_that_does_not_open_is_an_error(target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fenced(target, "monday")
    assert target.lift(tmp_path, fence="stuck") == 1
    assert phase(target) == "lifting" and "callable, topics orders" in capsys.readouterr().err
    assert target.lift(tmp_path) == 0 and phase(target) == LIFTED, "the next call goes on with it"


@pytest.mark.parametrize(
    ("away", "said"),
    [(TryAgain("no broker answered"), "no broker answered"), (LedgerLost("it was deleted"), "why: it was deleted")],
)
def test_function_lifts_nothing_by_the_file_where_the_target_can_not_tell(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    away: MirrorError, said: str,
) -> None:  # fmt: skip
    """A fence by ACL comes down by its name at the source; a function has none there."""
    fenced(target, "monday")
    report = report_store.ReportStore(target.state, "flow", "monday", None).load()
    assert report is not None
    report.save(tmp_path / "flow" / "runs" / "monday")

    def values(_: Ledger) -> Any:
        raise away

    monkeypatch.setattr(Ledger, "values", values)  # a broker that is away is waited for, for some seconds
    assert target.lift(tmp_path, source=False) == 2 and "which cluster is the source" in capsys.readouterr().err
    assert target.lift(tmp_path) == 1
    printed = capsys.readouterr()
    assert f"the target can't be asked ({away})" in printed.err
    assert "nothing there names a callable's attempt" in printed.err and CALLS == []
    (elsewhere := tmp_path / "elsewhere").mkdir()
    assert target.lift(elsewhere) == 1 and said in capsys.readouterr().err


def test_source_is_that_of_the_plan_that_was_cut_over(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    named(target.src, "kafka_dc1")
    assert target.lift(tmp_path, source=False) == 0
    assert [target.called] == CALLS
    fenced(target, "tuesday", plan_hash="0" * 64)
    assert target.lift(tmp_path, source=False) == 2
    assert "which cluster is the source" in capsys.readouterr().err


@pytest.fixture
def other(target: Target) -> Iterator[DrivenCluster]:
    """A second cluster, to which the file ``src`` leads: the site itself denies everybody there to write to the topic."""
    with DrivenCluster("source") as cluster:
        cluster.rules = Rules(now=frozenset({rule("orders", "WRITE", "DENY")}))
        cluster.create("orders")
        named(cluster, "src")
        yield cluster


@pytest.mark.parametrize("fence", ["acl", f"{__name__}.gate"])
@pytest.mark.parametrize(("at", "options"), [(UP, []), (OPENED, ["--include-retained"])])
def test_fence_is_lifted_on_no_other_cluster_than_was_fenced(
    target: Target, other: DrivenCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], fence: str, at: str,
    options: list[str],
) -> None:  # fmt: skip
    """Nothing of it is there, so it counted as lifted: the source stayed shut, and the site lost a rule of its own."""
    fenced(target, "monday", phase=at, kind="acl" if fence == "acl" else "callable", outcome=reports.DONE)
    there = other.rules
    words = ["lift-fence", "--mirror", "flow", "--home", str(tmp_path), "--target", "dst", "--source", "src"]
    assert main([*words, "--fence", fence, *options], target.time) == 2
    said = capsys.readouterr()
    assert f"the source is cluster {other.cluster_id}\n  why: mirror 'flow' copied from s" in said.err and said.out == ""
    assert phase(target) == at and other.rules == there and CALLS == []
    named(target.src, "src")
    assert main([*words, "--fence", fence, *options], target.time) == 0 and phase(target) in (LIFTED, CLOSED)


def test_rules_of_another_cluster_are_nobodys_to_remove(
    target: Target, other: DrivenCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = other.rules
    assert target.lift(tmp_path, "--unexplained") == 2 and other.rules == there and CALLS == []
    assert "the source is cluster" in capsys.readouterr().err


def test_function_lifts_although_the_source_is_away(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway needs no broker; and of one that does not answer nobody can say that it is another cluster."""

    def away(_: ClusterAdmin) -> str:
        raise TryAgain("no broker answered")

    fenced(target, "monday")
    monkeypatch.setattr(ClusterAdmin, "cluster_id", away)
    assert target.lift(tmp_path) == 0 and phase(target) == LIFTED and [target.called] == CALLS


def test_rule_that_nothing_explains_is_said_and_removed_when_told(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request of an owner that is long gone came late."""
    late = rule("orders", "WRITE", "DENY")
    target.add(late)
    assert target.lift(tmp_path) == 1
    assert "no record explains: DENY WRITE on topic orders" in (err := capsys.readouterr().err) and late in target.rules
    assert "--unexplained removes them" in err
    assert target.lift(tmp_path, "--unexplained") == 0 and not target.rules
    target.add(rule("elsewhere", "WRITE", "DENY"))
    assert target.lift(tmp_path) == 0


def test_gateway_that_was_shut_behind_its_lifting_is_opened_when_told(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its owner slept before the call, and thawed without the target; no rule is there, nor an authorizer."""
    target.src.rules = None
    fenced(target, "monday")
    assert target.lift(tmp_path) == 0 and phase(target) == LIFTED and [target.called] == CALLS
    assert target.lift(tmp_path) == 0 and [target.called] == CALLS, "nothing is decided about it any more"
    assert target.lift(tmp_path, "--unexplained") == 0 and [target.called] * 2 == CALLS
    assert "has let everybody in" in capsys.readouterr().out
    fenced(target, "tuesday", phase=OPENED)
    assert target.lift(tmp_path, "--unexplained") == 1 and [target.called] * 2 == CALLS, "behind an open target it stands"


@pytest.mark.parametrize("how", ["no right", "not served"])
def test_function_lifts_although_rules_cannot_be_listed(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    """It was lifted, and then the status said that nothing was changed; what a person had said was never done."""
    if how == "no right":
        target.src.script.on("DescribeAcls", Fault.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), times=None)
    else:

        def unserved(*_: object, **__: object) -> None:
            raise ApiNotServed("gateway:9092", "DescribeAcls", 1, None)

        monkeypatch.setattr(ClusterAdmin, "describe_acls", unserved)
    fenced(target, "monday")
    assert target.lift(tmp_path) == 0 and phase(target) == LIFTED and [target.called] == CALLS
    assert "rules that no record explains were not looked for" in capsys.readouterr().err
    assert target.lift(tmp_path, "--unexplained") == 0 and [target.called] * 2 == CALLS
    assert "has let everybody in" in capsys.readouterr().out
    words = ["lift-fence", "--mirror", "flow", "--home", str(tmp_path), "--target", "dst", "--source", "src"]
    assert main(words, target.time) == 0 and main([*words, "--unexplained"], target.time) == 1


def test_rule_that_another_mirrors_fence_may_explain_is_left_alone(
    target: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has cut the same topics over, to another cluster: without the rule both of its clusters would take writes."""
    its, name = rule("orders", "WRITE", "DENY"), Acl(
        resource_type="GROUP", name=name_of("other", "r1", "1"), pattern_type="LITERAL",
        principal="User:airflow-mirror-fence", host="*", operation="DESCRIBE", permission="DENY",
    )  # fmt: skip
    target.add(its, name)
    assert target.lift(tmp_path) == 0 and target.lift(tmp_path, "--unexplained") == 1
    assert its in target.rules and "other:r1:1" in capsys.readouterr().err


def test_a_mirror_that_nobody_knows_is_named_with_those_that_are_known(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced(target, "monday")
    monkeypatch.delitem(sys.modules, "airflow_mirror.hooks.home", raising=False)
    monkeypatch.setitem(sys.modules, "airflow", None)
    assert main(["lift-fence", "--mirror", "flwo", "--target", "dst"]) == 2
    assert "the target does not know it\n  why: it knows: flow\n" in capsys.readouterr().err


def test_fence_that_goes_up_while_rules_are_looked_at_explains_them(target: Target) -> None:
    """A check beside a cutover that begins, or ends, raises no alarm."""
    target.add(rule("orders", "WRITE", "DENY"))
    meanwhile = target.src.script.on("DescribeAcls", Fault(before=lambda _: fenced(target, "monday")))
    with ClusterAdmin(target.src.config) as source:
        assert other_fences.unexplained(Platform.of(source, target.dst.admin), "flow") == [] and meanwhile.hits


def test_fences_of_other_mirrors_are_told_from_ones_own(target: Target) -> None:
    target.add(*(_named(name_of(mirror, "monday", "1"), "DESCRIBE") for mirror in ("flow", "flow-2")))
    with ClusterAdmin(target.src.config) as source:
        assert AclFence(source).others("flow", "") == ["flow-2:monday:1"]
