"""A ``follow`` that waits for clusters ends well at a signal, and leaves nothing of their settings behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

AWAY = "bootstrap.servers=127.0.0.1:1\n"
_PASSWORD = "sasl.mechanism=PLAIN\nsecurity.protocol=SASL_PLAINTEXT\nsasl.jaas.config="
_PASSWORD += 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hush";\n'


def stopped_while_it_waits(argv: Sequence[str], scratch: Path) -> tuple[int, str]:
    """Return exit status and stdout of a ``follow`` that gets SIGTERM once it has said that it waits."""
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "airflow_mirror.console.main", "follow", *argv]
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if re.search("begins again", line):
                    break
            time.sleep(0.2)  # it is in the pause that follows the line
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out


@pytest.mark.parametrize("kind", ["older", "reverse", "own"])
def test_a_follow_that_only_waited_ends_well_and_leaves_no_settings_behind(tmp_path: Path, kind: str) -> None:
    consumer, producer = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    consumer.write_text(f"{AWAY}group.id=g\n{_PASSWORD}")
    producer.write_text(AWAY)
    own = tmp_path / "own.properties"
    own.write_text(AWAY)
    argv = {
        "older": ["--consumer.config", str(consumer), "--producer.config", str(producer), "--whitelist", "x"],
        "reverse": ["--source", str(own), "--target", str(own), "--reverse-of", "m"],
        "own": ["--source", str(own), "--target", str(own), "--name", "m", "--include", "x"],
    }[kind]
    status, out = stopped_while_it_waits(argv, tmp_path / "scratch")
    assert status == 0, out
    assert json.loads(out.splitlines()[-1])["partitions"] == 0
    assert list((tmp_path / "scratch").glob("airflow-mirror-older-*")) == []
