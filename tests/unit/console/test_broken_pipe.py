"""A command whose reader has gone may not have been done: that is no success."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_reader_that_has_gone_is_no_success_and_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    file = ROOT / "docs" / "examples" / "connect-mirror-maker.properties"
    command = [sys.executable, "-m", "airflow_mirror.console.main", "import-mm2", str(file)]
    done = subprocess.run(
        command, stdout=write, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE and done.stderr == ""
