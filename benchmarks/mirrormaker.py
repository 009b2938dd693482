"""MirrorMaker 2, dedicated driver, from its Maven artifact: its settings and its command.

What is not about speed is the same for both kinds: one flow, factors of replication that the clusters can have, and no
heartbeats in the other direction. All else is MirrorMaker 2's own default, and what a candidate of :data:`BULK` or
:data:`TAIL` adds. ``python -m benchmarks --tune`` finds out which is the best for what (:mod:`benchmarks.tuning`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

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


_LARGE = {
    # Parallel tasks, large fetches, large batches that may wait.
    "tasks.max": "{twice}",
    "{SOURCE}.consumer.max.poll.records": "20000",
    "{SOURCE}.consumer.fetch.min.bytes": "1048576",
    "{SOURCE}.consumer.fetch.max.wait.ms": "100",
    "{SOURCE}.consumer.max.partition.fetch.bytes": str(8 << 20),
    "{SOURCE}.consumer.receive.buffer.bytes": str(1 << 20),
    "{TARGET}.producer.batch.size": "1000000",
    "{TARGET}.producer.linger.ms": "50",
    "{TARGET}.producer.max.request.size": str(8 << 20),
    "{TARGET}.producer.buffer.memory": str(256 << 20),
    "{TARGET}.producer.send.buffer.bytes": str(1 << 20),
}
_MODERATE = {
    # What fits into a core's caches and into one collection of a JVM's young objects.
    "tasks.max": "{cores}",
    "{SOURCE}.consumer.max.poll.records": "4000",
    "{SOURCE}.consumer.max.partition.fetch.bytes": str(2 << 20),
    "{TARGET}.producer.batch.size": "200000",
    "{TARGET}.producer.linger.ms": "10",
    "{TARGET}.producer.buffer.memory": str(64 << 20),
}
_SOURCES_CODEC = {"{TARGET}.producer.compression.type": "{codec}"}
_PROMPT = {"tasks.max": "{cores}", "{SOURCE}.consumer.fetch.min.bytes": "1", "{TARGET}.producer.linger.ms": "0"}

DEFAULTS = "defaults"
BULK: Mapping[str, Mapping[str, str]] = MappingProxyType({
    # Its default is no compression: less work for it and more bytes for the target.
    DEFAULTS: {},
    "large": _LARGE | _SOURCES_CODEC,
    "large-uncompressed": _LARGE,
    "moderate": _MODERATE | _SOURCES_CODEC,
    "moderate-uncompressed": _MODERATE,
})  # fmt: skip
TAIL: Mapping[str, Mapping[str, str]] = MappingProxyType({
    DEFAULTS: {},
    "prompt": _PROMPT,  # nothing waits to be batched
    "prompt-large": _PROMPT | {  # what has come meanwhile goes in one request
        "{SOURCE}.consumer.max.poll.records": "4000", "{TARGET}.producer.batch.size": "200000",
    },
})  # fmt: skip


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


def tuned(alias: str, case: Case, candidate: Mapping[str, str]) -> dict[str, str]:
    """Return a candidate's settings as properties of the flow."""
    named = {"SOURCE": alias, "TARGET": TARGET}
    cores = os.cpu_count() or 1
    return {
        key.format(**named): value.format(cores=cores, twice=2 * cores, codec=case.codec)
        for key, value in candidate.items()
    }


def command(properties: Path, work: Path) -> list[str]:
    """Return the command that starts the driver; downloads the jars when they are missing."""
    return [
        str(find_java().executable), *_JVM, "-XX:-UsePerfData", f"-Djava.io.tmpdir={work}",
        f"-Dlog4j2.configurationFile={_LOG_SETTINGS}", "-Dlog4j2.disableJmx=true",
        "-cp", jars.classpath("broker", "tools", version=TOOLS_VERSION),
        "org.apache.kafka.connect.mirror.MirrorMaker", str(properties),
    ]  # fmt: skip
