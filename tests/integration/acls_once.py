"""Let rules follow a mirror once, in a process of its own that others can kill.

Arguments: plan file, phase. SOURCE and TARGET hold the clusters' settings.
"""

from __future__ import annotations

import sys
from pathlib import Path

from airflow_mirror.config import load
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.acls import AclOptions, sync_acls
from tests.builders import granted_freely

if __name__ == "__main__":
    with ClusterAdmin(load("env:SOURCE", "source")) as source, ClusterAdmin(load("env:TARGET", "target")) as target:
        how = AclOptions(phase=sys.argv[2], open_to_all=False)
        sync_acls(Plan.load(Path(sys.argv[1])), source, target, how, granted=granted_freely)
