"""Every request of a copy fails once in each way: the target comes out as if nothing had happened.

A copy without faults is recorded. Then it is made again for each of its requests (named by side, client and place among
the client's requests of that kind) and for each way to fail. All of that is a part of the fault tests and takes minutes;
every unit run takes one request of each kind, and of questions that several kinds of copies ask alike those of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from airflow_mirror.copy.batches import tombstones
from airflow_mirror.copy.loop import loop
from airflow_mirror.copy.ranges import IDENTICAL, MAPPED
from airflow_mirror.wire import codec
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer, hostile
from tests.driven.copying import copy, errors, map_of, ranges_of
from tests.driven.script import Fault, Request

pytestmark = pytest.mark.repeats
# Requests that change something: of these a unit run loses an answer, and has an error said about what was done.
EFFECTS = frozenset(
    {
        "Produce", "WriteTxnMarkers", "DeleteRecords", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn",
        "TxnOffsetCommit", "EndTxn",
    }
)  # fmt: skip
# Requests that change nothing, and that a copy sends each time it opens a partition.
QUESTIONS = frozenset({"Metadata", "ListOffsets", "OffsetForLeaderEpoch", "DescribeProducers", "Fetch"})
# What a broker says when it is the moment that is wrong, not the request.
PASSING = {
    "Metadata": ErrorCode.LEADER_NOT_AVAILABLE,
    "OffsetForLeaderEpoch": ErrorCode.UNKNOWN_LEADER_EPOCH,
    "WriteTxnMarkers": ErrorCode.NOT_ENOUGH_REPLICAS,
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "InitProducerId": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "AddPartitionsToTxn": ErrorCode.CONCURRENT_TRANSACTIONS,
    "AddOffsetsToTxn": ErrorCode.NOT_COORDINATOR,
    "TxnOffsetCommit": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "EndTxn": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "DescribeTransactions": ErrorCode.NOT_COORDINATOR,
    "OffsetFetch": ErrorCode.UNSTABLE_OFFSET_COMMIT,
}


class Place(NamedTuple):
    """Which request: the nth of its kind that a client sends to a side."""

    side: str
    client_id: str
    api: str
    nth: int

    @property
    def code(self) -> ErrorCode:
        return PASSING.get(self.api, ErrorCode.NOT_LEADER_OR_FOLLOWER)


WAYS: dict[str, Callable[[Place], Fault]] = {
    "lost": lambda place: Fault.lost_answer(),
    "not-arrived": lambda place: Fault.not_arrived(),
    "cut": lambda place: Fault.cut_answer(6),
    "refused": lambda place: Fault.refused(place.code),
    "done-but-refused": lambda place: Fault.done_but_refused(place.code),
    "frozen": lambda place: Fault(freeze=True),
    "server-error": lambda place: Fault.refused(ErrorCode.UNKNOWN_SERVER_ERROR),
}


class NoSuchRequest(Exception):
    """A copy may ask a little less than the one before: how often it polls depends on the machine."""


class Case(NamedTuple):
    mode: str
    options: dict[str, Any]
    source_version: str = "4.4.0"


CASES = {
    "identical": Case(IDENTICAL, {}),
    "coordinator-alone": Case(IDENTICAL, {"direct_markers": False}),
    "tombstones": Case(IDENTICAL, {"tombstone_topics": ("t",)}),
    "mapped": Case(MAPPED, {}),
    "transactional": Case(MAPPED, {"delivery": "transactional", "transaction_bytes": 300, "merge_below": 0}),
    "from-0.11": Case(IDENTICAL, {}, "0.11.0.3"),
    "from-0.11-mapped": Case(MAPPED, {}, "0.11.0.3"),
}


ASK_ALIKE = ("coordinator-alone", "tombstones", "from-0.11", "from-0.11-mapped")  # what another case asks, too


@contextmanager
def world(source_version: str) -> Iterator[dict[str, DrivenCluster]]:
    with DrivenCluster("source", version=source_version) as source, DrivenCluster("target") as target:
        source.create("t", 2), target.create("t", 2)
        hostile(source.topics["t"].logs[0])
        other = Writer(source.topics["t"].logs[1])
        other.plain(5, codec.GZIP)
        other.holed((1, 2), 6)
        other.plain(2)
        # A frozen broker is given up after this time, and one that the machine stops for as long is asked again.
        source.settings = target.settings = {"socket.timeout.ms": "300"}
        yield {"source": source, "target": target}


def run(case: Case, place: Place | None = None, fault: Fault | None = None) -> list[Place]:
    """Copy, with one fault; hold the target against the source; return which requests there were."""
    with world(case.source_version) as sides:
        source, target = sides["source"], sides["target"]
        rule = None
        if place is not None and fault is not None:
            rule = sides[place.side].script.on(
                place.api, fault, nth=place.nth, when=lambda request: request.client_id == place.client_id
            )
        copied = copy(source, target, ranges_of(source, "t", case.mode), **case.options)
        assert set(errors(copied).values()) == {None}, errors(copied)
        assert_equal(source, target, case)
        if rule is not None and not rule.hits:
            raise NoSuchRequest
        seen: Counter[tuple[str, str, str]] = Counter()
        return [place_of(request, side, seen) for side, cluster in sides.items() for request in cluster.requests]


def assert_equal(source: DrivenCluster, target: DrivenCluster, case: Case) -> None:
    """Nothing is lost, doubled or out of order, and every offset is what it must be."""
    for here, there in zip(source.topics["t"].logs, target.topics["t"].logs, strict=True):
        ours = [row for row in there.rows() if row.key != tombstones.KEY]
        if case.mode == IDENTICAL:
            assert ours == here.rows()
            assert (there.log_start, there.end) == (here.log_start, here.end)
        else:
            assert [row[1:] for row in ours] == [row[1:] for row in here.rows()]
            offsets = map_of(target, ranges_of(source, "t", MAPPED)[here.tp.partition])
            assert offsets is not None
            assert [offsets.to_target(row.offset).offset for row in here.rows()] == [row.offset for row in ours]
        assert there.last_stable == there.end


def place_of(request: Request, side: str, seen: Counter[tuple[str, str, str]]) -> Place:
    kind = side, request.client_id, request.api
    seen[kind] += 1
    return Place(*kind, seen[kind])


def one_of_each(places: list[Place], questions: bool) -> Iterator[tuple[Place, str]]:
    """Yield one request of each kind, from the middle of a copy, with ways to fail.

    :param questions: also requests that change nothing.
    """
    kinds: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        kinds.setdefault((place.side, place.api), []).append(place)
    asked = {kind: several for kind, several in kinds.items() if questions or kind[1] in EFFECTS}
    for i, ((_, api), several) in enumerate(asked.items()):
        ways = ("lost", "done-but-refused") if api in EFFECTS else (("refused", "cut", "not-arrived")[i % 3],)
        place = several[len(several) // 2]
        yield from ((place, way) for way in ways if fails(place, way))


def fails(place: Place, way: str) -> bool:
    """Brokers answer ApiVersions with an error only when they don't know its version.

    What changes something and is answered so would be answered so again: that is an error of its own.
    """
    if way == "server-error":
        return place.api in QUESTIONS
    return place.api != "ApiVersions" or "refused" not in way


def assert_none_matters(case: Case, places: list[tuple[Place, str]]) -> None:
    failed: list[str] = []
    missed = 0
    for place, way in places:
        try:
            run(case, place, WAYS[way](place))
        except NoSuchRequest:
            missed += 1
        except Exception as e:  # all of them, to see what they have in common
            failed.append(f"{way} {place}: {e!r:.600}")
    assert not failed, "\n".join([f"{len(failed)} of {len(places)}:", *failed])
    assert missed <= len(places) // 2


@pytest.fixture(autouse=True)
def _soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_SILENCE_S", 0.3)


@pytest.mark.parametrize("name", CASES)
def test_some_requests_fail_once_and_the_copy_is_equal(name: str) -> None:
    places = run(CASES[name])
    assert_none_matters(CASES[name], list(one_of_each(places, name not in ASK_ALIKE)))


@pytest.mark.parametrize("name", CASES)
def test_some_questions_that_a_broker_fails_at_are_asked_again(name: str) -> None:
    kinds = {(place.side, place.api): place for place in run(CASES[name]) if place.api in QUESTIONS}  # the last of each
    assert_none_matters(CASES[name], [(place, "server-error") for place in kinds.values()])


def test_old_source_is_asked_nothing_that_it_lacks() -> None:
    asked = {place.api for place in run(CASES["from-0.11"]) if place.side == "source"}
    assert asked == {"ApiVersions", "Metadata", "ListOffsets", "Fetch"}


@pytest.mark.faults
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_each_request_fails_once_and_the_copy_is_equal(name: str, way: str) -> None:
    places = run(CASES[name])
    assert_none_matters(CASES[name], [(place, way) for place in places if fails(place, way)])
