"""A job's spec and a job's state: values, decided in one place."""

from __future__ import annotations

import gc
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.errors import InputError, InvalidField, NeedsHuman, TryAgain
from airflow_mirror.jobs.driver import entry
from airflow_mirror.jobs.request import JobRequest
from airflow_mirror.jobs.runner import state
from airflow_mirror.jobs.runner.command import Submission, local_submit, spark_conf
from airflow_mirror.jobs.runner.directory import open_generation, read_json, write_json
from airflow_mirror.jobs.runner.spec import JobSpec
from airflow_mirror.jobs.runner.status import StatusFile, blame, ensure_final
from tests.builders import request
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("master", "conf", "named"),
    [
        ("local[*]", {}, "local[*,2]"),
        ("local", {}, "local[1,2]"),
        ("local[2,5]", {}, "local[2,5]"),
        ("local[4]", {"spark.task.maxFailures": "3"}, "local[4,3]"),
        ("spark://host:7077", {}, "spark://host:7077"),
    ],
)
def test_a_local_master_names_how_often_a_task_may_fail(
    tmp_path: Path, master: str, conf: dict[str, str], named: str
) -> None:
    """Spark ignores the setting there: one lost worker would end the copy."""
    spec = JobSpec(kind="bulk_copy", mirror={"name": "m"}, master=master, spark_conf=conf)
    submission = Submission(kind=spec.kind, master=master, request="", conf=spark_conf(spec, tmp_path))
    assert local_submit(submission)[1:3] == ["--master", named]


def test_a_spec_survives_json_with_its_hash() -> None:
    spec = JobSpec(
        kind="verify",
        mirror={"name": "m", "topics": ["a", "b"]},
        options={"level": "records"},
        spark_conf={"spark.x": "1"},
        inputs="p1",
    )
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))).hash == spec.hash


def test_what_a_job_does_is_in_its_hash() -> None:
    base = JobSpec(kind="bulk_copy", mirror={"name": "m"})
    others = [
        JobSpec(kind="verify", mirror={"name": "m"}),
        JobSpec(kind="bulk_copy", mirror={"name": "n"}),
        JobSpec(kind="bulk_copy", mirror={"name": "m"}, options={"hold": True}),
        JobSpec(kind="bulk_copy", mirror={"name": "m"}, inputs="other plan"),
        JobSpec(kind="bulk_copy", mirror={"name": "m"}, master="spark://x:1"),
    ]
    assert len({base.hash, *(o.hash for o in others)}) == 6


def test_how_a_job_is_watched_is_not_in_its_hash() -> None:
    """A mirror's tail may have run for weeks when somebody wants its figures: a retry finds it all the same."""
    base = JobSpec(kind="streaming_tail", mirror={"name": "m"})
    assert JobSpec(kind="streaming_tail", mirror={"name": "m"}, metrics="/x/m.prom").hash == base.hash
    assert JobSpec(kind="streaming_tail", mirror={"name": "m"}, alarm="company.oncall.page").hash == base.hash
    older = {key: value for key, value in base.to_dict().items() if key != "metrics"}
    assert JobSpec.from_dict(older) == base


def test_an_unknown_kind_or_version_is_refused() -> None:
    with pytest.raises(InvalidField, match="kind='copy'"):
        JobSpec(kind="copy", mirror={})
    with pytest.raises(InvalidField, match="no field of a verify job"):
        JobSpec(kind="verify", mirror={}, options={"turn_s": 5})
    with pytest.raises(InvalidField, match="version=99"):
        JobSpec.from_dict({"version": 99, "kind": "verify", "mirror": {}})


