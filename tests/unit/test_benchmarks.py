"""What the benchmark says follows from what it measured; the docs show the stored results and no others."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
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
from benchmarks import adopt, document, fence, mirrormaker, planning, plot, records, table, targets
from benchmarks.bench import Wanted
from benchmarks.cases import CASES, CODECS, LATENCY
from benchmarks.latency import SOURCE_ALONE, Latency, summary
from benchmarks.measure import Run, _middle
from benchmarks.processes import Tree
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s
from benchmarks.systems import LIMIT, MM2_DEFAULT, MM2_TUNED, OURS, PLAIN, READING_LIMIT

ROOT = Path(__file__).parents[2]


def run(system: str, number: int, records: int, seconds: float, **more: object) -> Run:
    return replace(Run(system, number, records, seconds, cpu_s=seconds / 2), **more)  # type: ignore[arg-type]


@pytest.fixture
def results() -> Results:
    runs = [
        run(MM2_DEFAULT, 1, 30_000, 15.0, cut=True),
        run(MM2_TUNED, 1, 900, 10.0), run(MM2_TUNED, 2, 1100, 10.0), run(MM2_TUNED, 3, 5000, 10.0),
        run(OURS, 1, 5000, 5.0), run(OURS, 2, 9000, 3.0, failed="status 1"), run(OURS, 3, 7000, 5.0),
        run(LIMIT, 1, 3000, 2.0), run(READING_LIMIT, 1, 2500, 2.0),
    ]  # fmt: skip
    return Results(
        "2026-01-31",
        {"cpu": "a & b", "cores": 2, "memory_gb": 4, "system": "Linux", "kernel": "6"},
        {"mirrormaker": "4.3.1", "airflow_mirror": "0.1", "pyspark": "4", "python": "3.11", "java": "17"},
        {"rounds": 3, "scale": 1.0, "box_s": 15.0},
        [CaseResult("big", "1 KB & more", 10_000, 8, 5.5, runs)],
        [Latency(OURS, 1, 100, 1.0, 2.0, 3.0, 4.0), Latency(MM2_TUNED, 1, failed="9 of 10 records arrived")],
    )


def test_distance_shows_each_place_with_its_rates_and_its_tails(results: Results) -> None:
    text = table.distance_as_text({"near the target": results, "near the source": results})
    rows = [re.split(r"  +", line) for line in text.splitlines()]
    assert ["near the source", "2,000 *", "110", "1,200", "10.9"] in rows
    assert ["near the target, airflow_mirror", "1", "2", "3", "4"] in rows
    assert ["near the target, MirrorMaker 2, tuned", "-", "-", "-", "-"] in rows


def test_medians_leave_failed_runs_out_and_ratios_are_of_medians(results: Results) -> None:
    (case,) = results.cases
    assert (case.median(MM2_TUNED, per_s), case.median(OURS, per_s)) == (110, 1200)
    assert case.ratio(OURS, MM2_TUNED, per_s) == pytest.approx(1200 / 110)
    assert case.ratio(OURS, MM2_TUNED, per_cpu_s) == pytest.approx(1200 / 110)
    (_, _, [[*_, of_limit, of_reading_limit]]), *_ = table.tables(results)
    assert (of_limit, of_reading_limit) == ("0.80", "0.96")
    assert case.median("nobody", per_s) is None and case.ratio(OURS, "nobody", per_s) is None


def test_a_failed_or_cut_run_is_told_and_never_dropped(results: Results) -> None:
    assert results.failures == ["big, ours, round 2: status 1", "latency, mm2-tuned, round 1: 9 of 10 records arrived"]
    text = table.as_text(results)
    assert "Failed:\nbig, ours, round 2: status 1" in text and "2,000 *" in text and "cut after 15 s" in text
    assert "- failed: big, ours, round 2: status 1" in document.block(results)


def test_results_survive_being_stored(results: Results) -> None:
    assert Results.load(results.dump()) == results
    with pytest.raises(ValueError, match="another version"):
        Results.load(results.dump().replace('"version": 1', '"version": 0'))


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


def full(gains: Mapping[str, tuple[float, float]] | None = None, task_mb: float = 255.0, **tail: float) -> Results:
    """A run of everything in which each target is just reached, apart from what is given."""
    cases = []
    for case in CASES:
        wall, cpu = (gains or {}).get(case.name) or targets.GAINS.get(case.name, (1.0, 1.0))
        runs = [Run(s, n, 1000, 10.0, cpu_s=10.0, jvm_mb=2000) for n in (1, 2, 3) for s in (MM2_DEFAULT, MM2_TUNED)]
        runs += [Run(OURS, n, 1000, 10.0 / wall, cpu_s=10.0 / cpu, task_mb=150, jvm_mb=400) for n in (1, 2, 3)]
        cases.append(CaseResult(case.name, case.title, 1000, 8, 1.0, runs))
    single = cases[3]
    single.runs[-1] = replace(single.runs[-1], task_mb=task_mb)  # in one round of one case
    theirs = Latency(MM2_TUNED, 1, 100, 2.0, 3.0, 10.0, 40.0)
    ours = replace(theirs, system=OURS, **{"p50_ms": 1.9, "p90_ms": 2.9, "p99_ms": 9.9, "max_ms": 90.0} | tail)
    settings = {"rounds": 3, "scale": 1.0, "box_s": 15.0}
    machine = {"cpu": "x", "cores": 2, "memory_gb": 4, "system": "Linux", "kernel": "6"}
    software = {"mirrormaker": "4.3.1", "airflow_mirror": "0.1", "pyspark": "4", "python": "3.11", "java": "17"}
    return Results("2026-01-31", machine, software, settings, cases, [theirs, ours])


def missed(results: Results, complete: bool = True) -> list[str]:
    return [v.target for v in targets.judge(results, complete) if not v.reached]


def without(results: Results, name: str) -> Results:
    if name == LATENCY:
        return replace(results, latencies=[])
    return replace(results, cases=[case for case in results.cases if case.name != name])


def title(name: str) -> str:
    return next(case.title for case in CASES if case.name == name)


def test_a_run_that_just_reaches_every_target_passes() -> None:
    verdicts = targets.judge(full(), complete=True)
    assert [v for v in verdicts if not v.reached] == []
    assert len(verdicts) == 2 * len(CASES) + 1 + 3 and len({v.target for v in verdicts}) == len(verdicts)
    assert targets.judge(full(), complete=False) == verdicts


def test_the_targets_are_the_designs_and_name_cases_that_exist() -> None:
    assert targets.GAINS["big"] == (5, 20) and targets.GAINS["small-records"] == (15, 80)
    re_encoded = {case.name for case in CASES if not case.passes}
    assert {name: targets.GAINS[name][1] for name in re_encoded} == dict.fromkeys(re_encoded, 2)
    assert targets.GAINS.keys() <= {case.name for case in CASES} and targets.TASK_MB == 256


@pytest.mark.parametrize(
    ("results", "said", "measured"),
    [
        (full({"big": (4.999, 20)}), f"{title('big')}: records a second", "4.99 x"),
        (full({"big": (5, 19.9)}), f"{title('big')}: records per CPU second", "19.90 x"),
        (full({"small-records": (14.9, 80)}), f"{title('small-records')}: records a second", "14.90 x"),
        (full({"small-records": (15, 79)}), f"{title('small-records')}: records per CPU second", "79.00 x"),
        (full({"compacted": (3, 1.95)}), f"{title('compacted')}: records per CPU second", "1.95 x"),
        (full({"log-append-time": (3, 1.95)}), f"{title('log-append-time')}: records per CPU second", "1.95 x"),
        (full({"log-append-time": (0.9, 2)}), f"{title('log-append-time')}: records a second", "0.90 x"),
        (full({"single": (0.999, 1)}), f"{title('single')}: records a second", "0.99 x"),
        (full({"tls": (6, 0.5)}), f"{title('tls')}: records per CPU second", "0.50 x"),
        (full(task_mb=256), "memory of the largest task", "256 MB"),
        (full(p50_ms=2.0), "tail at 200 records a second: p50", "2 ms"),
        (full(p90_ms=3.1), "tail at 200 records a second: p90", "3.1 ms"),
        (full(p99_ms=10.01), "tail at 200 records a second: p99", "10.01 ms"),
    ],
    ids=[
        "wall-1KB", "cpu-1KB", "wall-100B", "cpu-100B", "cpu-compacted", "cpu-log-append-time", "slower-re-encoded",
        "slower", "dearer", "memory-of-one-run", "p50-the-same", "p90", "p99",
    ],
)  # fmt: skip
def test_missed_target_is_found_alone_and_shown_as_missed(results: Results, said: str, measured: str) -> None:
    for complete in (True, False):
        (found,) = [v for v in targets.judge(results, complete) if not v.reached]
        assert (found.target, found.measured) == (said, measured)
    text, page = table.targets_as_text(targets.judge(results, complete=True)), document.block(results)
    assert re.findall(r"^(.*?)  .*MISSED$", text, re.MULTILINE) == [said] and text.endswith("reached, 1 missed")
    assert f"| {said} |" in page and page.count("| MISSED |") == 1


@pytest.mark.parametrize("name", [*(case.name for case in CASES), LATENCY])
def test_case_not_run_is_missed_only_in_a_full_run(name: str) -> None:
    """Of a part, only what was run is judged."""
    part = without(full(), name)
    prefix = "tail at" if name == LATENCY else title(name)
    expected = [v.target for v in targets.judge(full(), complete=True) if v.target.startswith(prefix)]
    assert len(expected) == (3 if name == LATENCY else 2)
    memory = [] if name == LATENCY else ["memory of the largest task"]
    assert missed(part) == sorted([*expected, *memory], key=[v.target for v in targets.judge(full(), True)].index)
    assert missed(part, complete=False) == []
    kept = [v.target for v in targets.judge(part, complete=False)]
    assert not set(kept) & set(expected) and len(kept) + len(expected) == 2 * len(CASES) + 1 + 3


def test_a_part_without_mirrormaker_is_judged_by_its_memory_alone() -> None:
    results = full(task_mb=300)
    for case in results.cases:
        case.runs[:] = [run for run in case.runs if run.system == OURS]
    ours = replace(results, latencies=[one for one in results.latencies if one.system == OURS])
    assert [(v.target, v.reached) for v in targets.judge(ours, complete=False)] == [("memory of the largest task", False)]
    assert len(missed(ours)) == 2 * len(CASES) + 1 + 3


def test_case_with_only_failed_runs_is_always_missed() -> None:
    """It is in a run of a part, too."""
    results = full()
    big = results.cases[0]
    big.runs[:] = [replace(run, failed="status 1") if run.system == OURS else run for run in big.runs]
    assert missed(results, complete=False) == [f"{big.title}: records a second", f"{big.title}: records per CPU second"]


def test_a_run_with_few_records_is_not_judged() -> None:
    few = full({"big": (0.1, 0.1)})
    assert targets.judge(replace(few, settings={**few.settings, "scale": 0.5}), complete=False) == []
    assert missed(replace(few, settings={**few.settings, "scale": 2.0}), complete=False) != []


class BenchThatFound:
    """Stands in for the clusters: its run is over at once."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def __call__(self, wanted: Wanted, work: Path) -> BenchThatFound:
        return self

    def run(self) -> Results:
        return self.results


