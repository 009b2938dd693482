"""Which part of a run counts, which tuning wins, and what a topic written as files holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mirror.wire.batch import crc_is_valid, iter_batches
from airflow_mirror.wire.records import decode
from benchmarks import mirrormaker, records, segments, tuning
from benchmarks.cases import CASES, TAILS
from benchmarks.latency import Latency
from benchmarks.measure import Run
from benchmarks.results import CaseResult, Results
from benchmarks.tuning import Tunings
from benchmarks.window import SHORTEST_S, WHOLE, Moment, Window


def moments(seconds: float, step: float = 0.5) -> list[Moment]:
    """A run of so many seconds from second 100 on; records, CPU and brokers' CPU grow with time."""
    at = [step * n for n in range(int(seconds / step) + 1)]
    at += [seconds] if at[-1] < seconds else []
    return [Moment(at=100 + t, records=int(10 * t), cpu={"jvm": t, "task": 2 * t}, brokers_s=t) for t in at]


@pytest.mark.parametrize(
    ("seconds", "begin", "end"),
    [
        (120.0, 30, 120), (90.0, 30, 90), (40.0, 30, 40), (39.9, 20, 39.9), (30.0, 15, 30), (20.0, 10, 20), (0.4, 0, 0.4),
    ],
    ids=["longer", "all-of-it", "just-enough-left", "too-little-left", "warm-up-alone", "short", "two-looks"],
)  # fmt: skip
def test_mirrormaker_counts_from_30_seconds_on_and_in_its_second_half_when_it_is_over_sooner(
    seconds: float, begin: float, end: float
) -> None:
    first, last = Window(30, 60).of(moments(seconds))
    assert (first.at - 100, last.at - 100) == pytest.approx((begin, end))
    assert last.cpu_s - first.cpu_s == pytest.approx(3 * (end - begin))


def test_whole_run_counts_where_nothing_has_to_get_warm() -> None:
    series = moments(7.3)
    assert WHOLE.of(series) == (series[0], series[-1]) and WHOLE.over_s == float("inf")
    assert Window(0, 20).of(series) == (series[0], series[-1]) and Window(30, 60).over_s == 90
    assert SHORTEST_S == 10


def test_window_never_begins_at_the_last_look() -> None:
    """Looks that are far apart, on a machine without time for them: the second half has one look, which is the end."""
    series = moments(20, step=18)
    first, last = Window(30, 60).of(series)
    assert (first, last) == (series[1], series[2])


def results(**rates: tuple[int, int]) -> Results:
    runs = [
        Run(f"mm2-{name.replace('_', '-')}", 1, wall * 10, 10.0, cpu_s=wall * 10 / cpu)
        for name, (wall, cpu) in rates.items()
    ]
    waits = [
        Latency("latency", f"mm2-{name}", 1, 9, 1.0, p90, 9.0, 9.0, 9.0)
        for name, p90 in (("defaults", 7.0), ("prompt", 2.5))
    ]
    waits.append(Latency("latency", "mm2-prompt-large", 1, failed="no record"))
    return Results("2026-01-31", {}, {}, {}, [CaseResult("big", "", 1, 8, 1.0, runs)], waits)


def test_fastest_tuning_wins_and_all_figures_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    known = Tunings("", {"single": {"best": "moderate", "tried": {}}, "big": {"best": "defaults", "tried": {}}})
    found = known.with_those_of(results(defaults=(500, 900), large=(800, 700), large_uncompressed=(790, 950)))
    found.store(file)
    assert Tunings.load(file) == found and found.made == "2026-01-31"
    assert found.best("big", tail=False) == "large" and found.best("single", tail=False) == "moderate"
    assert found.best("latency", tail=True) == "prompt"
    assert found.classes["big"]["tried"]["large-uncompressed"] == {"per_s": 790, "per_cpu_s": 950}
    assert found.classes["latency"]["tried"] == {"defaults": {"p90_ms": 7.0}, "prompt": {"p90_ms": 2.5}}


def test_class_that_nobody_tried_has_an_operators_usual_tuning(tmp_path: Path) -> None:
    none = Tunings.load(tmp_path / "missing.json")
    assert none.best("big", tail=False) in mirrormaker.BULK and none.best("latency", tail=True) in mirrormaker.TAIL


def test_stored_tunings_are_candidates_of_classes_that_exist() -> None:
    stored = Tunings.load()
    assert set(stored.classes) <= set(tuning.CLASSES)
    tails = {tail.name for tail in TAILS}
    for name in tuning.CLASSES:
        assert stored.best(name, name in tails) in (mirrormaker.TAIL if name in tails else mirrormaker.BULK)


@pytest.mark.parametrize("batches", [1, 5, 12], ids=["less-than-the-ring", "the-ring", "more-than-the-ring"])
def test_log_written_as_a_file_has_dense_offsets_and_valid_checksums(tmp_path: Path, batches: int) -> None:
    case = replace(next(c for c in CASES if c.as_files), per_batch=3, ring_batches=5)
    (tmp_path / "00000000000000000000.index").touch()
    (tmp_path / "partition.metadata").touch()
    ring = records.ring(case)
    segments.write_log(tmp_path, ring, case.per_batch, batches, start=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00000000000000000000.log", "partition.metadata"]
    found = list(iter_batches(memoryview((tmp_path / "00000000000000000000.log").read_bytes())))
    assert [(raw.first_offset, raw.next_offset) for raw in found] == [(3 * n, 3 * n + 3) for n in range(batches)]
    assert all(raw.header is not None and crc_is_valid(raw.view, raw.header) for raw in found)
    assert [bytes(raw.view[12:16]) for raw in found] == [bytes(4)] * batches
    keys = [record.key for raw in found for record in decode(raw)]
    assert keys[:3] == [b"%012d" % n for n in (6, 7, 8)] and len(keys) == 3 * batches


def test_log_larger_than_a_segment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 100)
    case = replace(next(c for c in CASES if c.as_files), ring_batches=5)
    with pytest.raises(RuntimeError, match="more than a segment holds"):
        segments.write_log(tmp_path, records.ring(case), 1, 1, 0)


def test_every_topic_written_as_files_fits_into_segments_at_full_scale() -> None:
    for case in (case for case in CASES if case.as_files):
        view = max(records.ring(replace(case, ring_batches=3)), key=len)
        assert len(view) * case.batches(1.0) <= segments.SEGMENT_BYTES and not case.settings


def test_tails_with_many_partitions_have_few_hot_ones() -> None:
    for tail in TAILS:
        assert 0 < tail.hot <= tail.partitions
    many = [tail for tail in TAILS if "1,000" in tail.title]
    assert len(many) == 2
    for tail in many:
        beside = tail.load.partitions if tail.load_mb_s else 0
        assert (tail.partitions + beside, tail.hot + beside) == (1000, 50)
