"""Real jobs' figures, as Prometheus gets them: of a tail while records flow, of a bulk copy when it is done."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from sandbox import Cluster
from tests.integration.copying import create, flow_of, properties_of, wait_until, write
from tests.integration.test_spark_jobs import driver_of, end_job, stop, submit, summary_of
from tests.integration.warm_jobs import WarmJobs
from tests.listening import listeners

KEPT_S = 86_400
Figures = dict[str, dict[tuple[str, ...], float]]


@pytest.mark.spark
def test_bulk_copys_last_figures_stay_in_its_file(
    source_cluster: Cluster, target_cluster: Cluster, warm_jobs: WarmJobs, topic_name: str, tmp_path: Path
) -> None:
    create(source_cluster, topic_name, 3)
    write(source_cluster, topic_name, 500, 1, "lz4", partition=1)
    file, log = tmp_path / "bulk.prom", tmp_path / "bulk.log"
    common = flow_of(tmp_path, source_cluster, target_cluster, topic_name)
    status = warm_jobs.run("bulk", *common, "--no-probe", "--metrics-file", str(file), log=log)
    assert status == 0, log.read_text()[-3000:]
    last = parsed(file.read_text())
    assert (last["job_info"], last["job_running"]) == ({("bulk_copy",): 1}, {(): 0})
    assert last["partitions"]["done",] == 3 and set(last["lag_records"].values()) == {0}
    assert last["records_total"] == {(topic_name, "0"): 0, (topic_name, "1"): 500, (topic_name, "2"): 0}
    assert last["bytes_total"][topic_name, "1"] == summary_of(log)["bytes"]
    assert last["replication_latency_seconds_count"][topic_name, "1"] == summary_of(log)["batches"]
    assert "hold_intact" not in last, "nobody watches it for a bulk copy"


@pytest.mark.spark
def test_tail_tells_prometheus_what_flows_and_listens_on_loopback(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")  # the operators set spark.driver.host; spark-submit alone does not
    create(source_cluster, topic_name, 2, retention_ms=str(KEPT_S * 1000))
    log, job_dir, file = tmp_path / "tail.log", tmp_path / "job", tmp_path / "tail.prom"
    arguments = ["--include", topic_name, "--name", topic_name, "--no-probe", "--job-dir", str(job_dir)]
    arguments += ["--metrics-port", "0", "--metrics-file", str(file), "--turn-s", "8"]  # some turns
    tail = submit("streaming_tail.py", *properties_of(tmp_path, source_cluster, target_cluster), *arguments, log=log)
    try:
        wait_until(lambda: status(job_dir).get("metrics") is not None, "the port is in the status", 300, 0.2)
        address = str(status(job_dir)["metrics"])
        begun = time.time()
        with records_flow(source_cluster, topic_name) as sent:
            wait_until(lambda: total(scraped(address), "records") > 300, "records are counted", 300, 0.5)
            first = scraped(address)
            wait_until(lambda: total(scraped(address), "records") > total(first, "records") + 300, "they grow", 300, 0.5)
            seldom = {"hold_intact", "retention_headroom_seconds"}  # asked of the clusters now and then
            wait_until(lambda: seldom <= scraped(address).keys(), "the clusters were asked", 300, 0.5)
            flowing = scraped(address)
            family = [tail.pid, *(child.pid for child in psutil.Process(tail.pid).children(recursive=True))]
            listening = listeners(family)
            wait_until(lambda: total(parsed(file.read_text()), "records") > 300, "the file follows", 300, 0.5)
        plausible(flowing, topic_name, time.time() - begun, sent)
        assert driver_of(tail.pid) in family and f"http://{address}/metrics" in log.read_text()
        assert int(address.partition(":")[2]) in {one.port for one in listening}
        assert [one for one in listening if not one.is_local] == []

        wait_until(
            lambda: (now := scraped(address))["partitions"]["following",] == 2 and total(now, "records") == len(sent),
            "all has arrived", 300, 0.5,
        )  # fmt: skip
        assert set(scraped(address)["lag_seconds"].values()) == {0}
        stop(tail, log)
    finally:
        end_job(tail)
    last = parsed(file.read_text())
    assert last["job_running"] == {(): 0} and total(last, "records") == summary_of(log)["records"] == len(sent)
    with pytest.raises(OSError):
        scraped(address)


def plausible(now: Figures, topic: str, flowed_s: float, sent: Sequence[int]) -> None:
    """Check a scrape while records flow: no record is older than the flow, and no more are missing than were written.

    :param flowed_s: for how long they have flowed.
    :param sent: a record each, those that were confirmed.
    """
    zero, whole = (topic, "0"), (topic,)
    assert now["job_running"] == {(): 1} and now["job_info"] == {("streaming_tail",): 1}
    assert time.time() - flowed_s <= now["updated_timestamp_seconds"][()] <= time.time()
    assert now["writer_epoch"][()] >= 0 and now["partitions_left_out"] == {(): 0}
    assert now["hold_intact"] == {whole: 1} and now["hold_restored_total"] == {whole: 0}
    assert now["topic_stopped"] == {whole: 0}
    assert 0 <= now["lag_records"][zero] <= len(sent) and 0 <= now["topic_lag_seconds"][whole] <= flowed_s
    assert now["bytes_total"][zero] > now["records_total"][zero] > 0
    count, latency = (now[f"replication_latency_seconds_{part}"][zero] for part in ("count", "sum"))
    age = now["record_age_seconds_sum"][zero]
    assert count > 0 and 0 < latency / count <= flowed_s and 0 <= age <= latency
    least, most = (now[f"replication_latency_{part}_seconds"][zero] for part in ("min", "max"))
    assert 0 <= least <= most <= flowed_s and 0 <= now["record_age_min_seconds"][zero] <= least
    # The source's log starts at 0, so all that was copied lies below the copy.
    assert now["retention_headroom_records"][zero] >= now["records_total"][zero]
    assert KEPT_S - flowed_s <= now["retention_headroom_seconds"][zero] <= KEPT_S


def status(job_dir: Path) -> dict[str, object]:
    """What the job says of itself; nothing before it began."""
    try:
        return dict(json.loads((job_dir / "status.json").read_text()))
    except FileNotFoundError:
        return {}


def total(figures: Figures, what: str) -> float:
    """The sum over all topics."""
    return sum(figures.get(f"topic_{what}_total", {}).values())


def scraped(address: str) -> Figures:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return parsed(answer.read().decode())


def parsed(text: str) -> Figures:
    found: Figures = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            labels = tuple(one.labels[name] for name in ("topic", "partition", "state", "kind") if name in one.labels)
            found.setdefault(one.name.removeprefix("airflow_mirror_"), {})[labels] = one.value
    return found


@contextmanager
def records_flow(cluster: Cluster, topic: str) -> Iterator[list[int]]:
    """Write some hundred records a second, of this moment, until the block ends; yields which were confirmed."""
    ended, sent = threading.Event(), list[int]()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 5})

    def flow() -> None:
        number = 0
        while not ended.wait(0.05):
            for _ in range(20):
                number += 1
                producer.produce(
                    topic, b"%d" % number * 20, partition=number % 2,
                    on_delivery=lambda error, message: None if error else sent.append(message.offset()),
                )  # fmt: skip
            producer.poll(0)

    thread = threading.Thread(target=flow, daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()
        producer.flush(240)
