"""The order in which a hole is padded: the first marker guards, the last one is proven, and doubt takes over anew."""

from __future__ import annotations

import pytest

from airflow_mirror.copy.writer import padding
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import TRANSACTION, DrivenCluster
from tests.driven.content import Writer
from tests.driven.copying import copy, errors, ranges_of
from tests.driven.script import Fault, Request

MARKERS = "WriteTxnMarkers"


@pytest.fixture
def holed(source: DrivenCluster, target: DrivenCluster) -> None:
    """A hole of five offsets."""
    log = source.create("t").logs[0]
    target.create("t")
    Writer(log).plain(2)
    Writer(log).skip(5)
    Writer(log).plain(2)


def pad(source: DrivenCluster, target: DrivenCluster) -> list[str]:
    """Copy, and return what was asked that has to do with markers."""
    assert set(errors(copy(source, target, ranges_of(source, "t"))).values()) == {None}
    assert target.topics["t"].logs[0].rows() == source.topics["t"].logs[0].rows()
    return [r.api for r in target.asked("InitProducerId", "EndTxn", "DescribeTransactions", MARKERS)]


@pytest.mark.usefixtures("holed")
def test_coordinator_writes_first_marker_and_last_goes_alone(source: DrivenCluster, target: DrivenCluster) -> None:
    asked = pad(source, target)
    assert asked.index("EndTxn") < asked.index(MARKERS)
    assert [len(r.message.markers) for r in target.asked(MARKERS)] == [3, 1]


@pytest.mark.usefixtures("holed")
def test_last_marker_is_sent_right_after_proof_of_ownership(
    source: DrivenCluster, target: DrivenCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padding, "_FRESH_S", 0.0)
    asked = pad(source, target)
    last = max(i for i, api in enumerate(asked) if api == MARKERS)
    assert asked[last - 2 : last + 1] == [MARKERS, "DescribeTransactions", MARKERS]


@pytest.mark.parametrize(("size", "sent"), [(5, [2, 1]), (6, [2, 1, 1]), (7, [2, 2, 1])])
def test_bulk_that_a_moved_coordinator_cuts_in_two_fills_what_is_left(
    source: DrivenCluster, target: DrivenCluster, size: int, sent: list[int]
) -> None:
    """Two of its markers are in the log, then a repeated one of the new coordinator, and the rest is refused."""
    log = source.create("t").logs[0]
    target.create("t")
    Writer(log).plain(2)
    Writer(log).skip(size)
    Writer(log).plain(2)

    def shorten(request: Request) -> None:
        del request.message.markers[2:]

    def move(_: Request) -> None:
        target.move_coordinator(TRANSACTION, 1, repeat_markers=True)

    fault = Fault(before=shorten, after=move, code=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    rule = target.script.on(MARKERS, nth=1, fault=fault)
    pad(source, target)
    assert rule.hits
    assert [len(r.message.markers) for r in target.asked(MARKERS)] == sent


@pytest.mark.usefixtures("holed")
def test_partition_is_taken_over_anew_after_a_doubtful_marker(source: DrivenCluster, target: DrivenCluster) -> None:
    """The new epoch refuses what may still be on its way of ours."""
    target.script.on(MARKERS, Fault.lost_answer())
    asked = pad(source, target)
    between = asked[asked.index(MARKERS) :]
    assert between.index("InitProducerId") < between[1:].index(MARKERS) + 1
