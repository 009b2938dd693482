"""A source that returns after a failover: fenced from whichever try on, and what it took is listed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from airflow_mirror.common.clock import SystemClock
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.decision import LIFTED, LIFTING, OPENED, UP, FenceState, fence_state, stand_behind_open
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.evidence import prove
from airflow_mirror.cutover.failover import after, returned
from airflow_mirror.cutover.failover.returned import Returned, fence_returned, watch
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.html import render
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.lifting import lift_leftover_fence
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.other_fences import unexplained
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.report_store import ReportStore
from airflow_mirror.cutover.signing import Signer
from airflow_mirror.errors import (
    AuthenticationFailed,
    ClusterUnreachable,
    CutoverTakenOver,
    FencedByAnother,
    FenceStands,
    FenceUnproven,
    InputError,
    NeedsHuman,
    TransactionsOpen,
    TryAgain,
)
from airflow_mirror.kafka.model import Acl, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.kafka.transactions import OpenTransaction
from airflow_mirror.ledger.chain import links
from airflow_mirror.plan import ownership
from airflow_mirror.plan.direction import direction
from tests.builders import rule
from tests.unit.cutover.builders import Acls, GivenSide
from tests.unit.failover.world import A0, A1, B0, Effects, Killed, Part, TargetSide, World

OPEN = OpenTransaction(
    transactional_id="x", producer_id=1, epoch=0, state="Ongoing", started_ms=0, partitions=frozenset({A0})
)  # fmt: skip
QUICK = Limits(quiet_s=0, settle_s=0, proof_timeout_s=0, transactions_timeout_s=0, poll_s=0.001)


class Source(Acls):
    """The old source with its ACLs and logs.

    ``deaf``: brokers that never hear of a topic's ACL; ``blind``: so many lists of topics come from one that knows none.
    """

    config = ClientConfig({"bootstrap.servers": "nowhere:1"}, "source")
    principal = "User:mirror"

    def __init__(self, effects: Effects) -> None:
        super().__init__(rule("a", "WRITE", "ALLOW", "User:shop"), open_by_default=True)
        self.effects, self.deaf, self.hidden = effects, False, ""
        self.blind = 0
        self.logs = {A0: (0, 53), A1: (0, 40), B0: (0, 30)}
        self.ids = {"a": "1", "b": "2"}
        self.at = {"g": {A0: GroupPosition(20)}, "idle": {}}

    @property
    def wire(self) -> Source:
        return self

    def cluster_id(self) -> str:
        return "s"

    def broker_count(self) -> int:
        return 1

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        if self.blind:
            self.blind -= 1
            return {}
        counts = {name: sum(tp.topic == name for tp in self.logs) for name in names}
        return {name: TopicInfo(name, self.ids[name], counts[name], 1) for name in names if name in self.ids}

    def refresh_present(self, names: Collection[str]) -> set[str]:
        return {name for name in names if name not in self.ids}

    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][0] for tp in tps}

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.logs[tp][1] for tp in tps}

    last_stable = log_ends

    def transactions_hidden(self) -> str:
        return self.hidden

    def open_transactions(self) -> list[OpenTransaction]:
        return []

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(group, "Empty", "consumer") for group in self.at]

    def groups_offsets(self, ids: Collection[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return {group: dict(self.at[group]) for group in ids}

    def create_acls(self, acls: list[Acl], permit: Permit = unfenced) -> None:
        if acls:
            what = f"create {acls[0].permission} {acls[0].resource_type}"
            self.effects.do(what, lambda: super(Source, self).create_acls(acls, permit))

    def acls_by_broker(self, resource_type: str) -> dict[int, list[Acl]]:
        return {1: [] if self.deaf and resource_type == "TOPIC" else self.describe_acls(resource_type)}


class Returns(World):
    """A failed-over mirror, whose source answers again with three records more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, passed_on: Sequence[str] = ()) -> None:
        super().__init__(monkeypatch)
        if passed_on:
            ownership.give_up(self.ledger(), "m", passed_on)
            ownership.pass_on(self.ledger(), "m", "n", passed_on)
        self.fail_over()
        self.effects.log.clear()
        self.source = Source(self.effects)
        monkeypatch.setattr(returned, "Side", lambda _: self.on())
        monkeypatch.setattr(Platform, "of", lambda *_: self.both())
        monkeypatch.setattr(after, "count_data", lambda *at, committed: (at[3] - at[2]) * committed)

    def reports(self) -> Part:
        return Part(self.state, ("report/m/",))

    def both(self) -> Platform:
        source = GivenSide(self.source)
        source.log = self.source
        return Platform(source, self.on())

    def fence(self, **how: Any) -> Returned:  # type: ignore[override]
        fence = AclFence(self.source)  # type: ignore[arg-type]
        return fence_returned(self.both(), "m", fence, limits=QUICK, **how)

    def lift(self, **how: Any) -> list[str]:
        return lift_leftover_fence(self.both(), "m", **how)

    def run(self) -> str:
        return f"failover-{self.fail_over().direction.attempt}"

    def report(self) -> CutoverReport:
        found = ReportStore(self.reports(), "m", self.run(), None).load()
        assert found is not None
        return found

    def is_fenced(self) -> bool:
        """As whoever lifts, swaps or arms has to find it."""
        report, there = self.report(), fence_state(self.ledger().values(), "m")
        assert report.fence is not None and there is not None
        assert (report.outcome, report.fence.kept, report.fence.unseen, report.plan_hash) == (
            "cut_over", True, "", self.plan.hash,
        )  # fmt: skip
        assert {(row["topic"], row["partition"]): row["end"] for row in report.ends} == {
            ("a", 0): 50, ("a", 1): 40, ("b", 0): 30,
        }  # fmt: skip
        assert (there.phase, there.run, there.plan) == (OPENED, self.run(), self.plan.hash)
        return {rule("a", "WRITE", "DENY"), rule("b", "WRITE", "DENY")} <= self.source.acls


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


