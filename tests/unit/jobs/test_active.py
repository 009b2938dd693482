"""Which tail of a mirror is the one: who is alive, who may take over, and who has to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from airflow_mirror.errors import InputError, MissingRight, TailReplaced, TailRuns, TryAgain
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.active import (
    SILENCE_S,
    ActiveTail,
    Heartbeat,
    Sign,
    Watch,
    active_tail,
    ask_to_stop,
    begin,
)
from airflow_mirror.jobs.runner.state import FAILED, LOST, RUNNING, SUCCEEDED
from airflow_mirror.kafka.permit import Permit, unfenced
from tests.unit.ledger.memory import MemoryLedger, MemoryState


class Clock:
    """Seconds that pass while somebody pauses. ``meanwhile`` is called each time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Any = lambda: None

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Unreachable(MemoryState):
    """A topic that can't be written to, or not even read, for a while; or never by this principal (``refused``)."""

    writable = readable = True
    refused, tried = False, 0

    def write(self, values: Mapping[str, bytes | None], permit: Permit = unfenced) -> None:
        self.tried += 1
        if self.refused:
            raise MissingRight("append to the ledger: no Write", "TOPIC_AUTHORIZATION_FAILED", "User:m")
        if not self.writable:
            raise TryAgain("not enough replicas")
        super().write(values, permit)

    def read(self) -> dict[str, bytes]:
        if not self.readable:
            raise TryAgain("no leader")
        return super().read()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state() -> Unreachable:
    return Unreachable()


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


def tail(host: str = "elsewhere", **changed: Any) -> ActiveTail:
    given: dict[str, Any] = {"mirror": {"name": "m", "topics": ["t"]}, "plan": "p", "inputs": "i", "directory": "/jobs/1"}
    return ActiveTail(**{**given, "host": host, "where": host, **changed})


def watch(state: MemoryState, clock: Clock, lost: str = "") -> Watch:
    return Watch(state, clock, clock.pause, lost=lost)


def found_lost(tail: ActiveTail, state: MemoryState, clock: Clock) -> str:
    """What an observer that has listened for a tail tells another one."""
    eye = watch(state, clock)
    while eye.status(tail) == RUNNING:
        clock.pause(1)
    return eye.seen


def last_job(ledger: MemoryLedger) -> str:
    there = active_tail(ledger.values(), "m")
    assert there is not None
    return there.job


# --- alive or not -----------------------------------------------------------------------------------------------------


def test_each_sign_begins_the_silence_anew(state: Unreachable, clock: Clock) -> None:
    one, eye = tail(), watch(state, clock)
    signs = Heartbeat(state, one)
    for _ in range(10):
        signs.give(RUNNING)
        assert eye.status(one) == RUNNING
        clock.now += SILENCE_S - 1
        assert eye.status(one) == RUNNING
    clock.now += 1
    assert eye.status(one) == LOST
    signs.give(RUNNING)
    assert eye.status(one) == RUNNING, "it was only slow"


@pytest.mark.parametrize("final", [SUCCEEDED, FAILED])
def test_a_last_sign_ends_it_at_once(state: Unreachable, clock: Clock, final: str) -> None:
    one, eye = tail(), watch(state, clock)
    Heartbeat(state, one).give(final, error="a broker was down", blame="retry")
    assert eye.status(one) == final
    sign = eye.sign(one)
    assert sign is not None and (sign.error, sign.blame) == ("a broker was down", "retry")


def test_silence_counts_only_while_the_topic_takes_writes(state: Unreachable, clock: Clock) -> None:
    """The tail can't give a sign either, and copies on."""
    one, eye = tail(), watch(state, clock)
    Heartbeat(state, one).give(RUNNING)
    state.writable = False
    for _ in range(100):
        clock.now += 6
        assert eye.status(one) == RUNNING
    state.writable = True
    found = []
    for _ in range(10):
        clock.now += 6
        found.append(eye.status(one))
    assert found.count(RUNNING) == 4 and found[-1] == LOST


def test_who_only_shows_a_tail_needs_no_right_to_write(state: Unreachable, clock: Clock) -> None:
    """What rests on a silence is refused without it: nobody knows whether the tail could have given a sign."""
    one = tail()
    state.refused = True
    shows, decides = Watch(state, clock, clock.pause, decides=False), watch(state, clock)
    found = []
    for _ in range(6):
        found.append(shows.status(one))
        clock.now += 6
    assert (found, state.tried) == ([RUNNING] * 5 + [LOST], 1)
    with pytest.raises(MissingRight, match="Write"):
        decides.settled(one)


