"""A target is judged by what was measured, shown, and decides the exit status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import document, records, table, targets
from benchmarks.bench import Wanted
from benchmarks.cases import CASES, TAILS
from benchmarks.latency import Latency
from benchmarks.measure import Run
from benchmarks.results import CaseResult, Results
from benchmarks.systems import MM2, OURS, READING_LIMIT


def full(
    gains: Mapping[str, tuple[float, float]] | None = None, task_mb: float = 255.0,
    share: Mapping[str, float] | None = None, busy: Mapping[str, float] | None = None, **quiet: float,
) -> Results:  # fmt: skip
    """A run of everything in which each target is just reached, apart from what is given.

    :param gains: case -> times MirrorMaker 2's records a second, and per CPU second.
    :param share: case -> of the limit that reads. :param busy: figures of the busy tail; ``quiet``: of the first one.
    """
    cases = []
    for case in CASES:
        goals = targets.GAINS.get(case.name, {})
        wall, cpu = (gains or {}).get(case.name) or [goals.get(f, targets.NEVER_SLOWER).least for f in targets.FIGURES]
        part = (share or {}).get(case.name) or targets.SHARES.get(case.name, targets.NOT_MERGED).least
        runs = [Run(MM2, n, 1000, 10.0, cpu_s=10.0, jvm_mb=2000) for n in (1, 2, 3)]
        runs += [Run(OURS, n, 1000, 10.0 / wall, cpu_s=10.0 / cpu, task_mb=150, jvm_mb=400) for n in (1, 2, 3)]
        runs += [Run(READING_LIMIT, n, 1000, 10.0 / wall * part) for n in (1, 2, 3) if case.passes]
        cases.append(CaseResult(case.name, case.title, 1000, 8, 1.0, runs))
    single = cases[4]
    ours = next(i for i, run in enumerate(single.runs) if run.system == OURS)
    single.runs[ours] = replace(single.runs[ours], task_mb=task_mb)  # in one round of one case
    theirs = [Latency(tail.name, MM2, 1, 100, 2.0, 3.0, 10.0, 20.0, 40.0) for tail in TAILS]
    just = {"p50_ms": 1.9, "p90_ms": 2.9, "p99_ms": 9.9, "p999_ms": 50.0, "max_ms": 90.0}
    given = {"latency": quiet, "latency-busy": dict(busy or {})}
    latencies = [*theirs, *(replace(one, system=OURS, **just | given.get(one.tail, {})) for one in theirs)]
    settings = {"rounds": 3, "scale": 1.0, "warm_s": 30.0, "length_s": 60.0}
    machine = {"cpu": "x", "cores": 2, "memory_gb": 4, "system": "Linux", "kernel": "6"}
    software = {"mirrormaker": "4.3.1", "airflow_mirror": "0.1", "pyspark": "4", "python": "3.11", "java": "17"}
    return Results("2026-01-31", machine, software, settings, cases, latencies)


SHARED = [case for case in CASES if case.passes and not case.merged]
ALL = 2 * len(CASES) + len(SHARED) + 1 + 3 * len(TAILS)
"""Targets of a full run: two of each case, the shares of the limit, memory, three of each tail."""


def missed(results: Results, complete: bool = True) -> list[str]:
    return [v.target for v in targets.judge(results, complete) if not v.reached]


def without(results: Results, name: str) -> Results:
    if name in [tail.name for tail in TAILS]:
        return replace(results, latencies=[one for one in results.latencies if one.tail != name])
    return replace(results, cases=[case for case in results.cases if case.name != name])


def title(name: str) -> str:
    return {**{case.name: case.title for case in CASES}, **{tail.name: tail.title for tail in TAILS}}[name]


def test_a_run_that_just_reaches_every_target_passes() -> None:
    verdicts = targets.judge(full(), complete=True)
    assert [v for v in verdicts if not v.reached] == []
    assert len(verdicts) == ALL and len({v.target for v in verdicts}) == len(verdicts)
    assert targets.judge(full(), complete=False) == verdicts


def test_the_targets_are_the_designs_and_name_cases_that_exist() -> None:
    wall, cpu = targets.FIGURES
    must = {
        name: tuple(goals.get(figure, targets.NEVER_SLOWER).least for figure in (wall, cpu))
        for name, goals in targets.GAINS.items()
    }
    assert must == {
        "big": (1, 20), "small-records": (15, 80), "small-batches": (3, 10), "medium-batches": (4, 10), "single": (4, 10),
        "compacted": (1, 5), "log-append-time": (1, 5), "tls": (1, 15),
    }  # fmt: skip
    aims = {
        name: tuple(goals[figure].aim for figure in (wall, cpu) if figure in goals)
        for name, goals in targets.GAINS.items()
    }
    assert {name: aim for name, aim in aims.items() if any(aim)} == {
        "small-batches": (5, 15), "medium-batches": (6, 15), "single": (8, 20), "compacted": (8,),
        "log-append-time": (8,),
    }  # fmt: skip
    assert targets.GAINS.keys() | targets.SHARES.keys() <= {case.name for case in CASES} and targets.TASK_MB == 256
    assert targets.SHARES["big"].least == 0.95 and targets.NOT_MERGED.least == 0.8
    assert [case.name for case in SHARED] == ["big", "small-records", "tls", "three-nodes"]


def test_batches_of_16_kb_are_what_a_producer_sends_by_default() -> None:
    medium = next(case for case in CASES if case.name == "medium-batches")
    view, *_ = records.ring(replace(medium, ring_batches=1))
    assert 0.97 * 16_384 < len(view) <= 16_384


@pytest.mark.parametrize(
    ("results", "said", "measured"),
    [
        (full({"big": (0.999, 20)}), f"{title('big')}: records a second", "0.99 x"),
        (full({"big": (1, 19.9)}), f"{title('big')}: records per CPU second", "19.90 x"),
        (full(share={"big": 0.9499}), f"{title('big')}: share of the limit that reads", "0.94"),
        (full(share={"tls": 0.79}), f"{title('tls')}: share of the limit that reads", "0.79"),
        (full({"small-records": (14.9, 80)}), f"{title('small-records')}: records a second", "14.90 x"),
        (full({"small-records": (15, 79)}), f"{title('small-records')}: records per CPU second", "79.00 x"),
        (full({"small-batches": (2.99, 10)}), f"{title('small-batches')}: records a second", "2.99 x"),
        (full({"medium-batches": (4, 9.9)}), f"{title('medium-batches')}: records per CPU second", "9.90 x"),
        (full({"single": (3.996, 10)}), f"{title('single')}: records a second", "3.99 x"),
        (full({"compacted": (3, 4.95)}), f"{title('compacted')}: records per CPU second", "4.95 x"),
        (full({"log-append-time": (0.9, 5)}), f"{title('log-append-time')}: records a second", "0.90 x"),
        (full({"three-nodes": (6, 0.5)}), f"{title('three-nodes')}: records per CPU second", "0.50 x"),
        (full(task_mb=256), "memory of the largest task", "256 MB"),
        (full(p50_ms=2.0), "tail: p50", "2 ms"),
        (full(p90_ms=3.1), "tail: p90", "3.1 ms"),
        (full(p99_ms=10.01), "tail: p99", "10.01 ms"),
        (full(busy={"p50_ms": 2.5}), "tail, beside 20 MB/s: p50", "2.5 ms"),
    ],
    ids=[
        "slower-1KB", "cpu-1KB", "share-1KB", "share-not-merged", "wall-100B", "cpu-100B", "wall-3KB", "cpu-16KB",
        "wall-single", "cpu-compacted", "slower-re-encoded", "dearer", "memory-of-one-run", "p50-the-same", "p90", "p99",
        "p50-under-load",
    ],
)  # fmt: skip
def test_missed_target_is_found_alone_and_shown_as_missed(results: Results, said: str, measured: str) -> None:
    for complete in (True, False):
        (found,) = [v for v in targets.judge(results, complete) if not v.reached]
        assert (found.target, found.measured) == (said, measured)
    text, page = table.targets_as_text(targets.judge(results, complete=True)), document.block(results)
    assert re.findall(r"^(.*?)  .*MISSED$", text, re.MULTILINE) == [said] and text.endswith("reached, 1 missed")
    assert f"| {said} |" in page and page.count("| MISSED |") == 1


@pytest.mark.parametrize("name", [*(case.name for case in CASES), *(tail.name for tail in TAILS)])
def test_case_not_run_is_missed_only_in_a_full_run(name: str) -> None:
    """Of a part, only what was run is judged."""
    part = without(full(), name)
    expected = [v.target for v in targets.judge(full(), complete=True) if v.target.startswith(f"{title(name)}: ")]
    tail = name in [tail.name for tail in TAILS]
    assert len(expected) == (3 if tail or name in [case.name for case in SHARED] else 2)
    memory = [] if tail else ["memory of the largest task"]
    assert missed(part) == sorted([*expected, *memory], key=[v.target for v in targets.judge(full(), True)].index)
    assert missed(part, complete=False) == []
    kept = [v.target for v in targets.judge(part, complete=False)]
    assert not set(kept) & set(expected) and len(kept) + len(expected) == ALL


def test_a_part_without_mirrormaker_is_judged_by_its_memory_alone() -> None:
    results = full(task_mb=300)
    for case in results.cases:
        case.runs[:] = [run for run in case.runs if run.system == OURS]
    ours = replace(results, latencies=[one for one in results.latencies if one.system == OURS])
    assert [(v.target, v.reached) for v in targets.judge(ours, complete=False)] == [("memory of the largest task", False)]
    assert len(missed(ours)) == ALL


def test_case_with_only_failed_runs_is_always_missed() -> None:
    """It is in a run of a part, too."""
    results = full()
    big = results.cases[0]
    big.runs[:] = [replace(run, failed="status 1") if run.system == OURS else run for run in big.runs]
    figures = "records a second", "records per CPU second", "share of the limit that reads"
    assert missed(results, complete=False) == [f"{big.title}: {figure}" for figure in figures]


def test_a_run_with_few_records_is_not_judged() -> None:
    few = full({"big": (0.1, 0.1)})
    assert targets.judge(replace(few, settings={**few.settings, "scale": 0.5}), complete=False) == []
    assert missed(replace(few, settings={**few.settings, "scale": 2.0}), complete=False) != []
    assert targets.judge(replace(few, settings={**few.settings, "warm_s": 0.0}), complete=False) == []


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
        (full(), [], 0, f"{ALL} of {ALL} targets reached, 0 missed"),
        (full({"big": (4, 19)}), [], 1, f"{ALL - 1} of {ALL} targets reached, 1 missed"),
        (without(full(), "tls"), [], 1, f"{ALL - 4} of {ALL} targets reached, 4 missed"),
        (without(full(), "tls"), ["--cases", "big"], 0, f"{ALL - 3} of {ALL - 3} targets reached, 0 missed"),
        (full({"big": (4, 19)}), ["--scale", "2"], 1, f"{ALL - 1} of {ALL} targets reached, 1 missed"),
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


def part(results: Results, names: set[str]) -> Results:
    cases = [case for case in results.cases if case.name in names]
    tunings = {"tunings": dict.fromkeys(results.names, "large")}
    latencies = [one for one in results.latencies if one.tail in names]
    return replace(results, settings={**results.settings, **tunings}, cases=cases, latencies=latencies)


def test_parts_of_a_benchmark_are_a_full_run_when_all_cases_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second part has missed its targets for a case that the first one has, too: the later one counts."""
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)  # type: ignore[attr-defined]
    for name in ("PARTIAL", "LATEST"):
        monkeypatch.setattr(command, name, tmp_path / name)
    monkeypatch.setattr(document, "write", lambda: None)
    names = full().names
    for run, chosen, status in [
        (full(), {"big", "tls"}, 0), (full({"big": (0.5, 20)}), {"big"}, 1), (full(), names - {"big", "tls"}, 1),
    ]:  # fmt: skip
        assert not (tmp_path / "LATEST").exists()
        monkeypatch.setattr(command, "Bench", BenchThatFound(part(run, chosen)))
        assert command.main(["--cases", ",".join(sorted(chosen)), "--add"]) == status
    whole = Results.load((tmp_path / "LATEST").read_text())
    assert whole.names == names and len(whole.cases) == len(CASES) and len(whole.latencies) == 2 * len(TAILS)
    assert missed(whole) == [f"{title('big')}: records a second"]


