"""A copy's figures as Prometheus gets them: parsed again by its own library, and bounded."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.phase import Phase
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.metrics.measures import Spread, by_partition
from airflow_mirror.jobs.progress.delay import Moment, behind, lag_s
from airflow_mirror.jobs.progress.retained import Retained, RetainedWatch, look
from airflow_mirror.jobs.progress.table import Row, Run, Table
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.script import Fault
from tests.driven.validation import TopicConfig
from tests.unit.jobs.scraping import collector, parsed, ranges, scraped, told
from tests.waiting import wait_until

# --- what the figures are --------------------------------------------------------------------------------------------


def test_lag_and_counters_are_there_by_partition_and_by_topic() -> None:
    both = [*ranges("orders", 2), *ranges("clicks", 1)]
    table = Table(both)
    table.take("a", [told(both[0], 400, records=100, bytes=5000), told(both[1], 1000, "done", records=50, bytes=1000)])
    table.see(("clicks", 0, 0), position=10, end=1000)  # no task reports on it: nobody has counted
    found = scraped(collector(table))
    assert found["lag_records"] == {("a.orders", "0"): 600, ("a.orders", "1"): 0, ("a.clicks", "0"): 990}
    assert found["topic_lag_records"] == {("a.orders",): 600, ("a.clicks",): 990}
    assert found["lag_bytes"] == {("a.orders", "0"): 30_000, ("a.orders", "1"): 0}
    assert found["records_total"] == {("a.orders", "0"): 100, ("a.orders", "1"): 50}
    assert found["topic_bytes_total"] == {("a.orders",): 6000}


def test_unknown_lag_has_no_series_and_is_counted() -> None:
    table = Table(ranges(end=None))
    table.see(("orders", 1, 1), position=10, end=30)
    found = scraped(collector(table))
    assert found["lag_records"] == {("a.orders", "1"): 20}
    assert found["topic_lag_records"] == {("a.orders",): 20} and found["partitions_unknown"] == {(): 2}


def a_row(position: int | None, end: int | None, state: Phase, **known: Any) -> Row:
    return Row(range=ranges(end=None)[0], position=position, end=end, state=state, **known)


@pytest.mark.parametrize(
    ("row", "seconds"),
    [
        (a_row(None, None, Phase.OPENING), None),
        (a_row(9, 9, Phase.FOLLOWING, seen_at=999.0), 0),
        (a_row(9, 9, Phase.FOLLOWING, seen_at=100.0, run=Run(number=1, heard_at=997.0)), 0),
        (a_row(9, 9, Phase.FOLLOWING, seen_at=100.0, run=Run(number=1, heard_at=880.0)), 120),  # nobody knows since
        (a_row(9, 9, Phase.DONE, seen_at=100.0), 0),
        (a_row(9, 9, Phase.OPENING, seen_at=999.0, level_at=940.0), 60),  # its end may be an old one
        (a_row(5, 9, Phase.COPYING, seen_at=999.0), None),
        (a_row(5, 9, Phase.COPYING, level_at=950.0), 50),
        (a_row(5, 9, Phase.COPYING, timestamp_ms=1_700_000_000_000 - 30_000), 30),
        (a_row(5, 9, Phase.COPYING, level_at=950.0, timestamp_ms=1_700_000_000_000 - 30_000), 30),
        (a_row(5, 9, Phase.COPYING, level_at=990.0, timestamp_ms=1_500_000_000_000), 10),  # an old record, a moment ago
        (a_row(5, 9, Phase.COPYING, level_at=990.0, timestamp_ms=1_800_000_000_000), 10),  # one of the future
        (a_row(5, 9, Phase.STOPPED, level_at=100.0), 900),
    ],
)
def test_lag_in_seconds_is_the_lower_of_two_bounds(row: Row, seconds: float | None) -> None:
    assert lag_s(row, Moment(1000.0, 1_700_000_000.0)) == seconds


def test_mirror_lags_as_its_slowest_partition_and_has_the_headroom_of_the_tightest() -> None:
    """Also one that is level: so long its topic keeps what comes next. What is done, or kept for ever, has none."""
    now, kept = Moment(1000.0, 1_700_000_000.0), Retained({}, {"orders": 3600.0, "short": 90.0})
    level = a_row(9, 9, Phase.FOLLOWING, seen_at=999.0)
    late = a_row(5, 9, Phase.COPYING, level_at=949.96)
    unknown = a_row(None, None, Phase.OPENING)
    short = replace(level, range=ranges("short", end=None)[0])
    done, ever = replace(short, state=Phase.DONE), replace(late, range=ranges("ever", end=None)[0])
    assert behind([unknown], now, kept) == {"lag_s": None, "headroom_s": None}
    assert behind([level, unknown], now, kept) == {"lag_s": 0.0, "headroom_s": 3600}
    assert behind([level, late], now, kept) == {"lag_s": 50.0, "headroom_s": 3550}
    assert behind([late, short, ever], now, kept) == {"lag_s": 50.0, "headroom_s": 90}
    assert behind([late, done], now, kept)["headroom_s"] == 3550
    assert behind([late], now, Retained()) == {"lag_s": 50.0, "headroom_s": None}


def test_topic_lags_as_long_as_its_slowest_partition() -> None:
    two = ranges(partitions=2)
    table = Table(two)
    stamps = (1_700_000_000_500 - 9000, 1_700_000_000_500 - 4000)
    table.take("a", [told(one, 5) | {"timestamp_ms": at} for one, at in zip(two, stamps, strict=True)])
    found = scraped(collector(table))
    assert found["lag_seconds"] == {("a.orders", "0"): 9, ("a.orders", "1"): 4}
    assert found["topic_lag_seconds"] == {("a.orders",): 9}


def test_delays_are_in_seconds_and_topics_add_them_up() -> None:
    three = ranges()
    table = Table(three)
    delays = [[2, 30, 5000, 10, 20, 2000, 3000], [3, 30, 60, 5, 15, 10, 40]]
    table.take("a", [told(one, 5) | {"delays": of} for one, of in zip(three, delays, strict=False)])
    found = scraped(collector(table))
    assert found["replication_latency_seconds_count"] == {("a.orders", "0"): 2, ("a.orders", "1"): 3}
    assert found["replication_latency_seconds_sum"] == {("a.orders", "0"): 5, ("a.orders", "1"): 0.06}
    assert found["replication_latency_max_seconds"] == {("a.orders", "0"): 3, ("a.orders", "1"): 0.04}
    assert found["topic_replication_latency_seconds_count"] == {("a.orders",): 5}
    assert found["topic_replication_latency_seconds_sum"] == {("a.orders",): 5.06}
    assert found["topic_replication_latency_min_seconds"] == {("a.orders",): 0.01}
    assert found["topic_replication_latency_max_seconds"] == {("a.orders",): 3}
    assert found["topic_record_age_seconds_sum"] == {("a.orders",): 0.06}
    assert (found["topic_record_age_min_seconds"], found["topic_record_age_max_seconds"]) == (
        {("a.orders",): 0.005}, {("a.orders",): 0.02}
    )  # fmt: skip


def test_extremes_are_gone_when_no_batch_was_sent_for_a_minute() -> None:
    row = a_row(5, 9, Phase.COPYING, measured_at=1000.0, delays=Delays(2, 30, 5000, 10, 20, 2000, 3000))
    (early,), (late,) = (by_partition([row], Moment(at, 1_700_000_000.0), Retained()) for at in (1059.0, 1061.0))
    assert early.latency == Spread(2, 5.0, 2.0, 3.0) and late.latency == Spread(2, 5.0, None, None)


def test_headroom_is_what_the_source_still_keeps_below_the_copy() -> None:
    three = ranges(end=None)
    table = Table(three)
    table.take("a", [told(three[0], 700) | {"end": 900, "timestamp_ms": 1_700_000_000_500 - 60_000}])
    table.take("a", [told(three[1], 100) | {"end": 900}])
    retained = Retained(
        {one.source: 120 for one in three}, {"orders": 100.0}
    )  # of number 2 nothing is known, of number 1 not since when it lags
    found = scraped(collector(table, retained=lambda: retained))
    assert found["retention_headroom_records"] == {("a.orders", "0"): 580, ("a.orders", "1"): -20}
    assert found["retention_headroom_seconds"] == {("a.orders", "0"): 40}
    assert found["topic_retention_headroom_records"] == {("a.orders",): -20}
    assert found["topic_retention_headroom_seconds"] == {("a.orders",): 40}
    assert "retention_headroom_records" not in scraped(collector(table)), "the source was not asked yet"


def test_partition_that_is_done_needs_no_headroom() -> None:
    (one,) = ranges(partitions=1)
    table = Table([one])
    table.take("a", [told(one, 1000, "done")])
    found = scraped(collector(table, retained=lambda: Retained({one.source: 5000}, {"orders": 1.0})))
    assert "retention_headroom_records" not in found and "retention_headroom_seconds" not in found


class Source:
    """A cluster whose logs start at 7 each, and what it was asked for."""

    def __init__(self, **settings: str) -> None:
        self.settings, self.asked = settings, list[Any]()

    def offsets(self, partitions: Any, spec: str) -> dict[TopicPartition, int]:
        self.asked.append((sorted(partitions), spec))
        return dict.fromkeys(partitions, 7)

    def topic_configs(self, names: Any) -> dict[str, dict[str, ConfigEntry]]:
        self.asked.append(sorted(names))
        entries = {key.replace("_", "."): ConfigEntry(value=v, source="") for key, v in self.settings.items()}
        return dict.fromkeys(names, entries)


@pytest.mark.parametrize(
    ("policy", "retention", "kept"),
    [("delete", "60000", {"orders": 60.0}), ("compact,delete", "1", {"orders": 0.001}), ("compact", "60000", {}),
     ("delete", "-1", {}), ("delete", None, {}), (None, "60000", {})],
)  # fmt: skip
def test_source_is_asked_for_its_starts_and_how_long_it_keeps(
    policy: str | None, retention: str | None, kept: dict[str, float]
) -> None:
    told = {"cleanup_policy": policy, "retention_ms": retention}  # None: a managed cluster does not tell
    table, source = Table(ranges(partitions=2)), Source(**{key: value for key, value in told.items() if value})
    both = [TopicPartition("orders", p) for p in (0, 1)]
    assert look(source, table, None) == Retained(dict.fromkeys(both, 7), kept)
    assert source.asked == [(both, "earliest"), ["orders"]]
    assert look(source, table, {"orders": 5.0}).kept_s == {"orders": 5.0} and len(source.asked) == 3


def test_source_that_can_not_be_asked_leaves_headroom_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found before would pass for the present."""
    seen = list[Retained]()
    with DrivenCluster("source") as source:
        source.create("orders", 3, TopicConfig(retention_ms=1000))
        monkeypatch.setenv("HERE", source.config.dump())
        watch = RetainedWatch("env:HERE", Table(ranges()), every_s=0.001)
        note = lambda _: seen.append(watch.last)  # noqa: E731
        refused = Fault(before=note, effect=False, code=ErrorCode.INVALID_REQUEST)
        source.script.on("ListOffsets", refused, nth=2)
        source.script.on("ListOffsets", Fault(before=note), times=None)
        watch.start()
        wait_until(lambda: len(seen) > 3)
        watch.close()
        asked = [one.api for one in source.asked("ListOffsets", "DescribeConfigs")]
    assert asked[:5] == ["ListOffsets", "DescribeConfigs", "ListOffsets", "ListOffsets", "DescribeConfigs"], (
        "settings are read again after a failure"
    )
    starts = {one.source: 0 for one in ranges()}
    assert seen[:3] == [Retained(), Retained(starts, {"orders": 1.0}), Retained()]


