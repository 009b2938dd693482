"""The script that spark-submit runs: ``run_job.py <kind> <arguments of the job>``.

It records the driver's process, calls the job's main function, and makes sure that an ended job has a final state.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Python puts this file's directory first on the path; its modules (status, process, ...) must not hide other modules.
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]

import importlib  # noqa: E402
import os  # noqa: E402
import traceback  # noqa: E402

from airflow_mirror.jobs.runner.directory import write_json  # noqa: E402
from airflow_mirror.jobs.runner.process import started_at  # noqa: E402
from airflow_mirror.jobs.runner.status import ensure_final  # noqa: E402

MAINS = {
    "bulk_copy": "airflow_mirror.jobs.driver.bulk",
    "streaming_tail": "airflow_mirror.jobs.driver.tail",
    "verify": "airflow_mirror.jobs.driver.verify",
}


def main(argv: list[str]) -> int:
    """Run the job named by ``argv[0]`` with the rest as its arguments; return its exit code (0, 1 or 2)."""
    kind, rest = argv[0], argv[1:]
    job_dir = _job_dir(rest)
    if job_dir is not None:
        # Spark's JVM started this process; a clean stop has to reach this process first, not the JVM.
        write_json(job_dir / "driver.json", {"pid": os.getpid(), "started": started_at(os.getpid())})
    error: BaseException | None = None
    try:
        code = int(importlib.import_module(MAINS[kind]).main(rest))
    except SystemExit as e:  # raised by argparse for a wrong command line
        code = e.code if isinstance(e.code, int) else int(e.code is not None)
    except BaseException as e:  # the entry point of the process: every error ends here and is recorded
        traceback.print_exc()
        code, error = 1, e
    if job_dir is not None:
        ensure_final(job_dir, code, error)
    return code


def _job_dir(arguments: list[str]) -> Path | None:
    if "--job-dir" not in arguments[:-1]:
        return None
    return Path(arguments[arguments.index("--job-dir") + 1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