@pytest.mark.parametrize("decides", [True, False])
def test_who_shows_a_tail_takes_no_sign_of_while_it_looked_away_for_one_that_it_has_heard(
    state: Unreachable, clock: Clock, decides: bool
) -> None:
    """The tail was shown to run, hours after it had died. A sensor that looks once a minute would wait for ever."""
    one, eye = tail(), Watch(state, clock, clock.pause, decides=decides)
    signs, found = Heartbeat(state, one), list[tuple[str, bool]]()
    for away_s in (5, 5, 8 * 3600, 5, SILENCE_S, 0):
        if len(found) < 4:
            signs.give(RUNNING)
        found.append((eye.status(one), eye.is_sure(one)))
        clock.now += away_s
    sure, unsure = (RUNNING, True), (RUNNING, False)
    assert found[:-1] == [unsure, sure, sure, sure if decides else unsure, sure if decides else unsure]
    assert found[-1][0] == LOST, "whoever looks seldom hears a silence"


def test_a_topic_that_cant_be_read_is_no_silence(state: Unreachable, clock: Clock) -> None:
    one, eye = tail(), watch(state, clock)
    Heartbeat(state, one).give(RUNNING)
    assert eye.status(one) == RUNNING
    state.readable = False
    clock.now += 10 * SILENCE_S
    with pytest.raises(TryAgain):
        eye.status(one)
    state.readable = True
    assert eye.status(one) == RUNNING


