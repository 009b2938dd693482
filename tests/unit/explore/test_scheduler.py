"""Actors on virtual time: who goes on, who is killed, frozen, or without an answer."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest

from airflow_mirror.errors import TryAgain
from tests.explore.deviations import Deviation, Told, freeze, hang, kill, late, lost, stop, switch
from tests.explore.scenario import run
from tests.explore.scheduler import Scheduler
from tests.explore.turns import LOST_S, PATIENCE_S, STEP_S, Actor, StoryUntold, Vanished
from tests.unit.explore.toys import TOYS

AT = {"at": "target", "effect": True}


class Seen:
    """A list to which actors append what they did."""

    def __init__(self, *story: Told, **given: Any) -> None:
        self.s, self.done = Scheduler(story, **given), list[str]()

    def do(self, what: str, **given: Any) -> None:
        self.s.ask(what, lambda: self.done.append(f"{self.s.now:.0f} {what}"), **given)

    def actor(self, name: str, body: Callable[[], Any], **given: Any) -> Actor:
        return self.s.add(Actor(name, body, **given))

    def steps(self, name: str, *whats: str, **given: Any) -> Actor:
        return self.actor(name, lambda: [self.do(what, effect=True) for what in whats], **given)


def test_undisturbed_each_runs_until_it_sleeps_and_time_passes_only_then() -> None:
    w = Seen()

    def slow() -> str:
        w.do("a1")
        w.s.clock.sleep(10)
        w.do("a2")
        return "over"

    a, b = w.actor("A", slow), w.steps("B", "b1", "b2")
    w.s.run()
    assert w.done == ["0 a1", "0 b1", "0 b2", "10 a2"]
    assert (a.state, a.result, b.state, w.s.broken) == ("done", "over", "done", [])
    assert w.s.now == pytest.approx(10 + 2 * STEP_S)


@pytest.mark.parametrize("deviation", [kill(), freeze()])
def test_who_is_disturbed_does_nothing_more_until_others_rest(deviation: Deviation) -> None:
    w = Seen(("A", "a2", 1, deviation))
    w.steps("A", "a1", "a2")
    w.steps("B", "b1", starts=5)
    w.s.run()
    assert w.done == ["0 a1", "5 b1"] + (["5 a2"] if deviation.kind == "freeze" else [])


def test_killed_one_does_nothing_in_its_finally_and_except_either() -> None:
    w = Seen(("A", "a2", 1, kill()))
    ended: list[str] = []

    @contextmanager
    def undone() -> Any:
        try:
            yield
        finally:
            w.do("undo in a context")

    def body() -> None:
        with undone():
            try:
                w.do("a1")
                w.do("a2")
            except BaseException:
                w.do("undo in except")
            finally:
                ended.append("finally")
                try:
                    w.s.clock.sleep(1)
                finally:
                    ended.append(f"{w.s.now:.0f}")
                    w.do("undo in finally")

    a = w.actor("A", body)
    w.steps("B", "b1", starts=5)
    w.s.run()
    assert w.done == ["0 a1", "5 b1"] and ended == ["finally", "0"]
    assert (a.state, a.error, a.result) == ("dead", None, None)


def test_what_is_left_of_a_killed_one_is_not_run_as_somebody_else_when_it_is_collected() -> None:
    w = Seen(("A", "a", 1, kill()))

    def left_open(cycle: list[Any]) -> Any:
        try:
            yield cycle
        finally:
            w.do("undo")

    def body() -> None:
        cycle: list[Any] = []
        cycle.append(left_open(cycle))
        next(cycle[0])
        w.do("a")

    w.actor("A", body)
    w.actor("B", lambda: [w.do("b"), len([[] for _ in range(200_000)]), w.do("b")], last=True)
    w.s.run()
    gc.collect()  # nor is it reported as an error of whoever runs then
    assert w.done == ["0 b", "0 b"]


def test_who_swallows_its_end_is_named() -> None:
    w = Seen(("A", "a", 2, kill()))

    def stubborn() -> None:
        while True:
            try:
                w.do("a", effect=True)
            except BaseException:
                continue

    w.actor("A", stubborn)
    w.steps("B", "b", last=True)
    w.s.run()
    assert w.done == ["0 a", "0 b"] and "swallows" in w.s.broken[0]


def test_process_is_killed_and_frozen_as_a_whole_and_one_of_its_threads_hangs_alone() -> None:
    for deviation, signs in ((kill(), 3), (freeze(6), 4), (hang(6), 9)):
        w = Seen(("A", "a2", 1, deviation))

        def give_signs(w: Seen = w) -> None:
            while True:
                w.do("sign")
                w.s.clock.sleep(1)

        def body(w: Seen = w, give_signs: Callable[[], None] = give_signs) -> None:
            w.s.spawn("A's signs", give_signs, background=True)
            w.s.clock.sleep(2.5)
            w.do("a2", effect=True)
            w.s.clock.sleep(0.2)

        w.actor("A", body)
        w.steps("B", "b1", starts=20)
        w.s.run()
        given = [one for one in w.done if one.endswith("sign")]
        assert len(given) == signs, (deviation, w.done)


def test_answer_is_lost_or_the_request_is_applied_late() -> None:
    for deviation, told in ((lost(), ["0 a1", "15 b"]), (late(100), ["15 b", "100 a1"]), (late(), ["15 b", "15 a1"])):
        w = Seen(("A", "a1", 1, deviation))

        def body(w: Seen = w) -> str:
            with pytest.raises(TryAgain):
                w.do("a1", effect=True)
            return "no answer"

        a = w.actor("A", body)
        w.steps("B", "b", last=True)
        w.s.run()
        assert (w.done, a.result) == (told if deviation.seconds != 100 else ["100 a1", "100 b"], "no answer")
        assert w.s.now >= LOST_S


def test_requests_that_are_late_are_applied_when_they_are_due_or_nobody_is_left() -> None:
    w = Seen(("A", "a1", 1, late()), ("A", "a2", 1, late(50)))

    def body() -> None:
        for what in ("a1", "a2"):
            w.s.ask(what, lambda what=what: w.done.append(f"{w.s.now:.0f} {what}"), effect=True, lost=lambda: None)

    w.actor("A", body)
    w.steps("B", "b", starts=90)
    w.s.run()
    assert w.done == ["65 a2", "90 b", "90 a1"]


def test_who_comes_back_cut_off_reaches_the_other_cluster_alone() -> None:
    w = Seen(("A", "a1", 1, freeze(30, cut="target")))

    def body() -> None:
        for what, at in (("a1", "target"), ("a2", "source")):
            try:
                w.do(what, at=at, effect=True)
            except TryAgain:
                w.done.append("out of reach")

    w.actor("A", body)
    w.s.run()
    assert w.done == ["out of reach", "38 a2"]


def test_permit_and_effect_are_one_event() -> None:
    w, permitted = Seen(("A", "a1", 1, switch("B"))), [True]

    def check() -> None:
        w.do("ask again")  # not a place at which others come in
        if not permitted[0]:
            raise TryAgain("not any more")

    w.actor("A", lambda: w.do("a1", check=check))
    w.actor("B", lambda: (w.do("b1"), permitted.clear(), permitted.append(False)))
    w.s.run()
    assert w.done == ["0 b1", "0 ask again"] and isinstance(w.s.actor("A").error, TryAgain)
    assert [step.asked.what for step in w.s.steps] == ["a1", "b1", "a1"]


def test_asked_to_stop_an_actor_sees_it_and_who_waits_for_that_wakes() -> None:
    w = Seen(("A", "a1", 2, stop()))
    asked = w.s.event()

    def body() -> int:
        for n in range(9):
            w.do("a1")
            if asked.wait(10):
                return n
        return -1

    a = w.actor("A", body, stop=asked)
    b = w.actor("B", lambda: (asked.wait(), w.s.now)[1])
    w.s.run()
    assert a.result == 1 and b.result == pytest.approx(10, abs=0.1)


def test_one_comes_after_all_rest_only_if_it_is_wanted() -> None:
    w = Seen()
    w.steps("A", "a")
    w.steps("B", "b", last=True, after=lambda: False)
    w.steps("C", "c", last=True, after=lambda: w.s.actor("A").state == "done")
    w.s.at_rest.append(lambda: w.steps("D", "d"))  # type: ignore[arg-type, return-value]
    w.s.run()
    assert w.done == ["0 a", "0 c", "0 d"]


def test_who_waits_for_ever_and_who_never_ends_are_named() -> None:
    w = Seen()
    w.actor("A", lambda: w.s.event().wait())
    w.s.run()
    assert w.s.broken == ["A: waits for ever, and nobody is left who could end that"]
    for body in (lambda w: w.do("again"), lambda w: w.s.clock.sleep(1)):
        w = Seen(most=50)

        def for_ever(w: Seen = w, body: Any = body) -> None:
            while True:
                body(w)

        w.actor("A", for_ever)
        w.s.run()
        assert w.s.broken[0].startswith("no end after")


@pytest.mark.parametrize("deviation", [hang(), freeze(), late()])
def test_guard_that_waits_for_one_that_stands_still_does_not_wait_for_ever(deviation: Deviation) -> None:
    w = Seen(("A", "a", 1, deviation))
    w.actor("A", lambda: w.s.ask("a", lambda: w.done.append(f"{w.s.now:.0f} a"), effect=True, lost=lambda: None))

    def look_again() -> None:
        while True:
            w.s.clock.sleep(5)

    w.actor("G", look_again, background=True, rests=lambda: bool(w.done))
    w.s.run()
    assert w.done == [f"{PATIENCE_S:.0f} a"] and w.s.broken == []


def test_story_whose_event_never_comes_says_which_ones_came() -> None:
    w = Seen(("A", "create a fence", 1, kill()), (9, kill()))
    w.steps("A", "create the fence", "lift it")
    with pytest.raises(StoryUntold, match=r"(?s)nearest that came: \['create the fence'\].*step 9 never came.* has 2"):
        w.s.run()


def test_step_may_be_named_by_its_number() -> None:
    w = Seen((1, kill()))  # type: ignore[arg-type]
    w.steps("A", "a1", "a2")
    w.s.run()
    assert w.done == ["0 a1"] and w.s.happened == [("A", "a2", 1, kill())]


def test_event_may_be_met_twice() -> None:
    w = Seen(("A", "a1", 1, freeze(5)), ("A", "a1", 1, kill()))
    w.steps("A", "a1")
    w.s.run()
    assert w.done == []


def test_signal_handlers_are_not_set() -> None:
    w = Seen()
    a = w.actor("A", lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    w.s.run()
    assert isinstance(a.error, ValueError)


def test_nothing_is_done_for_a_schedule_that_is_over() -> None:
    w = Seen()
    w.do("before")
    w.steps("A", "a")
    w.s.run()
    with pytest.raises(Vanished):
        w.do("after")
    assert w.done == ["0 before", "0 a"]


@pytest.mark.parametrize("name", TOYS)
def test_same_story_is_told_the_same_to_the_letter(name: str) -> None:
    base = run(TOYS[name], recording=True)
    for step in base.scheduler.steps:
        for deviation in (kill(), freeze(30), *map(switch, step.others)):
            first, second = (run(TOYS[name], [(*step.event, deviation)]) for _ in range(2))
            assert (first.text, first.broken) == (second.text, second.broken)
