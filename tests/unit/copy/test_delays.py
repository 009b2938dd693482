"""How long batches took: sums of all, and extremes of the last ones."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.copy.batches.tiers import Encoded, Send
from airflow_mirror.copy.delays import WINDOW_MS, DelayMeter, Delays
from airflow_mirror.wire import codec
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import iter_batches
from airflow_mirror.wire.records import Record

NOW = 1_700_000_000_000 - 1_700_000_000_000 % WINDOW_MS  # a window begins


def test_both_delays_count_from_the_newest_records_timestamp() -> None:
    meter = DelayMeter()
    meter.add(NOW - 100, NOW - 60, NOW)
    meter.add(NOW - 30, NOW - 25, NOW + 10)
    assert meter.read() == Delays(
        batches=2, age_sum_ms=45, latency_sum_ms=140, age_min_ms=5, age_max_ms=40, latency_min_ms=40, latency_max_ms=100
    )
    assert meter.timestamp_ms == NOW - 30


def test_nothing_measured_is_nothing() -> None:
    assert (DelayMeter().read(), DelayMeter().timestamp_ms) == (Delays(), 0)


def test_record_without_timestamp_is_not_measured() -> None:
    """Those of Kafka before 0.10 have none."""
    meter = DelayMeter()
    meter.add(-1, NOW, NOW)
    assert meter.read() == Delays()


def test_timestamp_of_the_future_has_no_delay() -> None:
    meter = DelayMeter()
    meter.add(NOW + 5000, NOW, NOW + 1)
    assert meter.read() == Delays(batches=1)


def test_extremes_are_forgotten_after_a_minute_at_most() -> None:
    meter = DelayMeter()

    def most(at_ms: int, latency_ms: int) -> int:
        meter.add(at_ms - latency_ms, at_ms - latency_ms, at_ms)
        return meter.read().latency_max_ms

    assert most(NOW, 900) == 900
    assert most(NOW + WINDOW_MS - 1, 5) == 900
    assert most(NOW + WINDOW_MS, 7) == 900  # the window before this one still counts
    assert most(NOW + 2 * WINDOW_MS, 3) == 7
    assert most(NOW + 9 * WINDOW_MS, 2) == 2  # nothing was sent in the one before
    assert meter.read().latency_sum_ms == 917


@given(
    samples=st.lists(
        st.tuples(st.integers(0, 3 * WINDOW_MS), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=40
    )
)
def test_extremes_are_of_the_last_batches_and_no_others(samples: list[tuple[int, int, int]]) -> None:
    meter, ordered = DelayMeter(), sorted(samples)
    for at, before, transit in ordered:
        meter.add(NOW + at - before - transit, NOW + at - transit, NOW + at)
    window = ordered[-1][0] // WINDOW_MS
    last = [s for s in ordered if s[0] // WINDOW_MS >= window - 1]
    found = meter.read()
    assert (found.age_min_ms, found.age_max_ms) == (min(s[1] for s in last), max(s[1] for s in last))
    latencies = [s[1] + s[2] for s in last]
    assert (found.latency_min_ms, found.latency_max_ms) == (min(latencies), max(latencies))
    assert (found.batches, found.latency_sum_ms) == (len(samples), sum(s[1] + s[2] for s in samples))


def test_timestamp_of_a_batch_costs_no_look_at_its_records() -> None:
    few = Encoded(bytearray(), base_timestamp=70, newest_timestamp=90, last_timestamp=80, spans=array("q", (5, 3)))
    assert Send(5, 3, 100, 0, 8, encoded=few).last_timestamp == 80  # that of the last one
    records = [Record(at, timestamp, None, b"v", []) for at, timestamp in ((0, 90), (1, 80))]
    (raw,) = iter_batches(wire_records.encode(records, codec.NONE, 5, 0, 0))
    assert raw.header is not None
    assert Send.unchanged(raw, raw.header).last_timestamp == 90  # its header has that of the newest