def test_a_process_that_ended_here_is_lost_at_once(state: Unreachable, clock: Clock) -> None:
    """Pid and start tick, in this process namespace: elsewhere they say nothing."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = {"pid": child.pid, "started": process.started_at(child.pid), "where": process.here()}
    one, same_numbers = tail(**here), tail(**{**here, "where": "elsewhere"})
    assert [watch(state, clock).settled(one), watch(state, clock).status(same_numbers)] == [RUNNING, RUNNING]
    child.communicate(b"")
    assert [watch(state, clock).settled(one), watch(state, clock).status(same_numbers)] == [LOST, RUNNING]


def test_sign_of_a_newer_version_is_a_sign(state: Unreachable, clock: Clock) -> None:
    one, eye = tail(), watch(state, clock)
    for number in range(5):
        state.write({f"job/m/{one.job}/sign": json.dumps({"v": 9, "beat": number}).encode()})
        assert eye.status(one) == RUNNING
        clock.now += SILENCE_S - 1


def test_signs_survive_their_encoding() -> None:
    sign = Sign(number=3, state=RUNNING, phase="copying", summary={"lag": 7}, notes=("set again",))
    assert Sign.decode(sign.encode()) == sign and Sign.decode(None) is None


# --- who copies -------------------------------------------------------------------------------------------------------


def test_the_first_tail_is_decided(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    me = tail("here")
    begin(ledger, me, watch(state, clock))
    assert active_tail(ledger.values(), "m") == me and clock.now == 1000.0


def test_a_living_tail_is_never_replaced_unasked(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    first, second = tail("a"), tail("b")
    begin(ledger, first, watch(state, clock))
    signs = Heartbeat(state, first)
    clock.meanwhile = lambda: signs.give(RUNNING)
    with pytest.raises(TailRuns, match="runs already, on host 'a' .*--takeover"):
        begin(ledger, second, watch(state, clock))
    assert last_job(ledger) == first.job
    begin(ledger, second, watch(state, clock), takeover=True)
    assert last_job(ledger) == second.job


def test_a_silent_tail_is_replaced_after_half_a_minute(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    """Its host is gone. One that was decided and died before its first sign as well."""
    first, second, third = tail("a"), tail("b"), tail("c")
    begin(ledger, first, watch(state, clock))
    Heartbeat(state, first).give(RUNNING)
    begin(ledger, second, watch(state, clock))
    assert last_job(ledger) == second.job and clock.now - 1000.0 == pytest.approx(SILENCE_S, abs=2)
    begin(ledger, third, watch(state, clock))
    assert last_job(ledger) == third.job and clock.now - 1000.0 == pytest.approx(2 * SILENCE_S, abs=4)


def test_a_tail_that_was_found_lost_is_not_listened_for_again(
    ledger: MemoryLedger, state: Unreachable, clock: Clock
) -> None:
    """Who starts the job has waited; another one that was decided meanwhile is listened for."""
    first, second, third = tail("a"), tail("b"), tail("c")
    begin(ledger, first, watch(state, clock))
    lost = found_lost(first, state, clock)
    begin(ledger, second, watch(state, clock, lost))
    assert last_job(ledger) == second.job and clock.now == 1000.0 + SILENCE_S
    signs = Heartbeat(state, second)
    clock.meanwhile = lambda: signs.give(RUNNING)
    with pytest.raises(TailRuns, match="host 'b'"):
        begin(ledger, third, watch(state, clock, lost))


@pytest.mark.parametrize("before", [0, 3])
def test_a_lost_tail_that_gives_a_sign_after_all_is_not_replaced(
    ledger: MemoryLedger, state: Unreachable, clock: Clock, before: int
) -> None:
    """It was frozen, and thawed while its successor was prepared."""
    first, second = tail("a"), tail("b")
    begin(ledger, first, watch(state, clock))
    signs = Heartbeat(state, first)
    for _ in range(before):
        signs.give(RUNNING)
    lost = found_lost(first, state, clock)
    signs.give(RUNNING)
    clock.meanwhile = lambda: signs.give(RUNNING)
    with pytest.raises(TailRuns, match="host 'a'"):
        begin(ledger, second, watch(state, clock, lost))
    clock.meanwhile = lambda: None
    begin(ledger, second, watch(state, clock, lost))
    assert last_job(ledger) == second.job and clock.now == 1000.0 + 2 * SILENCE_S + 1, "it was listened for anew"


def test_signs_of_a_second_driver_are_no_old_ones(state: Unreachable, clock: Clock) -> None:
    """YARN starts one again under the same id, and its signs are counted from one."""
    one = tail()
    state.write({f"job/m/{one.job}/sign": Sign(number=1, state=RUNNING, at=5.0).encode()})
    lost = found_lost(one, state, clock)
    state.write({f"job/m/{one.job}/sign": Sign(number=1, state=RUNNING, at=80.0).encode()})
    assert watch(state, clock, lost).status(one) == RUNNING


def test_a_sign_that_was_removed_is_no_sign(state: Unreachable, clock: Clock) -> None:
    """Its successor removes what it left."""
    one, eye = tail(), watch(state, clock)
    Heartbeat(state, one).give(RUNNING)
    assert eye.status(one) == RUNNING
    clock.now += SILENCE_S - 1
    Heartbeat(state, tail()).forget_others(unfenced)
    assert eye.status(one) == RUNNING
    clock.now += 1
    assert eye.status(one) == LOST


def test_an_ended_tail_is_replaced_at_once(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    first, second = tail("a"), tail("b")
    begin(ledger, first, watch(state, clock))
    Heartbeat(state, first).give(FAILED)
    begin(ledger, second, watch(state, clock))
    assert last_job(ledger) == second.job and clock.now == 1000.0


def test_of_two_that_start_at_once_one_is_decided(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    """The other one meets the decision when it would make its own, and looks again: that tail lives."""
    first, second = tail("a"), tail("b")
    signs = Heartbeat(state, first)

    class Slow(MemoryLedger):
        def decide(self, change: Any, until_ms: int | None = None) -> Any:
            if not ledger.values():
                begin(ledger, first, watch(state, clock))
            return super().decide(change, until_ms)

    clock.meanwhile = lambda: signs.give(RUNNING)
    with pytest.raises(TailRuns, match="host 'a'"):
        begin(Slow(ledger.records), second, watch(state, clock))
    assert last_job(ledger) == first.job


def test_what_a_newer_version_decided_is_never_replaced(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    ledger.decide(lambda _: {"active/m": {"v": 2, "job": "x"}})
    with pytest.raises(InputError, match="this version can't read"):
        begin(ledger, tail(), watch(state, clock), takeover=True)


def test_tails_of_other_mirrors_are_their_own(ledger: MemoryLedger, state: Unreachable, clock: Clock) -> None:
    other = tail(mirror={"name": "other"})
    begin(ledger, tail(), watch(state, clock))
    begin(ledger, other, watch(state, clock))
    assert active_tail(ledger.values(), "other") == other and clock.now == 1000.0


# --- stop -------------------------------------------------------------------------------------------------------------


def test_who_asks_for_a_stop_is_heard(state: Unreachable) -> None:
    one, another = tail(), tail()
    assert Heartbeat(state, one).stop_requested_by() is None
    ask_to_stop(state, one.name, one.job, "a task on host b")
    assert (
        Heartbeat(state, one).stop_requested_by() == "a task on host b"
        and Heartbeat(state, another).stop_requested_by() is None
    )


def test_a_new_tail_removes_what_old_ones_left(state: Unreachable, clock: Clock) -> None:
    """An old request to stop is not for it, and the topic does not grow with each start."""
    old, new = tail(), tail()
    Heartbeat(state, old).give(RUNNING)
    ask_to_stop(state, old.name, old.job, "somebody")
    ask_to_stop(state, new.name, new.job, "somebody else")
    Heartbeat(state, new).forget_others(unfenced)
    assert Heartbeat(state, new).stop_requested_by() == "somebody else" and len(state.read()) == 1


def test_tail_that_slept_removes_nothing_of_the_one_that_replaced_it(state: Unreachable, clock: Clock) -> None:
    """Its signs, and who asked it to stop."""
    old, new = tail(), tail()
    Heartbeat(state, new).give(RUNNING)
    ask_to_stop(state, new.name, new.job, "somebody")

    def permit() -> None:
        raise TailReplaced("m", None)

    with pytest.raises(TailReplaced):
        Heartbeat(state, old).forget_others(permit)
    assert Heartbeat(state, new).stop_requested_by() == "somebody" and len(state.read()) == 2


def test_own_process_is_what_a_tail_names() -> None:
    mine = ActiveTail(mirror={"name": "m"}, plan="p", inputs="i", directory="")
    assert mine.is_here and not mine.is_gone and mine.pid == os.getpid()