class Waited(SystemClock):
    """A clock that says how long it was asked to wait, and does something meanwhile."""

    def __init__(self, *meanwhile: Callable[[], object]) -> None:
        self.waited, self.meanwhile = list[float](), meanwhile

    def sleep(self, seconds: float, /) -> None:  # type: ignore[override]
        self.waited.append(seconds)
        for do in self.meanwhile:
            do()


class Meanwhile(AclFence):
    """A fence behind whose back another mirror's is named, and perhaps raised, before its own name is there."""

    def __init__(self, world: Returns, *, raises: bool) -> None:
        super().__init__(world.source)  # type: ignore[arg-type]
        self.raises, self.other = raises, name_of("other", "x", "1")

    def claim(self, name: str, permit: Permit) -> None:
        if self.raises:
            super().raise_(Intent(topics=("a", "b")), self.other, unfenced)
        super().claim(self.other, unfenced)
        super().claim(name, permit)


@pytest.mark.parametrize("raises", [False, True])
def test_a_fence_of_another_mirror_that_came_in_the_same_second_is_left_alone(world: Returns, raises: bool) -> None:
    """Whoever lifted ours would lift its rules, which are the same; the next try begins anew once it is gone."""
    fence = Meanwhile(world, raises=raises)
    with pytest.raises(FencedByAnother, match="other:x:1"):
        fence_returned(world.both(), "m", fence, limits=QUICK)
    there = fence_state(world.ledger().values(), "m")
    assert there is not None and (there.phase, Intent.of(there.intent, ["a", "b"]).pending) == (OPENED, True)
    assert fence.standing("m", "") == {} and fence.standing("other", "") == {fence.other: False}
    assert raises == (rule("a", "WRITE", "DENY") in world.source.acls)
    fence.lift(Intent(topics=("a", "b")), fence.other, unfenced)
    assert world.fence().offsets == 3 and world.is_fenced()


def test_fences_of_other_topics_that_our_ledger_does_not_know_are_looked_at_twice(world: Returns) -> None:
    """A name is there before its rules: they may come while ours are being described."""
    both, other = world.both(), name_of("other", "x", "1")
    AclFence(world.source).claim(other, unfenced)  # type: ignore[arg-type]
    both.source.clock = clock = Waited(lambda: world.source.acls.add(rule("a", "WRITE", "DENY")))
    with pytest.raises(FencedByAnother, match="other:x:1"):
        fence_returned(both, "m", AclFence(world.source), limits=QUICK)  # type: ignore[arg-type]
    assert clock.waited == [12.0]
    world.source.acls.discard(rule("a", "WRITE", "DENY"))
    both.source.clock = Waited()
    assert fence_returned(both, "m", AclFence(world.source), limits=QUICK).offsets == 3  # type: ignore[arg-type]


