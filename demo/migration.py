"""Run the migration DAG in Airflow and follow it: what runs, how far the copy is, how long each task took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demo.console import Console, Step
    from sandbox.airflow import AirflowStandalone

DAG_ID = "kafka_migration"
TIMEOUT_S = 900.0
POLL_S = 0.5
FINAL = frozenset({"success", "failed"})
# States in which a task will do no more; "skipped" and "upstream_failed" never did anything.
ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class MigrationFailed(Exception):
    """The DAG run did not succeed; the message has the failed tasks and the ends of their logs."""


@dataclass
class Migration:
    """What is known of a finished run: seconds of each task, and what the tasks returned."""

    seconds: dict[str, float] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)


def migrate(
    airflow: AirflowStandalone, conf: Mapping[str, Any], console: Console, succeeded: Callable[[str], None]
) -> Migration:
    """Trigger the DAG and wait until it ends.

    :param succeeded: called once with the name of each task that succeeded, while the others continue.
    :raises MigrationFailed: when a task failed, or the run took more than a quarter of an hour.
    """
    run_id = airflow.trigger(DAG_ID, conf)
    deadline, seen = time.monotonic() + TIMEOUT_S, set[str]()
    with console.step("migration") as step:
        while True:
            state = airflow.run_state(DAG_ID, run_id)
            tasks = _tasks(airflow, run_id)
            for task in sorted(tasks.values(), key=lambda t: t["end_date"] or "~"):
                if task["state"] in ENDED and task["task_id"] not in seen:
                    seen.add(task["task_id"])
                    _report(console, task)
                    if task["state"] == "success":
                        succeeded(task["task_id"])
            if state in FINAL:
                break
            if time.monotonic() > deadline:
                raise MigrationFailed(f"{DAG_ID} is {state} after {TIMEOUT_S:.0f} s: {_states(tasks)}")
            _say_what_runs(step, tasks, airflow.mirror_home)
            time.sleep(POLL_S)
        if state != "success":
            raise MigrationFailed(_post_mortem(airflow, run_id, tasks))
    return Migration(
        {name: task["duration"] or 0.0 for name, task in tasks.items() if task["state"] == "success"},
        {name: _result(airflow, run_id, name) for name in ("plan", "bulk_copy", "verify", "cutover") if name in tasks},
    )


def _tasks(airflow: AirflowStandalone, run_id: str) -> dict[str, dict[str, Any]]:
    found = airflow.api("GET", f"dags/{DAG_ID}/dagRuns/{run_id}/taskInstances", limit=200)["task_instances"]
    return {task["task_id"]: task for task in found}


def _states(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {name: task["state"] or "none" for name, task in tasks.items()}


def _report(console: Console, task: Mapping[str, Any]) -> None:
    mark = {"success": "✓", "skipped": "-"}.get(task["state"], "✗")
    seconds = f" ({task['duration']:.1f} s)" if task["duration"] and task["state"] != "skipped" else ""
    state = "" if task["state"] == "success" else f": {task['state']}"
    console.say(f"  {mark} {task['task_id']}{state}{seconds}")


def _say_what_runs(step: Step, tasks: Mapping[str, Mapping[str, Any]], mirror_home: Path) -> None:
    active = [task for task in tasks.values() if task["state"] not in (*ENDED, None)]
    parts = [f"{task['task_id']} {task['state']}{_since(task['start_date'])}" for task in active]
    parts += [job_progress(mirror_home, task["task_id"]) for task in active]
    step.note(", ".join(part for part in parts if part) or "waiting for the scheduler")


def _since(start: str | None) -> str:
    if start is None:
        return ""
    began = datetime.fromisoformat(start)
    return f" for {max(0.0, (datetime.now(began.tzinfo) - began).total_seconds()):.0f} s"


def job_progress(mirror_home: Path, task: str) -> str:
    """Return how far a task's Spark job is, from its status file; empty when it has none."""
    if not (files := sorted(mirror_home.glob(f"*/jobs/{task}--*/*/status.json"), key=lambda path: path.stat().st_mtime)):
        return ""
    try:
        status = json.loads(files[-1].read_text(encoding="utf-8"))
    except (OSError, ValueError):  # replaced or removed under our eyes
        return ""
    rows = [row for row in status.get("partitions") or [] if isinstance(row.get("end"), int)]
    total, done = sum(row["end"] for row in rows), sum(min(row.get("position") or 0, row["end"]) for row in rows)
    phase = str(status.get("phase") or "starting")
    return f"{phase}: {done / total:.0%} of {total:,} offsets" if total else phase


def _result(airflow: AirflowStandalone, run_id: str, task: str) -> Any:
    return airflow.xcom(DAG_ID, run_id, task)


def _post_mortem(airflow: AirflowStandalone, run_id: str, tasks: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"{DAG_ID} failed: {_states(tasks)}"]
    for name, task in tasks.items():
        if task["state"] == "failed":
            log = airflow.log(DAG_ID, run_id, name, task["try_number"] or 1)
            lines.append(f"--- end of the log of task {name!r}, try {task['try_number']}")
            lines += [line[:600] for line in log.splitlines()[-15:]]
    return "\n".join(lines)
