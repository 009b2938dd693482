"""Two Airflows have the tail of one mirror run: one of them starts it, the other one stays with it, and there is no war.

No schedulers: two processes with homes and metadata of their own run the operator, again whenever it fails. Between them
there is nothing but Kafka. TWO_AIRFLOWS_MINUTES is how long (default: 1).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-mirror-two-"))
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.jobs.runner.active import active_tail, ask_to_stop
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import SIGN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.airflow_worker import Store, Task
from tests.integration.copying import assert_equal, config, create, ends, wait_until, write

pytestmark = pytest.mark.months

WORKER = Path(__file__).with_name("airflow_worker.py")
MINUTES = float(os.environ.get("TWO_AIRFLOWS_MINUTES", "1"))


def test_two_airflows_share_one_tail_without_a_war(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decision, one writer epoch, one copy of each record, however long both look after it."""
    for name, cluster in (("SRC", source_cluster), ("DST", target_cluster)):
        extra = {"bootstrap.servers": cluster.bootstrap}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", str(tmp_path / "planner"))
    create(source_cluster, topic_name, 2)
    write(source_cluster, topic_name, 200, seed=1)
    mirror = {"name": topic_name[-40:], "source": "src", "target": "dst", "topics": [topic_name], "groups": []}
    context = {"ti": Task(), "task_state_store": Store()}
    plan = PlanMirrorOperator(task_id="t", mirror=mirror).execute(context)["hash"]  # type: ignore[arg-type]
    CreateTargetTopicsOperator(task_id="t", mirror=mirror, plan=plan).execute(context)  # type: ignore[arg-type]

    workers = []
    for name in ("one", "two"):
        home = tmp_path / name
        home.mkdir()
        env = os.environ | {"AIRFLOW_HOME": str(home), "AIRFLOW__MIRROR__HOME": str(home / "mirror")}
        log = (home / "log.txt").open("w")
        command = [sys.executable, str(WORKER), json.dumps(mirror), plan]
        workers.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True))
        log.close()
    with ClusterAdmin(config(target_cluster)) as target:
        ledger, lease = Ledger(target), TransactionClient(target.wire, lease_id(mirror["name"]))  # type: ignore[arg-type]
        name = str(mirror["name"])
        try:
            wait_until(lambda: copied(target_cluster, topic_name) >= 200, "the tail copies", 800)
            epochs, jobs, until, seed = set(), set(), time.monotonic() + 60 * MINUTES, 2
            while time.monotonic() < until:
                seen, tail = lease.describe(), active_tail(ledger.values(), name)
                assert seen is not None and tail is not None
                epochs.add((seen.producer_id, seen.epoch))
                jobs.add(tail.job)
                write(source_cluster, topic_name, 20, seed=seed)
                seed += 1
                time.sleep(1)
            assert (len(epochs), len(jobs)) == (1, 1)
            assert ledger._fold.version(f"active/{name}") == 1, "one decision was made, and never another"
            assert [worker.poll() for worker in workers] == [None, None], "both stay with it"
            total = sum(end for _, _, end in ends(source_cluster, topic_name, 2).values())
            wait_until(lambda: copied(target_cluster, topic_name) == total, "all is copied")
            ask_to_stop(state_of(target, SIGN.below(name)), name, jobs.pop(), "the test")
            said = [worker.communicate(timeout=300)[0].splitlines() for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    # Airflow logs to stdout, too.
    assert [json.loads(lines[-1])["tail"] for lines in said] == ["SUCCEEDED"] * 2
    assert [line for lines in said for line in lines if line.startswith("failed: ")] == []
    assert_equal(source_cluster, target_cluster, topic_name, 2)


def copied(cluster: Cluster, topic: str) -> int:
    return sum(end for _, _, end in ends(cluster, topic, 2).values())
