"""CheckMirrorOperator: what it takes, what it returns, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import after, other_fences
from airflow_mirror.cutover.decision import OPENED, FenceState, begin_lifting, end_lifting
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.errors import (
    ClusterUnreachable,
    FencedByAnother,
    InputError,
    LedgerMissing,
    MirrorError,
    MissingRight,
    RequestRefused,
)
from airflow_mirror.hooks.tail import TailView, replicates
from airflow_mirror.jobs.health import gathering
from airflow_mirror.jobs.health.judging import WARN_ONLY, Facts, Limits, TailFacts
from airflow_mirror.jobs.runner import active
from airflow_mirror.jobs.runner.active import ActiveTail, Sign
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.kafka.model import Acl
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.operators import health
from airflow_mirror.operators.health import CheckMirrorOperator
from airflow_mirror.plan import Plan
from airflow_mirror.sync.lag import PartitionLag
from tests.builders import rule
from tests.provider.conftest import THE_PLAN, InMemory
from tests.unit.ledger.memory import MemoryLedger, MemoryState


class Asked:
    """What the operator asks for; ``facts`` is what it gets."""

    def __init__(self) -> None:
        self.facts = Facts(lags=[PartitionLag(TopicPartition("t", 0), 7, 9)], free_bytes={1: 5 * 10**10, 2: None})
        self.plan: Plan | None = THE_PLAN
        self.limits: Limits | None = None
        self.unexplained: list[Acl] | MirrorError = []
        self.tail = TailFacts(
            active=ActiveTail(
                mirror=THE_PLAN.mirror.to_dict(), plan="p", inputs="i", directory="/jobs/1", host="host-a", where="a"
            ),
            status="RUNNING",
            sign=Sign(number=1, state="RUNNING", phase="copying", follows={"groups": {"said": ["one left alone"]}}),
        )

    def gather(
        self, plan: Plan, source: Any, target: Any, look: Any, fences: Any, limits: Limits, *, handed_over: Any
    ) -> Facts:
        assert plan is self.plan
        self.limits, over = limits, handed_over()
        not_held = [one for one in self.facts.not_held if one[0] not in over]
        return replace(self.facts, tail=self.tail, fences=fences(), not_held=not_held)

    def left(self, on: Platform, mirror: str) -> list[Acl]:
        assert mirror == "m"
        if isinstance(self.unexplained, MirrorError):
            raise self.unexplained
        return self.unexplained


@pytest.fixture
def asked(clusters: InMemory, monkeypatch: pytest.MonkeyPatch) -> Asked:
    one = Asked()
    monkeypatch.setattr(gathering, "gather", one.gather)
    monkeypatch.setattr(other_fences, "unexplained", one.left)
    monkeypatch.setattr(health, "last_plan", lambda *_: one.plan)
    return one


def check(mirror: dict[str, Any], **given: Any) -> CheckMirrorOperator:
    return CheckMirrorOperator(task_id="check", mirror=mirror, **given)


def test_a_mirror_that_is_well_returns_its_figures_and_warnings(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any]
) -> None:
    assert check(mirror).execute(context) == {
        "host": "host-a", "phase": "copying", "partitions": 1, "lag_records": 2, "max_lag_records": 2, "worst": "t-0",
        "least_free_bytes": 5 * 10**10, "warnings": ["notes: groups: one left alone"],
    }  # fmt: skip


def test_everything_that_is_wrong_is_in_one_error(asked: Asked, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    """It may be retried: what a tail that is started again gets right is no alarm. Warnings are not in it."""
    asked.facts = replace(asked.facts, late={TopicPartition("t", 0)}, not_held=[("t", "retention.ms", "5")])
    with pytest.raises(AirflowException, match=r"MirrorUnhealthy: mirror 'm' .* 2 finding\(s\)") as failed:
        check(mirror).execute(context)
    assert not isinstance(failed.value, AirflowFailException)
    assert "lag: 1 partition is" in str(failed.value) and "hold: target topic 't'" in str(failed.value)
    assert "one left alone" not in str(failed.value)


@pytest.mark.parametrize(("owner", "is_held"), [
    ({}, True), ({"opened_by": "a plan"}, False), ({"opened_by": "failover 000001-x"}, False), ({"mirror": "new"}, False),
    ({"source_id": "another"}, False), (None, True),
])  # fmt: skip
def test_only_what_is_still_the_mirrors_has_to_be_on_hold(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], ledger: MemoryLedger, owner: dict[str, Any] | None,
    is_held: bool,
) -> None:  # fmt: skip
    """Of a topic that nothing is decided about yet the plan says that it is."""
    ours = {"v": 1, "topic_id": "i", "mirror": "m", "source_id": THE_PLAN.source_cluster_id}
    if owner is not None:
        ledger.decide(lambda _: {"topic/t": ours | owner})
    asked.facts = replace(asked.facts, not_held=[("t", "retention.ms", "5")])
    with pytest.raises(AirflowException, match="hold: target topic 't'") if is_held else nullcontext():
        check(mirror).execute(context)


def test_a_fence_is_known_from_the_target(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], ledger: MemoryLedger
) -> None:
    """Whoever has put it up, on any host."""
    up = FenceState(
        run="monday", attempt=1, id="a", plan="p", revision="p", owner="a", max_fence_s=60.0, process={"host": "host-b"}
    )  # fmt: skip
    note_copy(ledger, "m", up)
    warnings = check(mirror).execute(context)["warnings"]
    assert warnings[-1].startswith("fence: by the ledger the source refuses producers ")
    assert "the fence of cutover monday is up, raised from host host-b" in warnings[-1]
    lifting = begin_lifting(ledger, "m", up, "guard")
    assert lifting is not None
    assert "the fence of cutover monday is being lifted" in check(mirror).execute(context)["warnings"][-1]
    end_lifting(ledger, "m", lifting)
    assert "monday" not in " ".join(check(mirror).execute(context)["warnings"])


def test_a_kept_fence_that_is_gone_fails_and_is_not_said_to_stand(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers wrote where nobody reads, and the check said that the source refuses them."""
    opened = FenceState(
        run="monday", attempt=1, id="a", plan="p", revision="p", owner="a", max_fence_s=60.0, phase=OPENED
    )  # fmt: skip
    note_copy(ledger, "m", opened)
    assert "stands behind an open target" in check(mirror).execute(context)["warnings"][-1], "where it can't be seen"
    monkeypatch.setattr(after, "told_gone", lambda *_: ["the fence of cutover monday"])
    with pytest.raises(AirflowException, match="fence_gone: the fence of cutover monday was kept") as failed:
        check(mirror).execute(context)
    assert "refuses producers" not in str(failed.value)