def test_every_state_has_a_figure_and_stopped_partitions_one_each() -> None:
    three = ranges()
    table = Table(three)
    table.take("a", [told(three[0], 5, "stopped", "disk on fire"), told(three[1], 1000, "done")])
    found = scraped(collector(table))
    assert found["partitions"] == {
        ("opening",): 1, ("copying",): 0, ("following",): 0, ("done",): 1, ("stopped",): 1
    }  # fmt: skip
    assert found["stopped"] == {("a.orders", "0"): 1, ("a.orders", "1"): 0, ("a.orders", "2"): 0}
    assert found["topic_stopped"] == {("a.orders",): 1}


def test_job_tells_its_kind_epoch_and_end() -> None:
    one = collector(Table(ranges()))
    found = scraped(one)
    assert (found["job_info"], found["writer_epoch"], found["job_running"]) == ({("bulk_copy",): 1}, {(): 7}, {(): 1})
    assert found["updated_timestamp_seconds"] == {(): 1_700_000_000.5}
    one.end()
    assert scraped(one)["job_running"] == {(): 0}


def test_hold_is_told_by_topic_while_somebody_watches_it() -> None:
    assert "hold_intact" not in scraped(collector(Table(ranges())))
    found = scraped(collector(Table(ranges()), held=lambda: {"a": True, "b": False}, restored=lambda: {"a": 0, "b": 2}))
    assert found["hold_intact"] == {("a",): 1, ("b",): 0} and found["hold_restored_total"] == {("a",): 0, ("b",): 2}


