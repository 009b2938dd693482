"""Decisions by many writers on a real broker: none is lost, none is applied twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from airflow_mirror.ledger.deciding import catch_up
from airflow_mirror.ledger.fold import Fold
from airflow_mirror.ledger.log import TOPIC, DecisionLog
from airflow_mirror.wire.cluster import WireCluster
from sandbox import Cluster
from tests.integration.copying import config, create

WRITER = Path(__file__).with_name("ledger_writer.py")
PROCESSES, WRITERS, TIMES = 4, 5, 6


def test_twenty_writers_of_four_processes_lose_no_update(target_cluster: Cluster) -> None:
    """One process after the other is frozen for a while, which makes what it sent late."""
    create(target_cluster, TOPIC, retention_ms="-1", retention_bytes="-1", message_timestamp_type="LogAppendTime")
    command = [sys.executable, str(WRITER), target_cluster.bootstrap, str(WRITERS), str(TIMES)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    try:
        for process in processes * 2:
            time.sleep(0.7)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.7)
            process.send_signal(signal.SIGCONT)
        said = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    fold = Fold()
    with WireCluster(config(target_cluster)) as target:
        catch_up(DecisionLog(target), fold)
    told: Counter[str] = sum((Counter(one["added"]) for one in said), Counter())
    assert fold.values == dict(told) and sum(told.values()) == PROCESSES * WRITERS * TIMES
    took_ms = sorted(ms for one in said for ms in one["took_ms"])
    print(f"median {took_ms[len(took_ms) // 2]} ms, longest {took_ms[-1]} ms, {fold.end} records")