def test_parts_of_different_benchmarks_are_not_joined() -> None:
    one, other = part(full(), {"big"}), part(full(), {"tls"})
    assert one.with_those_of(other).names == {"big", "tls"}
    of_another_day = replace(other, machine={**other.machine, "kernel": "7"})
    assert one.with_those_of(of_another_day).names == {"big", "tls"}
    for wrong in (replace(other, machine={}), replace(other, settings={**other.settings, "scale": 0.5})):
        with pytest.raises(ValueError, match="machine, software or settings differ"):
            one.with_those_of(wrong)


def test_failed_run_ends_with_status_1_despite_reached_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = full()
    found.cases[0].runs.append(Run(OURS, 4, failed="status 1"))
    monkeypatch.setattr(command, "Bench", BenchThatFound(found))
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)  # type: ignore[attr-defined]
    assert missed(found) == [] and command.main(["--out", str(tmp_path / "found.json")]) == 1


@pytest.mark.parametrize(
    ("stored", "status", "said"),
    [
        (full(), 0, f"{ALL} of {ALL} targets reached"),
        (full(task_mb=300), 1, f"{ALL - 1} of {ALL} targets reached"),
        (without(full(), "latency"), 1, f"{ALL - 3} of {ALL} targets reached"),
        (None, 1, "latest.json holds no results of this version"),
    ],
    ids=["reached", "missed", "latency-missing", "nothing-stored"],
)
def test_stored_results_are_judged_without_running_anything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stored: Results | None, status: int, said: str
) -> None:
    monkeypatch.setattr(document, "stored", lambda: stored)
    assert command.main(["--judge"]) == status
    assert said in "".join(capsys.readouterr())
