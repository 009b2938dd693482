"""Partitions to which nothing comes rest: the broker keeps them in a fetch session, and requests name what has changed.

Whatever becomes of a session, each record is copied once, and soon.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.copy.loop.fetch_lane import FetchLane, Kind
from airflow_mirror.copy.loop.states import State
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import Following, ranges_of
from tests.driven.script import Fault, Request

MANY = 110  # partitions: a session is worth it
P = TP("t", 7)


class Quiet:
    """A copy of many partitions that follows, with a clock that can be put forward."""

    def __init__(self, source: DrivenCluster, target: DrivenCluster, partitions: int = MANY) -> None:
        self.source, self.target, self.skipped = source, target, 0.0
        for cluster in (source, target):
            cluster.create("t", partitions)
        self.copy = Following(
            source, target, ranges_of(source, "t"), clock=lambda: time.monotonic() + self.skipped, give_up_after_s=1e6
        )  # fmt: skip

    @property
    def partitions(self) -> range:
        return range(len(self.source.topics["t"].logs))

    def lane(self, node: int = 1) -> FetchLane | None:
        return self.copy.loop._in._lanes.get((node, Kind.REST))

    def rest(self) -> None:
        """Wait until nothing is fetched for any partition but in a session that the broker keeps."""
        put_forward_at = 0.0

        def all_do() -> bool:
            nonlocal put_forward_at
            is_open = all(p.state is State.READY for p in self.copy.loop.partitions)
            # Again for who was opened since; not before each long poll was answered, which would seem silent.
            if is_open and time.monotonic() - put_forward_at > 1.0:
                self.skipped += 11.0
                put_forward_at = time.monotonic()
            return self.all_rest()

        self.copy.until(all_do, "all rest")

    def all_rest(self) -> bool:
        tails = [lane for (_, kind), lane in self.copy.loop._in._lanes.items() if kind is not Kind.REST]
        return (
            all(
                p.rests and p.state is State.READY and p in self.copy.loop._in._sessions
                for p in self.copy.loop.partitions
            )
            and all(lane.session.is_kept for lane in set(self.copy.loop._in._sessions.values()))
            and not any(lane.busy for lane in tails)
        )

    def append(self, tp: TP = P, count: int = 1) -> None:
        with self.source.changing():
            Writer(self.source.log(tp)).plain(count)

    def is_equal(self) -> bool:
        return all(self.rows(self.source, n) == self.rows(self.target, n) for n in self.partitions)

    @staticmethod
    def rows(cluster: DrivenCluster, number: int) -> list[object]:
        with cluster.lock:
            return list(cluster.topics["t"].logs[number].rows())

    def asked(self, kind: Kind | None = Kind.REST) -> list[Request]:
        """Return the fetches so far: those in a session, or the long polls of the tail."""
        fetches = self.source.asked("Fetch")
        if kind is Kind.REST:
            return [r for r in fetches if r.message.session_epoch >= 0]
        return [r for r in fetches if r.message.session_epoch < 0 and r.message.max_wait_ms == 500]


def named(request: Request) -> list[tuple[int, int]]:
    return [(p.partition, p.fetch_offset) for topic in request.message.topics for p in topic.partitions]


def forgotten(request: Request) -> list[int]:
    return [p for topic in request.message.forgotten_topics_data for p in topic.partitions]


@contextmanager
def resting(source: DrivenCluster, target: DrivenCluster, partitions: int = MANY) -> Iterator[Quiet]:
    quiet = Quiet(source, target, partitions)
    with quiet.copy:
        quiet.rest()
        yield quiet
        assert [p.error for p in quiet.copy.loop.partitions] == [None] * partitions


def in_session(request: Request) -> bool:
    return bool(request.message.session_epoch > 0)


def test_a_request_names_nothing_while_nothing_comes(source: DrivenCluster, target: DrivenCluster) -> None:
    with resting(source, target) as quiet:
        before = len(quiet.asked()), len(quiet.asked(Kind.TAIL))
        quiet.copy.until(lambda: len(quiet.asked()) > before[0] + 5, "it is asked again and again")
        assert len(quiet.asked(Kind.TAIL)) == before[1]
        assert [(named(r), forgotten(r)) for r in quiet.asked()[-5:]] == [([], [])] * 5
        assert len(quiet.source.brokers[1].sessions) == 1


def test_a_record_is_copied_and_its_partition_follows_again(source: DrivenCluster, target: DrivenCluster) -> None:
    with resting(source, target) as quiet:
        before = len(quiet.asked()), len(quiet.asked(Kind.TAIL))
        quiet.append()
        quiet.copy.until(quiet.is_equal, "it is copied")
        quiet.copy.until(lambda: len(quiet.asked(Kind.TAIL)) > before[1], "it follows")
        assert named(quiet.asked(Kind.TAIL)[before[1]]) == [(P.partition, 1)]
        quiet.copy.until(lambda: [P.partition] in [forgotten(r) for r in quiet.asked()[before[0] :]], "it is forgotten")
        assert len(quiet.copy.loop._in._sessions) == MANY - 1
        quiet.rest()
        quiet.copy.until(lambda: [(P.partition, 1)] in [named(r) for r in quiet.asked()[before[0] :]], "it rests there")
        quiet.append()
        quiet.copy.until(quiet.is_equal, "the next one is copied")


def test_few_partitions_have_no_session(source: DrivenCluster, target: DrivenCluster) -> None:
    quiet = Quiet(source, target, 20)
    with quiet.copy:
        quiet.copy.until(lambda: len(quiet.asked(Kind.TAIL)) > 3, "they are followed")
        quiet.skipped += 11.0
        quiet.copy.until(lambda: len(quiet.asked(Kind.TAIL)) > 9, "they are followed")
        assert not quiet.asked()


def test_an_old_broker_has_no_sessions(source: DrivenCluster, target: DrivenCluster) -> None:
    source.brokers[1].served[1] = (4, 6)
    quiet = Quiet(source, target)
    with quiet.copy:
        quiet.copy.until(lambda: len(quiet.asked(Kind.TAIL)) > 9, "they are followed")
        assert not quiet.asked() and not quiet.copy.loop._in._sessions


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH], ids=lambda code: code.name
)
def test_a_session_that_is_over_begins_anew(source: DrivenCluster, target: DrivenCluster, code: ErrorCode) -> None:
    """Nothing is opened again for it."""
    with resting(source, target) as quiet:
        opened, before = len(source.asked("ListOffsets")), len(quiet.asked())
        rule = source.script.on("Fetch", Fault.refused(code), when=in_session, times=1)
        rule.wait()
        quiet.copy.until(lambda: any(r.message.session_epoch == 0 for r in quiet.asked()[before:]), "it begins anew")
        full = next(r for r in quiet.asked()[before:] if r.message.session_epoch == 0)
        assert len(named(full)) == MANY
        quiet.append()
        quiet.copy.until(quiet.is_equal, "it is copied")
        assert len(source.asked("ListOffsets")) == opened


def test_an_evicted_session_begins_anew(source: DrivenCluster, target: DrivenCluster) -> None:
    with resting(source, target) as quiet:
        opened, before = len(source.asked("ListOffsets")), len(quiet.asked())
        with source.changing():
            source.brokers[1].sessions.evict()
        quiet.copy.until(lambda: [len(named(r)) for r in quiet.asked()[before:]].count(MANY) == 1, "it begins anew")
        quiet.append()
        quiet.copy.until(quiet.is_equal, "it is copied")
        quiet.rest()
        assert len(source.asked("ListOffsets")) == opened


def test_a_broker_without_room_is_told_everything_each_time(source: DrivenCluster, target: DrivenCluster) -> None:
    source.brokers[1].sessions.slots = 0
    quiet = Quiet(source, target)
    with quiet.copy:
        quiet.copy.until(lambda: len(quiet.asked()) > 3, "they rest")
        assert {(r.message.session_id, r.message.session_epoch) for r in quiet.asked()} == {(0, 0)}
        assert len(named(quiet.asked()[-1])) == MANY
        quiet.append()
        quiet.copy.until(quiet.is_equal, "it is copied")
        with source.changing():
            source.brokers[1].sessions.slots = 1
        quiet.rest()


@pytest.mark.parametrize("fault", [Fault.lost_answer(), Fault.not_arrived(), Fault.cut_answer(20)], ids=repr)
def test_a_lost_answer_ends_a_session(source: DrivenCluster, target: DrivenCluster, fault: Fault) -> None:
    """Whether the broker has executed the request is not known: what it held is named again, as the copy stands then."""
    with resting(source, target) as quiet:
        before = len(quiet.asked())
        rule = source.script.on("Fetch", fault, when=in_session, times=1)
        quiet.append()
        rule.wait()
        quiet.copy.until(quiet.is_equal, "it is copied")
        quiet.rest()
        later = [r for r in quiet.asked()[before:] if r.number > rule.hits[0].number]
        assert (later[0].message.session_id, later[0].message.session_epoch) == (0, 0)
        quiet.append(count=3)
        quiet.copy.until(quiet.is_equal, "the next ones are copied")


def test_a_silent_broker_ends_a_session(source: DrivenCluster, target: DrivenCluster) -> None:
    with resting(source, target) as quiet:
        rule = source.script.on("Fetch", Fault(freeze=True, answer_bytes=0), when=in_session, times=1)
        rule.wait()
        quiet.copy.until(lambda: all(one.busy for one in (quiet.lane(),) if one), "the loop has noted when it asked")
        quiet.append()
        quiet.skipped += 60.0
        quiet.copy.until(quiet.is_equal, "it is copied on another connection")
        quiet.rest()


def test_a_closed_connection_ends_a_session(source: DrivenCluster, target: DrivenCluster) -> None:
    with resting(source, target) as quiet:
        source.brokers[1].disconnect()
        quiet.append()
        quiet.copy.until(quiet.is_equal, "it is copied")
        quiet.rest()


def test_a_connection_that_ends_while_its_broker_is_throttling_leaves_nobody_behind(
    source: DrivenCluster, target: DrivenCluster
) -> None:
    """No request is in flight then: nothing else would notice that its partitions are asked for by nobody."""
    with resting(source, target) as quiet:
        rule = source.script.on("Fetch", Fault(throttle_ms=3_600_000), when=in_session, times=1)
        rule.wait()
        lane = quiet.lane()
        assert lane is not None
        quiet.copy.until(lambda: not lane.busy, "it is not asked")
        source.brokers[1].disconnect()
        quiet.append()
        quiet.copy.until(quiet.is_equal, "it is copied")


def test_a_broker_that_restarts_has_lost_its_sessions(target: DrivenCluster) -> None:
    with DrivenCluster("source", brokers=2) as source, resting(source, target, 2 * MANY) as quiet:
        source.kill(2)
        quiet.append()
        quiet.rest()
        source.restart(2)
        for number in quiet.partitions:
            if number % 2:
                source.move_leader(TP("t", number), 2)
        quiet.append(TP("t", 11), 4)
        quiet.copy.until(quiet.is_equal, "all is copied")
        quiet.rest()
        assert {node for node in (1, 2) if quiet.lane(node)} == {1, 2}


def test_a_partition_that_moves_leaves_the_session_of_its_old_leader(target: DrivenCluster) -> None:
    with DrivenCluster("source", brokers=2) as source, resting(source, target, 2 * MANY) as quiet:
        tp = TP("t", 6)  # of broker 1
        before = len(quiet.asked())
        source.move_leader(tp, 2)
        quiet.append(tp)
        quiet.copy.until(quiet.is_equal, "it is copied")
        quiet.copy.until(
            lambda: [6] in [forgotten(r) for r in quiet.asked()[before:] if r.broker == 1], "it is forgotten"
        )
        quiet.rest()
        others = [p for p in quiet.copy.loop.partitions if p.range.partition != 6]
        assert not any(p.failures for p in others)
        lane = quiet.lane(2)
        assert lane is not None and tp in lane.named


def test_a_partition_is_followed_until_its_session_holds_it(source: DrivenCluster, target: DrivenCluster) -> None:
    """What comes while the request that names it is on its way is copied, once."""
    held = source.script.on("Fetch", Fault(hold=True), when=lambda r: r.message.session_epoch == 0, times=1)
    quiet = Quiet(source, target)
    with quiet.copy:
        held.wait()
        quiet.append()
        time.sleep(0.05)  # for the tail's request, where one is still on its way; else the session brings it
        held.release()
        quiet.copy.until(quiet.is_equal, "it is copied")
        quiet.rest()
        quiet.append()
        quiet.copy.until(quiet.is_equal, "the next one is copied")
        assert not any(p.failures for p in quiet.copy.loop.partitions)


def test_a_partition_that_wakes_is_not_missed_while_the_tail_waits(source: DrivenCluster, target: DrivenCluster) -> None:
    """The tail's request can't name it before it is answered: until then the session has it, at its new offset."""
    source.long_poll_s = 0.5
    with resting(source, target) as quiet:
        quiet.append(TP("t", 1))
        tail = source.script.on("Fetch", Fault(hold=True), when=lambda r: (1, 1) in named(r) and not in_session(r))
        tail.wait()
        quiet.append()
        quiet.copy.until(lambda: quiet.rows(target, 7) == quiet.rows(source, 7), "it is copied")
        quiet.append()
        quiet.copy.until(lambda: len(quiet.rows(target, 7)) == 2, "the next one is copied while the tail waits")
        assert [(7, 1)] in [named(r) for r in quiet.asked()[-8:]]
        tail.release()
        quiet.copy.until(lambda: any((7, 2) in named(r) for r in quiet.asked(Kind.TAIL)), "it follows")
        quiet.append()
        quiet.copy.until(quiet.is_equal, "all is copied")


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_each_record_is_copied_once(seed: int) -> None:
    chance = random.Random(seed)
    with DrivenCluster("source", brokers=2) as source, DrivenCluster("target") as target:
        quiet = Quiet(source, target, 2 * MANY)
        misfortunes: list[Callable[[], object]] = [
            lambda: source.script.on("Fetch", Fault.lost_answer(), when=in_session, times=1),
            lambda: source.script.on("Fetch", Fault.not_arrived(), times=1),
            lambda: source.script.on("Fetch", Fault.cut_answer(chance.randrange(300)), when=in_session, times=1),
            lambda: source.script.on("Produce", Fault.lost_answer(), times=1),
            lambda: source.brokers[chance.choice((1, 2))].sessions.evict(),
            lambda: source.brokers[chance.choice((1, 2))].disconnect(),
            lambda: source.move_leader(TP("t", chance.randrange(2 * MANY)), chance.choice((1, 2))),
            lambda: source.script.on("Fetch", Fault.refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH), times=1),
        ]
        with quiet.copy:
            for _ in range(12):
                for tp in [TP("t", chance.randrange(2 * MANY)) for _ in range(chance.choice((1, 5, 150)))]:
                    quiet.append(tp, chance.choice((1, 2, 30)))
                quiet.skipped += chance.choice((0.0, 5.0, 11.0, 40.0))
                with source.changing():
                    chance.choice(misfortunes)()
                quiet.append()
                quiet.copy.until(quiet.is_equal, "all is copied")
            source.script.clear()
            quiet.rest()
            assert [p.error for p in quiet.copy.loop.partitions] == [None] * (2 * MANY)
