"""The hosts of the replication's soak. Two run at any time; each has every task of the DAG, and a disk of its own."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from sandbox import Cluster
from tests.integration.hosts import ROOT, Host
from tests.soak.victims import talks_to

MAIN = Path(__file__).with_name("host_main.py")
# Settings of whoever runs the soak; with the last, each process would compile all modules again.
CLEARED = ("AIRFLOW", "SPARK", "PYTHONDONTWRITEBYTECODE")


class Site(Host):
    """A host on which Airflow has the tail run."""

    def __init__(self, name: str, directory: Path, mirror: Mapping[str, Any], source: Cluster, target: Cluster) -> None:
        self._kept, self.log = directory / f"{name}-tails", directory / f"{name}.log"
        super().__init__(name, directory / name)
        extras = {"SRC": {"bootstrap.servers": source.bootstrap}, "DST": {"bootstrap.servers": target.bootstrap}}
        env = {key: value for key, value in os.environ.items() if not key.startswith(CLEARED)} | {
            f"AIRFLOW_CONN_{name}": json.dumps({"conn_type": "kafka", "extra": extra}) for name, extra in extras.items()
        }
        env |= {
            "AIRFLOW_HOME": str(self.scratch / "airflow"), "AIRFLOW__MIRROR__HOME": str(self.scratch / "home"),
            "AIRFLOW__MIRROR__POLL_INTERVAL": "0.5", "HOME": str(self.scratch), "TMPDIR": str(self.scratch),
            "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost",
        }  # fmt: skip
        self.run([sys.executable, str(MAIN), json.dumps(dict(mirror))], env, self.log)

    def errors(self, since: float) -> list[str]:
        """Return why its runs failed that ended after a time (seconds since the epoch)."""
        found: list[str] = []
        for line in self.log.read_text(errors="replace").splitlines():
            at, _, text = line.partition(" ")
            if at.isdigit():
                found = [*found, text] if int(at) >= since else found
            elif found:
                found[-1] += f"\n{line}"
        return found

    def lose(self) -> None:
        """Kill all that runs on it, at once. What its tails wrote is kept, for people."""
        try:
            for log in self.disk.glob("home/*/jobs/tail/*/log.txt"):
                self._kept.mkdir(exist_ok=True)
                shutil.copy(log, self._kept / f"{log.parent.name}.txt")
        except OSError:
            pass  # it was lost before
        super().lose()

    def kill_one(self, victim: str, ports: set[int], rng: random.Random) -> bool:
        """Kill the tail's ``driver``, or one ``worker`` that copies to one of ``ports``. Return whether there was one."""
        found = []
        for pid in self.pids():
            try:
                line = " ".join((process := psutil.Process(pid)).cmdline())
                is_driver = "run_job.py" in line and "SparkSubmit" not in line
                is_worker = "pyspark.daemon" in line and talks_to(process, ports)
            except psutil.Error:
                continue
            if is_driver if victim == "driver" else is_worker:
                found.append(pid)
        if not found:
            return False
        os.kill(rng.choice(sorted(found)), signal.SIGKILL)
        return True
