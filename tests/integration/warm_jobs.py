"""Jobs in a Spark that runs already: for tests which need what a job does, not how it starts.

``python warm_jobs.py`` runs the job that each line on stdin names, one after the other, in one Spark session. A job stops
its session at the end, as it has to; here the session stays for the next one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from airflow_mirror.common import signals

ROOT = Path(__file__).parents[2]
_PATIENCE_S = 600.0


class WarmJobs:
    """The process, from the side of the tests.

    :param directory: for its own log and Spark's files.
    """

    def __init__(self, directory: Path) -> None:
        from airflow_mirror.jobs.runner.java import java_home_for_spark

        self._log = (directory / "warm.log").open("wb")
        env = os.environ | {
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_DIRS": str(directory),
            "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip

    def run(self, job: str, *arguments: str, log: Path) -> int:
        """Run a job (``bulk``, ``verify``) and return its exit status; what it prints goes to ``log``."""
        self.start(job, *arguments, log=log)
        return self.status()

    def start(self, job: str, *arguments: str, log: Path) -> None:
        """Start a job that does not end by itself (``tail``); :meth:`status` waits for its end."""
        assert self._process.stdin is not None
        print(json.dumps([job, arguments, str(log)]), file=self._process.stdin, flush=True)

    def status(self) -> int:
        """Wait for the job's end and return its exit status."""
        assert self._process.stdout is not None
        too_late = threading.Timer(_PATIENCE_S, self._process.kill)
        too_late.start()
        try:
            return int(self._process.stdout.readline())
        finally:
            too_late.cancel()

    def stop(self) -> int:
        """Ask a tail to stop, as its user would; return its exit status. Its handler must be there: it copies."""
        self._process.send_signal(signal.SIGTERM)
        return self.status()

    def close(self) -> None:
        """Let the process end."""
        self._process.communicate(timeout=120)
        self._log.close()


def serve() -> None:
    """Run jobs until stdin ends."""
    from pyspark import SparkContext

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    context = SparkContext.getOrCreate()  # now: its JVM must not write into the log of the first job
    stop, SparkContext.stop = SparkContext.stop, lambda _: None  # type: ignore[method-assign]
    try:
        for line in sys.stdin:
            job, arguments, log = json.loads(line)
            with Path(log).open("wb") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
            print(_run(job, arguments), file=answers)
    finally:
        stop(context)


def _run(job: str, arguments: Sequence[str]) -> int:
    # A process of its own is asked to end once, for good; this one runs the next job all the same.
    signals._asked_to_stop.clear()
    try:
        return int(importlib.import_module(f"airflow_mirror.jobs.driver.{job}").main(arguments))
    except SystemExit as e:  # a wrong command line
        return e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    serve()
