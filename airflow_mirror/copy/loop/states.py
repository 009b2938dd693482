"""The states of a partition's copy, and which follows which: a table that the copy walks, tests walk and docs show.

``fetching`` is no state: a fetch may be under way in each of the open ones. Nor is an open transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """What a partition's copy is doing. Exactly one thing is under way in OPENING, SENDING and STEPPING."""

    WAITING = "waiting"  # for its turn to be opened: at first, and after a pause when something failed
    OPENING = "opening"  # a thread reads where the target's log ends, and whether it is the same log
    READY = "ready"  # open, and nothing is under way to the target
    SENDING = "sending"  # a batch is
    STEPPING = "stepping"  # a thread pads, or begins or ends a transaction
    DONE = "done"  # everything up to the end of the range is on the target, for good
    STOPPED = "stopped"  # by an error that a retry can't fix


class Event(Enum):
    """What happens to a partition's copy."""

    OPEN = "open"
    OPENED = "opened"
    SEND = "send"
    STEP = "step"
    ANSWER = "answer"
    FINISH = "finish"
    FAIL = "fail"
    STOP = "stop"


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.WAITING: {Event.OPEN: State.OPENING, Event.STOP: State.STOPPED},
    State.OPENING: {Event.OPENED: State.READY, Event.FAIL: State.WAITING, Event.STOP: State.STOPPED},
    State.READY: {
        Event.SEND: State.SENDING, Event.STEP: State.STEPPING, Event.FINISH: State.DONE,
        Event.FAIL: State.WAITING, Event.STOP: State.STOPPED,
    },
    State.SENDING: {Event.ANSWER: State.READY, Event.FAIL: State.WAITING, Event.STOP: State.STOPPED},
    State.STEPPING: {Event.ANSWER: State.READY, Event.FAIL: State.WAITING, Event.STOP: State.STOPPED},
    State.DONE: {Event.STOP: State.STOPPED},  # its topic was created again while others were copied
    State.STOPPED: {},
}  # fmt: skip
OPEN = frozenset({State.READY, State.SENDING, State.STEPPING})
ENDED = frozenset({State.DONE, State.STOPPED})


class IllegalTransition(RuntimeError):
    """An event that must not happen in this state: the copy no longer knows what is in flight, and must not write."""


def after(state: State, event: Event) -> State:
    """Return the state that follows.

    :raises IllegalTransition: none does.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(f"a partition's copy can't {event.value} while it is {state.value}") from None


def drawing() -> str:
    """Return the table as a diagram (Mermaid), as `docs/design.md` shows it."""
    lines = ["stateDiagram-v2", "    direction LR", f"    [*] --> {State.WAITING.value}"]
    lines += [f"    {a.value} --> {b.value}: {e.value}" for a, row in TRANSITIONS.items() for e, b in row.items()]
    return "\n".join([*lines, *(f"    {state.value} --> [*]" for state in State if state in ENDED)])
