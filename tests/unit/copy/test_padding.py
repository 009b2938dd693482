"""Padding against a coordinator in process: the way round missing rights, slices, and giving back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import handover, padding
from airflow_mirror.copy.writer.padding import Filling, Padder
from airflow_mirror.errors import LeaseUnconfirmed, TargetMoved, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.errors import Fenced
from tests.unit.coordinator import ADD, END, INIT, MARKERS, Coordinator
from tests.unit.peer import HangUp

TP = TopicPartition("t", 3)


def test_broker_without_direct_markers_gets_all_through_the_coordinator(
    coordinator: Coordinator, target: WireCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener of clients may hide the request; it needs no right of its own to tell."""
    del coordinator.served[MARKERS]
    padder = Padder(target=target, mirror="m", check=lambda: None)
    assert padder.fill(TP, 0, 5) == 5
    assert coordinator.ends[TP] == 5 and coordinator.keys.count(END) == 5 and not padder.direct
    assert caplog.text.count("padded one by one") == 1 and "WriteTxnMarkers" in caplog.text


@pytest.mark.repeats
def test_a_long_hole_is_filled_in_slices_of_one_request(coordinator: Coordinator, target: WireCluster) -> None:
    padder, filling = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=0, end=25_000)
    ends = []
    while not filling.done:
        assert padder.step(filling) == 0.0
        ends.append(coordinator.ends[TP])
    assert ends == [0, 1, 10_001, 20_001, 24_999, 25_000]
    assert filling.written == 25_000


def test_partition_not_given_back_is_left_alone_without_sleeping(coordinator: Coordinator, target: WireCluster) -> None:
    Padder(target=target, mirror="m", check=lambda: None).fill(TP, 0, 3)
    padder, filling = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=3, end=6)
    assert padder.step(filling) == padding._QUIET_S
    assert filling.at == -1, "the log is not looked at before that"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of padders, in seconds."""
    now = SimpleNamespace(s=1000.0)
    monkeypatch.setattr(padding, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


@pytest.mark.parametrize("is_over", [False, True])
def test_partition_is_given_back_once_its_quiet_time_is_over(
    coordinator: Coordinator, target: WireCluster, now: SimpleNamespace, is_over: bool
) -> None:
    """A turn may end within it: the next owner would look at a log into which the first one's last marker still comes."""
    first, second, third = (Padder(target=target, mirror="m", check=lambda: None) for _ in range(3))
    first.step(Filling(tp=TP, start=0, end=3))  # and it dies
    assert second.step(Filling(tp=TP, start=0, end=3)) == padding._QUIET_S
    now.s += padding._QUIET_S if is_over else padding._QUIET_S / 2
    second.release()
    assert third.step(Filling(tp=TP, start=0, end=3)) == (0.0 if is_over else padding._QUIET_S)


def test_another_step_for_the_same_partition_waits_for_the_rest_of_its_quiet_time(
    coordinator: Coordinator, target: WireCluster, now: SimpleNamespace
) -> None:
    """A partition that fails meanwhile is opened again, and its hole is filled anew."""
    Padder(target=target, mirror="m", check=lambda: None).step(Filling(tp=TP, start=0, end=3))
    padder, again = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=0, end=3)
    padder.step(Filling(tp=TP, start=0, end=3))
    now.s += padding._QUIET_S / 2
    assert padder.step(again) == padding._QUIET_S / 2 and again.at == -1
    now.s += padding._QUIET_S / 2
    assert padder.step(again) == 0.0 and again.at == 1


def test_padder_waits_longer_after_an_error_of_its_own(
    coordinator: Coordinator, target: WireCluster, now: SimpleNamespace
) -> None:
    """A marker that nobody answered for may still be on its way."""
    target.timeout_s = 0.2
    padder, filling = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=0, end=6)
    assert padder.step(filling) == 0.0

    def hang_up() -> None:
        raise HangUp

    coordinator.fails = hang_up
    with pytest.raises(TryAgain):
        padder.step(filling)
    coordinator.fails = lambda: None
    now.s += 1.0
    assert padder.step(filling) == padding._DOUBT_S - 1.0 > padding._QUIET_S


def test_release_goes_on_after_a_partition_that_fails(coordinator: Coordinator, target: WireCluster) -> None:
    padder, tps = Padder(target=target, mirror="m", check=lambda: None), [TopicPartition("t", p) for p in range(4)]
    for tp in tps:
        padder.fill(tp, 0, 1)
    first = next(iter(coordinator.ids))
    init = coordinator.answers[INIT]

    def answer(request: object) -> object:
        if getattr(request, "transactional_id", "") == first:
            raise HangUp
        return init(request)

    coordinator.answers[INIT] = answer
    target.timeout_s = 0.2  # for each attempt to give one back
    padder.release()
    assert [e.timeout_ms for e in coordinator.ids.values()] == [handover.HELD_MS] + [handover.RELEASED_MS] * 3


@pytest.mark.parametrize("allowed", range(5))
def test_no_marker_is_sent_once_the_lease_is_in_doubt(
    coordinator: Coordinator, target: WireCluster, allowed: int
) -> None:
    """Take-over, first marker, those in between, the last: each asks right before it is sent, none is tried again."""
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > allowed:
            raise LeaseUnconfirmed("id", 1, 9.0, None)

    padder = Padder(target=target, mirror="m", check=check)
    if allowed == 4:
        assert padder.fill(TP, 0, 10) == 10
        return
    with pytest.raises(LeaseUnconfirmed):
        padder.fill(TP, 0, 10)
    assert len(asked) == allowed + 1
    assert coordinator.ends[TP] == [0, 0, 1, 9][allowed]
    assert [coordinator.keys.count(key) for key in (INIT, ADD, MARKERS)] == [
        [0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1],
    ][allowed]  # fmt: skip


@pytest.mark.parametrize("end", [2, 7])
def test_log_end_outside_the_hole_stops_the_padding(coordinator: Coordinator, target: WireCluster, end: int) -> None:
    """Somebody else writes to the partition: a marker more could take the place of a record."""
    padder, filling = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=3, end=6)
    coordinator.ends[TP] = 3
    padder.step(filling)
    coordinator.ends[TP] = end
    with pytest.raises(TargetMoved, match=f"log end is {end} while this hole is padded"):
        padder.step(filling)
    assert coordinator.ends[TP] == end


def test_hole_that_was_filled_meanwhile_needs_no_marker(coordinator: Coordinator, target: WireCluster) -> None:
    padder, filling = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=3, end=6)
    padder.step(filling)
    coordinator.ends[TP] = 6
    padder.step(filling)
    assert filling.done and filling.written == 0 and coordinator.ends[TP] == 6


def test_last_marker_waits_until_ownership_is_confirmed_anew(
    coordinator: Coordinator, target: WireCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer copier took the partition over; the proof from before that is too old."""
    monkeypatch.setattr(padding, "_FRESH_S", 0.0)
    padder, filling = Padder(target=target, mirror="m", check=lambda: None), Filling(tp=TP, start=0, end=2)
    padder.step(filling)
    padder.step(filling)
    Padder(target=target, mirror="m", check=lambda: None).step(Filling(tp=TP, start=0, end=2))
    with pytest.raises(Fenced):
        padder.step(filling)
    assert coordinator.ends[TP] == 1