def test_source_partition_dealt_by_key_has_one_series() -> None:
    """Each of its target partitions reads all of it, so the slowest one says how far it is."""
    here = [
        CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0, end_offset=100, target_partition=q,
                  key_partitions=3, mode="mapped")
        for q in range(3)
    ]  # fmt: skip
    table = Table(here)
    table.take("a", [told(one, 100 - 10 * q, records=5, bytes=50) for q, one in enumerate(here)])
    found = scraped(collector(table))
    assert found["lag_records"] == {("t", "0"): 20} and found["topic_lag_records"] == {("t",): 20}
    assert found["records_total"] == {("t", "0"): 15}


def test_names_of_clusters_and_mirrors_survive_the_text() -> None:
    odd = 'a "b" \\n\n{c="d"} é'
    registry = CollectorRegistry()
    registry.register(collector(Table(ranges()), source=odd))
    samples = [s for f in text_string_to_metric_families(generate_latest(registry).decode()) for s in f.samples]
    assert samples and {s.labels["source"] for s in samples} == {odd}


def test_names_follow_prometheus_conventions() -> None:
    families = list(collector(Table(ranges()), held=lambda: {"a": True}).describe())
    names = [family.name for family in families]
    assert len(set(names)) == len(names) and all(re.fullmatch("airflow_mirror_[a-z_]+", name) for name in names)
    assert not [name for name in names if re.search("_(ms|millis|kb|mb|minutes|count|sum)$", name)]
    assert all(family.documentation.endswith(".") for family in families)


def test_scrape_for_some_names_gets_these_alone() -> None:
    registry = CollectorRegistry()
    registry.register(collector(Table(ranges())))
    text = generate_latest(registry.restricted_registry(["airflow_mirror_writer_epoch"])).decode()
    assert list(parsed(text)) == ["writer_epoch"]


def test_fetched_bytes_are_those_of_the_fullest_task_that_still_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(ranges())
    assert scraped(collector(table))["fetched_bytes"] == {(): 0}
    table.take("a", [], 9_000_000)
    table.take("b", [], 48_000_000)
    assert scraped(collector(table))["fetched_bytes"] == {(): 48_000_000}
    table.take("b", [], 0)
    assert scraped(collector(table))["fetched_bytes"] == {(): 9_000_000}
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)  # the other one was killed
    table.take("b", [], 5_000_000)
    assert scraped(collector(table))["fetched_bytes"] == {(): 5_000_000}


# --- how many series there are ---------------------------------------------------------------------------------------


def test_beyond_the_limit_partitions_at_their_end_are_left_out() -> None:
    many = ranges(partitions=10)
    table = Table(many)
    table.take("a", [told(one, 1000, "done", records=1) for one in many])
    table.take("a", [told(many[3], 990, records=1), told(many[7], 1000, "stopped", "no")])
    found = scraped(collector(table, limit=9))
    assert set(found["lag_records"]) == set(found["records_total"]) == {("a.orders", "3"), ("a.orders", "7")}
    assert found["partitions_left_out"] == {(): 8}
    assert found["topic_records_total"] == {("a.orders",): 9}, "sums are of all"
    assert scraped(collector(table, limit=10))["partitions_left_out"] == {(): 0}


def test_too_many_with_lag_leave_out_the_smallest() -> None:
    many = ranges(partitions=10)
    table = Table(many)
    table.take("a", [told(one, 900 + one.partition) for one in many[:8]])
    table.take("a", [told(many[9], 1000, "stopped", "no")])  # of number 8 nothing is known but its whole range
    found = scraped(collector(table, limit=4))
    assert set(found["lag_records"]) == {("a.orders", p) for p in ("9", "8", "0", "1")}
    assert found["partitions_left_out"] == {(): 6}
