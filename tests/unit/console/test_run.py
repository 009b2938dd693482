"""``run FILE``: what it starts, and what its first lines say."""

from __future__ import annotations

import re
import threading
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.console import run
from airflow_mirror.console.main import main
from airflow_mirror.jobs.runner.keeping import Kept
from airflow_mirror.jobs.runner.plain import PlainProcesses
from airflow_mirror.jobs.runner.spec import JobSpec
from tests.waiting import wait_until

FILE = """
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
B->A.enabled = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    return path


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, JobSpec]]:
    """What would be kept running: runner and spec by the mirror's name."""
    found: dict[str, tuple[Any, JobSpec]] = {}

    def keep(runner: Any, spec: JobSpec, *_: Any, **__: Any) -> Kept:
        found[str(spec.mirror["name"])] = runner, spec
        return Kept(str(spec.mirror["name"]), 0)

    monkeypatch.setattr(run, "keep", keep)
    return found


def started(file: Path, tmp_path: Path, *arguments: str) -> int:
    return main(["run", str(file), "--home", str(tmp_path / "home"), *arguments])


def test_plain_processes_copy_and_the_first_line_says_so(
    file: Path, tmp_path: Path, kept: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"{FILE}B.producer.compression.type = gzip\nA->B.emit.heartbeats = false\n")
    assert started(file, tmp_path) == 0
    assert {name: type(runner.place) for name, (runner, _) in kept.items()} == {
        "A-to-B": PlainProcesses, "B-to-A": PlainProcesses,
    }  # fmt: skip
    first, second, *dropped = capsys.readouterr().err.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d engine: plain Python processes", first) and "--engine spark" in first
    assert "retention: on hold" in second
    assert [line.partition(": without effect")[0].split()[2] for line in dropped] == [
        "B.producer.compression.type", "A->B.emit.heartbeats",
    ]  # fmt: skip


