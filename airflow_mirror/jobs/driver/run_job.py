"""The script that spark-submit runs: ``run_job.py <kind> <file of its request>``.

It records the driver's process, carries out the request, and makes sure that an ended job has a final state.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Python puts this file's directory first on the path; its modules (status, process, ...) must not hide other modules.
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]

import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import traceback  # noqa: E402
from functools import partial  # noqa: E402
from typing import Any  # noqa: E402

from airflow_mirror.jobs.runner.directory import write_json  # noqa: E402
from airflow_mirror.jobs.runner.process import started_at  # noqa: E402
from airflow_mirror.jobs.runner.status import ensure_final  # noqa: E402

WORK = {
    "bulk_copy": "airflow_mirror.jobs.driver.bulk",
    "streaming_tail": "airflow_mirror.jobs.driver.tail",
    "verify": "airflow_mirror.jobs.driver.verify",
    "plain": "airflow_mirror.jobs.plain.run",  # a tail without Spark
}


def main(argv: list[str]) -> int:
    """Run the job of this kind and request; return its exit code (0, 1 or 2)."""
    kind, file = argv
    asked = json.loads(Path(file).read_text(encoding="utf-8"))
    job_dir = Path(asked["job_dir"]) if asked.get("job_dir") else None
    if job_dir is not None:
        # Spark's JVM started this process; a clean stop has to reach this process first, not the JVM.
        write_json(job_dir / "driver.json", {"pid": os.getpid(), "started": started_at(os.getpid())})
    error: BaseException | None = None
    try:
        code = _carried_out(kind, asked)
    except BaseException as e:  # the entry point of the process: every error ends here and is recorded
        traceback.print_exc()
        code, error = 1, e
    if job_dir is not None:
        ensure_final(job_dir, code, error)
    return code


def _carried_out(kind: str, asked: dict[str, Any]) -> int:
    from airflow_mirror.jobs.driver.entry import Told, carry_out
    from airflow_mirror.jobs.request import REQUESTS, TailRequest

    work = importlib.import_module(WORK[kind]).work
    return carry_out(partial(REQUESTS.get(kind, TailRequest).from_dict, asked), work, Told.by(asked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
