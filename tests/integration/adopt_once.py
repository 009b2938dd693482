"""Run ``airflow-mirror adopt`` in a process of its own, which kills itself (SIGKILL) at one of its effects.

``python -m tests.integration.adopt_once EFFECT before|after ARGUMENTS...``
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from airflow_mirror.console.main import main
from airflow_mirror.copy.offsets.store import MapStore
from airflow_mirror.copy.writer import lease
from airflow_mirror.extras.adopt import take
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan import ledger_store

EFFECTS: dict[str, tuple[Any, str]] = {
    "lease": (lease, "take"),
    "maps": (MapStore, "adopt"),
    "decision": (take, "claim"),
    "plan": (ledger_store, "keep"),
    "release": (lease, "release"),
    "groups": (ClusterAdmin, "commit_groups"),
}


def deadly(effect: Callable[..., Any], moment: str) -> Callable[..., Any]:
    def dies(*given: Any, **named: Any) -> None:
        if moment == "after":
            effect(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    return dies


if __name__ == "__main__":
    owner, name = EFFECTS[sys.argv[1]]
    setattr(owner, name, deadly(getattr(owner, name), sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