def test_rules_that_no_record_explains_are_a_warning(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any]
) -> None:
    """A request of a cutover that is long gone came late: producers are refused, and the ledger knows of nothing."""
    asked.unexplained = [rule("t", "WRITE", "DENY")]
    (warning,) = check(mirror).execute(context)["warnings"][1:]
    assert warning.startswith("fence: rules of the source keep everybody out") and "DENY WRITE on topic t" in warning


@pytest.mark.parametrize("error", [
    ClusterUnreachable("source", "k:1", "refused"), RequestRefused("describe ACLs", 54, "SECURITY_DISABLED"),
    MissingRight("describe ACLs", "CLUSTER_AUTHORIZATION_FAILED", "User:m"),
    FencedByAnother("source", ["t"], ["n/monday/1"]),  # they may be theirs
])  # fmt: skip
def test_rules_that_nobody_can_list_are_no_alarm(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], error: MirrorError
) -> None:
    asked.unexplained = error
    assert len(check(mirror).execute(context)["warnings"]) == 1


def test_limits_are_what_a_form_yields(asked: Asked, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    check(mirror).execute(context)
    assert asked.limits == Limits(warn_only=list(WARN_ONLY)), "the defaults of both are the same"
    check(
        mirror, max_lag_s="None", max_lag_records="7", min_headroom_s="60", min_free_bytes=1, warn_only="notes"
    ).execute(context)
    assert asked.limits == Limits(
        max_lag_s=None, max_lag_records=7, min_headroom_s=60.0, min_free_bytes=1, warn_only=["notes"]
    )


@pytest.mark.parametrize("given", [{"max_lag_s": "soon"}, {"min_free_bytes": -1}, {"warn_only": ["tial"]}])
def test_wrong_limits_fail_before_anything_is_asked(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], given: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match=next(iter(given))):
        check(mirror, **given).execute(context)
    assert asked.limits is None


