"""Writers of decisions in many processes while everything goes wrong around them, in one run on three real nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.errors import LedgerLost, MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.fold import Fold, Verdict
from airflow_mirror.ledger.log import DecisionLog
from airflow_mirror.wire.cluster import WireCluster
from tests.faults import ProxiedNodes
from tests.integration.copying import config, wait_until
from tests.integration.ledger_writer import STEPS

pytestmark = pytest.mark.faults

WRITER = Path(__file__).with_name("ledger_writer.py")
WRITERS, TIMES = 5, 8  # in each of four processes
OVERTAKEN = 5  # decisions of others, while a process stands still
LOG = TopicPartition(DECISIONS, 0)


class Reader(threading.Thread):
    """Reads on, all the time.

    :ivar verdicts: of each offset. :ivar looks: how often it has read to the end.
    """

    def __init__(self, cluster: ProxiedNodes) -> None:
        super().__init__(daemon=True)
        self._cluster, self._over = cluster, threading.Event()
        self.fold, self.verdicts, self.looks = Fold(), dict[int, Verdict](), 0
        self.broken: list[Exception] = []
        self.start()

    def run(self) -> None:
        with WireCluster(config(self._cluster)) as target:
            log = DecisionLog(target)
            while not self._over.wait(0.1):
                try:
                    for offset, value, appended_ms in log.read(self.fold.end):
                        self.verdicts[offset] = self.fold.apply(offset, value, appended_ms)
                    self.looks += 1
                except MirrorError as e:
                    if isinstance(e, LedgerLost):
                        self.broken.append(e)

    def end(self) -> None:
        self._over.set()
        self.join(60)


@pytest.fixture
def cluster() -> Iterator[ProxiedNodes]:
    with ProxiedNodes("hardship", heap_mb=384, ready_timeout_s=240) as cluster:
        yield cluster


def leader(cluster: ProxiedNodes) -> int:
    with WireCluster(config(cluster)) as target:
        target.refresh([DECISIONS])
        return target.leader(LOG).node_id


def stands_still(process: subprocess.Popen[str]) -> bool:
    """Whether it has stopped itself."""
    state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T" or process.poll() is not None


def lose_answers(cluster: ProxiedNodes) -> None:
    """What was sent arrives; nobody hears the answer."""
    for proxy in cluster.proxies:
        proxy.hold()
    time.sleep(0.3)
    for proxy in cluster.proxies:
        proxy.cut_clients()
        proxy.release()


@pytest.mark.parametrize("frozen_s", [3, 60])
def test_no_update_is_lost_and_none_applied_twice(cluster: ProxiedNodes, frozen_s: float) -> None:
    """Twenty writers of four processes, three of which stop in the middle of a decision until others have overtaken them.

    Meanwhile answers are lost, the leader is killed, and no node may be missing, so that nothing can be written. All
    readers give every record the same verdict, and once all is well each knows a decision with its next look.
    """
    with ClusterAdmin(config(cluster)) as admin:
        Ledger(admin).create()
        readers = [Reader(cluster) for _ in range(3)]
        command = [sys.executable, str(WRITER), cluster.bootstrap, str(WRITERS), str(TIMES)]
        steps, freed = [*STEPS, ""], list[threading.Thread]()
        processes = [subprocess.Popen([*command, step], stdout=subprocess.PIPE, text=True) for step in steps]
        try:
            freed += [thaw(process, readers[0], frozen_s) for process in processes[: len(STEPS)]]
            for _ in range(3):
                lose_answers(cluster)
            killed = leader(cluster)
            cluster.kill(killed)
            wait_until(lambda: requires_all_nodes(admin), "nothing can be written")
            lose_answers(cluster)
            time.sleep(frozen_s)
            cluster.restart(killed)
            cluster.wait_ready([killed])
            said = [json.loads(process.communicate(timeout=500)[0]) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
            for thread in freed:
                thread.join()
        decided = Ledger(admin)
        decided.decide(lambda values: {"after": values.get("after", 0) + 1})
        told: Counter[str] = sum((Counter(one["added"]) for one in said), Counter())
        values = decided.values()
    before = [reader.looks for reader in readers]
    end = decided._fold.end
    for reader, looks in zip(readers, before, strict=True):
        wait_until(lambda reader=reader, looks=looks: reader.looks >= looks + 2, "a look that began after the decision")
        assert reader.fold.end >= end
        reader.end()
    assert {key: values[key] for key in told} == dict(told) and sum(told.values()) == len(steps) * WRITERS * TIMES
    assert [reader.broken for reader in readers] == [[], [], []]
    assert readers[0].verdicts == readers[1].verdicts == readers[2].verdicts
    assert {reader.fold.end for reader in readers} == {len(readers[0].verdicts)}
    assert readers[0].fold.values == dict(values)
    print(Counter(verdict.value for verdict in readers[0].verdicts.values()))


def requires_all_nodes(admin: ClusterAdmin) -> bool:
    """Whether the topic takes no record while a node is missing; sets it so. The cluster may be electing just now."""
    with suppress(MirrorError):
        admin.alter_topic_configs(DECISIONS, unfenced, {"min.insync.replicas": "3"})
        return admin.topic_configs([DECISIONS])[DECISIONS]["min.insync.replicas"].value == "3"
    return False


def thaw(process: subprocess.Popen[str], reader: Reader, frozen_s: float) -> threading.Thread:
    """Let a process go on that has stopped itself, when it stood still for a while and others have overtaken it."""

    def wait() -> None:
        wait_until(lambda: stands_still(process), "the process stops itself", 240)
        before = sum(1 for verdict in list(reader.verdicts.values()) if verdict is Verdict.APPLIED)
        time.sleep(frozen_s)
        with suppress(AssertionError):  # the others may have nothing left to decide
            wait_until(lambda: reader.fold.end >= before + OVERTAKEN, "others decide", 30)
        process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread
