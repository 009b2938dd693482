"""Time windows over logs whose times go back: which offsets they mean, and that they keep meaning them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.loop import CopyOptions  # type: ignore[attr-defined]
from airflow_mirror.errors import InputError
from airflow_mirror.jobs.driver.prepare import CopyJob, resolve_window
from airflow_mirror.jobs.driver.reachable import check_reachable
from airflow_mirror.jobs.driver.windows import Span, Window, WindowBook, resolve
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.records import WINDOW
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import build
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import TILL_FLUSH, config, copy, create, ends, ranges_of, read, wait_until

HOUR_MS = 1_600_002_000_000  # 2020-09-13T13:00:00Z
SPAN = Span(HOUR_MS + 1_000_000, HOUR_MS + 2_000_000, late_s=300)


def append(cluster: Cluster, topic: str, seconds: Sequence[int], batched: bool = True, **conf: str | int) -> None:
    """Append a record for each of ``seconds`` after the hour, in one batch or in one each."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": TILL_FLUSH, **conf})
    for number, second in enumerate(seconds):
        producer.produce(topic, b"%d" % number, timestamp=HOUR_MS + second * 1000)
        if not batched:
            producer.flush()
    producer.flush()


def resolved(cluster: Cluster, topic: str, span: Span = SPAN, start: int | None = None) -> Window:
    tp = TopicPartition(topic, 0)
    with WireCluster(config(cluster)) as wire:
        found = wire.offsets_for_time([tp], span.start or 0)[tp] if start is None else start
        latest = wire.last_stable([tp])
        return resolve(wire, span, {tp: latest[tp] if found < 0 else found}, latest, True)[tp]


#         0    1     2    3     4     5     6     7     8     9     10    11    12
TIMES = [900, 1000, 950, 1500, 1200, 2010, 1990, 2100, 1400, 2299, 1999, 2300, 1700]


@pytest.mark.parametrize("batched", [True, False], ids=["one-batch", "single-records"])
def test_window_includes_late_records_and_counts_those_out_of_order(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, batched: bool
) -> None:
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    append(source_cluster, topic_name, TIMES, batched, **{"compression.type": "zstd"})
    window = resolved(source_cluster, topic_name)
    assert window == Window(start=1, end=11, late=3, newer=3, older=1)
    (whole,) = ranges_of(source_cluster, topic_name)
    (result,) = copy(source_cluster, target_cluster, [replace(whole, start_offset=window.start, end_offset=window.end)])
    assert (result.done, result.records, result.primed) == (True, 10, 1)
    assert ends(target_cluster, topic_name)[0] == (1, 11, 11)
    there = {row[0] for row in read(target_cluster, topic_name)}
    in_time = {i for i, second in enumerate(TIMES[:12]) if 1000 <= second < 2000}
    assert in_time < there


def test_window_without_patience_ends_at_the_first_later_record(source_cluster: Cluster, topic_name: str) -> None:
    create(source_cluster, topic_name)
    append(source_cluster, topic_name, TIMES)
    assert resolved(source_cluster, topic_name, replace(SPAN, late_s=0)) == Window(start=1, end=5)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], Window(start=0, end=0)),
        ([10, 20], Window(start=2, end=2)),
        ([1100, 1999], Window(start=0, end=2)),
        ([1100, 1050, 2500], Window(start=0, end=2)),
        ([2500, 1100], Window(start=0, end=0)),
        ([2001, 1100, 3000], Window(start=0, end=2, late=1, newer=1)),
        ([999, 1000, 2000], Window(start=1, end=2)),
    ],
    ids=["empty", "all-before", "not-over", "exact", "too-late", "nothing-in-time", "borders"],
)
def test_windows_at_the_edges_of_a_log(
    source_cluster: Cluster, topic_name: str, times: list[int], expected: Window
) -> None:
    create(source_cluster, topic_name)
    append(source_cluster, topic_name, times, batched=False)
    assert resolved(source_cluster, topic_name) == expected


