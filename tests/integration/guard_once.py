"""Stand for the driver of a tail that was deposed: guard a mirror's fence until SIGTERM, and as long as one stands then.

Argument: the mirror. SOURCE and TARGET hold the clusters' settings, CALLED the file in which a call to a person is noted.
"""

from __future__ import annotations

import signal
import sys

from airflow_mirror.config import load
from airflow_mirror.jobs.runner.guarding import guarded


def main(mirror: str) -> None:
    """See the module."""
    stop = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    source, target = load("env:SOURCE", "source"), load("env:TARGET", "target")
    with guarded(source, target, mirror, every_s=5.0, alarm="tests.integration.cutover_once.page", wait_s=120.0) as ready:
        ready()
        print("guards", flush=True)
        signal.sigwait(stop)


if __name__ == "__main__":
    main(sys.argv[1])
