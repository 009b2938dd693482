"""Whatever happens to the partitions of a task, and in whatever order: who rests or has ended holds nothing fetched.

Partitions of every kind are fed from shared answers, which come at any time, and meet every event that their states
allow. What is counted is compared with what is held, and with what nobody can free: a ``bytearray`` that anything still
looks into can't grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_mirror.copy.batches.tiers import Send
from airflow_mirror.copy.loop.asked import Begin, Commit, Pad
from airflow_mirror.copy.loop.limits import Buffer, Memory
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.loop.states import ENDED, OPEN, TRANSITIONS, Event, State
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.opening.identical import Opening
from airflow_mirror.copy.ranges import MAPPED, CopyRange
from airflow_mirror.errors import CorruptBatch, MirrorError, TargetMoved, TryAgain
from airflow_mirror.wire import heart
from airflow_mirror.wire.fetch import FetchedPartition
from tests.unit.copy.test_damage import START, log

SIZES = (4, 1, 1, 1, 9, 5, 2, 1, 1, 7, 3)
END = START + sum(SIZES)
PARTITIONS = range(4)
ROUNDS = 200  # in which a copy that is left alone comes to its end

RANGES = st.fixed_dictionaries(
    {
        "end_offset": st.sampled_from([None, END, END - 3, START + 6, START]),  # some amid a batch, and so amid an answer
        "mode": st.sampled_from(["identical", MAPPED]),
        "key_partitions": st.sampled_from([None, 2]),
    }
)
WAYS = st.fixed_dictionaries(
    {
        "max_bytes": st.sampled_from([1_000_000, 200]),
        "merge_below": st.sampled_from([0, 1024]),
        "transaction_bytes": st.sampled_from([0, 300]),
        "tombstones": st.booleans(),
    }
)


@dataclass
class Flow:
    """A partition's copy, its source, and what of it is under way to the target.

    :ivar batches: first offset behind each batch of the source, and its bytes.
    """

    copy: PartitionCopy
    batches: list[tuple[int, bytes]]
    step: Send | Pad | Begin | Commit | None = None
    here: int = START  # where the target's log stands, in offsets of the source
    there: int = 0  # and in its own, where offsets are mapped

    def opening(self) -> Opening:
        book = OffsetMap(self.here, self.there) if self.copy.range.is_mapped else None
        return Opening(position=self.here, producer_id=5, epoch=0, sequence=0, map=book)

    def answer(self, count: int) -> bytes:
        """What a broker sends from where the copy asks: so many batches at most."""
        return b"".join([content for behind, content in self.batches if behind > self.copy.fetch_offset][:count])


class Task(RuleBasedStateMachine):
    """Some partitions, one memory, and at most one fetch in flight."""

    @initialize(
        kinds=st.lists(st.tuples(RANGES, WAYS), min_size=len(PARTITIONS), max_size=len(PARTITIONS)),
        lost=st.sets(st.integers(0, len(SIZES) - 2), max_size=2),
        engine=st.sampled_from([None, heart.engine]),
        damaged=st.none() | st.tuples(st.sampled_from(PARTITIONS), st.integers(0, len(SIZES) - 1)),
    )  # fmt: skip
    def begin(
        self, kinds: list[tuple[dict[str, Any], dict[str, Any]]], lost: set[int], engine: Any,
        damaged: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        self.engine, heart.engine = heart.engine, engine
        self.memory = Memory(1 << 20)
        self.bodies: list[tuple[Buffer, bytearray]] = []
        self.asked: list[tuple[Flow, int]] = []
        self.flows = []
        for number, (of, how) in enumerate(kinds):
            content, begins = log(*SIZES)
            if damaged is not None and damaged[0] == number:
                content[begins[damaged[1]] + 80] ^= 1
            ends = [*begins[1:], len(content)]
            batches = [
                (START + sum(SIZES[: i + 1]), bytes(content[begin:end]))
                for i, (begin, end) in enumerate(zip(begins, ends, strict=True))
                if i not in lost
            ]  # fmt: skip
            if of["key_partitions"] is not None or how["transaction_bytes"]:
                of = {**of, "mode": MAPPED}
            how = {**how, "tombstones": how["tombstones"] and of["mode"] != MAPPED}
            one = CopyRange(source_topic="t", target_topic="t", partition=number, start_offset=START, **of)
            self.flows.append(Flow(PartitionCopy(one, True, how.pop("max_bytes"), **how), batches))
        self.move([*PARTITIONS, *PARTITIONS])  # all are open
        self.ask()

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule()
    @precondition(lambda self: not self.asked)
    def ask(self) -> None:
        for flow in self.flows:
            if flow.copy.wants_fetch:
                flow.copy.fetching = True
                self.asked.append((flow, flow.copy.generation))

    @rule(counts=st.lists(st.integers(0, len(SIZES)), min_size=len(PARTITIONS), max_size=len(PARTITIONS)))
    @precondition(lambda self: self.asked)
    def answer(self, counts: list[int]) -> None:
        """An answer comes, however late: some of those who asked may have ended, or opened again."""
        asked, self.asked = self.asked, []
        parts = [flow.answer(count) for (flow, _), count in zip(asked, counts, strict=False)]
        body = bytearray(b"".join(parts))
        buffer, view, at = Buffer(self.memory, len(body), 0), memoryview(body), 0
        self.bodies.append((buffer, body))
        for (flow, generation), part in zip(asked, parts, strict=True):
            copy = flow.copy
            if copy.generation == generation:
                copy.fetching = False
                copy.feed(FetchedPartition(copy.range.source, 0, END, END, 0, [], view[at : at + len(part)]), buffer)
            at += len(part)

    @rule(numbers=st.lists(st.sampled_from(PARTITIONS), min_size=2, max_size=20))
    def move(self, numbers: Iterable[int]) -> None:
        """Each time the next thing happens that is to happen if nothing fails."""
        for number in numbers:
            self._move(self.flows[number])

    def _move(self, flow: Flow) -> None:
        copy = flow.copy
        if copy.state is State.WAITING:
            copy.begin_opening()
        elif copy.state is State.OPENING:
            copy.reopen(flow.opening())
        elif copy.state is State.READY:
            self._start(flow)
        elif copy.state in OPEN:
            self._finish(flow)

    def _start(self, flow: Flow) -> None:
        try:
            flow.step = flow.copy.next_step()
        except CorruptBatch as e:
            flow.copy.stop(e)
            return
        if flow.step is not None:
            flow.copy.sent(flow.step if isinstance(flow.step, Send) else None)

    def _finish(self, flow: Flow) -> None:
        step, flow.step = flow.step, None
        match step:
            case Send():
                flow.here, there = step.next_source, flow.there
                flow.there += step.record_count
                flow.copy.acknowledged(step, there if flow.copy.range.is_mapped else step.base_offset, 0)
            case Pad():
                flow.here = step.end
                flow.copy.padded(step, step.end - step.start)
            case Begin():
                flow.copy.began()
            case Commit():
                flow.here = step.position
                flow.copy.transaction_ended(step)

    @rule()
    def shed(self) -> None:
        for flow in self.flows:
            if flow.copy.is_under_way and (lean := flow.copy.shed()) is not None:
                flow.step = lean

    @rule(number=st.sampled_from(PARTITIONS), landed=st.booleans())
    def fail(self, number: int, landed: bool) -> None:
        """The answer is lost; what was sent may have landed all the same."""
        flow = self.flows[number]
        if Event.FAIL in TRANSITIONS[flow.copy.state]:
            step, flow.step = flow.step, None
            if landed and isinstance(step, Send) and not flow.copy.transactional:
                flow.here, flow.there = step.next_source, flow.there + step.record_count
            elif flow.copy.transactional:
                flow.here = flow.copy.committed or START
            del step
            flow.copy.fail()

    @rule(number=st.sampled_from(PARTITIONS))
    def be_elsewhere(self, number: int) -> None:
        """The target stored a batch at another offset."""
        flow = self.flows[number]
        if isinstance(flow.step, Send) and not flow.copy.range.is_mapped:
            try:
                flow.copy.acknowledged(flow.step, flow.step.base_offset + 1, 0)
                raise AssertionError("it is where it should not be")
            except TargetMoved:
                flow.step = None
                flow.copy.fail()

    @rule(number=st.sampled_from(PARTITIONS), luck=st.integers(0, 9))
    @precondition(lambda self: any(flow.copy.state in OPEN for flow in self.flows))
    def stop(self, number: int, luck: int) -> None:
        flow = self.flows[0 if luck else number]
        if Event.STOP in TRANSITIONS[flow.copy.state]:
            flow.step = None
            flow.copy.stop(TryAgain("it has failed for too long"))

    # --- what holds ---------------------------------------------------------------------------------------------------

    @invariant()
    def who_is_not_open_holds_nothing(self) -> None:
        for copy in (flow.copy for flow in self.flows if flow.copy.state not in OPEN):
            held = copy._responses, copy.queued_bytes, copy._next, copy._filler, copy.fetching
            assert held == (type(copy._responses)(), 0, None, None, False), copy.state

    @invariant()
    def what_is_counted_is_what_is_held(self) -> None:
        held = {buffer for flow in self.flows for one in flow.copy._responses for buffer in one.buffers}
        assert self.memory.used == sum(buffer.size for buffer in held)
        for _, body in [one for one in self.bodies if one[0] not in held]:
            body += b"x"  # BufferError: something still looks into it, and so it stays in memory, counted by nobody

    def teardown(self) -> None:
        """Left alone, every copy comes to its end, however it was met by then; and nothing is held when it is over."""
        try:
            if hasattr(self, "flows"):
                self._end()
        finally:
            heart.engine = getattr(self, "engine", heart.engine)

    def _end(self) -> None:
        for _ in range(ROUNDS):
            self.move(PARTITIONS)
            self.answer([len(SIZES)] * len(PARTITIONS)) if self.asked else self.ask()
            self.who_is_not_open_holds_nothing()
            self.what_is_counted_is_what_is_held()
        for flow in self.flows:
            copy = flow.copy
            assert copy.state in ENDED if copy.range.end_offset is not None else copy.error or copy.position == END, copy
            assert copy.error is None or isinstance(copy.error, MirrorError)
            flow.step = None
            copy.forget()
        assert self.memory.used == 0
        self.what_is_counted_is_what_is_held()


TestTask = Task.TestCase
TestTask.settings = settings(stateful_step_count=150)
