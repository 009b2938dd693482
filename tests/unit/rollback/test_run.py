"""A rollback: one decision, then the old source's own fence, and never two open clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from airflow_mirror.cutover import decision
from airflow_mirror.cutover.decision import OPENED, FenceState, fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.report import CutoverReport, as_recorded
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.request import Additions, Clusters, CutoverRequest
from airflow_mirror.cutover.rollback import arm as arming
from airflow_mirror.cutover.rollback import run as running
from airflow_mirror.cutover.rollback.divergence import Divergence
from airflow_mirror.cutover.rollback.reverse import reverse_of
from airflow_mirror.cutover.rollback.run import roll_back, turned, way_back
from airflow_mirror.errors import NoWayBack, RollbackRefused
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.kinds import in_pieces
from airflow_mirror.ledger.records import ACTIVE
from airflow_mirror.plan.direction import direction
from airflow_mirror.plan.owned import owned_topics
from tests.builders import rule
from tests.unit.cutover.builders import GivenSide
from tests.unit.rollback.world import PLAN, REVERSE, Died, World

BEFORE = {rule("orders", "WRITE", "ALLOW", "User:shop")}
UP = FenceState(
    run="back", attempt=1, id="me", plan=REVERSE.hash, revision=REVERSE.hash, owner="me", max_fence_s=60
)  # fmt: skip


def opens(ledger: Any, also: Any) -> None:
    """Decide, as a cutover of the reverse mirror does, that the old source is open."""
    values = ledger.values()
    before, turned_to = fence_state(values, "flow-reverse"), direction(values, "flow-reverse")
    until_ms = decision.go_up(ledger, "flow-reverse", UP, before, turned_to)
    pin = decision.Pin(direction=turned_to, tail=ACTIVE.at(values, "flow-reverse"))
    decision.open_behind(ledger, REVERSE, UP, {"orders": "id-old"}, "noon", until_ms, pin, also)


class Back(World):
    """An armed way back; a cutover of it only decides. :ivar done: what happened, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.arm()
        self.done: list[str] = []
        self.found = Divergence(written=(), problems=())
        monkeypatch.setattr(running, "run_cutover", self._cut_over)
        monkeypatch.setattr(running, "divergence", lambda *_: self.found)
        monkeypatch.setattr(GivenSide, "end_writing", lambda *_: self.done.append("lease"))
        for one in (self.old, self.new):
            one.config = None  # type: ignore[attr-defined]

    def _cut_over(
        self, request: CutoverRequest, clusters: Clusters, store: ReportStore, *, additions: Additions, **_: Any
    ) -> CutoverReport:
        on: Any = clusters.on
        mirror, plan = request.plan.mirror, request.plan
        assert (plan, on.source.admin, on.target.admin) == (REVERSE, self.new, self.old)
        assert on.target.ledger is self.old.ledger and request.keep_fence and request.is_rollback
        self.may_stand_still = set(request.accept_still_groups)
        self.clients = additions.clients(CutoverReport(mirror=mirror.name, plan_hash=plan.hash))
        if fence_state(self.old.ledger.values(), mirror.name) is None:
            additions.require()
            opens(self.old.ledger, additions.decide_with)
        self.done.append("opened")
        self.old.shut = False
        additions.afterwards()  # inside, where guards watch
        return CutoverReport(mirror=mirror.name, plan_hash=plan.hash)

    def roll_back(self, *still: str, accepted: Sequence[str] = (), **how: Any) -> CutoverReport:
        kept, way = ReportStore(self.old.state, "flow-reverse", "back", None), way_back("flow", self.on, accepted)
        fence: Any = None
        clusters = Clusters(on=self.on.turned(), fence=fence, verify=lambda _: [])
        return roll_back(way, CutoverRequest(plan=way.plan, accept_still_groups=still), clusters, kept, **how)


@pytest.fixture
def back(monkeypatch: pytest.MonkeyPatch) -> Back:
    return Back(monkeypatch)


