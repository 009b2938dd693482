"""Verification against real brokers: it must find every way in which a copy can be wrong, and name the offset."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import MirrorError
from airflow_mirror.jobs.driver import arguments, entry, verify
from airflow_mirror.jobs.request import VerifyRequest
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.sync.maps import MapSource
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.result import PartitionComparison, PartitionPair
from sandbox import Cluster
from tests.integration.copying import (
    TILL_FLUSH,
    await_stable,
    copy,
    ends,
    properties_of,
    ranges_of,
    read,
    write_transactions,
)
from tests.integration.test_spark_jobs import summary_of
from tests.integration.warm_jobs import WarmJobs

LEVELS = ("batches", "records")
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def config(cluster: Cluster, role: str) -> ClientConfig:
    return ClientConfig(cluster.admin_properties(), role)


def irregular(count: int, seed: int = 7) -> list[Row]:
    """Records as real topics hold them: null and empty parts, binary, old, equal and falling times, one large."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for i in range(count):
        key = rng.choice([None, b"", b"k%d" % (i % 5), rng.randbytes(9)])
        value = rng.choice([None, b"", rng.randbytes(rng.randrange(1, 60)), b"text %d" % i])
        headers = rng.choice([[], [("h", b"1"), ("h", None)], [("trace", rng.randbytes(4))]])
        rows.append((1_500_000_000_000 + rng.randrange(-9_000_000, 9_000_000), key, value, headers))
    rows[count // 2] = (1_600_000_000_000, b"large", rng.randbytes(300_000), [])
    return rows


def fill(cluster: Cluster, topic: str, rows: list[Row], codec: str = "none", chunk: int = 7, partition: int = 0) -> None:
    """Append the rows in batches of ``chunk``."""
    producer = Producer({**cluster.admin_properties(), "compression.type": codec, "linger.ms": TILL_FLUSH})
    for start in range(0, len(rows), chunk):
        for timestamp, key, value, headers in rows[start : start + chunk]:
            producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers)
        assert producer.flush(240) == 0


def create(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    with ClusterAdmin(config(cluster, cluster.name)) as admin:
        # Without this, retention would delete records of 2017 within minutes.
        admin.create_topics([NewTopicSpec(topic, partitions, 1, {"retention.ms": "-1"})], unfenced)


def check(
    source: Cluster, target: Cluster, topic: str, level: str, isolation: str = "read_committed",
    maps: MapSource | None = None, **window: int,
) -> PartitionComparison:  # fmt: skip
    [verdict] = compare_partitions(
        [PartitionPair(source_topic=topic, target_topic=topic, partition=0, mapped=maps is not None, **window)],
        config(source, "source"),
        config(target, "target"),
        level,
        maps=maps,
        isolation=isolation,
    )
    return verdict


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_copies_in_other_batches_and_codecs_are_equal(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, codec: str
) -> None:
    rows = irregular(60)
    for cluster, cut, as_codec in ((source_cluster, 7, codec), (target_cluster, 13, "zstd")):
        create(cluster, topic_name)
        fill(cluster, topic_name, rows, as_codec, cut)
    for level in ("offsets", *LEVELS):
        verdict = check(source_cluster, target_cluster, topic_name, level)
        assert verdict.equal and verdict.offsets_equal and verdict.first_difference is None, verdict
        assert (verdict.start_offset, verdict.end_offset) == (0, 60)
        assert verdict.records == (0 if level == "offsets" else 60)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("harm", "offset", "kind"),
    [
        ("corrupt", 23, "value"),
        ("header", 23, "headers"),
        ("drop", 23, "missing"),
        ("add", 23, "extra"),
        ("drop the last", 59, "end"),
        ("add one at the end", 60, "end"),
        ("swap", 23, "key"),
        ("late", 23, "timestamp"),
    ],
)
def test_damage_is_found_at_its_offset(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, level: Any, harm: str, offset: int, kind: str
) -> None:
    rows = irregular(60)
    # The neighbours of the damage are all different, so that each kind of damage has one name only.
    rows[22:26] = [(1_600_000_000_000 + i, b"n%d" % i, b"neighbour %d" % i, [("i", b"%d" % i)]) for i in range(4)]
    timestamp, key, value, headers = rows[23]
    harmed = {
        "corrupt": [*rows[:23], (timestamp, key, b"neighbOur 1", headers), *rows[24:]],
        "header": [*rows[:23], (timestamp, key, value, [("i", None)]), *rows[24:]],
        "drop": [*rows[:23], *rows[24:]],
        "add": [*rows[:23], (0, b"foreign", b"", []), *rows[23:]],
        "drop the last": rows[:-1],
        "add one at the end": [*rows, (0, b"foreign", b"", [])],
        "swap": [*rows[:23], rows[24], rows[23], *rows[25:]],
        "late": [*rows[:23], (timestamp + 1, key, value, headers), *rows[24:]],
    }[harm]
    for cluster, content in ((source_cluster, rows), (target_cluster, harmed)):
        create(cluster, topic_name)
        fill(cluster, topic_name, content, "lz4")
    verdict = check(source_cluster, target_cluster, topic_name, level)
    assert not verdict.equal
    found = verdict.first_difference
    assert found is not None
    if harm == "swap":
        # The record of 23 follows on the target, and that of 24 on the source: told as loss, at the right place.
        assert (found.offset, found.kind) in {(23, "key"), (23, "missing"), (23, "extra")}
    else:
        assert (found.offset, found.kind) == (offset, kind)
    assert "neighb" not in str(verdict.to_dict())