def test_a_cutovers_fence_that_stands_is_not_taken_over(world: Returns) -> None:
    up = FenceState(
        run="tuesday", attempt=1, id="o", plan="p", revision="p", owner="o", max_fence_s=60.0, phase=UP
    )  # fmt: skip
    world.ledger().decide(lambda _: {"fence/m": {"v": 1, **vars(up)}})
    turned = direction(world.ledger().values(), "m")
    assert turned is not None
    with pytest.raises(FenceStands, match="tuesday"):
        stand_behind_open(world.ledger(), "m", replace(up, run="failover-x", phase=OPENED), turned)
    with pytest.raises(FenceStands):
        world.fence()
    assert "create DENY TOPIC" not in world.effects.log


def test_without_a_failover_nobody_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Returns(monkeypatch)
    world.ledger().decide(lambda _: {"direction/m": None})
    with pytest.raises(InputError, match="was not failed over"):
        watch(Source.config, world.target, "m", pause=pytest.fail)  # type: ignore[arg-type]


class Told:
    """A log whose lines are kept."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, text: str, *values: object) -> None:
        self.said.append(text % values)

    warning = info


def answering(world: Returns, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
    """Have the source refuse its first requests, one after the other."""
    left = list(errors)

    class Admin:
        def __init__(self, *_: Any, timeout_s: float = 15.0) -> None:
            self.first = timeout_s < 15

        def __enter__(self) -> Any:
            if self.first and left:
                raise left.pop(0)
            return world.source

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(returned, "ClusterAdmin", Admin)
    monkeypatch.setattr(returned, "Limits", lambda: QUICK)


@pytest.mark.parametrize("phase", [UP, LIFTING])
def test_a_cutovers_fence_that_stood_when_the_source_was_lost_is_waited_for(
    world: Returns, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """A failover was forced over it. A guard, or who lifts it, opens the source: somebody has to stand by still."""
    up = FenceState(
        run="tuesday", attempt=1, id="o", plan="p", revision="p", owner="o", max_fence_s=60.0, phase=phase
    )  # fmt: skip
    note_copy(world.ledger(), "m", up)
    answering(world, monkeypatch, ClusterUnreachable("source", "nowhere:1", "no answer"))
    log, pauses = Told(), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            world.ledger().decide(lambda _: {"fence/m": {"v": 1, **vars(replace(up, phase=LIFTED))}})

    found = watch(Source.config, world.target, "m", pause=pause, log=log)  # type: ignore[arg-type]
    assert found.offsets == 3 and world.is_fenced() and len(pauses) == 4
    assert log.said[0].startswith(f"the fence of cutover 'tuesday' {up.text}: when the source has returned, lift it")
    told = [line for line in log.said if "not fenced yet" in line and "tuesday" in line]
    assert len(told) == 1 and told[0].endswith("once the source answers; then this one goes up.")


def test_a_broker_that_is_back_before_its_users_are_known_ends_no_watch(
    world: Returns, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(world, monkeypatch, *[AuthenticationFailed("source", "nowhere:1", "no directory")] * 2)
    log, pauses = Told(), list[float]()
    found = watch(Source.config, world.target, "m", pause=pauses.append, log=log)  # type: ignore[arg-type]
    assert found.offsets == 3 and world.is_fenced() and len(pauses) == 2
    assert sum("not fenced yet" in line and "refused to authenticate" in line for line in log.said) == 1


def test_source_is_asked_every_second_until_it_answers(world: Returns, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may go away again in between, and what it says meanwhile is logged once."""
    answers = iter([False, False, True, False, True])
    pauses: list[float] = []
    log = Told()

    class Admin:
        def __init__(self, config: ClientConfig, timeout_s: float = 15.0) -> None:
            assert config == Source.config
            self.first = timeout_s < 15

        def __enter__(self) -> Any:
            if self.first and not next(answers):
                raise ClusterUnreachable("source", "nowhere:1", "no answer")
            return world.source

        def __exit__(self, *_: object) -> None:
            if not self.first and len(pauses) == 2:
                raise ClusterUnreachable("source", "nowhere:1", "no answer")

    monkeypatch.setattr(returned, "ClusterAdmin", Admin)
    monkeypatch.setattr(returned, "Limits", lambda: QUICK)
    found = watch(Source.config, world.target, "m", pause=pauses.append, log=log)  # type: ignore[arg-type]
    assert found.offsets == 3 and world.is_fenced() and pauses == [1.0] * 4
    assert sum("not fenced yet" in line for line in log.said) == 1
