"""A source that returns after a failover: fenced from whichever try on, and what it took is listed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from airflow_mirror.cutover.decision import fence_state
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.failover import returned
from airflow_mirror.cutover.failover.returned import fence_returned
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.html import render
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.other_fences import unexplained
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import (
    CutoverTakenOver,
    FencedByAnother,
    FenceUnproven,
    NeedsHuman,
    TransactionsOpen,
    TryAgain,
)
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger.chain import links
from tests.builders import rule
from tests.unit.failover.returns import OPEN, QUICK, Returns
from tests.unit.failover.world import A0, B0, Killed, TargetSide


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Returns:
    return Returns(monkeypatch)


def test_what_is_changed_is_on_the_target_before_the_source(world: Returns) -> None:
    found = world.fence(answered=0.0)
    assert [line.split("/")[0] for line in world.effects.log] == [
        "decide", "create DENY GROUP", "decide", "write report", "create DENY GROUP", "create ALLOW TOPIC",
        "create DENY TOPIC", "write failover", "write report", "decide", "write report",
    ]  # fmt: skip
    assert world.is_fenced() and found.offsets == 3 and found.fenced_s is not None
    assert found.took == ["a-0: 3 offsets, 3 records, from 50 up to 53"]
    assert world.report().groups[0].positions[0]["source_offset"] == 20
    assert "Cut over" in render(world.report())


def test_topics_that_have_passed_on_are_not_fenced_in_whichever_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that was lost right behind a split: the plan that the decision pins has them still."""
    world = Returns(monkeypatch, passed_on=["a"])
    fenced = world.fence()
    assert rule("b", "WRITE", "DENY") in world.source.acls and rule("a", "WRITE", "DENY") not in world.source.acls
    assert world.fence() == fenced, "another process finds it up"
    fence = world.report().fence
    assert fence is not None and fence.changes.topics == ("b",), "as the report's page lists it"
    theirs = rule("a", "WRITE", "DENY")
    world.source.acls.add(theirs)
    assert unexplained(world.both(), "m") == [], "the other mirror's, or the site's own"
    world.lift(include_retained=True)
    assert {acl for acl in world.source.acls if acl.operation == "WRITE" and acl.permission == "DENY"} == {theirs}
    assert unexplained(world.both(), "m") == []


def test_failovers_report_lists_what_the_source_took(world: Returns) -> None:
    assert world.fail_over().returned is None
    found = world.fence()
    assert world.fail_over().lines()[-1] == found.took[0] and world.fail_over().to_dict()["returned"]["offsets"] == 3


def test_whatever_kills_it_the_next_try_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        for later in (False, True):
            world = Returns(monkeypatch)
            world.effects.dies_at, world.effects.after = number, later
            with suppress(Killed):
                world.fence()
                assert number == 11
                return
            world.effects.dies_at = None
            found = world.fence()
            assert world.is_fenced() and found.offsets == 3
            (link,) = links(world.ledger().values(), "m")
            (proven,) = prove({"report.json": world.report().to_json()}, decided=[link])
            assert proven.link == link and link.run == world.run()


def test_report_is_signed_when_there_is_a_key(world: Returns) -> None:
    key = Ed25519PrivateKey.generate()
    world.fence(signer=Signer(key))
    (proven,) = prove({"report.json": world.report().to_json()}, key.public_key())
    assert proven.link.run == world.run()


def test_a_proven_fence_is_never_raised_again(world: Returns) -> None:
    """It may have been swapped for one that lets the mirror write, which has written since."""
    first = world.fence()
    world.effects.log.clear()
    world.source.logs[A0] = (0, 99)
    assert world.fence() == first and world.effects.log == []
    world.source.acls.discard(rule("a", "WRITE", "DENY"))
    said = "fenced when it returned, and that fence is gone, or incomplete: somebody else has removed it. Producers "
    what_to_do = "'airflow-mirror failover --after' lists what they wrote; keep them away by other means."
    with pytest.raises(NeedsHuman, match=f"{said}may write there, and it is not raised again. {what_to_do}"):
        world.fence()
    assert world.effects.log == []


