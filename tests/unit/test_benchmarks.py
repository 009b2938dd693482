"""What the benchmark says follows from what it measured; the docs show the stored results and no others."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import iter_batches
from benchmarks import __main__ as command
from benchmarks import adopt, document, fence, mirrormaker, planning, plot, records, table, tuning
from benchmarks.bench import Wanted
from benchmarks.cases import CASES, CODECS, TAILS
from benchmarks.latency import SOURCE_ALONE, Latency, summary
from benchmarks.measure import Run
from benchmarks.processes import Tree
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s
from benchmarks.systems import CANDIDATES, LIMIT, MM2, OURS, PLAIN, READING_LIMIT
from benchmarks.window import WHOLE, Window

ROOT = Path(__file__).parents[2]


def run(system: str, number: int, records: int, seconds: float, **more: object) -> Run:
    return replace(Run(system, number, records, seconds, cpu_s=seconds / 2), **more)  # type: ignore[arg-type]


@pytest.fixture
def results() -> Results:
    runs = [
        run(MM2, 1, 900, 10.0, warm_s=30.0), run(MM2, 2, 1100, 10.0, warm_s=30.4), run(MM2, 3, 5000, 10.0, warm_s=31.0),
        run(OURS, 1, 5000, 5.0), run(OURS, 2, 9000, 3.0, failed="status 1"), run(OURS, 3, 7000, 5.0),
        run(LIMIT, 1, 3000, 2.0), run(READING_LIMIT, 1, 2500, 2.0),
    ]  # fmt: skip
    return Results(
        "2026-01-31",
        {"cpu": "a & b", "cores": 2, "memory_gb": 4, "system": "Linux", "kernel": "6"},
        {"mirrormaker": "4.3.1", "airflow_mirror": "0.1", "pyspark": "4", "python": "3.11", "java": "17"},
        {"rounds": 3, "scale": 1.0, "warm_s": 30.0, "length_s": 60.0, "tunings": {"big": "moderate"}},
        [CaseResult("big", "1 KB & more", 10_000, 8, 5.5, runs)],
        [
            Latency("latency", OURS, 1, 100, 1.0, 2.0, 3.0, 3.5, 4.0),
            Latency("latency-busy", OURS, 1, 100, 1.5, 2.5, 3.5, 4.5, 5.5),
            Latency("latency", MM2, 1, failed="9 of 10 records arrived"),
        ],
    )


def test_distance_shows_each_place_with_its_rates_and_its_tails(results: Results) -> None:
    text = table.distance_as_text({"near the target": results, "near the source": results})
    rows = [re.split(r"  +", line) for line in text.splitlines()]
    assert ["near the source", "110", "1,200", "10.9"] in rows
    assert ["near the target, airflow_mirror", "1", "2", "3", "4", "4"] in rows
    assert ["near the target, MirrorMaker 2", "-", "-", "-", "-", "-"] in rows


def test_medians_leave_failed_runs_out_and_ratios_are_of_medians(results: Results) -> None:
    (case,) = results.cases
    assert (case.median(MM2, per_s), case.median(OURS, per_s)) == (110, 1200)
    assert case.ratio(OURS, MM2, per_s) == pytest.approx(1200 / 110)
    assert case.ratio(OURS, MM2, per_cpu_s) == pytest.approx(1200 / 110)
    (_, _, [[*_, of_limit, of_reading_limit]]), *_ = table.tables(results)
    assert (of_limit, of_reading_limit) == ("0.80", "0.96")
    assert case.median("nobody", per_s) is None and case.ratio(OURS, "nobody", per_s) is None


def test_tables_say_by_which_tuning_and_in_which_seconds_mirrormaker_was_measured(results: Results) -> None:
    *_, (title, head, [row]), (_, _, tails) = table.tables(results)
    assert title == "Also measured" and head[1:4] == ["MM2's tuning", "measured from", "for"]
    assert row[1:4] == ["moderate", "30 s", "10 s"]
    assert tails == [
        ["tail: airflow_mirror", "1.0", "2.0", "3.0", "3.5", "4.0"],
        ["tail, beside 20 MB/s: airflow_mirror", "1.5", "2.5", "3.5", "4.5", "5.5"],
    ]


def test_candidates_stand_beside_each_other_where_they_ran(results: Results) -> None:
    assert "MirrorMaker 2's tunings" not in table.as_text(results)
    results.cases[0].runs.append(run("mm2-large", 1, 6000, 5.0))
    title, _, rows = table.tables(results)[3]
    assert (title, rows) == ("MirrorMaker 2's tunings", [["1 KB & more, MirrorMaker 2, large", "1,200", "2,400"]])


def test_a_failed_run_is_told_and_never_dropped(results: Results) -> None:
    assert results.failures == ["big, ours, round 2: status 1", "latency, mm2, round 1: 9 of 10 records arrived"]
    text = table.as_text(results)
    assert "Failed:\nbig, ours, round 2: status 1" in text
    assert "- failed: big, ours, round 2: status 1" in document.block(results)


def test_results_survive_being_stored(results: Results) -> None:
    assert Results.load(results.dump()) == results
    with pytest.raises(ValueError, match="another version"):
        Results.load(results.dump().replace('"version": 2', '"version": 1'))


def test_page_keeps_its_results_until_there_are_new_ones_of_this_version(results: Results) -> None:
    assert Results.is_readable(results.dump()) and not Results.is_readable("")
    assert not Results.is_readable(results.dump().replace('"version": 2', '"version": 1'))
    page = "<!-- results: x -->\nold\n<!-- end of results -->"
    assert document.page_with(page, None) == page
    assert "1 KB & more" in document.page_with(page, results) and "old" not in document.page_with(page, results)


def test_plain_processes_stand_beside_spark_where_they_ran_and_run_on_request_alone(results: Results) -> None:
    assert "plain" not in table.as_text(results)
    (case,) = results.cases
    case.runs.extend([run(PLAIN, 1, 6000, 5.0), run(PLAIN, 2, 9000, 5.0), run(PLAIN, 3, 12_000, 5.0)])
    title, _, [row] = table.tables(results)[3]
    assert (title, row[1:4]) == ("Plain processes", ["1,200", "1,800", "1.50"])
    assert PLAIN not in [system for _, system in Wanted(["big"]).turns(CASES[0])]
    assert PLAIN in [system for _, system in Wanted(["big"], [OURS, PLAIN]).turns(CASES[0])]


def test_plot_shows_every_case_and_its_figures(results: Results) -> None:
    texts = [e.text for e in ElementTree.fromstring(plot.draw(results)).iter() if e.tag.endswith("text")]
    assert {"1 KB & more", "1.2 k", "1.5 k"} <= set(texts)


def test_the_docs_and_the_plot_show_the_stored_results() -> None:
    page = document.PAGE.read_text(encoding="utf-8")
    assert document.page_with(page, document.stored()) == page, "run: python -m benchmarks --doc"
    if (stored := document.stored()) is not None:
        assert plot.PLOT.read_text(encoding="utf-8") == plot.draw(stored), "run: python -m benchmarks --doc"


def test_stored_results_hold_no_path() -> None:
    stored = document.stored()
    assert stored is None or not [part for part in ("/home", "/tmp", "/root", "/work") if part in stored.dump()]


@pytest.mark.parametrize(
    ("arguments", "seconds", "status"),
    [
        ([], 9.99, 0),
        ([], 10.2, 1),
        (["--topics", "100"], 10.2, 1),
        (["--topics", "2000"], 10.2, 0),
        (["--profile"], 10.2, 0),
    ],
    ids=["within-seconds", "longer", "longer-for-fewer", "more-than-was-promised-for", "under-a-profiler"],
)
def test_planning_benchmark_fails_above_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], seconds: float, status: int
) -> None:  # fmt: skip
    """The plan is one for ten thousand partitions."""
    monkeypatch.setattr(planning, "clusters", lambda *_, **__: nullcontext((None, None)))
    monkeypatch.setattr(planning, "fill", lambda *_: None)
    monkeypatch.setattr(planning, "measure", lambda *_: {planning.WHOLE: seconds})
    assert planning.main(arguments) == status
    out, err = capsys.readouterr()
    assert '"partitions"' in out and ("longer than 10 s" in err) == (status == 1)


def test_latency_quantiles() -> None:
    found = summary("latency", OURS, 1, [float(n) for n in range(2000, 0, -1)])
    quantiles = found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms, found.max_ms
    assert (found.records, quantiles) == (2000, (1001, 1801, 1981, 1999, 2000))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batches_follow_the_case_and_are_reproducible(case: Any) -> None:
    small = replace(case, per_batch=min(case.per_batch, 200), ring_batches=2)
    made = records.ring(small)
    assert [bytes(b) for b in made] == [bytes(b) for b in records.ring(small)]
    for number, view in enumerate(made):
        (raw,) = iter_batches(view)
        assert raw.header is not None and raw.header.codec == CODECS[case.codec] and raw.header.producer_id == -1
        assert wire_batch.crc_is_valid(view, raw.header) and raw.header.is_dense
        inside = list(wire_records.decode(raw))
        assert len(inside) == small.per_batch
        assert {len(r.key or b"") + len(r.value or b"") for r in inside} == {case.record_bytes}
        assert inside[0].key == b"%012d" % (number * small.per_batch)


def test_keys_for_the_cleaner_occur_again_in_other_batches() -> None:
    case = replace(next(c for c in CASES if c.compacted), per_batch=50)
    *batches, last = records.keyed(case, 3, 20)
    keys = [r.key for view in batches for raw in iter_batches(view) for r in wire_records.decode(raw)]
    assert len(keys) == 1000 and 350 < len(set(keys)) < 500
    (raw,) = iter_batches(last)
    assert raw.header is not None and raw.header.record_count == 1  # and late enough to roll the segment
    assert raw.header.base_timestamp - records.BASE_MS > 12 * 3_600_000 + 1000


def test_no_stored_batch_is_larger_than_a_broker_takes() -> None:
    for case in CASES:
        if not case.compacted:
            (view, *_) = records.ring(replace(case, ring_batches=1))
            assert len(view) <= 1_000_000, case.name


def test_defaults_are_mirrormakers_own_and_tuning_only_adds() -> None:
    source, target = {"bootstrap.servers": "a:1"}, {"bootstrap.servers": "b:2", "security.protocol": "SSL"}
    plain = mirrormaker.settings("run7", "orders", source, target, (1, 3))
    assert plain["run7.bootstrap.servers"] == "a:1" and plain["copy.security.protocol"] == "SSL"
    assert plain["run7->copy.topics"] == "orders" and plain["replication.factor"] == "3"
    about_speed = [key for key in plain if ".producer." in key or ".consumer." in key or key == "tasks.max"]
    assert about_speed == []
    for candidate in [*mirrormaker.BULK.values(), *mirrormaker.TAIL.values()]:
        tuned = mirrormaker.tuned("run7", CASES[0], candidate)
        assert not tuned.keys() & plain.keys() and "{" not in str(tuned.items())
    assert mirrormaker.BULK["defaults"] == mirrormaker.TAIL["defaults"] == {}
    large = mirrormaker.tuned("run7", CASES[1], mirrormaker.BULK["large"])
    assert large["copy.producer.compression.type"] == "zstd" and large["run7.consumer.max.poll.records"] == "20000"


def test_all_systems_run_in_turn_and_no_limit_is_given_for_what_is_re_encoded() -> None:
    wanted = Wanted([*(c.name for c in CASES), *(t.name for t in TAILS)], rounds=2)
    by_name = {case.name: wanted.turns(case) for case in CASES}
    assert by_name["big"] == [(n, s) for n in (1, 2) for s in (MM2, OURS, LIMIT, READING_LIMIT)]
    assert by_name["compacted"] == [(n, s) for n in (1, 2) for s in (MM2, OURS)]
    assert wanted.tail_turns() == [(n, s) for n in (1, 2) for s in (SOURCE_ALONE, MM2, OURS)]
    assert wanted.steps() == 3 + len(CASES) + sum(map(len, by_name.values())) + 6 * len(TAILS)


def test_only_what_is_mirrormakers_has_a_warm_up_and_only_ours_is_measured_as_a_whole() -> None:
    wanted = Wanted(["big"])
    assert [wanted.window(system) for system in (MM2, *CANDIDATES)] == [Window(30, 60)] * (1 + len(CANDIDATES))
    assert wanted.window(OURS) == wanted.window(PLAIN) == WHOLE
    assert wanted.window(LIMIT).warm_s == 0


def test_cpu_of_a_process_that_ended_still_counts() -> None:
    program = (
        "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass\nprint(flush=True); input()"
    )
    earlier = os.times()
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        tree = Tree([child.pid])
        child.stdout.readline()
        tree.look()
        before = sum(tree.cpu_s().values())
        child.stdin.close()
        child.wait(240)
    tree.look()
    charged = sum(os.times()[2:4]) - sum(earlier[2:4])  # what the kernel says of ended children
    assert 0.3 <= before <= sum(tree.cpu_s().values()) <= charged + 0.02


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cases", "big,nothing"], "there are big"),
        (["--scale", "0"], "a number above 0"),
        (["--rounds", "many"], "a whole number"),
        (["--systems", ""], "there are mm2, ours"),
    ],
    ids=["case", "scale", "rounds", "systems"],
)
def test_bad_arguments_are_explained_and_end_with_status_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_bench", lambda *_: 0)
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], Wanted(list(command.ALL))),
        (["--quick"], Wanted(("big", "small-batches", "latency"), rounds=1, scale=0.1, warm_s=0.0, length_s=10.0)),
        (["--quick", "--cases", "tls"], Wanted(["tls"], rounds=1, scale=0.1, warm_s=0.0, length_s=10.0)),
        (["--tune"], Wanted(tuning.CLASSES, CANDIDATES, rounds=1, length_s=20.0)),
        (["--tune", "--cases", "big"], Wanted(["big"], CANDIDATES, rounds=1, length_s=20.0)),
    ],
    ids=["all", "quick", "quick-part", "tune", "tune-part"],
)
def test_arguments_say_what_is_run(arguments: list[str], wanted: Wanted) -> None:
    asked = command._wanted(command._arguments(arguments))
    assert replace(asked, systems=list(asked.systems)) == replace(wanted, systems=list(wanted.systems))
    assert set(wanted.cases) <= set(command.ALL)


def test_the_list_has_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*(case.name for case in CASES), *(tail.name for tail in TAILS)]


@pytest.mark.parametrize(
    ("seconds", "expected"), [([9.0], 9.0), ([float(n) for n in range(1, 11)], 9.55), ([8.0] * 9 + [18.0], 13.5)]
)
def test_worst_of_ten_fences_counts_in_the_95th_percentile(seconds: list[float], expected: float) -> None:
    assert fence.p95(seconds) == pytest.approx(expected)


def test_a_referee_counts_copies_of_aborted_records_each_time_and_repetitions_once_less() -> None:
    everything = [(0, 10), (1, 11), (2, 12), (5, 13)]
    committed = [(0, 10), (2, 12), (5, 13)]
    copies = [(0, 10), (1, 11), (2, 12), (3, 10), (4, 11), (7, 12), (9, 13)]
    found = adopt.counted(everything, committed, copies)
    kinds = {"records": 7, "copies": 7, "repeated": 3, "aborted": 2}
    assert found == dict.fromkeys(found, 0) | kinds and {"missing", "unknown", "ambiguous", "disordered"} < found.keys()
    twice = {kind: 2 * count for kind, count in found.items()}
    assert adopt.differences({**twice, "left_out_at_the_start": 9}, [found, found]) == []
    (line,) = adopt.differences({**twice, "repeated": 5}, [found, found])
    assert line == "repeated: adopt says 5, the referee 6"


@pytest.mark.parametrize(("count", "partitions"), [(10_000, 4), (10_000, 3), (2, 3), (7, 1)])
def test_every_partition_gets_its_share_of_the_offsets(count: int, partitions: int) -> None:
    found = list(adopt.shares(count, partitions))
    assert sum(found) == count and len(found) == partitions and max(found) - min(found) <= 1


def test_clocks_add_up_calls_also_those_that_fail() -> None:
    class Owner:
        def half(self, number: int) -> float:
            return 1 / number

    clocks = adopt.Clocks()
    clocks.watch(Owner, "half", "halving_s")
    assert Owner().half(2) == 0.5
    before = clocks.seconds["halving_s"]
    with pytest.raises(ZeroDivisionError):
        Owner().half(0)
    assert clocks.seconds.keys() == {"halving_s"} and 0 < before < clocks.seconds["halving_s"]


@pytest.mark.parametrize("wrong", [[], ["partition 2: source offset 7: the map says 8, a search 9"]])
def test_adoption_benchmark_fails_when_an_offset_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    monkeypatch.setattr(adopt, "clusters", lambda *_, **__: nullcontext((None, None)))
    monkeypatch.setattr(adopt, "measure", lambda *_: ({"offsets_equal": 10_000}, wrong))
    assert adopt.main([]) == len(wrong)
    out, err = capsys.readouterr()
    assert '"offsets_equal": 10000' in out and all(line in err for line in wrong)


def test_an_offset_that_the_map_gets_wrong_is_named_and_the_rest_is_still_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second of two maps has each record one too far."""
    logs = [(n, n) for n in range(100)]
    monkeypatch.setattr(adopt, "contents", lambda *_: logs)
    monkeypatch.setattr(adopt, "WireCluster", lambda *_: nullcontext())
    monkeypatch.setattr(adopt, "Endpoint", lambda *_: SimpleNamespace(plain=None))
    maps = [OffsetMap(0, 0) for _ in range(3)]
    for one, target in zip(maps, (0, 1, 0), strict=True):
        one.add(0, target, 100)
    monkeypatch.setattr(MapStore, "load", lambda _, __, one: maps[one.partition])
    said = {kind: 3 * count for kind, count in adopt.counted(logs, logs, logs).items()}
    given = argparse.Namespace(offsets=30, partitions=3)
    equal, (line,) = adopt.checked(None, None, given, said)  # type: ignore[arg-type]
    assert equal == 20 and line.startswith("partition 1: source offset ")