@pytest.mark.parametrize("level", LEVELS)
def test_partition_copied_one_offset_late_differs_at_its_first_record(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, level: Any
) -> None:
    rows = irregular(30)
    create(source_cluster, topic_name)
    fill(source_cluster, topic_name, rows)
    create(target_cluster, topic_name)
    fill(target_cluster, topic_name, [(0, None, None, []), *rows])
    with ClusterAdmin(config(target_cluster, "target")) as admin:
        admin.delete_records({TopicPartition(topic_name, 0): 1}, unfenced)  # looks primed, but one too far
    verdict = check(source_cluster, target_cluster, topic_name, level)
    assert not verdict.equal and not verdict.offsets_equal
    # Offset 0 is below the target's log start: retention could explain that, the records from 1 on it can't.
    assert verdict.first_difference is not None and verdict.first_difference.offset == 1


@pytest.mark.parametrize("level", LEVELS)
def test_aborted_records_and_markers_are_not_compared(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, level: Any
) -> None:
    for cluster, noise in ((source_cluster, b"aborted here"), (target_cluster, b"aborted THERE")):
        create(cluster, topic_name)
        settings = {**cluster.admin_properties(), "transactional.id": f"{topic_name}-{cluster.name}"}
        producer = Producer(settings)
        producer.init_transactions(240)
        for round_, rows in enumerate((irregular(8, 1), irregular(5, 2), irregular(6, 3))):
            producer.begin_transaction()
            for timestamp, key, value, headers in rows:
                content = noise + bytes(round_) if round_ == 1 else value
                producer.produce(topic_name, content, key, 0, timestamp=timestamp, headers=headers)
            if round_ == 1:
                assert producer.flush(240) == 0
                producer.abort_transaction(240)
            else:
                producer.commit_transaction(240)
        await_stable(cluster, topic_name)
    verdict = check(source_cluster, target_cluster, topic_name, level)
    assert verdict.equal and verdict.offsets_equal, verdict
    assert verdict.records == 14 and verdict.end_offset == 8 + 1 + 5 + 1 + 6 + 1


def test_open_transaction_on_the_source_is_a_different_end(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    rows = irregular(10)
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name)
        fill(cluster, topic_name, rows)
    producer = Producer({**source_cluster.admin_properties(), "transactional.id": topic_name})
    producer.init_transactions(240)
    producer.begin_transaction()
    producer.produce(topic_name, b"not yet", partition=0)
    assert producer.flush(240) == 0
    try:
        verdict = check(source_cluster, target_cluster, topic_name, "offsets")
        assert verdict.first_difference is not None
        assert (verdict.first_difference.offset, verdict.first_difference.kind) == (10, "end")
        assert verdict.source_log == (0, 10, 11)
        assert check(source_cluster, target_cluster, topic_name, "records", end_offset=10).equal
    finally:
        producer.abort_transaction(240)


def transaction(cluster: Cluster, topic: str, rows: list[Row]) -> Producer:
    """Write the rows as one transaction and leave it open."""
    settings = {"transactional.id": topic, "transaction.timeout.ms": 600_000}
    producer = Producer({**cluster.admin_properties(), **settings})
    producer.init_transactions(240)
    producer.begin_transaction()
    for timestamp, key, value, headers in rows:
        producer.produce(topic, value, key, 0, timestamp=timestamp, headers=headers)
    assert producer.flush(240) == 0
    return producer


