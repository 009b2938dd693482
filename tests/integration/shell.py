"""A shell in which the commands of the docs can be typed: ours, and Kafka's own ``kafka-acls.sh``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from airflow_mirror.jobs.runner.java import find_java
from sandbox import jars

ROOT = Path(__file__).parents[2]


class Shell:
    """Types lines in a directory.

    :ivar said: what the last line printed.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.said = directory, ""
        tools = directory / "bin"
        tools.mkdir()
        java = f"{find_java().executable} -XX:TieredStopAtLevel=1 -cp {jars.classpath('broker', 'tools')}"
        for name, program in {
            "kafka-acls.sh": f"{java} org.apache.kafka.tools.AclCommand",
            "airflow-mirror": f"{sys.executable} -m airflow_mirror.console.main",
        }.items():
            (tools / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
            (tools / name).chmod(0o755)
        self._environment = {
            **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        }  # fmt: skip

    def type(self, text: str) -> int:
        """Run a line, or a script; return its exit status."""
        done = subprocess.run(
            ["sh", "-e", "-c", text], env=self._environment, cwd=self.directory, capture_output=True, text=True
        )
        self.said = done.stdout + done.stderr
        return done.returncode
