"""The guard of a fence: it lifts what a dead owner left up, and never what may have been opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_mirror.cutover import report as reports
from airflow_mirror.cutover.alarm import Alarm
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.decision import LIFTED, OPENED, UP, begin_lifting, fence_state
from airflow_mirror.cutover.fence import AclFence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.guard import GRACE_S, Guard
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import FenceRecord, as_recorded
from airflow_mirror.errors import CutoverTakenOver, LedgerMissing, TryAgain
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat
from airflow_mirror.kafka.permit import Permit, unfenced
from tests.builders import rule
from tests.unit.cutover.builders import Acls, GivenSide, Topics, a_run, dir_of, go_up, ledger_of, open_behind, target_of
from tests.unit.ledger.kinds import MORE, every
from tests.unit.ledger.memory import MemoryState

DENY = rule("orders", "WRITE", "DENY")
OWNER = {"host": "w-3", "where": "w-3/1", "pid": 7, "started": 99, "job": "c0ffee"}


class Away(MemoryState):
    """A state on the target that can be away, to read or only to write."""

    def __init__(self, there: MemoryState) -> None:
        super().__init__()
        self.there, self.is_away, self.is_leaderless, self.takes_s = there, False, False, 0.0
        self.world: World | None = None

    def read(self) -> dict[str, bytes]:
        if self.is_away:
            raise TryAgain("no broker answered")
        return self.there.read()

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        if self.world is not None:
            self.world.now += self.takes_s
        if self.is_away or self.is_leaderless:
            raise TryAgain("no broker answered")
        self.there.write(values, permit)


def page(text: str) -> None:
    """Call a person, who does not answer."""
    raise OSError(text)


class World:
    """A cutover whose fence is up, a guard beside it, and a clock that only this test moves."""

    def __init__(self, run_dir: Path) -> None:
        self.source, self.now = Acls(DENY), 1000.0
        self.run = a_run(run_dir, AclFence(self.source), self.source)  # type: ignore[arg-type]
        self.run.report.process = dict(OWNER)
        self.source.acls.clear()
        self.run.intent = self.run.fence.intent(self.run.topics)
        self.run.report.fence = FenceRecord(
            kind="acl", name="acl", intent=as_recorded(self.run.intent), requested=1.0
        )  # fmt: skip
        go_up(self.run)
        self.run.save()
        self.run.fence.raise_(self.run.intent, self.name, self.run.permit)
        self.state, self.life = Away(target_of(run_dir)), ledger_of(run_dir)
        self.state.world = self
        owner = ActiveTail(mirror={"name": "flow"}, plan=self.run.report.plan_hash, inputs="", directory="", **OWNER)
        self.signs = Heartbeat(target_of(run_dir), owner)
        on = Platform(GivenSide(self.source), GivenSide(Topics(), self.life, self.state))
        on.source.clock = on.target.clock = cast("Any", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))
        self.guard = Guard("flow", on)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    @property
    def name(self) -> str:
        return name_of("flow", self.run.store.run, self.run.me)

    @property
    def is_up(self) -> bool:
        return DENY in self.source.acls

    @property
    def phase(self) -> str:
        found = fence_state(ledger_of(dir_of(self.run)).values(), "flow")
        assert found is not None
        return found.phase

    def decide(self, **forged: Any) -> None:
        """Write into the decision about the fence, as whoever may write to its topic can."""
        life = ledger_of(dir_of(self.run))
        life.decide(lambda values: {"fence/flow": {**cast("Any", values["fence/flow"]), **forged}})

    def seconds(self, count: int, *, signs: bool = False) -> None:
        """Let time pass, and the guard look once a second."""
        for second in range(count):
            if signs and second % 2 == 0:
                self.signs.give("RUNNING")
            self.guard.look()
            self.now += 1

    def cut_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the guard reach nothing on the target."""

        def away(*_: Any) -> Any:
            raise TryAgain("no broker answered")

        self.state.is_away = True
        for name in ("values", "decide"):
            monkeypatch.setattr(self.life, name, away)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "run")


