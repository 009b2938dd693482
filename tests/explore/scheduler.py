"""Runs actors one at a time, on virtual time, and decides before each shared operation who goes on.

An actor is a function in a greenlet. It stops before each operation that others can see or that depends on them
(:meth:`Scheduler.ask`); everything in between belongs to it alone, so that no other order could make a difference. A
permit (`check`) is looked at in the same step as the effect that it permits: nobody can come in between.

Undisturbed, who comes first runs until it sleeps or ends; a story names the deviations from that (`deviations`). The
same story gives the same schedule to the letter: time, ids and turns are counted here, and nothing else is asked.

Schedules run in a thread of their own, in which Python's signal handlers can't be set: code that tries does without.
"""

from __future__ import annotations

import difflib
import gc
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from greenlet import getcurrent, greenlet

from tests.explore.deviations import REST, Deviation, Event, Told
from tests.explore.turns import (
    CUT_S,
    LOST_S,
    PATIENCE_S,
    STEP_S,
    Actor,
    Asked,
    BrokersClock,
    Clock,
    Step,
    StoryUntold,
    T,
    Thread,
    Vanished,
    VirtualEvent,
    no_answer,
)

_MOST_REFUSALS = 1000


class Scheduler:
    """Runs one schedule.

    :param story: the deviations: named events, or numbers of steps, with what happens there.
    :param choose: instead of a story: returns what happens at a step, or None.
    :param most: steps after which a schedule counts as endless.
    :param recording: whether :attr:`steps` say who could go on instead.
    """

    def __init__(
        self,
        story: Sequence[Told | tuple[int, Deviation]] = (),
        choose: Callable[[Scheduler, Step], Deviation | None] | None = None,
        most: int = 5000,
        *,
        recording: bool = False,
    ) -> None:
        self.now, self.number = 0.0, 0
        self.actors: list[Actor] = []
        self.steps: list[Step] = []
        self.lines: list[str] = []  # what happened, for people
        self.happened: list[Told] = []  # deviations, as a story
        self.broken: list[str] = []  # endless, deadlocked, an actor that can't be ended
        self.after_effect: list[Callable[[str, str], None]] = []  # called with actor and operation
        self.at_rest: list[Callable[[], None]] = []  # called in turn when everybody rests; may add actors
        self.entering: Callable[[Actor], None] | None = None  # called in each actor's greenlet when it begins
        self.around: list[Callable[[], AbstractContextManager[object]]] = []  # what the schedule runs within
        self.still: frozenset[str] = frozenset()  # kinds of what nobody changes: to read only these is no event
        self.clock = Clock(self)
        self._choose, self._most, self._recording = choose, most, recording
        self._story: dict[Event | int, list[Deviation]] = {}
        for told in story:
            key = told[0] if isinstance(told[0], int) else told[:3]
            self._story.setdefault(key, []).append(told[-1])  # type: ignore[arg-type]
        self._ids, self._turns = 0, 0
        self._nth: Counter[tuple[str, str]] = Counter()
        self._late: list[
            tuple[float, float, Callable[[], Any], str, str]
        ] = []  # due, asked, what is to be done, for whom
        self._verdict: Deviation | None = None
        self._within = False  # an operation is being done: what it asks belongs to it
        self._phase = "before"  # running, over
        self._hub: greenlet = getcurrent()  # of the thread of the schedule, once it runs
        self._doomed: list[Actor] = []

    # --- what actors are handed ---------------------------------------------------------------------------------------

    @property
    def me(self) -> Actor | None:
        """The actor that runs; None outside of all of them."""
        return getattr(getcurrent(), "actor", None)

    def event(self) -> VirtualEvent:
        """Return what an actor can be asked to stop with, or wait for."""
        return VirtualEvent(self)

    def brokers_clock(self) -> BrokersClock:
        """Return the same time as a cluster in memory has it."""
        return BrokersClock(self)

    def new_id(self) -> str:
        """Return a name that nobody else has: 32 characters."""
        self._ids += 1
        return f"{self._ids:032x}"

    def sleep(self, seconds: float) -> None:
        """Let others go on until then."""
        me = self.me
        if me is None:
            raise RuntimeError("only an actor can sleep")
        self._require_alive(me)
        me.wake, me.asks = self.now + max(seconds, 0.0), None
        self._hub.switch()  # the scheduler decides when it is this actor's turn

    def ask(
        self, what: str, do: Callable[[], T], *, effect: bool = False, at: str = "",
        touches: frozenset[str] = frozenset(), check: Callable[[], object] | None = None,
        lost: Callable[[], T] = no_answer, may_be_late: bool = False, patience_s: float = LOST_S,
    ) -> T:  # fmt: skip
        """Do a shared operation once the scheduler lets the actor. Parameters: see :class:`Asked`.

        :param check: called right before ``do``, in the same step; what it raises ends the operation.
        :param lost: what becomes of an operation without an answer. :param patience_s: how long that is waited for.
        """
        me = self.me
        if self._within or me is None:
            if self._phase == "over" or (self._phase == "running" and not self._within):
                raise Vanished  # what is left of an actor that was killed, collected later
            if check is not None:
                check()
            return do()
        self._require_alive(me)
        if not effect and check is None and me.cut != at and self._is_still(touches):
            return do()
        self._nth[me.name, what] += 1
        me.asks, me.wake = Asked(what, self._nth[me.name, what], effect, at, touches, may_be_late), self.now
        self._hub.switch()  # the scheduler decides when it is this actor's turn
        verdict, self._verdict = self._verdict, None
        if me.cut and me.cut == at:
            self.tell(f"{me.name}: {what} -> the {at} is out of reach")
            self.sleep(CUT_S)
            return lost()
        self._within = True
        try:
            if check is not None:
                check()
            if verdict is not None and verdict.kind == "late":
                self._late.append((self.now + verdict.seconds, self.now, do, me.name, what))
                self._late.sort(key=lambda one: one[:2])
                self.tell(f"{me.name}: {what} -> no answer, it is still on its way")
            else:
                result = do()
                if effect:
                    self._applied(me.name, what)
        except Exception as e:
            self.tell(f"{me.name}: {what} -> {type(e).__name__}: {str(e)[:120]}")
            raise
        finally:
            self._within = False
        if verdict is None:
            return result
        if verdict.kind == "lost":
            self.tell(f"{me.name}:    ... and the answer is lost")
        self.sleep(patience_s)
        return lost()

    def _is_still(self, touches: frozenset[str]) -> bool:
        still = self.still
        return bool(still) and all(one in still or one.partition(":")[0] in still for one in touches)

    def tell(self, text: str) -> None:
        """Add a line to what happened."""
        self.lines.append(f"{self.now:8.2f} s  {text}")

    def add(self, actor: Actor) -> Actor:
        """Let an actor take part."""
        self.actors.append(actor)
        return actor

    def spawn(self, name: str, body: Callable[[], Any], *, background: bool = False) -> Actor:
        """Begin a thread of the process of the actor that runs. One in the background ends with the actors of its process
        that are not."""
        me = self.me
        assert me is not None
        return self._begin(self.add(Actor(name, body, process=me.process, background=background, fragile=me.fragile)))

    def end(self, actor: Actor) -> None:
        """End an actor, as if it had been killed."""
        if not actor.is_over:
            actor.state, actor.silent_since = "dead", self.now
            self._doomed.append(actor)

    def actor(self, name: str) -> Actor:
        """Return an actor by its name."""
        return next(a for a in self.actors if a.name == name)

    # --- the schedule -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all actors to their ends.

        :raises StoryUntold: an event of the story never came.
        """
        failed: list[BaseException] = []

        def in_thread() -> None:
            try:
                self._run()
            except BaseException as e:  # raised in the thread that waits
                failed.append(e)

        thread = threading.Thread(target=in_thread, name="schedule")
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        if left := [(key, one) for key, those in self._story.items() for one in those]:
            raise StoryUntold("\n".join(self._untold(key, one) for key, one in left))

    def _run(self) -> None:
        self._hub, self._phase = getcurrent(), "running"
        collects = gc.isenabled()
        gc.disable()  # what it would collect of one actor, it would run as another one
        with ExitStack() as stack:
            for one in self.around:
                stack.enter_context(one())
            try:
                self._loop()
            finally:
                for actor in self.actors:
                    if not actor.is_over:
                        actor.state = "dead"
                    self._unwind(actor)
                self._phase = "over"
                if collects:
                    gc.enable()

    def _loop(self) -> None:
        current: Actor | None = None
        while True:
            self._turns += 1
            if self.number >= self._most or self._turns > self._most * 10:
                self.broken.append(f"no end after {self.number} operations, {self.now:.0f} s")
                return
            self._awaken()
            if current is None or current.state != "ready" or current.wake > self.now:
                able = [a for a in self.actors if a.state == "ready" and a.wake <= self.now]
                if not able:
                    if not self._pass_time():
                        return
                    current = None
                    continue
                current = min(able, key=lambda a: a.wake)  # the first of those that wait longest
            if current.asks is None:  # it begins, or slept: runs up to its next operation
                self._go(current)
                continue
            before, current = current, self._decide(current, current.asks)
            if current is before and before.asks is not None:
                before.was_effect = before.asks.effect
                if before.asks.effect:
                    before.last_effect = before.asks.what
                self.now += STEP_S
                self._go(before)

    def _awaken(self) -> None:
        """Begin, thaw and end who is due."""
        while self._doomed:
            self._unwind(self._doomed.pop())
        for actor in self.actors:
            state = actor.state
            if state == "ready" or state == "done" or state == "dead":
                continue
            if state == "new":
                if not actor.last and actor.starts <= self.now and (actor.after is None or actor.after()):
                    self._begin(actor)
            elif min(actor.thaws, actor.still_since + PATIENCE_S) <= self.now:
                self._thaw(actor)
        if self._late and min(self._late[0][0], self._late[0][1] + PATIENCE_S) <= self.now:
            self._apply_late()

    def _go(self, actor: Actor) -> None:
        actor.asks = None
        assert actor.thread is not None
        actor.thread.switch()
        if actor.state == "done":
            what = f"returns {actor.result!s:.160}"
            if actor.error is not None:
                what = f"raises {type(actor.error).__name__}: {str(actor.error)[:160]}"
            self.tell(f"{actor.name} {what}")
            self._end_companions(actor)

    def _end_companions(self, actor: Actor) -> None:
        its = [a for a in self.actors if a.process == actor.process and not a.is_over]
        if all(a.background and a.state != "new" for a in its):
            for one in its:
                self.end(one)

    def _decide(self, current: Actor, asked: Asked) -> Actor | None:
        """Let happen what is to happen at this step; return who goes on."""
        others = self._others(current) if self._recording or self._choose is not None else ()
        is_again = asked.effect and asked.what == current.last_effect
        step = Step(self.number, current.name, asked, current.was_effect, is_again, others)
        self.steps.append(step)
        self.number += 1
        if self._choose is not None:
            deviation = self._choose(self, step)
        else:
            deviation = self._of_story(step.event) or self._of_story(step.number)
        if deviation is None:
            return current
        self.happened.append((*step.event, deviation))
        return _HAPPENS[deviation.kind](self, current, asked, deviation)

    def _of_story(self, key: Event | int) -> Deviation | None:
        its = self._story.get(key)
        if its is None:
            return None
        deviation = its.pop(0)
        if not its:
            del self._story[key]
        return deviation

    def _others(self, current: Actor) -> tuple[str, ...]:
        return tuple(
            a.name for a in self.actors
            if a is not current and not a.is_over
            and (a.state != "ready" or a.wake <= self.now or (a.background and a.wake < math.inf))
            and (a.state != "new" or a.after is None or a.after())
        )  # fmt: skip

    def _switch(self, current: Actor, asked: Asked, deviation: Deviation) -> Actor | None:
        other = self.actor(deviation.other)
        if other.is_over or other is current:
            return current
        self.tell(f"-- {current.name} is slow before `{asked.what}`, and {other.name} goes on")
        if other.state == "new":
            self._begin(other)
        elif other.state != "ready":
            self._thaw(other)
        other.wake, current.wake = min(other.wake, self.now), self.now + STEP_S
        if other.asks is None:
            self._go(other)
        return other if other.state == "ready" and other.asks is not None and other.wake <= self.now else None

    def _kill(self, current: Actor, asked: Asked, _: Deviation) -> None:
        self.tell(f"** {current.name} is killed before `{asked.what}`")
        for actor in self._process_of(current):
            actor.state, actor.silent_since = "dead", self.now
            self._unwind(actor)

    def _freeze(self, current: Actor, asked: Asked, deviation: Deviation) -> None:
        then = f", and won't reach the {deviation.other} any more" if deviation.other else ""
        lasts = "" if deviation.seconds == REST else f" for {deviation.seconds:g} s"
        self.tell(f"** {current.name} freezes before `{asked.what}`{lasts}{then}")
        for actor in self._process_of(current):
            actor.state, actor.thaws, actor.silent_since = "frozen", self.now + deviation.seconds, self.now
            actor.still_since = self.now
            actor.cut = deviation.other or actor.cut

    def _hang(self, current: Actor, asked: Asked, deviation: Deviation) -> None:
        self.tell(f"** {current.name} hangs before `{asked.what}`; its process gives signs of life")
        current.state, current.thaws, current.still_since = "hung", self.now + deviation.seconds, self.now

    def _stop(self, current: Actor, asked: Asked, _: Deviation) -> Actor:
        self.tell(f"** {current.name} is asked to stop before `{asked.what}`")
        if current.stop is not None:
            current.stop.set()
        return current

    def _answer(self, current: Actor, _: Asked, deviation: Deviation) -> Actor:
        self._verdict = deviation
        return current

    def _process_of(self, actor: Actor) -> list[Actor]:
        return [a for a in self.actors if a.process == actor.process and not a.is_over and a.state != "new"]

    def _thaw(self, actor: Actor) -> None:
        for one in self._process_of(actor) if actor.state == "frozen" else [actor]:
            self.tell(f"** {one.name} goes on")
            one.state, one.thaws, one.silent_since, one.wake = "ready", REST, math.inf, max(one.wake, self.now)

    def _applied(self, actor: str, what: str) -> None:
        self.tell(f"{actor}: {what}")
        for look in self.after_effect:
            look(actor, what)

    def _apply_late(self) -> None:
        _, _, do, actor, what = self._late.pop(0)
        self.tell(f"** only now is done what {actor} asked for: {what}")
        self._within = True
        try:
            do()
            self._applied(actor, f"{what} (late)")
        except Exception as e:  # nobody waits for the answer
            self.tell(f"   ... and refused: {type(e).__name__}: {str(e)[:120]}")
        finally:
            self._within = False

    def _pass_time(self) -> bool:
        """Move the clock to what comes next. When everybody rests, begin what waits for that. False: all is over."""
        ready = [a for a in self.actors if a.state == "ready"]
        still = [a for a in self.actors if a.state in ("frozen", "hung")]
        dated = [a.thaws for a in still] + [one[0] for one in self._late]
        dated += [a.starts for a in self.actors if a.state == "new" and not a.last and a.starts > self.now]
        busy = [a.wake for a in ready if not self._rests(a)]
        if any(t < math.inf for t in dated + busy):
            self.now = min([*dated, *(a.wake for a in ready)])
            return True
        for actor in self.actors:
            if actor.state == "new" and actor.last and (actor.after is None or actor.after()):
                self._begin(actor)
                return True
        if still:
            self._thaw(min(still, key=lambda a: a.still_since))
        elif self._late:
            self._apply_late()
        elif self.at_rest:
            self.at_rest.pop(0)()
        else:
            if waiting := [a.name for a in ready if not a.background]:
                self.broken.append(f"{', '.join(waiting)}: waits for ever, and nobody is left who could end that")
            return False
        return True

    def _rests(self, actor: Actor) -> bool:
        return actor.background and actor.asks is None and (actor.rests is None or actor.rests())

    # --- greenlets ----------------------------------------------------------------------------------------------------

    def _begin(self, actor: Actor) -> Actor:
        def body() -> None:
            try:
                if self.entering is not None:
                    self.entering(actor)
                actor.result = actor.body()
            except Vanished:
                pass
            except BaseException as e:
                actor.error = e
            if actor.state != "dead":
                actor.state, actor.silent_since = "done", self.now

        actor.state, actor.began, actor.wake = "ready", self.now, self.now
        actor.thread = Thread(body, parent=self._hub)
        actor.thread.actor = actor
        self.tell(f"{actor.name} begins")
        return actor

    def _require_alive(self, me: Actor) -> None:
        if me.state != "dead":
            return
        me.refused += 1
        if me.refused > _MOST_REFUSALS:  # it tries again and again, whatever it is told
            self._hub.switch()
        raise Vanished

    def _unwind(self, actor: Actor) -> None:
        """Leave an actor that is dead: whatever its `except` and `finally` try raises again, and does nothing."""
        if actor.thread is None or actor.thread.dead:
            return
        try:
            actor.thread.throw(Vanished)
        except Vanished:  # it had not begun
            return
        if not actor.thread.dead and actor.refused > _MOST_REFUSALS:
            self.broken.append(f"{actor.name} goes on trying after its process was killed: it swallows BaseException")
            actor.thread = None

    def _untold(self, key: Event | int, deviation: Deviation) -> str:
        if isinstance(key, int):
            return f"step {key} never came: the schedule has {self.number}"
        events = [step.event for step in self.steps]
        mine = sorted({event[1] for event in events if event[0] == key[0]})
        near = difflib.get_close_matches(key[1], mine, 3, 0.3)
        times = max((event[2] for event in events if event[:2] == key[:2]), default=0)
        came = f"it came {times} time(s)" if times else f"the nearest that came: {near or mine[:8]}"
        return f"{key[0]} was never about to `{key[1]}` for the {key[2]}. time, where {deviation} was to happen; {came}"


_HAPPENS: dict[str, Callable[[Scheduler, Actor, Asked, Deviation], Actor | None]] = {
    "switch": Scheduler._switch, "kill": Scheduler._kill, "freeze": Scheduler._freeze, "hang": Scheduler._hang,
    "stop": Scheduler._stop, "lost": Scheduler._answer, "late": Scheduler._answer,
}  # fmt: skip
