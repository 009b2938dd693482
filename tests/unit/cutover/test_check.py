"""What is asked before the fence is raised, and what is noted before the target opens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover import groups, groups_at_rest
from airflow_mirror.cutover.attempt import Attempt, Settled
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.check import CHECKS, precheck, refusals, reverify
from airflow_mirror.cutover.decision import (
    CLOSED,
    CLOSING,
    LIFTED,
    LIFTING,
    OPENED,
    UP,
    begin_lifting,
    end_lifting,
    fence_state,
)
from airflow_mirror.cutover.drift import drift
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.html import render
from airflow_mirror.cutover.report import FenceRecord, GroupRecord
from airflow_mirror.errors import (
    BrokerError,
    CutoverBlocked,
    FenceStands,
    GroupActive,
    GroupAhead,
    InputError,
    MirrorCutOver,
    PlanAmended,
    PlanOutdated,
    PreviewTooOld,
    TopicsShared,
    VerificationFailed,
)
from airflow_mirror.kafka.model import GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.plan.amendment import amended, next_amendment
from airflow_mirror.plan.direction import ARMED, ROLLBACK, Direction
from tests.builders import rule, shut_again, topic_plan
from tests.unit.cutover.builders import Acls, Described, Logs, a_run, dir_of, go_up, kept_in, open_behind, want

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


class Topics(Described, Acls):
    """A cluster with topics, of one partition unless ``partitions`` says otherwise."""

    def __init__(self, *names: str, **partitions: int) -> None:
        super().__init__()
        self.names = (*names, *partitions)
        self.partitions = partitions
        self.wire: Any = SimpleNamespace(
            refresh_present=lambda names: set(names).difference(self.names), sound_out=lambda _: None
        )
        self.offsets: dict[str, dict[TopicPartition, GroupPosition]] = {}
        self.states: dict[str, str] = {}

    def cluster_id(self) -> str:
        return "id-of-cluster"

    def topic_names(self) -> list[str]:
        return sorted(self.names)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, f"id-{n}", self.partitions.get(n, 1), 1) for n in self.names if n in names}

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(g, "Empty", "consumer") for g in sorted(self.offsets)]

    def group_states(self, ids: Iterable[str]) -> dict[str, str]:
        return {g: self.states.get(g, "Dead") for g in ids}

    def group_offsets(self, group: str) -> dict[TopicPartition, GroupPosition]:
        return self.offsets.get(group, {})

    def groups_offsets(self, ids: list[str], _only: object = None) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {group: self.group_offsets(group) for group in ids}


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    made = a_run(tmp_path / "run", CallableFence(lambda: None, lambda: None))
    made.on.source.admin, made.on.target.admin = Topics("orders", "payments"), Topics("orders", "payments")  # type: ignore[assignment]
    made.on.source.log = made.on.target.log = Logs({ORDERS: 100, PAYMENTS: 50})  # type: ignore[assignment]
    return made


def test_topics_that_appeared_since_the_plan_block_by_name(attempt: Attempt) -> None:
    """Nobody would write to them behind the fence, and nobody would ever copy them."""
    precheck(attempt)
    attempt.on.source.admin = Topics("orders", "payments", "refunds", "__consumer_offsets")  # type: ignore[assignment]
    with pytest.raises(PlanOutdated, match="source topic 'refunds' is new: not in the plan") as caught:
        precheck(attempt)
    assert len(caught.value.drift) == 1


def test_way_back_is_cut_over_by_a_rollback_alone(attempt: Attempt) -> None:
    """A cutover of it would open the old source behind the first cutover's fence: both clusters were shut."""
    armed = Direction(generation=1, primary="new", by=ARMED, attempt="r", plan="p", at="noon")
    attempt.turned = replace(armed, by=ROLLBACK)
    precheck(attempt)
    attempt.turned = armed
    with pytest.raises(InputError, match="it is a way back.*airflow-mirror rollback"):
        precheck(attempt)
    assert [(f.check, f.level) for f in refusals(attempt)][0] == ("mirror", "block")
    want(attempt, is_rollback=True)
    precheck(attempt)


