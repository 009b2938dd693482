"""Tasks on one worker, the mirror's tail on another: nothing between them but the target's ledger."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.errors import InvalidField, MirrorCutOver, TryAgain
from airflow_mirror.hooks.tail import TailView, log_of
from airflow_mirror.jobs.runner import active, process
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, active_tail
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.operators import tail as operators
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.operators.tail import stop_tail
from airflow_mirror.plan import Plan
from tests.provider.conftest import PLAN, FakeStore, FakeTI, Pauses, Started, store_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState


class Beating(MemoryState):
    """A tail that gives a sign whenever somebody looks, and stops when asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.tail: ActiveTail | None = None
        self.phase, self.stops, self._number = "copying", True, count()

    def read(self) -> dict[str, bytes]:
        values = super().read()
        if self.tail is not None:
            stopped = self.stops and f"job/m/{self.tail.job}/stop" in values
            state = "SUCCEEDED" if stopped else "RUNNING"
            summary = {"records": 7, "end_offsets": {}}
            sign = active.Sign(number=next(self._number), state=state, phase=self.phase, summary=summary)
            self.write({f"job/m/{self.tail.job}/sign": sign.encode()})
        return super().read()


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Beating:
    one = Beating()
    monkeypatch.setattr("airflow_mirror.ledger.state.state_of", lambda *_, **__: one)
    monkeypatch.setattr(active, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(operators, "_LOOK_EVERY_S", 0.01)
    return one


@pytest.fixture
def tail(ledger: MemoryLedger, state: Beating, plan: Plan, connections: Callable[..., None]) -> ActiveTail:
    """The mirror's tail, which lives on host-a."""
    one = ActiveTail(
        mirror=plan.mirror.to_dict(), plan=plan.hash, inputs=plan.digest, directory="/jobs/1", host="host-a", where="a"
    )
    ledger.decide(lambda _: {"active/m": one.value()})
    state.tail = one
    return one


def start(mirror: dict[str, Any], **given: Any) -> StartMirrorOperator:
    return StartMirrorOperator(**{"plan": PLAN, "task_id": "t", "mirror": mirror, "mode": "tail", **given})


def test_living_tail_of_another_worker_is_attached_to(
    tail: ActiveTail, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started
) -> None:
    assert start(mirror).execute(context) == {"job": "tail", "job_dir": "/jobs/1", "host": "host-a"}
    assert fake_spark[0] == [], "nothing was started here"


def test_tail_that_an_earlier_task_found_lost_is_replaced_at_once(
    tail: ActiveTail, state: Beating, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The job is told, too. If it has given a sign since, it lives: the task attaches to it."""
    assert start(mirror, replaces=f"{tail.job}/").execute(context)["host"] == "host-a" and not fake_spark[0]
    state.tail = None  # its host is gone
    eye = active.Watch(state)
    assert eye.status(tail) == "RUNNING"
    fake_spark[1]["is"] = "copying"

    def never(*_: object) -> None:
        raise AssertionError("it is listened for again")

    monkeypatch.setattr(active.Watch, "_probe", never)
    assert start(mirror, replaces=eye.seen).execute(context)["host"] != "host-a"
    (asked,) = fake_spark[0]
    assert asked["replaces"] == eye.seen


def test_attached_task_fails_if_the_tail_does_not_copy_in_time(
    tail: ActiveTail, state: Beating, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started
) -> None:
    state.phase = "starting Spark"
    with pytest.raises(AirflowException, match="(?s)is left running.*/jobs/1/log.txt on host host-a"):
        start(mirror, start_timeout_s=0.1).execute(context)


def test_tail_of_another_plan_elsewhere_is_named(
    tail: ActiveTail, plan: Plan, home: Path, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started
) -> None:
    """Its host as well. Asked to, the task stops it there and starts its own here."""
    topic = replace(plan.topics[0], source_topic_id="id-2")
    other = store_plan(home, replace(plan, topics=(topic,))).hash
    with pytest.raises(AirflowFailException, match="(?s)on host host-a.*created again on the source"):
        start(mirror, plan=other).execute(context)
    fake_spark[1]["is"] = "copying"
    started = start(mirror, plan=other, replace=True).execute(context)
    assert started["host"] != "host-a" and len(fake_spark[0]) == 1


def test_paused_tail_is_attached_to_and_a_copy_refused(
    tail: ActiveTail, state: Beating, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A tail that rests is there; what needs it to copy fails at once, and says who paused it."""
    state.phase = "paused"
    wish(state, "m", "pause", Wish(by="ann@desk", at="noon"))
    assert start(mirror).execute(context)["host"] == "host-a"
    assert "its tail is there, and copies nothing until 'airflow-mirror resume'" in caplog.text
    with pytest.raises(AirflowException, match="mirror 'm' is paused by ann@desk since noon"):
        start(mirror, mode="bulk").execute(context)
    assert fake_spark[0] == []


def test_window_is_not_copied_beside_a_tail_elsewhere(
    tail: ActiveTail, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started
) -> None:
    window = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T01:00:00+00:00"}
    with pytest.raises(AirflowFailException, match="WriterRuns: job 'tail' is already running .* on host host-a"):
        start(mirror, mode="bulk", **window).execute(context)


def test_tail_elsewhere_is_stopped_by_a_request(
    tail: ActiveTail, mirror: dict[str, Any], context: dict[str, Any], home: Path
) -> None:
    stopped = StopMirrorOperator(task_id="s", mirror=mirror).execute(context)
    assert stopped == {"records": 7, "tail": "SUCCEEDED", "stopped": 1}
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context)["stopped"] == 0


def test_tail_elsewhere_that_goes_on_is_an_error(
    tail: ActiveTail, state: Beating, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.stops = False
    monkeypatch.setattr(operators, "SILENCE_S", 0.0)
    with pytest.raises(TryAgain, match="host 'host-a' .* was asked to stop, and gives signs of life"):
        stop_tail(TailView(None, "m"), LocalRunner(home / "m"), tail, 0.1)  # type: ignore[arg-type]


def test_tail_that_goes_on_is_killed_where_a_manager_can(
    tail: ActiveTail, state: Beating, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker has started it: there is no handle here."""
    state.stops = False
    monkeypatch.setattr(operators, "SILENCE_S", 0.0)
    runner, killed = LocalRunner(home / "m"), []
    monkeypatch.setattr(runner.place, "kill", lambda job: killed.append(job) or True)
    assert not stop_tail(TailView(None, "m"), runner, tail, 0.1)  # type: ignore[arg-type]
    assert killed == [tail.job]


def test_log_of_an_application_is_named_by_its_id(tail: ActiveTail) -> None:
    assert log_of(replace(tail, application="application_17_0001")) == "the log of application_17_0001"


def test_two_workers_that_start_at_once_share_one_tail(
    tail: ActiveTail,
    ledger: MemoryLedger,
    mirror: dict[str, Any],
    context: dict[str, Any],
    fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job that was started here found that another one had been decided, and ended: the task takes that one."""
    fake_spark[1]["is"] = "broken"
    looks = iter([None, tail])
    monkeypatch.setattr(TailView, "living", lambda _: next(looks))
    assert start(mirror).execute(context)["host"] == "host-a" and len(fake_spark[0]) == 1


# --- attached ---------------------------------------------------------------------------------------------------------

Happen = Callable[[list[Callable[[], None]]], list[float]]
_POLL_S = 0.5


@pytest.fixture
def happen(pauses: Pauses, monkeypatch: pytest.MonkeyPatch, fake_spark: Started) -> Happen:
    """Let one thing after the other happen while the supervising task pauses; returns its pauses, in seconds."""

    def script(events: list[Callable[[], None]]) -> list[float]:
        paused: list[float] = []

        def sleep(seconds: float) -> None:
            if seconds == _POLL_S:
                events.pop(0)()
            else:
                paused.append(seconds)

        monkeypatch.setattr(operators, "poll_interval_s", lambda: _POLL_S)
        pauses.meanwhile = sleep
        return paused

    return script


def ends(ledger: MemoryLedger, state: Beating, result: str, **said: str) -> None:
    """The tail that is decided gives its last sign."""
    state.tail, there = None, active_tail(ledger.values(), "m")
    assert there is not None
    Heartbeat(state, there).give(result, **said)
    process.end_job(Path(there.directory), grace_s=0.0)


def test_supervised_tail_that_fails_is_started_again(
    tail: ActiveTail, state: Beating, ledger: MemoryLedger, mirror: dict[str, Any], context: dict[str, Any],
    fake_spark: Started, happen: Happen,
) -> None:  # fmt: skip
    """Here, though it ran elsewhere, with pauses that grow. One that was asked to stop ends the task."""
    fake_spark[1]["is"] = "copying"

    def fails() -> None:
        ends(ledger, state, "FAILED", error="a broker was down", blame="retry")

    paused = happen([fails, fails, lambda: ends(ledger, state, "SUCCEEDED")])
    ended = start(mirror, attached=True).execute(context)
    assert (ended["tail"], len(fake_spark[0])) == ("SUCCEEDED", 2) and ended["host"] != "host-a"
    assert [s for s in paused if s >= 5.0] == [5.0, 10.0]


def test_supervised_tails_figures_become_gauges(
    tail: ActiveTail, state: Beating, ledger: MemoryLedger, mirror: dict[str, Any], context: dict[str, Any],
    fake_spark: Started, happen: Happen, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    told: list[str] = []
    monkeypatch.setattr(operators, "tell_copy", lambda name, progress: told.append(f"{name} {sorted(progress)}"))
    happen([lambda: ends(ledger, state, "SUCCEEDED")])
    start(mirror, attached=True).execute(context)
    assert told == ["m ['summary']"]


def test_supervised_tail_with_damaged_data_fails_the_task(
    tail: ActiveTail, state: Beating, ledger: MemoryLedger, mirror: dict[str, Any], context: dict[str, Any],
    fake_spark: Started, happen: Happen,
) -> None:  # fmt: skip
    happen([lambda: ends(ledger, state, "FAILED", error="t-0: foreign data", blame="human")])
    with pytest.raises(AirflowFailException, match="foreign data"):
        start(mirror, attached=True).execute(context)
    assert fake_spark[0] == []


def test_supervision_ends_with_the_cutover(
    tail: ActiveTail, state: Beating, ledger: MemoryLedger, plan: Plan, mirror: dict[str, Any], context: dict[str, Any],
    happen: Happen, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It took the lease, which is an error of the tail's, and opened the topics."""

    def cut_over() -> None:
        refused = MirrorCutOver("m", ["t"], "noon")
        monkeypatch.setattr("airflow_mirror.plan.requirements.require_active", lambda *_: (_ for _ in ()).throw(refused))
        ends(ledger, state, "FAILED", error="lease lost", blame="human")

    happen([cut_over])
    assert start(mirror, attached=True).execute(context) == {"job": "tail", "tail": "ended by the cutover"}


@pytest.mark.parametrize("opened", [True, False])
def test_supervision_ends_with_a_decision_that_the_mirror_has_no_tail(
    tail: ActiveTail, ledger: MemoryLedger, plan: Plan, mirror: dict[str, Any], context: dict[str, Any], happen: Happen,
    fake_spark: Started, opened: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A failover takes the record of the tail away: the task waited for another one for ever, and was green."""

    def failed_over() -> None:
        ledger.decide(lambda _: active.ended("m"))
        if opened:
            refused = MirrorCutOver("m", ["t"], "noon")
            monkeypatch.setattr(
                "airflow_mirror.plan.requirements.require_active", lambda *_: (_ for _ in ()).throw(refused)
            )

    happen([failed_over])
    if opened:
        assert start(mirror, attached=True).execute(context) == {"job": "tail", "tail": "ended by the cutover"}
    else:
        with pytest.raises(AirflowFailException, match="all writing was ended, by a cutover, a failover, a rollback"):
            start(mirror, attached=True).execute(context)
    assert fake_spark[0] == [], "a mirror that was retired, say, does not begin again by itself"


def test_killed_supervisor_ends_the_tail_that_it_started(
    state: Beating, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started, plan: Plan, home: Path,
    happen: Happen,
) -> None:  # fmt: skip
    """A task that is not attached leaves it running."""
    fake_spark[1]["is"] = "copying"

    def interrupted() -> None:
        raise KeyboardInterrupt

    happen([interrupted])
    for attached in (False, True):
        task = start(mirror, attached=str(attached))
        with suppress(KeyboardInterrupt):
            task.execute(context)
        task.on_kill()
        handle = LocalRunner(home / "m").find("tail")
        assert handle is not None
        assert bool(process.members(Path(handle["dir"]))) is not attached
        StopMirrorOperator(task_id="s", mirror=mirror).execute(context)


@pytest.mark.parametrize("where", ["this host", "another host", "another host, which shares the home"])
def test_killed_retry_ends_the_tail_that_the_first_try_started(
    state: Beating, ledger: MemoryLedger, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started,
    plan: Plan, home: Path, happen: Happen, where: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The first try's worker was lost, and could end nothing. A tail of another run is left alone."""
    fake_spark[1]["is"] = "copying"

    def interrupted() -> None:
        raise KeyboardInterrupt

    happen([interrupted] * 3)
    with suppress(KeyboardInterrupt):
        start(mirror, attached=True).execute(context)
    first = active_tail(ledger.values(), "m")
    assert first is not None
    state.tail = first
    handle = LocalRunner(home / "m").find("tail")
    assert handle is not None
    if where == "another host, which shares the home":
        monkeypatch.setattr(process, "here", lambda: "another host")
    if where == "another host":
        monkeypatch.setattr(LocalRunner, "find", lambda *_: None)
    another_run = {"ti": FakeTI(), "task_state_store": FakeStore()}
    for given, stopped in ((another_run, False), (context, True)):
        retry = start(mirror, attached=True)
        with suppress(KeyboardInterrupt):
            retry.execute(given)
        assert len(fake_spark[0]) == 1, "it lives, and is attached to"
        retry.on_kill()
        asked = f"job/m/{first.job}/stop" in state.read()
        assert (asked or not process.members(Path(handle["dir"]))) is stopped
        assert asked is (stopped and where != "this host")
    process.end_job(Path(handle["dir"]), grace_s=0.0)


@pytest.mark.parametrize("when", ["while it copies", "in the pause before a restart", "while it is started"])
def test_killed_task_that_lives_on_starts_no_tail(
    state: Beating, ledger: MemoryLedger, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started,
    plan: Plan, home: Path, happen: Happen, pauses: Pauses,
    when: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Airflow's handler of SIGTERM calls on_kill, and the task goes on. It fails, so that another try takes over."""
    fake_spark[1]["is"] = "copying"
    task = start(mirror, attached=True)
    if when == "while it copies":
        happen([task.on_kill])
    else:
        happen([lambda: ends(ledger, state, "FAILED", error="a broker was down", blame="retry")])
        slept = pauses.meanwhile

        def sleep(seconds: float) -> None:
            slept(seconds)
            if seconds == operators._FIRST_PAUSE_S and when == "in the pause before a restart":
                task.on_kill()

        pauses.meanwhile = sleep
    if when == "while it is started":
        launch, started = LocalRunner._launch, []

        def kill(self: LocalRunner, *given: Any) -> Any:
            started.append(launch(self, *given))
            if len(started) == 2:
                task.on_kill()  # of the one before
            return started[-1]

        monkeypatch.setattr(LocalRunner, "_launch", kill)
    with pytest.raises(AirflowException, match="its task was killed|a broker was down"):
        task.execute(context)
    assert len(fake_spark[0]) == (2 if when == "while it is started" else 1)
    handle = LocalRunner(home / "m").find("tail")
    assert handle is not None and not process.members(Path(handle["dir"]))


def test_killed_task_leaves_a_tail_that_another_has_just_started(
    state: Beating, ledger: MemoryLedger, mirror: dict[str, Any], context: dict[str, Any], fake_spark: Started,
    plan: Plan, home: Path, happen: Happen,
) -> None:  # fmt: skip
    """On this host, before it is decided to be the mirror's: the ledger does not know it yet, the directory does."""
    fake_spark[1]["is"] = "copying"

    def interrupted() -> None:
        raise KeyboardInterrupt

    happen([interrupted] * 3)
    for given, ends in ((context, False), ({"ti": FakeTI(), "task_state_store": FakeStore()}, False), (context, True)):
        task = start(mirror, attached=True)
        with suppress(KeyboardInterrupt, AirflowFailException):
            task.execute(given)
        handle = LocalRunner(home / "m").find("tail")
        assert handle is not None and len(fake_spark[0]) == 1
        if given is not context or ends:
            task.on_kill()
        assert bool(process.members(Path(handle["dir"]))) is not ends
        ledger.decide(lambda _: active.ended("m"))


@pytest.mark.parametrize("attached", [True, "{{ params.attached }}"])
def test_only_a_tail_can_be_attached(mirror: dict[str, Any], attached: bool | str) -> None:
    with pytest.raises(InvalidField, match="a bulk copy"):
        start(mirror, mode="bulk", attached=attached)
