"""A whole migration by Kerberos on both sides, in two realms: plan, topics, copy, tail, verify, groups, cutover."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.report import DONE
from airflow_mirror.jobs.runner import package
from airflow_mirror.jobs.runner.command import spark_home
from airflow_mirror.jobs.runner.java import java_home_for_spark
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.sync.topics import create_target_topics
from airflow_mirror.verify.partition import compare_partitions
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import PartitionPair
from sandbox.ports import reserve
from sandbox.spark import SparkCluster
from tests.cutting_over import cut_over
from tests.integration import cutover_world
from tests.integration.copying import assert_equal, create, wait_until, write, write_transactions
from tests.integration.cutover_once import LIMITS
from tests.integration.cutover_world import PARTITIONS, EngineTail, HeardFence, Member, Writer
from tests.integration.realms import OWN, World

pytestmark = pytest.mark.kerberos

ROOT = Path(__file__).parents[2]


@dataclass
class Migration(cutover_world.World):
    """As the other cutovers' world, but the mirror knows both clusters by Kerberos alone, and its plan is a real one."""

    realms: World | None = None

    def __post_init__(self) -> None:
        assert self.realms is not None
        self.source, self.target = self.realms.source.admin(), self.realms.target.admin()
        create(self.source_cluster, self.topic, PARTITIONS)
        self.mirror = Mirror(
            name=f"flow-{self.topic[-8:]}", source="src", target="dst", topics=[self.topic], groups=[f"{self.topic}-.*"],
            own_principals=OWN,
        )  # fmt: skip
        self.tps = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]

    def planned(self) -> Plan:
        plan = build(self.mirror, self.source, self.target)
        plan.raise_if_blocked()
        return plan


@pytest.fixture
def migration(realms: World, topic_name: str, tmp_path: Path) -> Iterator[Migration]:
    made = Migration(realms.source.cluster, realms.target.cluster, topic_name, tmp_path, realms=realms)
    with closing(made):
        yield made


def test_a_migration_from_realm_to_realm(migration: Migration, realms: World) -> None:
    world = migration
    write(world.source_cluster, world.topic, 500, seed=1)
    idle = world.group("idle", {0: 3})
    plan = world.planned()
    assert create_target_topics(plan, world.target, unfenced).created == (world.topic,)
    world.keep(plan)
    alice = world.source_cluster.properties("alice")
    with Writer(alice, world.topic) as writer, EngineTail(world), Member(world, f"{world.topic}-live"):
        wait_until(lambda: world.behind() < 50, "the tail catches up")
        report = cut_over(
            world.on, plan, world.kept(), fence=HeardFence(world.source, writer),
            verify=verify_rest(plan, world.source.config, world.target.config),
            limits=replace(LIMITS, wait_groups_s=120), accept_ledger_writers=["User:*"],
        )  # fmt: skip
        assert writer.refused > 0
    assert json.loads((world.run_dir / "report.json").read_text())["outcome"] == DONE
    ends = world.source.offsets(world.tps)
    assert ends == world.target.offsets(world.tps)
    assert sum(ends.values()) == 500 + writer.acknowledged
    assert world.positions(f"{world.topic}-live") == {tp.partition: end for tp, end in ends.items()}
    assert world.positions(idle) == {0: 3}
    assert {g.group: g.settled for g in report.groups} == {f"{world.topic}-live": "at the end", idle: "empty"}
    pairs = [
        PartitionPair(source_topic=tp.topic, target_topic=tp.topic, partition=tp.partition, end_offset=ends[tp])
        for tp in world.tps
    ]
    verdicts = compare_partitions(pairs, world.source.config, world.target.config, "records")
    assert [v.equal for v in verdicts] == [True] * PARTITIONS
    assert_equal(world.source_cluster, world.target_cluster, world.topic, PARTITIONS)


def test_executors_without_the_keytab_log_in_with_its_bytes(realms: World, topic_name: str, tmp_path: Path) -> None:
    """The keytab is beside the driver, under a relative path: nothing is there where executors run."""
    source, target = realms.source, realms.target
    create(source.cluster, topic_name, PARTITIONS)
    for p in range(PARTITIONS):
        write(source.cluster, topic_name, 300, seed=p, codec="lz4", partition=p)
    write_transactions(source.cluster, topic_name, seed=7, transactions=3, partitions=PARTITIONS)
    keys = {}
    for side in (source, target):
        keytab = side.realm.keytab("mirror").read_bytes()
        (tmp_path / f"{side.role}.keytab").write_bytes(keytab)
        settings = side.settings(sasl_kerberos_keytab=f"{side.role}.keytab")
        (tmp_path / f"{side.role}.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        keys[side.role] = keytab[-32:]  # of the last entry
    with SparkCluster(workers=1, cores=2, ready_timeout_s=400) as spark:
        log, ui = tmp_path / "log.txt", reserve("the job's web page")
        conf = {
            "spark.ui.port": str(ui.number), "spark.executorEnv.KRB5_CONFIG": realms.krb5_config,
            "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(), "spark.local.dir": str(tmp_path / "tmp"),
        }  # fmt: skip
        for folder in ("events", "tmp"):
            (tmp_path / folder).mkdir()
        zipped = package.build(tmp_path / "airflow_mirror.zip")
        command = [str(spark_home() / "bin" / "spark-submit"), *spark.submit_options(), "--py-files", str(zipped)]
        for key, value in conf.items():
            command += ["--conf", f"{key}={value}"]
        command += [str(ROOT / "spark_jobs" / "bulk_copy.py"), "--source", "source.properties"]
        command += ["--target", "target.properties", "--include", topic_name, "--name", topic_name]
        env = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "tmp"),
            "JAVA_HOME": str(java_home_for_spark()), "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": sys.executable,
            "KRB5_CONFIG": realms.krb5_config,
        }  # fmt: skip
        try:
            with log.open("wb") as out:
                done = subprocess.run(command, env=env, cwd=tmp_path, stdout=out, stderr=out, timeout=900, check=False)
        finally:
            ui.release()
        assert done.returncode == 0, log.read_text(errors="replace")[-3000:]
        assert "executor on" in log.read_text(errors="replace"), "no executor was asked"
        assert_equal(source.cluster, target.cluster, topic_name, PARTITIONS)
        # In no file of driver, workers and executors, but for the keytabs themselves.
        files = [f for folder in (tmp_path, spark.directory) for f in folder.rglob("*") if f.is_file()]
        assert len(files) > 10
        for file in files:
            if file.suffix != ".keytab":
                found = [role for role, key in keys.items() if key in file.read_bytes()]
                assert not found, (file, found)