def test_right_that_came_later_gives_the_way_back(world: Returns, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was missing for a minute, and the report said for good that a transaction may end behind the fence."""

    def unseen() -> str:
        report = world.report()
        assert report.fence is not None
        return report.fence.unseen

    world.source.hidden = "no DESCRIBE on transactional ids"
    first = world.fence()
    assert unseen() == world.source.hidden and world.fence() == first
    world.source.hidden, world.source.at["g"] = "", {A0: GroupPosition(22)}
    with monkeypatch.context() as held:
        held.setattr(world.source, "open_transactions", lambda: [OPEN])
        with pytest.raises(TransactionsOpen):
            world.fence()
    assert unseen()
    world.source.logs[A0] = (0, 54)  # its marker
    again = world.fence()
    assert world.is_fenced() and (again.at, again.offsets) == (first.at, 4) and world.fail_over().returned is not None
    assert world.report().groups[0].positions[0]["source_offset"] == 20, "who moved since has read on the source"
    decided = links(world.ledger().values(), "m")
    (proven,) = prove({"report.json": world.report().to_json()}, decided=decided)
    assert len(decided) == 2 and proven.link == decided[-1]
    assert world.fence() == again


def test_a_fence_that_was_swapped_is_not_proven_again(world: Returns, monkeypatch: pytest.MonkeyPatch) -> None:
    world.source.hidden = "no DESCRIBE"
    found = world.fence()
    world.source.hidden, there = "", fence_state(world.ledger().values(), "m")
    assert there is not None
    swapped = {**there.intent, "spared": "User:mirror"}
    world.ledger().decide(lambda values: {"fence/m": {**values["fence/m"], "intent": swapped}})
    monkeypatch.setattr(returned, "_prove", lambda *_: pytest.fail("it was proven again"))
    monkeypatch.setattr(AclFence, "is_up", lambda *_: True)
    assert world.fence() == found


def test_a_fence_that_a_broker_does_not_know_is_not_proven(world: Returns) -> None:
    world.source.deaf, world.source.broker_count = True, lambda: 3  # type: ignore[method-assign]
    with pytest.raises(FenceUnproven):
        world.fence()
    report = world.report()
    assert report.fence is not None and report.fence.unseen and report.fence.proven is None, "no way back is armed on it"
    world.source.deaf = False
    world.fence()
    assert world.is_fenced()


def test_a_fence_that_was_lifted_before_its_proof_stays_lifted(world: Returns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TargetSide, "end_writing", lambda *_: None)
    world.source.deaf, world.source.broker_count = True, lambda: 3  # type: ignore[method-assign]
    with pytest.raises(FenceUnproven):
        world.fence()
    assert world.lift(include_retained=True)
    with pytest.raises(NeedsHuman, match="was lifted"):
        world.fence()
    assert world.source.acls == {rule("a", "WRITE", "ALLOW", "User:shop")}


def test_rules_that_come_after_a_person_has_lifted_the_fence_are_taken_back(
    world: Returns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TargetSide, "end_writing", lambda *_: None)

    class Late(AclFence):
        def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
            permit()
            assert world.lift(include_retained=True)
            super().raise_(intent, name, unfenced)  # as a request that had been on its way already

    with pytest.raises(CutoverTakenOver):
        fence_returned(world.both(), "m", Late(world.source), limits=QUICK)  # type: ignore[arg-type]
    assert world.source.acls == {rule("a", "WRITE", "ALLOW", "User:shop")}


def test_whoever_lifts_fences_finds_it(world: Returns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if asked for that of a finished cutover."""
    ended: list[str] = []
    monkeypatch.setattr(TargetSide, "end_writing", lambda _, mirror: ended.append(mirror))
    world.fence()
    assert world.lift() == [] and world.is_fenced()
    assert world.lift(include_retained=True) and ended == ["m"]
    assert world.source.acls == {rule("a", "WRITE", "ALLOW", "User:shop")}
    with pytest.raises(NeedsHuman, match="was lifted"):
        world.fence()


def test_two_that_stand_by_leave_one_intent(world: Returns) -> None:
    """The later one finds the first one's ACLs, and must not take them for somebody else's: nobody would lift them."""

    class Late(AclFence):
        def intent(self, topics: Sequence[str]) -> Intent:
            world.fence()
            return super().intent(topics)

    fence_returned(world.both(), "m", Late(world.source), limits=QUICK)  # type: ignore[arg-type]
    report = world.report()
    assert report.fence is not None and len(report.fence.changes.deny) == 2 and world.is_fenced()


def test_topics_that_are_gone_are_fenced_as_well(world: Returns) -> None:
    """Its disks are gone: producers would create them again."""
    del world.source.ids["b"], world.source.logs[B0]
    found = world.fence()
    assert world.is_fenced() and found.took[-1] == "b-0: the source has no such topic any more"


def test_broker_that_knows_no_topic_yet_proves_nothing(world: Returns) -> None:
    """It was taken at its word: the fence was proven on no topic, and what the source took was never listed."""
    world.source.blind = 2
    for _ in range(2):
        with pytest.raises(TryAgain, match="a broker of the source does not list a, b"):
            world.fence()
        report = world.report()
        assert report.fence is not None and report.fence.proven is None and world.fail_over().returned is None
    assert world.fence().took == ["a-0: 3 offsets, 3 records, from 50 up to 53"] and world.is_fenced()


def test_topics_of_another_mirrors_fence_are_refused(world: Returns) -> None:
    held = rule("a", "WRITE", "DENY")
    AclFence(world.source).announce(name_of("other", "x", "1"), unfenced)  # type: ignore[arg-type]
    world.source.acls.add(held)
    world.effects.log.clear()
    with pytest.raises(FencedByAnother, match="other:x:1"):
        world.fence()
    assert world.effects.log == []
