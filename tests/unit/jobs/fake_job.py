"""A job without Spark: reports like a real one, and behaves as its last arguments say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from airflow_mirror.errors import InvalidField, NeedsHuman
from airflow_mirror.jobs.runner.status import StatusFile

arguments = sys.argv[1:]
job_dir = Path(json.loads(Path(arguments[1]).read_text())["job_dir"])
behaviour = arguments[-1]

if behaviour == "slow_to_report":
    time.sleep(60)
status = StatusFile(job_dir)
if behaviour.startswith(("polite", "copying")):
    from airflow_mirror.jobs.runner.directory import write_json
    from airflow_mirror.jobs.runner.process import started_at

    def stop(*_: object) -> None:
        status.succeed({"stopped": "cleanly"})
        sys.exit(0)

    # Before driver.json: whoever finds the file may send the signal at once.
    signal.signal(signal.SIGTERM, stop)
    write_json(job_dir / "driver.json", {"pid": os.getpid(), "started": started_at(os.getpid())})
if behaviour in ("stubborn_worker", "copying_with_worker"):
    # As Spark's Python workers do: another process group, and deaf to SIGTERM.
    code = "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", code])
if behaviour.startswith("copying"):
    status.update("copying")
if behaviour == "quick":
    status.succeed({"records": 7, "kind": arguments[0], "source": "AIRFLOW_MIRROR_SOURCE" in os.environ})
elif behaviour == "wrong_input":
    status.fail(InvalidField("topics", "[", "not a pattern", "Correct it."))
elif behaviour == "damaged":
    status.fail(NeedsHuman("t-0 offsets [3, 9): foreign data. Look at it."))
elif behaviour == "broken":
    status.fail("a broker was down")
elif behaviour == "mute":
    pass
else:
    time.sleep(60)
