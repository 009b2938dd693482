"""What a host of the replication's soak runs: the tasks of the DAG ``kafka_replication``, as its schedule would.

python tests/soak/host_main.py MIRROR_AS_JSON
"""

from __future__ import annotations

import json
import logging
import sys
import time
from types import SimpleNamespace
from typing import Any

from airflow_mirror.hooks.tail import replicates
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator

EVERY_S = 5.0  # the DAG's schedule begins a run every five minutes
_PATIENCE_S = 600.0


def have_the_tail_run(mirror: dict[str, Any]) -> None:
    """One run of the DAG."""

    task_instance = SimpleNamespace(dag_id="soak", run_id="soak", xcom_push=lambda **_: None)

    def run(operator: Any, **given: Any) -> Any:
        context: Any = {"ti": task_instance}
        return operator(task_id="soak", mirror=mirror, **given).execute(context)

    lives, lost = replicates(Mirror.from_dict(mirror))
    if lives:
        return
    plan = run(PlanMirrorOperator)["hash"]
    run(CreateTargetTopicsOperator, plan=plan)
    run(SyncTopicConfigsOperator, plan=plan, hold=True)
    started = run(StartMirrorOperator, plan=plan, mode="tail", start_timeout_s=_PATIENCE_S, replaces=lost)
    print(f"{time.time():.0f} runs on {started['host']}", flush=True)


def main() -> None:
    """Run the DAG until killed. A run that fails is followed by the next one."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    mirror = json.loads(sys.argv[1])
    while True:
        try:
            have_the_tail_run(mirror)
        except Exception as e:
            print(f"{time.time():.0f} {type(e).__name__}: {e}", flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
