"""Ctrl-C in the middle of the demo leaves nothing behind: no broker, no Airflow, no files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.tools

REPOSITORY = Path(__file__).parents[2]


def test_ctrl_c_while_the_source_is_filled_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "demo", "--bulk-mb", "2"],
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        said = []
        for line in demo.stdout:
            said.append(line)
            if "transactions" in line:  # the clusters are up, Airflow is coming up
                break
        started = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        said.append(demo.stdout.read())
        status = demo.wait(300)
    assert status == 130, "".join(said)
    assert len(started) >= 3, started  # two brokers and Airflow
    _, alive = psutil.wait_procs(started, timeout=240)
    assert alive == []
    # A component of Airflow that starts at this very moment would show up later.
    time.sleep(2)
    mentioning = [p for p in psutil.process_iter(["cmdline", "environ"]) if str(tmp_path) in str(p.info)]
    assert mentioning == []
    assert [p for p in tmp_path.iterdir() if p.name.startswith("airflow-mirror-demo-")] == []