@pytest.mark.parametrize("kept", ["identical", "mapped", "transactional"])
def test_copy_of_uncommitted_records_is_equal(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, kept: str
) -> None:
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name)
    write_transactions(source_cluster, topic_name, seed=3, transactions=4)
    fill(source_cluster, topic_name, irregular(20))
    still_open = transaction(source_cluster, topic_name, irregular(12, seed=4))
    options = {"committed_only": False, "delivery": "idempotent"}
    maps = None
    if kept != "identical":
        fill(target_cluster, topic_name, irregular(3))  # somebody else's
        options |= {"delivery": "transactional" if kept == "transactional" else "idempotent"}
        maps = MapSource("m", False)

    def go_on() -> int:
        """Copy what there is, compare it on all levels, and return how many records there are."""
        ranges = ranges_of(source_cluster, topic_name, committed=False)
        if maps is not None:
            ranges = [replace(one, mode="mapped") for one in ranges]
        (result,) = copy(source_cluster, target_cluster, ranges, **options)
        assert result.done
        count = len(read(target_cluster, topic_name)) - (0 if maps is None else 3)
        for level in ("offsets", *LEVELS):
            verdict = check(source_cluster, target_cluster, topic_name, level, "read_uncommitted", maps)
            assert verdict.equal and verdict.end_offset == ends(source_cluster, topic_name)[0][2], verdict
            assert verdict.records == (0 if level == "offsets" else count)
            assert maps is not None or verdict.offsets_equal
        return count

    try:
        # The referee sees neither what was aborted nor what is still open.
        count = go_on()
        assert count > len(read(source_cluster, topic_name)) + 12
        assert not check(source_cluster, target_cluster, topic_name, "batches", maps=maps).equal
    finally:
        still_open.abort_transaction(240)
    await_stable(source_cluster, topic_name)
    assert go_on() == count  # the open ones are aborted now, and the same
    fill(source_cluster, topic_name, irregular(2))
    verdict = check(source_cluster, target_cluster, topic_name, "offsets", "read_uncommitted", maps)
    assert verdict.first_difference is not None and verdict.first_difference.kind == "end"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("harm", "offset", "kind"),
    [
        ("none", -1, ""),
        ("aborted one changed", 13, "value"),
        ("aborted ones left out", 10, "missing"),
        ("open one changed", 26, "value"),
        ("open one lost", 26, "missing"),
        ("last open one lost", 30, "end"),
        ("one added", 31, "end"),
    ],
)
def test_damage_to_uncommitted_records_is_found(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, level: Any, harm: str, offset: int, kind: str
) -> None:
    rows: list[Any] = [(1_600_000_000_000 + i, b"n%d" % i, b"value %d" % i, []) for i in range(30)]
    add: Any = (0, b"foreign", b"", [])
    changed = {i: [*rows[:i], (rows[i][0], rows[i][1], b"valUe %d" % i, []), *rows[i + 1 :]] for i in (13, 25)}
    harmed = {
        "aborted one changed": changed[13],
        "open one changed": changed[25],
        "open one lost": [*rows[:25], *rows[26:], add],
        "last open one lost": rows[:-1],
        "one added": [*rows, add],
    }.get(harm, rows)
    # Offsets 0 to 9 are plain, 10 to 19 a transaction, 20 is its marker, from 21 on another transaction is open.
    for cluster, content in ((source_cluster, rows), (target_cluster, harmed)):
        create(cluster, topic_name)
        fill(cluster, topic_name, content[:10])
        first = transaction(cluster, topic_name, content[10:20])
        if cluster is source_cluster or harm == "aborted ones left out":
            first.abort_transaction(240)
        else:
            first.commit_transaction(240)
        await_stable(cluster, topic_name)
    fill(target_cluster, topic_name, harmed[20:])
    still_open = transaction(source_cluster, topic_name, rows[20:])
    try:
        verdict = check(source_cluster, target_cluster, topic_name, level, "read_uncommitted")
        found = verdict.first_difference
        assert (found and (found.offset, found.kind)) == (None if harm == "none" else (offset, kind)), verdict
        # What a reader of committed records gets is compared up to the open transaction, as ever.
        as_committed = check(source_cluster, target_cluster, topic_name, level).first_difference
        wanted = (21, "end") if harm == "aborted ones left out" else (10, "extra")
        assert as_committed is not None and (as_committed.offset, as_committed.kind) == wanted
    finally:
        still_open.abort_transaction(240)


@pytest.mark.spark
def test_job_compares_in_the_isolation_of_its_mirror(
    source_cluster: Cluster, target_cluster: Cluster, warm_jobs: WarmJobs, topic_name: str, tmp_path: Path
) -> None:
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name)
    write_transactions(source_cluster, topic_name, seed=3, transactions=4)
    still_open = transaction(source_cluster, topic_name, irregular(12))
    try:
        ranges = ranges_of(source_cluster, topic_name, committed=False)
        copy(source_cluster, target_cluster, ranges, committed_only=False)
        clusters, which = properties_of(tmp_path, source_cluster, target_cluster), ["--include", topic_name]
        how = ["--isolation", "read_uncommitted", "--level", "records", "--end", "latest"]
        status = warm_jobs.run("verify", *clusters, *which, *how, log=tmp_path / "log")
        assert status == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        still_open.abort_transaction(240)
    summary = summary_of(tmp_path / "log")
    assert summary["end_offsets"] == {f"{topic_name}-0": ranges[0].end_offset}
    assert summary["records"] == len(read(target_cluster, topic_name))


