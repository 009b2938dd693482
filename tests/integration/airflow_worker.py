"""A worker of an Airflow of its own: has a mirror's tail run, attached, and starts the task again whenever it fails.

Usage: ``python airflow_worker.py MIRROR PLAN``, the mirror as JSON. Connections and home come from the environment.
Prints one line for each task: ``failed ...``, or the tail that was stopped as JSON, and ends with that.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

from airflow_mirror.operators.mirror import StartMirrorOperator

_PAUSE_S = 1.0


class Task:
    """What an operator needs to know about its task."""

    dag_id, task_id, run_id, map_index, try_number = "replication", "tail", "manual__1", -1, 1
    stats_tags: dict[str, str] = {}

    def xcom_push(self, key: str, value: object) -> None:
        """Nobody reads it."""


class Store(dict[str, Any]):
    """A task's state."""

    def set(self, key: str, value: Any, **_: Any) -> None:
        """Set a value."""
        self[key] = value

    def delete(self, key: str) -> None:
        """Remove a value."""
        self.pop(key, None)


def main(mirror: dict[str, Any], plan: str) -> None:
    """See the module."""
    logging.basicConfig(level=logging.INFO)
    while True:
        context: Any = {"ti": Task(), "task_state_store": Store()}
        try:
            stopped = StartMirrorOperator(
                task_id="tail", mirror=mirror, plan=plan, mode="tail", attached=True, start_timeout_s=800
            ).execute(context)
        except Exception as e:
            print(f"failed: {e}", flush=True)
            time.sleep(_PAUSE_S)
        else:
            print(json.dumps(stopped), flush=True)
            return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2])