def test_one_record_decides_fence_direction_topics_and_tail(back: Back) -> None:
    ledger = back.old.ledger
    ledger.decide(lambda _: {"active/flow-reverse": {"v": 1, "job": "tail"}})
    way = way_back("flow", back.on)
    records = len(ledger.records) + 1
    opens(ledger, partial(turned, way, "back"))
    values = ledger.values()
    turned_to, fence = direction(values, "flow-reverse"), fence_state(values, "flow-reverse")
    assert len(ledger.records) == records + 1
    assert turned_to is not None and (turned_to.generation, turned_to.primary, turned_to.by) == (2, "old", "rollback")
    assert fence is not None and fence.phase == OPENED
    assert owned_topics(ledger)["orders"].opened_by == REVERSE.hash
    assert values.get("active/flow-reverse") is None


def test_old_sources_fence_is_lifted_after_the_decision(back: Back) -> None:
    back.roll_back()
    assert back.done == ["opened", "lease"] and back.old.acls == BEFORE
    back.roll_back(additions=Additions(clients=lambda _: {"at_ms": 7}))
    assert back.done == ["opened", "lease", "opened"], "a second call has nothing to lift"
    assert back.clients == {"at_ms": 7}, "who is there is asked as for any cutover"


def test_killed_before_any_change_the_next_call_completes_the_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        one = Back(monkeypatch)
        one.changes.left = number
        try:
            one.roll_back()
        except Died:
            one.changes.left = 10**6
            assert one.done or one.old.acls != BEFORE, "shut before the decision"
            one.roll_back()
            assert one.old.acls == BEFORE
        else:
            assert number > 4
            return


def test_refusal_touches_nothing_and_says_what_was_written(back: Back) -> None:
    back.found = Divergence(written=(), problems=("group 'g' has members on the target (Stable)",))
    before, lines = back.changes.left, list[str]()

    class Log:
        def info(self, text: str, *given: object) -> None:
            lines.append(text % given)

        warning = info

    with pytest.raises(RollbackRefused, match="group 'g' has members"):
        back.roll_back(log=Log())
    assert back.changes.left == before and back.done == [] and "since it was opened" in lines[0]


def test_way_back_that_was_not_armed_is_none() -> None:
    world = World()
    with pytest.raises(NoWayBack, match="none was armed"):
        way_back("flow", world.on)


def test_what_was_rolled_back_is_not_armed_again(back: Back) -> None:
    back.roll_back()
    with pytest.raises(NoWayBack, match="decided to be the primary"):
        back.arm()
    assert owned_topics(back.old.ledger)["orders"].opened_by == REVERSE.hash


def test_rollback_has_a_way_back_itself(back: Back) -> None:
    """What it decided is no arming, although it has the name of the same run."""
    back.roll_back()
    report = replace(back.report, mirror="flow-reverse", plan_hash=REVERSE.hash)
    assert report.fence is not None
    fence = AclFence(back.new)  # type: ignore[arg-type]
    intent = fence.intent(["orders"])
    report.fence.intent, report.fence.lifted, report.fence.kept = as_recorded(intent), None, True
    fence.raise_(intent, name_of("flow-reverse", "back", "me"), unfenced)
    report.id = "me"
    report_of = ReportStore(back.old.state, "flow-reverse", "back", None)
    report_of.save(report)
    forward = replace(PLAN, mirror=reverse_of(REVERSE.mirror))
    back.new.state.write(in_pieces(f"plan/flow/{forward.hash}", forward.to_json().encode()))
    found = arming.arm(back.on.turned(), report_of, REVERSE, planner=lambda *_, **__: forward)
    assert found.direction is not None and (found.direction.generation, found.direction.primary) == (3, "old")
    assert owned_topics(back.new.ledger)["orders"].opened_by is None
    assert way_back("flow-reverse", back.on.turned()).plan == forward


def test_groups_that_are_accepted_may_stand_still_too(back: Back) -> None:
    """Whoever says that their positions count has said it of those that nobody moves while the fence is up."""
    back.roll_back("audit", accepted=["billing"])
    assert back.may_stand_still == {"billing", "audit"}
