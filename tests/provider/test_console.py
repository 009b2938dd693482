"""Commands where Airflow is installed: connections by their ids, and nothing of Airflow's in what is printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def test_airflows_log_is_not_in_what_a_command_prints() -> None:
    """It is set up on standard output, between the lines of a command and in its JSON."""
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:2"}}
    program = (
        "import logging\n"
        "from airflow_mirror.console.main import main\n"
        "main(['ledger', 'show', '--target', 'there'])\n"
        "logging.getLogger('airflow_mirror.x').warning('said on the way')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240,
        env={**os.environ, "AIRFLOW_CONN_THERE": json.dumps(connection)},
    )  # fmt: skip
    assert done.stdout == "" and "said on the way" in done.stderr and "no broker at 127.0.0.1:2" in done.stderr
