"""What the benchmark says follows from what it measured; the docs show the stored results and no others."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import records as wire_records
from airflow_mirror.wire.batch import iter_batches
from benchmarks import document, mirrormaker, plot, records, table
from benchmarks.bench import Wanted
from benchmarks.cases import CASES, CODECS, LATENCY
from benchmarks.latency import SOURCE_ALONE, Latency, summary
from benchmarks.measure import Run, _middle
from benchmarks.processes import Tree
from benchmarks.results import CaseResult, Results, per_cpu_s, per_s
from benchmarks.systems import LIMIT, MM2_DEFAULT, MM2_TUNED, OURS, READING_LIMIT

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


def test_the_plot_is_an_image_with_every_case_and_its_figures(results: Results) -> None:
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


def test_the_first_look_and_the_half_are_of_records_not_of_time() -> None:
    assert _middle([(0.0, 100), (1.0, 120), (2.0, 500), (3.0, 900)]) == (2.0, 500)


def test_latency_quantiles() -> None:
    found = summary(OURS, 1, [float(n) for n in range(1000, 0, -1)])
    assert (found.records, found.p50_ms, found.p90_ms, found.p99_ms, found.max_ms) == (1000, 501, 901, 991, 1000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_batches_are_what_the_case_says_and_the_same_in_every_process(case) -> None:
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


def test_defaults_run_in_the_first_round_and_no_limit_is_given_for_what_is_re_encoded() -> None:
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
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        tree = Tree([child.pid])
        child.stdout.readline()
        tree.look()
        before = sum(tree.cpu_s().values())
        child.stdin.close()
        child.wait(10)
    tree.look()
    assert 0.3 <= before <= sum(tree.cpu_s().values()) < 3


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
def test_bad_arguments_end_with_status_2_and_say_what_there_is(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_the_list_has_every_case() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--list"], cwd=ROOT, capture_output=True, text=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*(case.name for case in CASES), LATENCY]
