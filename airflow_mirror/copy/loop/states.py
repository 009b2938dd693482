"""The states of a partition's copy and their transitions: a table that the copy walks, tests check and docs show.

``fetching`` is not a state, because a fetch may be in flight in each of the open states. Nor is an open transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from airflow_mirror.common.states import Table


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
    # No event leads from WAITING to READY or SENDING: whatever went before, the log's end is read before a byte is
    # written.
    State.WAITING: {Event.OPEN: State.OPENING, Event.STOP: State.STOPPED},
    # A death while OPENING may leave fillers, the origin of a map or a takeover behind it; the next opening goes on
    # from each.
    State.OPENING: {Event.OPENED: State.READY, Event.FAIL: State.WAITING, Event.STOP: State.STOPPED},
    State.READY: {
        Event.SEND: State.SENDING, Event.STEP: State.STEPPING, Event.FINISH: State.DONE,
        Event.FAIL: State.WAITING, Event.STOP: State.STOPPED,
    },
    # FAIL from these two means "unknown", not "not written": the bytes, or the coordinator's part, may still take
    # effect. Only the opening that follows may say where the log ends.
    State.SENDING: {Event.ANSWER: State.READY, Event.FAIL: State.WAITING, Event.STOP: State.STOPPED},
    State.STEPPING: {Event.ANSWER: State.READY, Event.FAIL: State.WAITING, Event.STOP: State.STOPPED},
    # There is no FAIL: nothing is in flight, and nothing more will be.
    State.DONE: {Event.STOP: State.STOPPED},  # its topic was re-created while other partitions were copied
    State.STOPPED: {},
}  # fmt: skip
OPEN = frozenset({State.READY, State.SENDING, State.STEPPING})  # only these hold fetched data
ENDED = frozenset({State.DONE, State.STOPPED})

TABLE = Table("a partition's copy", TRANSITIONS, State.WAITING, ENDED)
after = TABLE.after