def test_fence_of_a_living_owner_stays_for_as_long_as_it_may_open(world: World) -> None:
    """One that hangs gives signs all the same; after ``max_fence_s`` its decision would be void."""
    world.seconds(75, signs=True)
    assert world.is_up and world.phase == UP and world.guard.is_needed
    world.seconds(2, signs=True)
    assert not world.is_up and world.phase == LIFTED


@pytest.mark.parametrize("raised", [False, True])
def test_without_the_ledger_only_rules_that_were_decided_are_lifted(
    world: World, monkeypatch: pytest.MonkeyPatch, raised: bool
) -> None:
    """A guard has read of a fence whose owner had not looked for others yet, and then its ledger goes away."""
    intent = world.run.intent
    world.decide(intent=replace(intent, pending=True).value())
    world.seconds(1, signs=True)
    if raised:
        world.decide(intent=intent.value())
        world.seconds(1, signs=True)
    world.cut_off(monkeypatch)
    world.seconds(80)
    assert world.is_up is not raised and (world.name in {acl.name for acl in world.source.acls}) is not raised


@pytest.mark.parametrize("phase", ["opened", "closing"])
@pytest.mark.parametrize("ends", ["dies", "in order"])
def test_person_is_called_if_nobody_goes_on_behind_an_opening(
    world: World, monkeypatch: pytest.MonkeyPatch, ends: str, phase: str
) -> None:
    """The old source of a rollback is still fenced then, or one whose fence is not kept, half. Nothing is lifted."""
    called: list[str] = []
    monkeypatch.setattr(f"{__name__}.page", called.append)
    world.guard.alarm = Alarm(f"{__name__}.page")
    world.seconds(10, signs=True)
    world.decide(phase="opened")
    world.seconds(30, signs=True)
    world.decide(phase=phase)
    world.seconds(5, signs=True)
    assert called == [] and world.guard.is_needed, "its owner works on"
    if ends == "in order":
        world.signs.give("SUCCEEDED")
    world.seconds(20)
    world.guard.alarm.wait(60)
    assert world.is_up and not world.guard.is_needed
    assert len(called) == (ends == "dies") and all("run it again (clear its task)" in one for one in called)


def test_fence_comes_down_within_half_a_minute_of_a_death(world: World) -> None:
    world.seconds(10, signs=True)
    world.seconds(9)
    assert world.is_up, "silence is not over"
    world.seconds(5)
    assert not world.is_up and world.phase == LIFTED
    left = world.run.store.load()
    assert left is not None and left.fence is not None and left.fence.lifted is not None
    world.guard.look()
    assert not world.guard.is_needed