@pytest.mark.parametrize(
    ("found", "arguments", "status", "said"),
    [
        (full(), [], 0, "20 of 20 targets reached, 0 missed"),
        (full({"big": (4, 20)}), [], 1, "19 of 20 targets reached, 1 missed"),
        (without(full(), "tls"), [], 1, "17 of 20 targets reached, 3 missed"),
        (without(full(), "tls"), ["--cases", "big"], 0, "18 of 18 targets reached, 0 missed"),
        (full({"big": (4, 20)}), ["--scale", "2"], 1, "19 of 20 targets reached, 1 missed"),
    ],
    ids=["all-reached", "one-missed", "a-case-missing", "a-part", "a-larger-scale"],
)
def test_missed_target_ends_with_status_1_after_storing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: Results,
    arguments: list[str], status: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(command, "Bench", BenchThatFound(found))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)  # type: ignore[attr-defined]  # pytest's own stay
    out = tmp_path / "found.json"
    assert command.main(["--out", str(out), *arguments]) == status
    assert said in capsys.readouterr().out and Results.load(out.read_text()) == found


def test_failed_run_ends_with_status_1_despite_reached_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = full()
    found.cases[0].runs.append(Run(OURS, 4, failed="status 1"))
    monkeypatch.setattr(command, "Bench", BenchThatFound(found))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)  # type: ignore[attr-defined]
    assert missed(found) == [] and command.main(["--out", str(tmp_path / "found.json")]) == 1


