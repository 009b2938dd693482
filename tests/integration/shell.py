"""A shell in which the commands of the docs can be typed: ours, and some of Kafka's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_mirror.jobs.runner.java import find_java
from sandbox import jars
from sandbox.versions import TOOLS_VERSION

ROOT = Path(__file__).parents[2]


def commands_of(page: str, heading: str, names: Mapping[str, str]) -> list[str]:
    """The commands of a section of a page.

    :param names: what stands there for what the test has, as expressions.
    """
    (section,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    for name, ours in names.items():
        lines = [re.sub(name, ours, line) for line in lines]
    return lines


def sections_with_commands(page: str) -> set[str]:
    """The headings of a page below which there are commands to type."""
    sections = re.split(r"^#+ (.*)\n", page, flags=re.MULTILINE)
    return {
        heading
        for heading, text in zip(sections[1::2], sections[2::2], strict=True)
        if re.search(r"^```\n(?:airflow-mirror|kafka-)", text, re.MULTILINE)
    }


class Shell:
    """Types lines in a directory.

    :ivar said: what the last line printed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.said = directory, ""
        tools = directory / "bin"
        tools.mkdir()
        classpath = jars.classpath("broker", "tools", version=TOOLS_VERSION)
        java = f"{find_java().executable} -XX:TieredStopAtLevel=1 -cp {classpath}"
        for name, program in {
            "kafka-acls.sh": f"{java} org.apache.kafka.tools.AclCommand",
            "kafka-dump-log.sh": f"{java} org.apache.kafka.tools.DumpLogSegments",
            "airflow-mirror": f"{sys.executable} -m airflow_mirror.console.main",
        }.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            (tools / name).chmod(0o755)
        self._environment = {
            **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        }  # fmt: skip

    def start(self, text: str) -> subprocess.Popen[str]:
        """Begin a line, and let it run."""
        return subprocess.Popen(
            ["sh", "-e", "-c", f"exec {text}"], env=self._environment, cwd=self.directory, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def type(self, text: str) -> int:
        """Run a line, or a script; return its exit status."""
        done = subprocess.run(
            ["sh", "-e", "-c", text], env=self._environment, cwd=self.directory, capture_output=True, text=True
        )
        self.said = done.stdout + done.stderr
        return done.returncode