def test_source_of_another_mirror_is_asked_for_no_rules_and_no_lag(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its rules and records nothing is known about this mirror: no lag is no lag of 0."""
    sent = dict[str, Any]()
    monkeypatch.setattr(health, "tell_lag", lambda mirror, found: sent.update(found))
    asked.facts = Facts(other_source="it is cluster C, and mirror 'm' copies from A")
    asked.unexplained = [rule("t", "WRITE", "DENY")]
    with pytest.raises(AirflowException, match=r"(?s)1 finding\(s\).*topics: source cluster: it is cluster C") as failed:
        check(mirror).execute(context)
    assert "DENY" not in str(failed.value) and sent == {}


def test_a_mirror_without_a_plan_was_never_started(asked: Asked, mirror: dict[str, Any], context: dict[str, Any]) -> None:
    asked.plan = None
    with pytest.raises(AirflowException, match="(?s)never started.*Run the task that starts it"):
        check(mirror).execute(context)


@pytest.mark.parametrize("plan", [True, False])
def test_first_look_beside_a_tail_that_begins_is_no_alarm(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], plan: bool
) -> None:
    """The second one is: nobody has started it."""
    if not plan:
        asked.plan = None
    asked.tail = TailFacts()
    before: list[Any] = []
    context["ti"].get_previous_dagrun = lambda: before[0] if before else None
    context["dag_run"] = SimpleNamespace(logical_date=datetime(2026, 3, 2, tzinfo=UTC))
    with pytest.raises(AirflowSkipException, match="the next one judges"):
        check(mirror, begins_beside=True).execute(context)
    with pytest.raises(AirflowException, match="never started"):
        check(mirror).execute(context)
    before.append(SimpleNamespace(state="skipped"))
    with pytest.raises(AirflowException, match="never started"):
        check(mirror, begins_beside=True).execute(context)


def test_first_look_at_a_target_without_a_ledger_is_no_alarm(
    clusters: InMemory,
    ledger: MemoryLedger,
    mirror: dict[str, Any],
    context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first plan creates it, in the run beside this one; the alarm told other DAGs of an outage."""

    def values() -> Any:
        raise LedgerMissing

    monkeypatch.setattr(ledger, "values", values)
    context["ti"].get_previous_dagrun = lambda: None
    context["dag_run"] = SimpleNamespace(logical_date=datetime(2026, 3, 2, tzinfo=UTC))
    with pytest.raises(AirflowSkipException, match="the next one judges"):
        check(mirror, begins_beside=True).execute(context)
    with pytest.raises(AirflowException, match="never started"):
        check(mirror).execute(context)


@pytest.mark.parametrize("plan", [True, False])
def test_run_without_a_logical_date_is_not_always_the_first(
    asked: Asked, mirror: dict[str, Any], context: dict[str, Any], plan: bool
) -> None:
    """Airflow knows no run before it: a monitor that triggers the DAG by a request saw green, for ever."""
    if not plan:
        asked.plan = None
    asked.tail = TailFacts()
    context["ti"].get_previous_dagrun = lambda: None
    context["dag_run"] = SimpleNamespace(logical_date=None)
    with pytest.raises(AirflowException, match="never started") as failed:
        check(mirror, begins_beside=True).execute(context)
    assert not isinstance(failed.value, AirflowSkipException)


# --- the tail, as the target knows it --------------------------------------------------------------------------------


@pytest.fixture
def view(ledger: MemoryLedger, state: MemoryState, monkeypatch: pytest.MonkeyPatch) -> TailView:
    monkeypatch.setattr(active, "_LOOK_EVERY_S", 0.01)
    return TailView(None, "m")  # type: ignore[arg-type]


def test_a_target_without_a_tail_knows_of_none(view: TailView, connections: Callable[..., None]) -> None:
    assert view.look(THE_PLAN.mirror) == TailFacts()


def test_a_tail_is_looked_at_with_its_last_sign(view: TailView, ledger: MemoryLedger, state: MemoryState) -> None:
    tail = ActiveTail(mirror=THE_PLAN.mirror.to_dict(), plan="p", inputs="i", directory="/jobs/1")
    ledger.decide(lambda _: {"active/m": tail.value()})
    wish(state, "m", "pause", Wish(by="ann@desk", at="noon"))
    sign = Sign(number=3, state="FAILED", error="disk full")
    state.write({f"job/m/{tail.job}/sign": sign.encode()})
    found = view.look(replace(THE_PLAN.mirror, topics=["u"]))
    assert (found.active, found.status, found.runs) == (tail, "FAILED", False)
    assert found.sign is not None and found.sign.error == "disk full"
    assert found.pause is not None and found.pause.by == "ann@desk"
    assert found.differing == ["topics: ['t'] there, ['u'] asked for"]


def test_only_a_living_tail_of_the_same_fields_replicates(
    view: TailView, ledger: MemoryLedger, connections: Callable[..., None]
) -> None:
    mirror = THE_PLAN.mirror
    assert replicates(mirror) == (False, ""), "there is none"
    tail = ActiveTail(mirror=mirror.to_dict(), plan="p", inputs="i", directory="/jobs/1")
    ledger.decide(lambda _: {"active/m": tail.value()})
    assert replicates(mirror) == (True, ""), "it is this process"
    assert replicates(replace(mirror, topics=["u"])) == (False, "")
    gone = replace(tail, pid=2**22 + 1, job="another")
    ledger.decide(lambda _: {"active/m": gone.value()})
    assert replicates(mirror) == (False, "another/"), "who starts the next one need not listen for it again"


def test_tail_of_another_source_is_told_to_who_has_its_name(
    view: TailView, ledger: MemoryLedger, state: MemoryState, clusters: InMemory
) -> None:
    """Two Airflows have a mirror of that name, from sources of their own: the second one was never copied, and green.

    Whether another one is meant is asked of a source that answers; of one that is away it never was.
    """
    mirror, clusters.source.cluster_id = THE_PLAN.mirror, "another"
    tail = ActiveTail(mirror=mirror.to_dict(), plan=THE_PLAN.hash, inputs="i", directory="/jobs/1")
    ledger.decide(lambda _: {"active/m": tail.value()})
    assert replicates(mirror) == (True, ""), "nobody knows what it copies from: the target has lost its plan"
    state.write(PLAN.pieces(THE_PLAN.to_json(), "m", THE_PLAN.hash))
    with pytest.raises(
        InputError, match=r"mirror 'm': its tail .* copies from cluster A, .*'src' leads to cluster another"
    ):
        replicates(mirror)
    with pytest.raises(InputError, match="Give the mirror of this cluster a name of its own"):
        replicates(replace(mirror, topics=["u"]))

    def away() -> None:
        raise ClusterUnreachable("source", "k:1", "refused")

    clusters.before["cluster id"] = away
    assert replicates(mirror) == (True, "")
    clusters.before.clear()
    clusters.source.cluster_id = "A"
    assert replicates(mirror) == (True, "")
