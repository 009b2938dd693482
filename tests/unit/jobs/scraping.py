"""Figures of a job, as a scrape finds them."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.metrics.collector import CopyCollector, Watched
from airflow_mirror.jobs.progress.table import Table

Series = dict[tuple[str, ...], float]
COMMON = ("m", "here", "there")


def ranges(topic: str = "orders", partitions: int = 3, end: int | None = 1000) -> list[CopyRange]:
    return [
        CopyRange(source_topic=topic, target_topic=f"a.{topic}", partition=p, start_offset=0, end_offset=end)
        for p in range(partitions)
    ]


def told(copy_range: CopyRange, position: int, state: str = "copying", error: str | None = None, **counters: Any) -> Any:
    return {
        "topic": copy_range.source_topic, "partition": copy_range.partition,
        "target_partition": copy_range.target.partition, "state": state,
        "position": position, "end": copy_range.end_offset, "error": error, **dict.fromkeys(COUNTERS, 0), **counters,
    }  # fmt: skip


def collector(table: Table, limit: int = 100, **given: Any) -> CopyCollector:
    names = dict(zip(("mirror", "source", "target"), COMMON, strict=True)) | {"kind": "bulk_copy", "epoch": lambda: 7}
    return CopyCollector(Watched(table=table, **(names | given)), limit, clock=lambda: 1_700_000_000.5)


def scraped(one: CopyCollector) -> dict[str, Series]:
    """What Prometheus makes of the text: by name, each series by its labels but for the three that all have."""
    registry = CollectorRegistry()
    registry.register(one)
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert [labels.pop(name, None) for name in ("mirror", "source", "target")] == list(COMMON)
            series = found.setdefault(sample.name.removeprefix("airflow_mirror_"), {})
            assert tuple(labels.values()) not in series, f"{sample.name} twice"
            series[tuple(labels[name] for name in ("topic", "partition", "state", "kind") if name in labels)] = (
                sample.value
            )
    return found
