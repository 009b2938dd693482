"""The states of a partition's copy and their transitions: a table that the copy walks, tests check and docs show.

``fetching`` is not a state, because a fetch may be in flight in each of the open states. Nor is an open transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """What a partition's copy is doing. Exactly one thing is in flight in OPENING, SENDING and STEPPING."""

    WAITING = "waiting"  # to be opened: at first, and after a pause when something failed
    OPENING = "opening"  # a thread reads where the target's log ends, and whether it is the same log
    READY = "ready"  # open, with nothing in flight to the target
    SENDING = "sending"  # a batch is in flight
    STEPPING = "stepping"  # a thread pads, or begins or commits a transaction
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
    State.DONE: {Event.STOP: State.STOPPED},  # its topic was re-created while other partitions were copied
    State.STOPPED: {},
}  # fmt: skip
OPEN = frozenset({State.READY, State.SENDING, State.STEPPING})  # only these hold fetched data
ENDED = frozenset({State.DONE, State.STOPPED})


class IllegalTransition(RuntimeError):
    """An event that must not happen in this state: the copy no longer knows what is in flight, and must not write."""


def after(state: State, event: Event) -> State:
    """Return the next state.

    :raises IllegalTransition: the table has no transition for ``event``.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(f"a partition's copy can't {event.value} while it is {state.value}") from None


def drawing() -> str:
    """Return the table as a Mermaid diagram, as shown in `docs/design.md`."""
    lines = ["stateDiagram-v2", "    direction LR", f"    [*] --> {State.WAITING.value}"]
    lines += [f"    {a.value} --> {b.value}: {e.value}" for a, row in TRANSITIONS.items() for e, b in row.items()]
    return "\n".join([*lines, *(f"    {state.value} --> [*]" for state in State if state in ENDED)])
