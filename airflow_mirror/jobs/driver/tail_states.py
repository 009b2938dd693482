"""The states of a tail: a table that its driver walks (:mod:`.following`), tests check and docs show.

Why it leaves a state is a reason of the tail (:class:`.turns.Tail`): a lease that was lost, a task that nobody hears of,
an error. That tasks write only while it copies, or hands over, is what the table is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from airflow_mirror.common.states import Table


class State(Enum):
    """What a tail is doing."""

    READY = "ready"  # no task of it writes; the lease is held, and nobody writes under an earlier token of it
    RESTING = "resting"  # somebody paused the mirror; the lease stays held, so that nobody else begins
    DEPOSED = "deposed"  # another job took the lease: it is taken back, or the tail ends
    COPYING = "copying"  # a stream copies under a token of the lease
    HANDING_OVER = "handing_over"  # the token is withdrawn: tasks finish and report, or are waited out
    OVER = "over"


class Event(Enum):
    """What happens to a tail."""

    PAUSE = "pause"
    RESUME = "resume"
    LOSE = "lose_lease"
    TAKE_BACK = "take_back"
    START = "start"
    WITHDRAW = "withdraw"
    REPORT = "all_reported"  # or waited out
    END = "end"


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.READY: {
        Event.PAUSE: State.RESTING, Event.LOSE: State.DEPOSED, Event.START: State.COPYING, Event.END: State.OVER
    },
    State.RESTING: {Event.RESUME: State.READY, Event.END: State.OVER},
    State.DEPOSED: {Event.TAKE_BACK: State.READY, Event.END: State.OVER},
    State.COPYING: {Event.WITHDRAW: State.HANDING_OVER, Event.END: State.OVER},
    State.HANDING_OVER: {Event.REPORT: State.READY, Event.END: State.OVER},
    State.OVER: {},
}  # fmt: skip
TABLE = Table("a tail", TRANSITIONS, State.READY, frozenset({State.OVER}))
