"""MirrorMaker 2, dedicated driver, from its Maven artifact: its settings and its command.

What is not about speed is the same for both kinds: one flow, factors of replication that the clusters can have, and no
heartbeats in the other direction. All else is MirrorMaker 2's own default, unless :func:`for_throughput` or
:func:`for_latency` says otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from airflow_mirror.jobs.runner.java import find_java
from benchmarks.cases import Case
from sandbox import jars
from sandbox.versions import TOOLS_VERSION

TARGET = "copy"  # alias of the target; the source's is unique to the run and becomes the topic's prefix
_LOG_SETTINGS = Path(jars.__file__).with_name("log4j2.properties")
# What Kafka's own start scripts give the JVM (kafka-run-class.sh, connect-mirror-maker.sh).
_JVM = (
    "-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip


def settings(
    alias: str, topic: str, source: Mapping[str, str], target: Mapping[str, str], replicas: tuple[int, int],
    to: str = TARGET,
) -> dict[str, str]:  # fmt: skip
    """Return the properties of one flow.

    :param alias: of the source; the topic is called ``alias.topic`` on the target.
    :param source: Java client settings; ``target`` too.
    :param replicas: replication factors on source and target. :param to: alias of the target.
    """
    flow, back = f"{alias}->{to}", f"{to}->{alias}"
    on_target = [f"{kind}.storage.replication.factor" for kind in ("offset", "status", "config")]
    return {
        "clusters": f"{alias}, {to}",
        **{f"{alias}.{key}": value for key, value in source.items()},
        **{f"{to}.{key}": value for key, value in target.items()},
        f"{flow}.enabled": "true",
        f"{flow}.topics": topic,
        f"{back}.enabled": "false",
        f"{back}.emit.heartbeats.enabled": "false",
        "sync.topic.acls.enabled": "false",  # there is no authorizer
        # Factors of 2 and 3 are the default; single nodes can't have them.
        "replication.factor": str(replicas[1]),
        "checkpoints.topic.replication.factor": str(replicas[1]),
        "heartbeats.topic.replication.factor": str(replicas[1]),
        "offset-syncs.topic.replication.factor": str(replicas[0]),
        **{f"{to}.{key}": str(replicas[1]) for key in on_target},
    }


def for_throughput(alias: str, case: Case) -> dict[str, str]:
    """Return what an operator sets for speed: parallel tasks, large fetches, large compressed batches that may wait."""
    return {
        "tasks.max": str(2 * (os.cpu_count() or 1)),
        f"{alias}.consumer.max.poll.records": "20000",
        f"{alias}.consumer.fetch.min.bytes": "1048576",
        f"{alias}.consumer.fetch.max.wait.ms": "100",
        f"{alias}.consumer.max.partition.fetch.bytes": str(8 << 20),
        f"{alias}.consumer.receive.buffer.bytes": str(1 << 20),
        f"{TARGET}.producer.batch.size": "1000000",
        f"{TARGET}.producer.linger.ms": "50",
        f"{TARGET}.producer.compression.type": case.codec,
        f"{TARGET}.producer.max.request.size": str(8 << 20),
        f"{TARGET}.producer.buffer.memory": str(256 << 20),
        f"{TARGET}.producer.send.buffer.bytes": str(1 << 20),
    }


def for_latency(alias: str) -> dict[str, str]:
    """Return what an operator sets for a short way: a task for each core, nothing waits to be batched."""
    return {
        "tasks.max": str(os.cpu_count() or 1),
        f"{alias}.consumer.fetch.min.bytes": "1",
        f"{TARGET}.producer.linger.ms": "0",
    }


def command(properties: Path, work: Path) -> list[str]:
    """Return the command that starts the driver; downloads the jars when they are missing."""
    return [
        str(find_java().executable), *_JVM, "-XX:-UsePerfData", f"-Djava.io.tmpdir={work}",
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS}", "-Dlog4j2.disableJmx=true",
        "-cp", jars.classpath("broker", "tools", version=TOOLS_VERSION),
        "org.apache.kafka.connect.mirror.MirrorMaker", str(properties),
    ]  # fmt: skip
