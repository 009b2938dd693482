"""A tail on one host, its successor on another: between the two there is nothing but Kafka."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_mirror.common.policy import lease_id
from airflow_mirror.jobs.runner.active import Watch, active_tail, ask_to_stop
from airflow_mirror.jobs.runner.state import RUNNING, SUCCEEDED
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.records import SIGN
from airflow_mirror.ledger.state import state_of
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.transactions import TransactionClient
from sandbox import Cluster
from tests.integration.copying import assert_equal, config, create, ends, flow_of, wait_until, write
from tests.integration.hosts import Host

pytestmark = pytest.mark.months


@contextmanager
def admin_of(cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(cluster)) as admin:
        yield admin


def held_mark(cluster: Cluster, mirror: str) -> tuple[int, int]:
    """Producer id and mark of the writer lease: another job's are other ones."""
    with WireCluster(config(cluster)) as wire:
        seen = TransactionClient(wire, lease_id(mirror)).describe()
    assert seen is not None
    return seen.producer_id, seen.timeout_ms


def wait_for(cluster: Cluster, topic: str, end: int, tail: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the tail has copied up to an offset."""

    def is_there() -> bool:
        assert tail.poll() is None, log.read_text()[-3000:]
        try:
            return ends(cluster, topic)[0][2] == end
        except Exception:  # the job creates the topic
            return False

    wait_until(is_there, f"{end} records are copied, see {log}", 300, 0.2)


def test_the_tail_of_a_lost_host_is_taken_over_on_another(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Refused while it lives, within a minute once its host is gone, and stopped from a third host."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 100, 1)
    arguments = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    log = {name: tmp_path / f"{name}.log" for name in ("a", "refused", "b")}
    with Host("host-a", tmp_path / "a") as a, Host("host-b", tmp_path / "b") as b, admin_of(target_cluster) as target:
        first_job = a.start("streaming_tail.py", *arguments, log=log["a"])
        wait_for(target_cluster, topic_name, 100, first_job, log["a"])
        held = held_mark(target_cluster, topic_name)
        first = active_tail(Ledger(target).values(), topic_name)
        assert first is not None and first.host == "host-a" and not first.is_here

        refused = b.start("streaming_tail.py", *arguments, log=log["refused"])
        assert refused.wait(300) == 1
        assert f"the tail of mirror '{topic_name}' runs already, on host 'host-a'" in log["refused"].read_text()
        assert held_mark(target_cluster, topic_name) == held, "nobody touched the lease of the one that lives"

        watch = Watch(state_of(target, SIGN.below(topic_name)))
        assert watch.settled(first) == RUNNING
        a.lose()
        begun = time.monotonic()
        write(source_cluster, topic_name, 100, 2)
        second = b.start("streaming_tail.py", *arguments, log=log["b"])
        wait_for(target_cluster, topic_name, 200, second, log["b"])
        print(f"taken over {time.monotonic() - begun:.1f} s after the host was lost")
        assert held_mark(target_cluster, topic_name) != held

        tail = active_tail(Ledger(target).values(), topic_name)
        assert tail is not None and tail.host == "host-b"
        assert watch.status(tail) == RUNNING
        ask_to_stop(state_of(target), tail.name, tail.job, "a test")
        assert second.wait(120) == 0, log["b"].read_text()[-3000:]
        assert watch.status(tail) == SUCCEEDED and "a test asked for that" in log["b"].read_text()
    assert_equal(source_cluster, target_cluster, topic_name)


def test_a_tail_that_thaws_after_its_successor_began_ends(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """Its driver and all its tasks were frozen. It deposes nobody, and no record is there twice."""
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 100, 1)
    arguments = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    log = {name: tmp_path / f"{name}.log" for name in ("a", "b")}
    with Host("host-a", tmp_path / "a") as a, Host("host-b", tmp_path / "b") as b:
        frozen = a.start("streaming_tail.py", *arguments, log=log["a"])
        wait_for(target_cluster, topic_name, 100, frozen, log["a"])
        a.signal(signal.SIGSTOP)
        write(source_cluster, topic_name, 100, 2)
        second = b.start("streaming_tail.py", *arguments, log=log["b"])
        wait_for(target_cluster, topic_name, 200, second, log["b"])
        held = held_mark(target_cluster, topic_name)
        a.signal(signal.SIGCONT)
        assert frozen.wait(120) == 1
        assert "is another one now, on host 'host-b'" in log["a"].read_text()
        assert held_mark(target_cluster, topic_name) == held, "its successor still holds the lease"
        write(source_cluster, topic_name, 100, 3)
        wait_for(target_cluster, topic_name, 300, second, log["b"])
        b.lose()
    assert_equal(source_cluster, target_cluster, topic_name)