def test_check_that_yields_what_is_wrong_is_not_passed_over(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others raise; a generator that nobody walks would never run."""
    monkeypatch.setattr(CHECKS, "rows", dict(CHECKS.rows))
    CHECKS.check("moon")(lambda _: (line for line in ["the moon is full"]))
    with pytest.raises(CutoverBlocked, match="the moon is full"):
        precheck(attempt)


def test_topics_that_joined_since_the_comparison_need_another_one(attempt: Attempt) -> None:
    """Nobody has compared them, or approved a cutover that includes them."""
    before = attempt.plan
    want(attempt, compared=[before.revision])
    precheck(attempt)
    refunds = topic_plan("refunds", {0: 0}, source_topic_id="id-refunds")
    want(attempt, plan=amended(before, [next_amendment(before, [refunds], [], "2026-02-01T00:00:00+00:00")]))
    attempt.on.source.admin = attempt.on.target.admin = Topics("orders", "payments", "refunds")  # type: ignore[assignment]
    attempt.on.source.log = attempt.on.target.log = Logs({ORDERS: 100, PAYMENTS: 50, TopicPartition("refunds", 0): 0})  # type: ignore[assignment]
    with pytest.raises(PlanAmended, match=r"1 topic\(s\) joined the plan.*: refunds .*Clear the comparison") as caught:
        precheck(attempt)
    assert (caught.value.topics, caught.value.then) == (["refunds"], before.hash)
    want(attempt, compared=[attempt.plan.revision, attempt.plan.revision])
    precheck(attempt)


def test_what_was_shown_too_long_ago_is_shown_again(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever approved it has seen another lag, and other transactions."""
    monkeypatch.setattr("airflow_mirror.cutover.check.time.time", lambda: 10_000.0)
    for shown_at in (None, 6_400.0):
        want(attempt, shown_at=shown_at)
        precheck(attempt)
    want(attempt, shown_at=6_399.0)
    with pytest.raises(
        PreviewTooOld, match=r"seen at 1970-01-01T01:46:39\+00:00, more than 3600 s ago .*Clear the preview"
    ):
        precheck(attempt)


@pytest.mark.parametrize("phase", [UP, OPENED, LIFTING, CLOSING])
def test_fence_of_another_run_is_ended_first(attempt: Attempt, phase: str) -> None:
    """It would be held for somebody else's, and nobody would lift it."""
    go_up(attempt)
    precheck(attempt)
    attempt.before, attempt.up = replace(attempt.up, run="monday", phase=phase), None  # type: ignore[type-var]
    with pytest.raises(FenceStands, match=rf"its cutover 'monday' is {phase}.*lift-fence"):
        precheck(attempt)
    for over in (LIFTED, CLOSED):
        assert attempt.before is not None
        attempt.before = replace(attempt.before, phase=over)
        precheck(attempt)


@pytest.mark.parametrize("held", [True, False])
def test_rule_that_came_late_is_not_taken_for_the_sites_own(attempt: Attempt, held: bool) -> None:
    """It stood when the earlier fence was described, or it is that fence's: then nobody would lift it."""
    late = rule("orders", "WRITE", "DENY")
    acls = attempt.source.acls  # type: ignore[attr-defined]
    attempt.fence = AclFence(attempt.source)
    if held:
        acls.add(late)
    attempt.intent = attempt.fence.intent(attempt.topics)
    go_up(attempt)
    attempt.before, attempt.up = replace(attempt.up, phase=LIFTED), None  # type: ignore[type-var]
    acls.add(late)
    if held:
        precheck(attempt)
    else:
        with pytest.raises(FenceStands, match=r"was lifted, and WRITE is denied to everybody again on orders.*lift-"):
            precheck(attempt)


def test_everything_that_changed_since_the_plan_is_told_at_once(attempt: Attempt) -> None:
    attempt.on.source.admin, attempt.on.target.admin = Topics(orders=3), Topics("payments")  # type: ignore[assignment]
    left = "the next plan leaves it out, and its copy is the mirror's until 'airflow-mirror retire' gives it up"
    assert drift(attempt) == [
        "source topic 'orders' has 3 partitions, the plan 1",
        "target topic 'orders' does not exist",
        f"source topic 'payments' was deleted: {left}",
    ]
    planned = tuple(replace(t, partitions=2, source_topic_id="another") for t in attempt.plan.topics)
    want(attempt, plan=replace(attempt.plan, topics=planned))
    attempt.on.source.admin = attempt.on.target.admin = Topics("orders", payments=4)  # type: ignore[assignment]
    assert drift(attempt) == [
        f"source topic 'orders' was re-created: {left}",
        "target topic 'orders' has 1 partitions, the plan 2",
        f"source topic 'payments' was re-created: {left}",
    ], "a target may have more"


def test_what_no_cutover_can_carry_over_is_refused(attempt: Attempt) -> None:
    mapped = tuple(replace(t, mode="mapped") for t in attempt.plan.topics)
    whole = attempt.plan
    want(attempt, plan=replace(attempt.plan, topics=mapped))
    with pytest.raises(InputError, match=r"mapped offsets \(orders, payments\): .* Pass tail_positions"):
        precheck(attempt)
    want(attempt, plan=replace(whole, mirror=replace(whole.mirror, partitioning="by_key")))
    with pytest.raises(InputError, match="neither groups nor proofs can be translated"):
        precheck(attempt)
    shared = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}
    want(attempt, plan=replace(whole, mirror=replace(whole.mirror, **shared)))
    with pytest.raises(TopicsShared, match="can't cut over"):
        precheck(attempt)