def test_what_little_is_new_is_compared_without_spark(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its executors start while a fence, or a person, waits for them."""

    def never() -> Any:
        raise AssertionError("Spark was started")

    def compare(*more: str) -> tuple[int, dict[str, Any]]:
        argv = [*clusters, "--include", topic_name, "--end", "latest", "--spot-checks", "0", *more]
        parser = arguments.parser("verify.py", verify.DESCRIPTION, VerifyRequest)
        status = entry.run(parser, argv, VerifyRequest, lambda given, state: verify.verify(given, state, never))
        return status, json.loads(capsys.readouterr().out.splitlines()[-1])

    clusters = properties_of(tmp_path, source_cluster, target_cluster)
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name)
        fill(cluster, topic_name, irregular(20))
    with pytest.raises(AssertionError, match="Spark was started"):
        compare("--level", "records")
    status, summary = compare("--level", "records", "--only-new")
    assert (status, summary["records"], summary["differences"]) == (0, 20, [])
    fill(source_cluster, topic_name, irregular(3, seed=1))
    fill(target_cluster, topic_name, irregular(3, seed=2))
    status, summary = compare("--only-new")
    assert status == 1 and "value at offset 20" in str(summary["differences"])


@pytest.mark.spark
def test_job_has_another_client_look_at_what_differs(
    source_cluster: Cluster, target_cluster: Cluster, warm_jobs: WarmJobs, topic_name: str, tmp_path: Path
) -> None:
    rows = irregular(20)
    for cluster, kept in ((source_cluster, rows), (target_cluster, rows[:9])):
        create(cluster, topic_name)
        fill(cluster, topic_name, kept)
    clusters, which = properties_of(tmp_path, source_cluster, target_cluster), ["--include", topic_name]
    status = warm_jobs.run("verify", *clusters, *which, "--end", "latest", log=tmp_path / "log")
    said = str(summary_of(tmp_path / "log")["differences"])
    assert status == 1 and said.count("; an independent client finds no record on the target") == 1, said


def test_window_leaves_out_what_was_not_asked_for(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    rows = irregular(40)
    other = [(0, b"other", b"", []) if i in (4, 30) else row for i, row in enumerate(rows)]
    for cluster, content in ((source_cluster, rows), (target_cluster, other[:35])):
        create(cluster, topic_name)
        fill(cluster, topic_name, content)
    verdict = check(source_cluster, target_cluster, topic_name, "records", start_offset=5, end_offset=30)
    assert verdict.equal and verdict.records == 25 and not verdict.offsets_equal
    assert not check(source_cluster, target_cluster, topic_name, "records", start_offset=5, end_offset=31).equal
    assert not check(source_cluster, target_cluster, topic_name, "records", start_offset=31, end_offset=40).equal


def test_many_partitions_come_back_in_order_with_progress(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    for cluster in (source_cluster, target_cluster):
        create(cluster, topic_name, partitions=5)
        for p in (0, 1, 3):
            fill(cluster, topic_name, irregular(4 + p, seed=p), partition=p)  # 2 and 4 stay empty
    fill(target_cluster, topic_name, [(0, None, b"foreign", [])], partition=4)
    seen: list[tuple[int, int, int]] = []
    pairs = [PartitionPair(source_topic=topic_name, target_topic=topic_name, partition=p) for p in (3, 0, 4, 2, 1)]
    verdicts = compare_partitions(
        pairs, config(source_cluster, "source"), config(target_cluster, "target"), "records",
        lambda verdict, done, of: seen.append((verdict.partition, done, of)),
    )  # fmt: skip
    assert [(v.partition, v.equal, v.records) for v in verdicts] == [
        (3, True, 7), (0, True, 4), (4, False, 0), (2, True, 0), (1, True, 5),
    ]  # fmt: skip
    assert seen == [(3, 1, 5), (0, 2, 5), (4, 3, 5), (2, 4, 5), (1, 5, 5)]


def test_topic_missing_on_the_target_is_an_error_naming_it(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str
) -> None:
    create(source_cluster, topic_name)
    with pytest.raises(MirrorError, match=topic_name):
        check(source_cluster, target_cluster, topic_name, "records")
