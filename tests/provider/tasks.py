"""What tests of tasks share: how Airflow runs one, and another plan of its mirror."""

from __future__ import annotations

import signal
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from airflow.sdk.execution_time import task_runner

from tests.provider.conftest import store_plan


def the_time_is_over(*_: Any, **__: Any) -> bool:
    """Do now what the timer does that Airflow sets for an execution timeout."""
    signal.raise_signal(signal.SIGALRM)
    return True


def by_airflow(task: Any, context: dict[str, Any]) -> None:
    ti: Any = SimpleNamespace(task=task, _ti_context_from_server=None)
    task_runner._execute_task(context, ti, task_runner.log)  # type: ignore[arg-type]


def planned_again(plan: Any, home: Any, *, topic_id: str = "id-1") -> Any:
    """Another plan of the mirror: same topics, unless one was created again."""
    topic = replace(plan.topics[0], source_topic_id=topic_id, ends={0: 50, 1: 50})
    return store_plan(home, replace(plan, topics=(topic,))).hash