def test_topics_in_production_are_refused_before_the_fence(attempt: Attempt) -> None:
    go_up(attempt)
    open_behind(attempt)
    with pytest.raises(MirrorCutOver, match="orders, payments are in production"):
        precheck(attempt)
    shut_again(attempt.ledger, "orders", "payments")
    precheck(attempt)


def at(offset: int) -> dict[TopicPartition, GroupPosition]:
    return {ORDERS: GroupPosition(offset)}


def test_group_further_on_the_target_blocks_before_the_fence(attempt: Attempt) -> None:
    """Left where it is, it would skip what lies between; nobody would hear of that."""
    attempt.source.offsets, attempt.target.offsets = {"billing": at(40)}, {"billing": at(41)}  # type: ignore[attr-defined]
    with pytest.raises(GroupAhead, match="group 'billing' at orders-0: 41 on the target, 40 on the source"):
        precheck(attempt)
    want(attempt, allow_rewind=True)
    precheck(attempt)
    want(attempt, allow_rewind=False)
    attempt.target.offsets = {"billing": at(40)}  # type: ignore[attr-defined]
    precheck(attempt)


def test_group_that_reads_on_and_follows_meanwhile_is_not_ahead(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds lie between the two readings where there are many groups; a tail sets its position every five."""
    attempt.source.offsets = attempt.target.offsets = {"billing": at(40)}  # type: ignore[attr-defined]
    ask = Topics.groups_offsets

    def reads_on(self: Topics, ids: list[str], only: object = None) -> dict[str, dict[TopicPartition, GroupPosition]]:
        found = ask(self, ids, only)
        now = attempt.source.offsets["billing"][ORDERS].offset  # type: ignore[attr-defined, index]
        attempt.source.offsets = attempt.target.offsets = {"billing": at(now + 1)}  # type: ignore[attr-defined]
        return found

    monkeypatch.setattr(Topics, "groups_offsets", reads_on)
    precheck(attempt)


def test_group_that_gets_ahead_meanwhile_is_not_committed(attempt: Attempt) -> None:
    attempt.source.offsets, attempt.target.offsets = {"billing": at(40)}, {"billing": at(41)}  # type: ignore[attr-defined]
    attempt.report.ends = [{"topic": "orders", "partition": 0, "end": 100}]
    with pytest.raises(GroupAhead):
        groups._commit(attempt, {"billing": Settled("empty", "Empty", at(40))})
    assert attempt.report.groups == []


def test_groups_of_other_topics_are_not_asked(attempt: Attempt) -> None:
    """A group that is alive on the target for topics of its own has nothing to do with this cutover."""
    attempt.source.offsets = {"audit": {TopicPartition("audit", 0): GroupPosition(1)}, "idle": {}}  # type: ignore[attr-defined]
    attempt.target.states = {"audit": "Stable", "idle": "Stable"}  # type: ignore[attr-defined]
    precheck(attempt)
    attempt.source.offsets["audit"] = at(3)  # type: ignore[attr-defined, index]
    with pytest.raises(GroupActive, match="audit"):
        precheck(attempt)


def test_unselected_groups_reading_these_topics_are_listed(attempt: Attempt) -> None:
    elsewhere = {TopicPartition("audit", 0): GroupPosition(1)}
    attempt.source.offsets = {"connect-sink": at(3), "connect-audit": elsewhere, "billing": at(1)}  # type: ignore[attr-defined]
    precheck(attempt)
    assert attempt.report.left_behind == attempt.report.summary()["left_behind"] == ["connect-sink"]


def test_group_left_out_by_name_is_never_read_and_its_consequence_said(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be left out because reading it fails."""
    attempt.source.offsets = {"billing": at(1), "broken": at(2), "new": at(3)}  # type: ignore[attr-defined]
    attempt.target.offsets = {"broken": at(2)}  # type: ignore[attr-defined]
    read = attempt.source.group_offsets

    def refuse(group: str) -> dict[TopicPartition, GroupPosition]:
        if group == "broken":
            raise BrokerError("read offsets of consumer group 'broken'", 88, "UNSTABLE_OFFSET_COMMIT")
        return read(group)

    monkeypatch.setattr(attempt.source, "group_offsets", refuse)
    with pytest.raises(BrokerError, match="'broken'"):
        precheck(attempt)
    want(attempt, leave_out_groups=["new", "broken"])
    precheck(attempt)
    left_out = attempt.report.summary()["left_out"]
    assert list(left_out) == ["broken", "new"] and attempt.report.left_behind == []
    assert "in 1 partition it goes on where the tail has set it last" in left_out["broken"]
    assert "no position on the target" in left_out["new"] and "auto.offset.reset: 'latest' skips" in left_out["new"]
    assert list(groups_at_rest.moving(attempt)) == ["billing"]


def test_group_left_out_by_a_name_that_no_group_has_is_refused(attempt: Attempt) -> None:
    """Somebody believes that a group is left out, and it moves."""
    attempt.source.offsets = {"billing": at(1)}  # type: ignore[attr-defined]
    want(attempt, leave_out_groups=["biling", "billing"])
    with pytest.raises(InputError, match=r"leave_out_groups names 'biling': the source has no such group"):
        precheck(attempt)


def test_group_accepted_by_a_name_that_no_group_has_is_told(attempt: Attempt, caplog: pytest.LogCaptureFixture) -> None:
    attempt.source.offsets = {"billing": at(1)}  # type: ignore[attr-defined]
    want(attempt, accept_still_groups=["biling", "billing"])
    precheck(attempt)
    assert "accept_still_groups names no group that would move: 'biling'\n" in caplog.text


def test_fence_that_is_decided_to_stand_is_lifted_first(attempt: Attempt) -> None:
    """No report may say so: the one who lifted it ended before brokers had answered."""
    go_up(attempt)
    attempt.before = fence_state(attempt.ledger.values(), "flow")
    with pytest.raises(FenceStands, match="its cutover 'run' is up, as is decided"):
        precheck(attempt)
    lifting = begin_lifting(attempt.ledger, "flow", attempt.before, "somebody")  # type: ignore[arg-type]
    attempt.before = lifting
    with pytest.raises(FenceStands, match="is lifting"):
        precheck(attempt)
    assert lifting is not None
    end_lifting(attempt.ledger, "flow", lifting)
    attempt.before = fence_state(attempt.ledger.values(), "flow")
    precheck(attempt)


# --- after a finished cutover ----------------------------------------------------------------------------------------


@pytest.fixture
def finished(attempt: Attempt) -> Attempt:
    """A cutover that is done: its fence stays, and group ``billing`` was set to 40."""
    attempt.report.ends = [
        {"topic": "orders", "partition": 0, "end": 100},
        {"topic": "payments", "partition": 0, "end": 50},
    ]
    attempt.report.fence = FenceRecord(kind="callable", intent={"topics": []}, requested=1.0, kept=True)
    go_up(attempt)
    row = {"topic": "orders", "partition": 0, "target_topic": "orders", "target_offset": 40}
    attempt.report.groups = [GroupRecord(group="billing", settled="empty", source_state="Empty", positions=[row])]
    attempt.report.outcome = "cut_over"
    return attempt


def test_looking_again_says_what_became_of_source_and_fence(
    finished: Attempt, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    assert finished.report.summary()["fence_kept"]
    finished.target.offsets = {"billing": at(77)}  # type: ignore[attr-defined]
    finished.fence = CallableFence(lambda: None, lambda: None, lambda: False)
    finished.on.source.log = Logs({ORDERS: 103, PAYMENTS: 50})  # type: ignore[assignment]
    reverify(finished)
    assert finished.report.steps[-1].name == "verify_again"
    evidence = finished.report.steps[-1].evidence
    assert (evidence["source_moved_since"], evidence["fence_is_up"]) == ({"orders-0": [100, 103]}, False)
    left = kept_in(dir_of(finished)).load()
    assert left is not None and left.steps[-1].evidence == evidence
    assert "the source was written since" in caplog.text and "is not up any more" in caplog.text
    assert not left.summary()["fence_kept"], "whoever reads that takes the source for fenced"
    drawn = render(left)
    assert "the source refuses writers" not in drawn and "gone or incomplete" in drawn


def test_fence_that_is_decided_to_be_lifted_is_not_up_whatever_the_report_says(finished: Attempt) -> None:
    """Who lifted it could not write the report; by an intent without topics every fence is up."""
    finished.up = None  # as the next process finds what is over
    finished.target.offsets = {"billing": at(77)}  # type: ignore[attr-defined]
    finished.fence = CallableFence(lambda: None, lambda: None)
    reverify(finished)
    assert finished.report.steps[-1].evidence["fence_is_up"] is False


def test_fence_that_is_lifted_while_it_is_looked_again_stays_lifted_in_the_report(finished: Attempt) -> None:
    """``lift-fence --include-retained`` has written that by then."""
    finished.save()
    offsets = finished.target.groups_offsets

    def lifted_meanwhile(*given: Any) -> Any:
        theirs = kept_in(dir_of(finished))
        report = theirs.load()
        assert report is not None and report.fence is not None
        report.fence.lifted = 2.0
        theirs.save(report)
        return offsets(*given)

    finished.target.offsets = {"billing": at(77)}  # type: ignore[attr-defined]
    finished.target.groups_offsets = lifted_meanwhile  # type: ignore[method-assign]
    finished.fence = CallableFence(lambda: None, lambda: None, lambda: False)
    reverify(finished)
    left = kept_in(dir_of(finished)).load()
    assert left is not None and left.fence is not None and left.steps[-1].name == "verify_again"
    assert (left.fence.is_kept, left.fence.lifted) == (False, 2.0)


@pytest.mark.parametrize(("offset", "said"), [(39, "has 39"), (None, "has nothing")])
def test_group_behind_its_position_of_the_cutover_fails(finished: Attempt, offset: int | None, said: str) -> None:
    finished.target.offsets = {} if offset is None else {"billing": at(offset)}  # type: ignore[attr-defined]
    with pytest.raises(VerificationFailed, match=f"group 'billing' at orders-0: was set to 40, {said}"):
        reverify(finished)
