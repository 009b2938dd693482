"""The directory of one job, with a numbered subdirectory per start (a *generation*).

``<mirror>/jobs/<name>/<generation>/`` holds spec.json, request.json, job.json (pid, start tick, host), log.txt and
status.json. A generation is never reused: a job that ended keeps its evidence, and the next start gets the next number.
All files are replaced atomically, so a reader sees the old or the new one and never half of it. None of them holds a
secret.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

from airflow_mirror.common.files import replace_file
from airflow_mirror.jobs.runner.spec import JobSpec

# Held from before a job's first process exists (it inherits the lock) until the last process that inherited it ends.
LAUNCH_LOCK = "launch.lock"
SPARK = "spark"  # what a local Spark, and a driver of this host, keep while they run
_LONGEST, _DIGITS = 200, 16  # of a job's name, of 255 that file systems take; of its digest


def job_name(*parts: str | int) -> str:
    """Return a directory name made of ``parts`` (DAG, task, run, map index): the same parts, the same name.

    What tells tasks of long names apart, the run and the map index, stands last: a name that is cut ends with a digest.
    """
    whole = "--".join(str(p) for p in parts if p not in ("", -1))
    name = re.sub(r"[^A-Za-z0-9._+-]+", "_", whole)
    if len(name) > _LONGEST:
        digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGITS]
        name = f"{name[: _LONGEST - _DIGITS - 1]}-{digest}"
    return name.strip(".") or "_"


def generations(job: Path) -> list[int]:
    """Return the numbers of the starts of the job in directory ``job``, ascending."""
    if not job.is_dir():
        return []
    return sorted(int(p.name) for p in job.iterdir() if p.name.isdigit())


def latest(job: Path) -> Path | None:
    """Return the directory of the last start, or None."""
    numbers = generations(job)
    return job / str(numbers[-1]) if numbers else None


def open_generation(job: Path, spec: JobSpec) -> Path:
    """Make the directory of the next start, with the spec in it.

    :raises FileExistsError: somebody else makes the same one; callers hold the lock of all jobs, so that is a bug.
    """
    numbers = generations(job)
    directory = job / str(numbers[-1] + 1 if numbers else 1)
    directory.mkdir(parents=True)
    # The id is chosen before anything runs, so that a job can be found by it whenever its starter dies.
    write_json(directory / "spec.json", {**spec.to_dict(), "hash": spec.hash, "id": uuid.uuid4().hex})
    return directory


def spark_path(path: Path) -> str:
    """Return a directory of this host as Spark's settings and options name it.

    Without a scheme it might lie in the cluster's file system. Nothing is escaped: Hadoop takes an escape for a part of
    the name.

    :param path: an absolute one.
    """
    return f"file://{path}"


def write_json(path: Path, value: Any) -> None:
    """Replace ``path`` by ``value`` as JSON, atomically."""
    write_text(path, json.dumps(value, indent=1, default=str))


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, atomically."""
    replace_file(path, text, durable=False)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in ``path``; None if it is missing or unreadable."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