def test_markers_and_aborted_records_end_no_window(source_cluster: Cluster, topic_name: str) -> None:
    """A broker that is asked for a time takes the marker of today for a record of that time."""
    create(source_cluster, topic_name)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, "transactional.id": topic_name})
    producer.init_transactions()
    for seconds, commit in (([1100, 1200], True), ([2600], False), ([1900, 1300], True), ([2050], True), ([9000], True)):
        producer.begin_transaction()
        for second in seconds:
            producer.produce(topic_name, b"v", timestamp=HOUR_MS + second * 1000)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    wait_until(lambda: ends(source_cluster, topic_name)[0] == (0, 12, 12), "transactions end")
    tp = TopicPartition(topic_name, 0)
    with WireCluster(config(source_cluster)) as wire:
        assert wire.offsets_for_time([tp], SPAN.end)[tp] == 2, "the first marker"
    # 0 1 m | a m | 5 6 m | 8 m | 10 m
    assert resolved(source_cluster, topic_name) == Window(start=0, end=8)


def test_window_resolved_again_means_the_same_offsets(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Without the book, or for a topic that was created again, it is resolved anew."""
    create(source_cluster, topic_name)
    append(source_cluster, topic_name, [1100, 2010, 1990])
    mirror = Mirror.from_dict({"name": "w", "source": "s", "target": "t", "topics": [topic_name], "groups": ["none"]})
    with ClusterAdmin(config(source_cluster)) as here, ClusterAdmin(config(target_cluster)) as there:
        plan = build(mirror, here, there, known_topics=[], probe_target=False)
    job = CopyJob(mirror=mirror, source="s", target="t", plan=plan, options=CopyOptions(mirror="w"))
    times = "2020-09-13T13:16:40+00:00", "2020-09-13T13:33:20+00:00"
    with WireCluster(config(source_cluster)) as wire, ClusterAdmin(config(target_cluster)) as target:
        book = WindowBook(state_of(target, WINDOW.below(topic_name)), topic_name)
        first, summary, _ = resolve_window(job, wire, *times, 300, book)
        assert [(r.start_offset, r.end_offset) for r in first] == [(0, 3)]
        assert summary["window"] == {
            "start": times[0], "end": times[1], "late_s": 300, "late": 1, "newer": 1, "older": 0,
        }  # fmt: skip
        append(source_cluster, topic_name, [1995, 2500])
        elsewhere = WindowBook(state_of(target, WINDOW.below(topic_name)), topic_name)
        assert resolve_window(job, wire, *times, 300, elsewhere) == (first, summary, [])
        (anew,), *_ = resolve_window(job, wire, *times, 300, WindowBook(None, "w"))
        assert anew.end_offset == 4
        # A topic that was created again is another one, with other offsets.
        other = replace(plan.topics[0], source_topic_id="another")
        recreated = replace(job, plan=replace(plan, topics=[other]))
        (again,), *_ = resolve_window(recreated, wire, *times, 300, book)
        assert again.end_offset == 4


@pytest.mark.parametrize("mode", ["identical", "mapped"])
def test_window_older_than_what_was_copied_is_refused(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, mode: str
) -> None:
    """With its offsets; a later one goes on."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    append(source_cluster, topic_name, TIMES)
    when = "2020-09-13T13:16:40+00:00"
    (whole,) = (replace(r, mode=mode) for r in ranges_of(source_cluster, topic_name))
    older, window, later = (replace(whole, start_offset=a, end_offset=b) for a, b in ((0, 4), (4, 8), (9, 12)))
    with WireCluster(config(target_cluster)) as wire:
        check_reachable([older], wire, "m", when)  # nothing was copied yet
        copy(source_cluster, target_cluster, [window])
        check_reachable([window, later], wire, "m", when)
        with pytest.raises(InputError, match=rf"(?s){re.escape(when)}: .* began later:\n.*{topic_name}-0: 0 wanted"):
            check_reachable([older], wire, "m", when)
        check_reachable([older], wire, "m", "earliest")  # that means: wherever it began
    (result,) = copy(source_cluster, target_cluster, [later])
    assert result.records == 4, "what lies between the windows is copied too"
