"""Applications in Java that know MirrorMaker 2's classes and nothing of ours, compiled once a session."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from airflow_mirror.jobs.runner.java import find_java
from sandbox import jars
from sandbox.versions import TOOLS_VERSION

_TESTS = Path(__file__).parents[1]
_SOURCES = (*sorted((_TESTS / "java").glob("*.java")), _TESTS.parent / "docs" / "examples" / "FailOver.java")
_QUIET = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128M", "-XX:-UsePerfData")


def compiled(directory: Path) -> str:
    """Compile the classes below ``directory``; return a class path of them and of Kafka's."""
    javac = find_java().home / "bin" / "javac"
    assert javac.exists(), f"{javac} is missing: the tests with Java clients need a JDK, not only a runtime"
    classpath = jars.classpath("broker", "tools", version=TOOLS_VERSION)
    command = [str(javac), "-J-XX:TieredStopAtLevel=1", "-cp", classpath, "-d", str(directory)]
    done = subprocess.run([*command, *map(str, _SOURCES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return os.pathsep.join((str(directory), classpath))


def run(classpath: str, name: str, *arguments: str) -> list[list[str]]:
    """Run a class to its end and return the words of each line that has several."""
    return [line.split("\t") for line in output(classpath, name, *arguments) if "\t" in line]


def output(classpath: str, name: str, *arguments: str) -> list[str]:
    """Run a class to its end and return the lines that it has printed."""
    command = [str(find_java().executable), *_QUIET, "-cp", classpath, name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


class JavaClient:
    """The process of ``JavaClient.java``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, *words: object) -> list[list[str]]:
        """Give a command and return the words of each line of the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, sep="\t", file=self._process.stdin, flush=True)
        lines: list[list[str]] = []
        for line in self._process.stdout:
            if line == "done\n":
                return lines
            lines.append(line.removesuffix("\n").split("\t"))
        raise AssertionError(f"the Java client has ended at {words}")

    def clusters(self, alias: str) -> dict[str, list[str]]:
        """Return what MirrorClient finds out about an upstream cluster."""
        return {what: [name for name in found if name] for what, *found in self.ask("clusters", alias)}

    def offsets(self, alias: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Return offset and metadata by topic and partition, as RemoteClusterUtils translates them."""
        return {
            (topic, int(partition)): (int(offset), metadata)
            for topic, partition, offset, metadata in self.ask("offsets", alias, group)
        }


@contextmanager
def java_client(classpath: str, bootstrap: str, settings: Mapping[str, str]) -> Iterator[JavaClient]:
    """Run the application with the settings of a MirrorClient on the target."""
    command = [str(find_java().executable), *_QUIET, "-cp", classpath, "JavaClient", f"bootstrap.servers={bootstrap}"]
    with subprocess.Popen(
        [*command, *(f"{key}={value}" for key, value in settings.items())],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield JavaClient(process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()
