"""The states of a partition's copy: the table, the copy that walks it, and the diagram in the docs agree."""

from __future__ import annotations

import random
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.common.states import IllegalTransition
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import ENDED, OPEN, TABLE, TRANSITIONS, Event, State, after
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import CorruptBatch
from tests.unit.copy.test_damage import START, feed, log, opened

DESIGN = Path(__file__).parents[3] / "docs" / "design.md"


def test_every_state_is_reachable_and_every_unended_one_can_end() -> None:
    reached, seen = {State.WAITING}, set[Any]()
    while reached - seen:
        state = (reached - seen).pop()
        seen.add(state)
        reached |= set(TRANSITIONS[state].values())
    assert reached == set(State) == set(TRANSITIONS)
    assert {state for state in State if Event.STOP not in TRANSITIONS[state]} == {State.STOPPED}
    assert {state for state in State if not set(TRANSITIONS[state]) - {Event.STOP}} == ENDED


def test_only_open_or_opening_states_fail_and_only_ready_sends() -> None:
    assert {state for state in State if Event.FAIL in TRANSITIONS[state]} == OPEN | {State.OPENING}
    assert {state for state in State if {Event.SEND, Event.STEP} & set(TRANSITIONS[state])} == {State.READY}
    assert {s for s, row in TRANSITIONS.items() if row.get(Event.OPENED)} == {State.OPENING}


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_an_event_that_is_not_in_the_table_raises(state: State, event: Event) -> None:
    if event in TRANSITIONS[state]:
        assert after(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"can't {event.value} while it is {state.value}"):
            after(state, event)


def test_the_docs_show_the_table() -> None:
    shown = re.findall(r"```mermaid\n(.*?)\n```", DESIGN.read_text(), re.S)
    assert TABLE.drawing() in shown


def ready() -> PartitionCopy:
    copy = opened(START + 18)
    feed(copy, log(4, 9, 5)[0])
    return copy


def test_a_copy_walks_the_table_from_waiting_to_done() -> None:
    content, _ = log(4, 9, 5)
    copy = PartitionCopy(
        CopyRange(source_topic="orders", target_topic="orders", partition=4, start_offset=0, end_offset=START + 18),
        True,
        1_000_000,
    )
    walked = [copy.state]

    def note() -> None:
        walked.append(copy.state)

    copy.begin_opening(), note()
    copy.reopen(Opening(position=START, producer_id=5, epoch=0, sequence=0)), note()
    feed(copy, content)
    while (step := copy.next_step()) is not None:
        copy.sent(step), note()  # type: ignore[arg-type]
        copy.acknowledged(step, step.base_offset, 0), note()  # type: ignore[arg-type, union-attr]
    sending = [State.SENDING, State.READY]
    assert walked == [State.WAITING, State.OPENING, State.READY, *sending, *sending, State.SENDING, State.DONE]


def test_while_anything_is_under_way_no_next_step_is_offered() -> None:
    copy = ready()
    step = copy.next_step()
    copy.sent(step)  # type: ignore[arg-type]
    assert copy.next_step() is None
    with pytest.raises(IllegalTransition):
        copy.sent(step)  # type: ignore[arg-type]


def test_late_answer_after_a_failure_cannot_move_the_position() -> None:
    copy = ready()
    step = copy.next_step()
    copy.sent(step)  # type: ignore[arg-type]
    copy.fail()
    with pytest.raises(IllegalTransition):
        copy.acknowledged(step, START, 0)  # type: ignore[arg-type]
    assert (copy.position, copy.counters.records) == (START, 0)


def test_range_complete_when_opened_is_done_at_once() -> None:
    copy = PartitionCopy(
        CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=7), True, 1_000_000
    )
    assert not copy.done  # nobody knows yet
    copy.begin_opening()
    copy.reopen(Opening(position=7, producer_id=5, epoch=0, sequence=0))
    assert copy.done and not copy.wants_fetch


def test_done_partition_stays_done_unless_found_doubtful() -> None:
    copy = PartitionCopy(
        CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=0), True, 1_000_000
    )
    copy.begin_opening()
    copy.reopen(Opening(position=0, producer_id=5, epoch=0, sequence=0))
    with pytest.raises(IllegalTransition):
        copy.fail()
    copy.stop(CorruptBatch("t", 0, 0, 1, "its topic was created again", "Plan again."))
    assert copy.state is State.STOPPED and not copy.done


@pytest.mark.parametrize("seed", range(20))
def test_random_walks_fetch_and_write_only_in_open_states(seed: int) -> None:
    rng, copy = (
        random.Random(seed),
        PartitionCopy(CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0), True, 1_000_000),
    )
    for _ in range(200):
        event = rng.choice([e for e in TRANSITIONS[copy.state] if e not in (Event.STOP, Event.FINISH)] or [Event.OPEN])
        match event:
            case Event.OPEN:
                copy.begin_opening()
            case Event.OPENED:
                copy.reopen(Opening(position=copy.position, producer_id=5, epoch=0, sequence=0))
            case Event.FAIL:
                copy.fail()
            case Event.SEND | Event.STEP | Event.ANSWER:
                copy.state = after(copy.state, event)
        assert copy.wants_fetch == (copy.state in OPEN)
        assert copy.state is State.READY or copy.next_step() is None