@pytest.mark.parametrize(
    ("stored", "status", "said"),
    [
        (full(), 0, "20 of 20 targets reached"),
        (full(task_mb=300), 1, "19 of 20 targets reached"),
        (without(full(), LATENCY), 1, "17 of 20 targets reached"),
        (None, 1, "latest.json does not exist"),
    ],
    ids=["reached", "missed", "latency-missing", "nothing-stored"],
)
def test_stored_results_are_judged_without_running_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stored: Results | None, status: int, said: str
) -> None:
    monkeypatch.setattr(document, "stored", lambda: stored)
    assert command.main(["--judge"]) == status
    assert said in "".join(capsys.readouterr())


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


def test_middle_of_a_run_is_taken_by_records_not_time() -> None:
    assert _middle([(0.0, 100), (1.0, 120), (2.0, 500), (3.0, 900)]) == (2.0, 500)


def test_latency_quantiles() -> None:
    found = summary(OURS, 1, [float(n) for n in range(1000, 0, -1)])
    assert (found.records, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms) == (1000, 501, 901, 991, 1000)


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
    for tuned in (mirrormaker.for_throughput("run7", CASES[0]), mirrormaker.for_latency("run7")):
        assert not tuned.keys() & plain.keys()


def test_defaults_run_in_the_first_round_alone() -> None:
    """And no limit is given for what is re-encoded."""
    wanted = Wanted([c.name for c in CASES] + [LATENCY], rounds=2)
    by_name = {case.name: wanted.turns(case) for case in CASES}
    rest = MM2_TUNED, OURS, LIMIT, READING_LIMIT
    first, second = [(1, s) for s in (MM2_DEFAULT, *rest)], [(2, s) for s in rest]
    assert by_name["big"] == first + second
    assert by_name["compacted"] == first[:3] + second[:2]
    assert wanted.latency_turns() == [
        (1, SOURCE_ALONE), (1, MM2_DEFAULT), (1, MM2_TUNED), (1, OURS),
        (2, SOURCE_ALONE), (2, MM2_TUNED), (2, OURS),
    ]  # fmt: skip
    assert wanted.steps() == 3 + len(CASES) + sum(map(len, by_name.values())) + 7


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
        (["--systems", ""], "there are mm2-default"),
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


def test_the_list_has_every_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*(case.name for case in CASES), LATENCY]


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