@pytest.mark.parametrize(
    ("written", "alive", "age_s", "expected"),
    [
        (None, True, 0, "RUNNING"),
        (None, False, 0, "LOST"),
        ("RUNNING", True, 9999, "RUNNING"),
        ("RUNNING", False, 0, "LOST"),
        ("SUCCEEDED", True, 0, "SUCCEEDED"),  # it is still shutting down
        ("SUCCEEDED", False, 9999, "SUCCEEDED"),
        ("FAILED", None, 9999, "FAILED"),
        ("RUNNING", None, 10, "RUNNING"),  # on another host: nobody here can know
        ("RUNNING", None, 301, "LOST"),
        (None, None, 0, "LOST"),
    ],
)
def test_the_state_of_a_job(written: str | None, alive: bool | None, age_s: int, expected: str) -> None:
    status = None if written is None else {"state": written, "updated": 1000.0 - age_s}
    assert state.decide(status, alive, 1000.0) == expected


def test_blame_follows_the_branches() -> None:
    assert [blame(e) for e in (InputError("a"), NeedsHuman("b"), RuntimeError("c"), "text")] == [
        "input", "human", "retry", "retry",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "error", "expected"),
    [
        (0, None, ("SUCCEEDED", None, None)),
        (1, None, ("FAILED", "exit code 1", "retry")),
        (2, None, ("FAILED", "exit code 2", "input")),
        (1, NeedsHuman("damage"), ("FAILED", "damage", "human")),
        (1, MemoryError(), ("FAILED", "MemoryError", "retry")),
    ],
)
def test_a_job_that_ended_without_a_word_gets_one(
    tmp_path: Path, code: int, error: Exception | None, expected: Any
) -> None:
    write_json(tmp_path / "status.json", {"state": "RUNNING", "phase": "copying"})
    ensure_final(tmp_path, code, error)
    written = json.loads((tmp_path / "status.json").read_text())
    assert (written["state"], written.get("error"), written.get("blame")) == expected
    assert written["phase"] == "copying"


def test_a_final_word_is_not_overwritten(tmp_path: Path) -> None:
    write_json(tmp_path / "status.json", {"state": "SUCCEEDED"})
    ensure_final(tmp_path, 1, None)
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "SUCCEEDED"


def test_an_error_without_a_text_has_failed_the_job(tmp_path: Path) -> None:
    """Who stopped it while it was starting took it for one that had ended by itself."""
    status = StatusFile(tmp_path)
    status.fail(AssertionError())
    assert status.content()["error"] == "AssertionError"


def test_generations_sort_as_numbers(tmp_path: Path) -> None:
    for n in range(12):
        assert open_generation(tmp_path / "job", JobSpec(kind="verify", mirror={"name": "m"})).name == str(n + 1)


def test_a_directory_has_one_job_until_its_process_ends(tmp_path: Path) -> None:
    StatusFile(tmp_path).fail("it failed, but its Spark session is still closing")
    gc.collect()
    with pytest.raises(TryAgain, match=str(tmp_path)):
        StatusFile(tmp_path)


def test_a_job_that_says_nothing_for_long_is_alive_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a queue, say, or compares: a host that shares its directory started it once more."""
    monkeypatch.setattr(entry, "_ALIVE_EVERY_S", 0.01)

    def work(_: JobRequest, status: StatusFile) -> entry.Outcome:
        status.update("comparing")
        for _ in range(2):
            write_json(tmp_path / "status.json", {"updated": 0.0})
            wait_until(lambda: (read_json(tmp_path / "status.json") or {})["updated"] > 0.0)
        return {"records": 3}, None

    assert entry.carry_out(lambda: request(JobRequest), work, entry.Told(job_dir=str(tmp_path))) == 0
    written = json.loads((tmp_path / "status.json").read_text())
    assert (written["state"], written["phase"], written["summary"]) == ("SUCCEEDED", "done", {"records": 3})


def test_kinds_that_report_at_once_keep_each_others_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, write = StatusFile(tmp_path), StatusFile._write
    other = threading.Thread(target=status.report, args=("configs", {"n": 1}))

    def written(self: StatusFile, state: str, changed: dict[str, Any]) -> None:
        if not other.is_alive() and other.ident is None:
            other.start()
            other.join(0.2)  # it must wait for us
        write(self, state, changed)

    monkeypatch.setattr(StatusFile, "_write", written)
    status.report("groups", {"n": 2})
    other.join()
    assert status.brief()["follows"] == {"groups": {"n": 2}, "configs": {"n": 1}}