def test_each_value_that_is_another_one_here_is_said_in_the_first_lines(
    tmp_path: Path, kept: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """An interval of two hours became one of an hour without a word."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        re.sub(r"\bA\b", "A.1", FILE)
        + "A.1->B.refresh.topics.interval.seconds = 7200\nsync.topic.acls.interval.seconds = 5\n"
        "sync.topic.configs.interval.seconds = 0\nemit.checkpoints.interval.seconds = 3600\n"
        "sync.group.offsets.interval.seconds = -1\nreplication.factor = -1\n"
    )  # fmt: skip
    assert started(file, tmp_path) == 0
    assert [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()[2:]] == [
        "A.1->B.refresh.topics.interval.seconds: mapped: topic_interval_s: 3600 here, from a second to an hour",
        "sync.topic.acls.interval.seconds: mapped: acl_interval_s: 60 here, from a minute to an hour",
        "sync.topic.configs.interval.seconds: mapped: config_interval_s: 1 here, from a second to an hour",
        "replication.factor: mapped: replication_factor: a new topic has as many replicas as on the source, where "
        "MirrorMaker leaves that to the target's broker",
        "A.1->B.emit.heartbeats.enabled (absent): mapped: none: the alias makes no topics in which Java clients would "
        "look for this cluster",
    ]  # fmt: skip
    spec = kept["A.1-to-B"][1].mirror
    assert (spec["topic_interval_s"], spec["acl_interval_s"], spec["config_interval_s"]) == (3600.0, 60.0, 1.0)
    assert (spec["checkpoint_interval_s"], spec["sync_groups"]) == (3600.0, False)


def test_topics_of_its_own_are_put_on_hold_as_after_an_adoption(
    file: Path, tmp_path: Path, kept: dict[str, Any]
) -> None:  # fmt: skip
    """They have the retention that MirrorMaker gave them. The page's last step was refused for want of an option."""
    assert started(file, tmp_path) == 0
    assert all(spec.options == {"hold": True} for _, spec in kept.values())


def test_what_it_always_does_is_no_option(
    file: Path, tmp_path: Path, kept: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """``--hold`` was taken, and did nothing."""
    with pytest.raises(SystemExit, match="2"):
        started(file, tmp_path, "--hold")
    assert "there is no option '--hold'." in capsys.readouterr().err and not kept


def test_every_flow_has_its_figures(file: Path, tmp_path: Path, kept: dict[str, Any]) -> None:
    assert started(file, tmp_path, "--metrics-dir", str(tmp_path)) == 0
    assert {name: spec.metrics for name, (_, spec) in kept.items()} == {
        name: str(tmp_path / f"{name}.prom") for name in ("A-to-B", "B-to-A")
    }


def test_figures_of_all_flows_are_at_one_port(
    file: Path, tmp_path: Path, kept: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def keep(_: Any, spec: JobSpec, *__: Any, **___: Any) -> Kept:
        name = str(spec.mirror["name"])
        Path(spec.metrics).parent.mkdir(parents=True)
        Path(spec.metrics).write_text(f'# HELP x It.\n# TYPE x gauge\nx{{mirror="{name}"}} 1.0\n')
        written.wait()
        if name == "A-to-B":
            (line,) = [line for line in capsys.readouterr().err.splitlines() if " figures: " in line]
            with urllib.request.urlopen(line.rpartition(" ")[2], timeout=60) as answer:
                found.extend(answer.read().decode().splitlines())
        return Kept(name, 0)

    written, found = threading.Barrier(2), list[str]()
    monkeypatch.setattr(run, "keep", keep)
    assert started(file, tmp_path, "--metrics-port", "0") == 0
    assert found == ["# HELP x It.", "# TYPE x gauge", 'x{mirror="A-to-B"} 1.0', 'x{mirror="B-to-A"} 1.0']


def test_spark_copies_where_it_is_asked_for(
    file: Path, tmp_path: Path, kept: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert started(file, tmp_path, "--engine", "spark") == 0
    assert {runner.place.name for runner, _ in kept.values()} == {"client"}
    assert "engine: Spark on this host, with a JVM for each flow" in capsys.readouterr().err.splitlines()[0]


def test_a_flow_that_is_kept_no_more_says_so_in_its_figures(file: Path, tmp_path: Path, kept: dict[str, Any]) -> None:
    """A tail that was killed could not say it, and its last figures were shown as those of a running one."""
    figures = tmp_path / "A-to-B.prom"
    said = (
        'airflow_mirror_job_running{kind="streaming_tail",mirror="A-to-B"} 1.0\nairflow_mirror_lag{mirror="A-to-B"} 1.0\n'
    )
    figures.write_text(said)
    assert started(file, tmp_path, "--metrics-dir", str(tmp_path)) == 0
    assert figures.read_text() == said.replace("} 1.0", "} 0.0", 1)
    assert not (tmp_path / "B-to-A.prom").exists(), "that one never began"


def test_flow_that_a_mistake_ends_is_told_while_the_others_go_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told once all the others had ended: months later."""
    said, heard = list[str](), list[str]()

    def keep(_: Any, spec: JobSpec, *__: Any, **___: Any) -> Kept:
        if spec.mirror["name"] == "A-to-B":
            raise RuntimeError("can't start new thread")
        line = "A->B: given up: RuntimeError: can't start new thread\n"
        wait_until(lambda: said.append(capsys.readouterr().err) or line in "".join(said))  # type: ignore[func-returns-value]
        heard.append(line)
        return Kept(str(spec.mirror["name"]), 0)

    monkeypatch.setattr(run, "keep", keep)
    with pytest.raises(RuntimeError):
        started(file, tmp_path)
    assert heard


def test_log_without_room_ends_no_flow(file: Path, tmp_path: Path, kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=write, flush=lambda: None))
    assert started(file, tmp_path) == 0 and len(kept) == 2


def test_each_start_of_a_tail_takes_the_password_that_the_file_has_by_then(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(password: str) -> None:
        jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="m" password="{password}";'
        login = f"B.security.protocol = SASL_PLAINTEXT\nB.sasl.mechanism = PLAIN\nB.sasl.jaas.config = {jaas}\n"
        file.write_text(f"{FILE.replace('B->A.enabled = true', '')}{login}")

    found = list[str | None]()

    def keep(runner: Any, spec: JobSpec, secrets: Any, *_: Any, **__: Any) -> Kept:
        for change in (lambda: None, lambda: write("hunter-new"), lambda: file.write_text("B->")):
            change()
            found.append(secrets()["target"].properties.get("sasl.password"))
        return Kept("m", 0)

    write("hunter-old")
    monkeypatch.setattr(run, "keep", keep)
    assert started(file, tmp_path) == 0
    assert found == ["hunter-old", "hunter-new", "hunter-old"]
    said = capsys.readouterr().err
    assert "those of the start are used" in said and "hunter" not in said


def test_user_without_a_home_directory_is_asked_for_one(
    file: Path, tmp_path: Path, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Containers have such users. Even --help and --home ended in a traceback."""

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    for command in ("run", "status"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
    assert started(file, tmp_path) == 0 and kept
    kept.clear()
    assert main(["run", str(file)]) == 2 and not kept
    assert "has no home directory" in (told := capsys.readouterr().err) and "Give --home" in told