def test_guard_calls_whom_its_order_names(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once when it begins to lift, once when it has; what only repeats itself calls nobody for half a minute."""
    called: list[str] = []
    monkeypatch.setattr(f"{__name__}.page", called.append)
    world.guard.alarm = Alarm(f"{__name__}.page")
    world.seconds(30)
    world.guard.alarm.wait(60)
    assert [line.split(" run")[0] for line in called] == ["mirror 'flow': the cutover of", "mirror 'flow': the fence of"]
    assert "behind its fence: lifting it" in called[0] and "is lifted: DENY WRITE" in called[1]


@pytest.mark.parametrize("own", ["", f"{__name__}.page"])
def test_decision_names_nobody_to_be_called(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str
) -> None:
    """A guard stands beside every tail, with the passwords of both clusters, and reads what others may write."""
    called: list[str] = []
    monkeypatch.setattr(f"{__name__}.page", called.append)
    world.guard.alarm = Alarm(own)
    world.decide(alarm="os.system", run=f"'$(touch {tmp_path}/ran)'")
    world.seconds(30)
    world.guard.alarm.wait(60)
    assert not (tmp_path / "ran").exists() and bool(called) == bool(own)


calls: list[str] = []


def by_function(_: object) -> CallableFence:
    """Make a fence, as a function of a user does."""
    calls.append("made")
    return CallableFence(lambda: None, lambda: calls.append("off"))


@pytest.mark.parametrize("told", [True, False])
def test_fence_by_a_function_is_lifted_by_a_guard_that_was_told_the_function(
    world: World, caplog: pytest.LogCaptureFixture, told: bool
) -> None:
    """That beside the cutover was. A report names one, too, and who may write reports could name any other."""
    calls.clear()
    path = f"{__name__}.by_function"
    world.decide(kind="callable", name=path)
    world.guard._named = path if told else "acl"
    world.seconds(30)
    assert calls == (["made", "off"] if told else []) and world.phase == (LIFTED if told else UP)
    said = f"is of kind 'callable' ({path}): none was given. Pass the fence that was used: airflow-mirror lift-fence"
    assert (said in caplog.text) is not told


def test_function_that_fails_keeps_no_fence_up(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.guard.alarm = Alarm(f"{__name__}.page")
    world.seconds(30)
    world.guard.alarm.wait(60)
    assert not world.is_up and "so nobody was told: mirror 'flow': the fence of run" in caplog.text


def test_an_election_is_no_silence(world: World) -> None:
    """Nobody can write for nine seconds; the owner's last sign was just before, and its next comes a while after."""
    world.seconds(4, signs=True)
    world.seconds(2)
    world.state.takes_s = 9.0
    world.seconds(3)
    world.state.takes_s = 0.0
    world.seconds(4)
    assert world.is_up
    world.seconds(4, signs=True)
    world.state.is_leaderless = True
    world.seconds(20)
    assert world.is_up, "the observer's own writes were not acknowledged all the time"


def test_owner_that_is_thawed_after_that_opens_nothing(world: World) -> None:
    world.seconds(30)
    assert not world.is_up
    with pytest.raises(CutoverTakenOver):
        open_behind(world.run)


def test_guard_that_comes_after_the_opening_lifts_nothing(world: World) -> None:
    world.seconds(5, signs=True)
    open_behind(world.run)
    world.seconds(300)
    assert world.is_up and world.phase == OPENED and not world.guard.is_needed


def test_fence_whose_lifter_died_is_lifted(world: World) -> None:
    assert world.run.up is not None
    begin_lifting(ledger_of(dir_of(world.run)), "flow", world.run.up, "another guard")
    world.seconds(30)
    assert not world.is_up and world.phase == LIFTED


def test_guard_leaves_another_one_the_time_to_lift(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One beside the cutover, one beside the tail: they took over from each other, each from the beginning."""
    other, delete = Guard("flow", world.guard._on), world.source.delete_acls

    def slowly(*given: Any) -> Any:
        other.look()
        return delete(*given)

    monkeypatch.setattr(world.source, "delete_acls", slowly)
    for _ in range(30):
        other.look()
        world.seconds(1)
    assert not world.is_up and world.phase == LIFTED
    assert "stays" not in caplog.text and caplog.text.count("lifting it") == 1


def test_opening_between_the_look_and_the_lifting_wins(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The owner woke up at that moment, in time."""
    lift = world.guard._lift

    def opened_first(fence: Any, why: str) -> None:
        open_behind(world.run)
        lift(fence, why)

    monkeypatch.setattr(world.guard, "_lift", opened_first)
    world.seconds(30)
    assert world.is_up and world.phase == OPENED
    assert "stays" in caplog.text


def test_retry_that_raises_its_own_fence_after_the_look_keeps_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of the same run, and gives signs of life; only the attempt before was silent."""
    lift = world.guard._lift

    def raised_again(fence: Any, why: str) -> None:
        world.decide(id="the next attempt", owner="the next attempt", attempt=2)
        world.signs.give("RUNNING")
        lift(fence, why)

    monkeypatch.setattr(world.guard, "_lift", raised_again)
    world.seconds(14)
    assert world.is_up and world.phase == UP


def test_guard_without_a_ledger_waits_until_an_opening_would_be_void(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.seconds(1)
    with monkeypatch.context() as alone:
        world.cut_off(alone)
        world.seconds(30)
        assert "can't be decided on, and comes down in" in caplog.text, "somebody was called"
        world.seconds(int(60 + GRACE_S) - 31)
        assert world.is_up
        world.seconds(2)
        assert not world.is_up and "without a word" in caplog.text
    world.state.is_away = False
    world.seconds(15)
    assert world.phase == LIFTED, "it is decided as soon as that is possible"


def test_another_name_at_the_source_makes_it_a_persons_matter(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also that of the mirror's next attempt, of which the guard has not heard."""
    AclFence(world.source).announce(name_of("flow.eu", "of a wave before", "1"), unfenced)  # type: ignore[arg-type]
    world.seconds(1)
    world.cut_off(monkeypatch)
    AclFence(world.source).announce(name_of("flow", world.run.store.run, "2"), unfenced)  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR):
        world.seconds(600)
    assert world.is_up and "find out whether its target is open" in caplog.text and "of another attempt" in caplog.text


def test_guard_lifts_nothing_alone_once_the_opening_was_announced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail's guard looks every few seconds: an owner may be at its opening by then."""
    AclFence(world.source).announce(world.name, unfenced)  # type: ignore[arg-type]
    world.seconds(1)
    world.cut_off(monkeypatch)
    world.seconds(600)
    assert world.is_up


def test_fence_by_a_function_is_never_lifted_without_a_ledger(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No marker of it can stand at the source."""
    monkeypatch.setattr(f"{__name__}.gate", lambda _: CallableFence(print, print), raising=False)
    kind = {"kind": "callable", "name": f"{__name__}.gate"}
    world.guard._named = kind["name"]
    world.life.decide(lambda values: {"fence/flow": {**cast("Any", values["fence/flow"]), **kind}})
    world.seconds(1)
    world.cut_off(monkeypatch)
    world.seconds(300)
    assert world.is_up and "nothing there names a callable's attempt" in caplog.text


def test_guard_that_saw_nothing_stays_until_it_was_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner may have died between its `up` and the first look."""
    with monkeypatch.context() as alone:
        world.cut_off(alone)
        world.seconds(3)
        assert world.guard.is_needed
    world.state.is_away = False
    world.seconds(30)
    assert not world.is_up and not world.guard.is_needed


def test_tails_guard_that_saw_no_fence_keeps_no_driver(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that is away would hold up every tail that is to stop."""
    world.guard._beside_owner = False
    world.cut_off(monkeypatch)
    world.seconds(3)
    assert not world.guard.is_needed


def test_target_without_a_ledger_has_no_fence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise LedgerMissing

    monkeypatch.setattr(world.life, "values", missing)
    world.guard.look()
    assert not world.guard.is_needed


def test_source_that_does_not_answer_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise TryAgain("no broker answered")

    monkeypatch.setattr("airflow_mirror.cutover.raised.LIFT_PATIENCE_S", 0.0)
    with monkeypatch.context() as gone:
        gone.setattr(world.source, "delete_acls", away)
        world.seconds(30)
        assert world.is_up and world.guard.is_needed
    world.seconds(3)
    assert not world.is_up and world.phase == LIFTED
    assert world.run.store.load().outcome == reports.BACKED_OUT  # type: ignore[union-attr]


@pytest.mark.parametrize("signs", [True, False], ids=["at work", "dead"])
def test_guard_works_beside_a_newer_version(world: World, signs: bool) -> None:
    """Whose cutover this is, and whose are the others: more fields, other versions."""
    life = ledger_of(dir_of(world.run))
    theirs, signs_of_theirs = every("others", v=99)
    life.decide(lambda _: theirs)
    world.state.write(signs_of_theirs)

    def newer(values: Mapping[str, Any]) -> dict[str, Any]:
        there = values["fence/flow"]
        return {"fence/flow": {**there, **MORE, "process": {**there["process"], **MORE}}}

    life.decide(newer)
    world.seconds(30, signs=signs)
    assert world.is_up is signs and world.guard.is_needed is signs


def test_nothing_ends_a_guard(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Not even a mistake of ours: a guard that ended would leave its fence to nobody."""

    def broken(_: object) -> str:
        raise TypeError("a mistake")

    with monkeypatch.context() as wrong:
        wrong.setattr(world.guard._watch, "status", broken)
        world.seconds(30)
    assert world.is_up and world.guard.is_needed and "failed, the next one follows: TypeError('a mistake')" in caplog.text
    world.seconds(30)
    assert not world.is_up and world.phase == LIFTED
