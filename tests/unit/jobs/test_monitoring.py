"""The page about monitoring and the dashboard name the figures that a job has, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_mirror.copy.delays import Delays
from airflow_mirror.copy.loop.counters import COUNTERS
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.jobs.metrics import catalogue
from airflow_mirror.jobs.metrics.catalogue import MEASURED, Figure
from airflow_mirror.jobs.metrics.collector import CopyCollector, Watched
from airflow_mirror.jobs.progress.retained import Retained
from airflow_mirror.jobs.progress.table import Table
from airflow_mirror.jobs.request import LISTED

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "dashboards" / "airflow-mirror.json").read_text(encoding="utf-8"))


def rows() -> dict[str, str]:
    """The type that the page gives for each figure."""
    return dict(re.findall(r"^\| `(airflow_mirror_\w+)` \| (\w+) \|", PAGE, re.MULTILINE))


def test_the_page_has_every_figure_with_its_type_and_no_other() -> None:
    own = [value for value in vars(catalogue).values() if isinstance(value, Figure)]
    exported = [*own, *(one.for_partitions for one in MEASURED)]
    assert rows() == {figure.name: figure.kind for figure in exported}


def test_the_page_says_how_a_topics_figure_is_made() -> None:
    told = dict(re.findall(r"^\| `airflow_mirror_(\w+)` \| \w+ \| (\w+) \|", PAGE, re.MULTILINE))
    assert told == {one.name: one.of_topic for one in MEASURED}


def test_the_page_says_how_many_partitions_have_series() -> None:
    assert f"Up to {LISTED:,} partitions" in PAGE


# --- the dashboard, and the rules for alerts --------------------------------------------------------------------------

Labels = dict[str, frozenset[str]]


@pytest.fixture(scope="module")
def exported() -> Labels:
    """The labels of each series that a copy exports of which everything is known."""
    one = CopyRange(source_topic="t", target_topic="t", partition=0, start_offset=0)
    table = Table([one])
    counts = dict.fromkeys(COUNTERS, 1) | {"timestamp_ms": 1, "delays": [1] * 7}
    where = {"topic": "t", "partition": 0, "target_partition": 0, "state": "copying", "position": 3, "end": 9}
    table.take("run", [where | counts | {"error": None}])
    watched = Watched(
        kind="streaming_tail", mirror="m", source="a", target="b", table=table, epoch=lambda: 1,
        retained=lambda: Retained({one.source: 0}, {"t": 9.0}), held=lambda: {"t": True}, restored=lambda: {"t": 0},
        groups=lambda: Delays(*[1] * 7),
    )  # fmt: skip
    samples = [sample for family in CopyCollector(watched).collect() for sample in family.samples]
    assert {one.for_topics.name for one in MEASURED} <= {s.name.removesuffix("_sum") for s in samples}, (
        "some lack a value"
    )
    return {sample.name: frozenset(sample.labels) for sample in samples}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[tuple[str, str]]:
    """Each query of the dashboard and of the rules on the page, with the legend that it fills."""
    shown = [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    asked = [(one["query"]["query"], "") for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
    (rules,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    alerts = [rule for group in yaml.safe_load(rules)["groups"] for rule in group["rules"]]
    legends = [(rule["expr"], " ".join(re.findall(r"\$labels\.(\w+)", str(rule)))) for rule in alerts]
    return [*shown, *asked, *((expr, " ".join(f"{{{{{name}}}}}" for name in said.split())) for expr, said in legends)]


@pytest.mark.parametrize(("query", "legend"), queries())
def test_queries_ask_for_series_and_labels_that_exist(exported: Labels, query: str, legend: str) -> None:
    names = re.findall(r"airflow_mirror_\w+", query)
    assert names and set(names) <= exported.keys()
    for name, matchers in re.findall(r"(airflow_mirror_\w+)\{([^}]*)\}", query):
        assert set(re.findall(r"(\w+)=~?\"", matchers)) <= exported[name], name
    common = frozenset.intersection(*(exported[name] for name in names))
    grouped = [
        (set(re.findall(r"\w+", labels)), name)
        for labels, name in re.findall(r"\bby \(([^)]*)\) \((?:\w+\()*(airflow_mirror_\w+)", query)
    ]
    assert len(grouped) == query.count(" by (")
    assert all(labels <= exported[name] for labels, name in grouped)
    asked = re.findall(r"^label_values\(.*, (\w+)\)$", query)
    left = set.intersection(*(labels for labels, _ in grouped)) if grouped else common
    assert {*asked, *re.findall(r"\{\{(\w+)\}\}", legend)} <= left


def test_the_dashboard_can_be_imported_anywhere() -> None:
    """It names no data source of its own, and nothing in it lies over anything else."""
    sources = {str(one["datasource"]["uid"]) for panel in panels() for one in (panel, *panel["targets"])}
    assert sources == {"${datasource}"}
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == ["datasource", "mirror", "topic", "top"]
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) and DASHBOARD["id"] is None
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    taken = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(taken)) == len(taken) and max(x for x, _ in taken) < 24


def test_every_figure_but_a_few_is_on_the_dashboard_or_in_a_rule() -> None:
    """Whoever adds a figure decides whether people should see it."""
    used = {name for query, _ in queries() for name in re.findall(r"airflow_mirror_\w+", query)}
    shown = {re.sub("_(sum|count)$", "", name.removeprefix("airflow_mirror_").removeprefix("topic_")) for name in used}
    every = {name.removeprefix("airflow_mirror_") for name in rows()}
    assert every - shown == {
        "replication_latency_min_seconds",
        "record_age_min_seconds",
        "record_age_max_seconds",
        "group_latency_min_seconds",
    }


# --- what the older tools measure -------------------------------------------------------------------------------------

SPREAD = ("", "-avg", "-min", "-max")
ENDS = ("attempts-total", "success-total", "failure-total", "success-percentage", "failure-percentage")
# Of 4.3.1: MirrorSourceMetrics and MirrorCheckpointMetrics; of ConnectMetricsRegistry what is no sink's and no name or
# version of something (``integration/test_java_files.py`` asks that class). Then what of the clients a mirror's operator
# looks at, and of the two tools before it.
TASK_STATES = ("total", "running", "paused", "failed", "unassigned", "destroyed", "restarting")
OLDER = {
    "MirrorMaker 2": {
        "record-count", "record-rate", "byte-count", "byte-rate",
        *(f"{one}-ms{s}" for one in ("record-age", "replication-latency", "checkpoint-latency") for s in SPREAD),
    },
    "Kafka Connect, under MirrorMaker 2": {
        *(f"source-record-{one}-{kind}" for one in ("poll", "write") for kind in ("total", "rate")),
        *(f"source-record-active-count{s}" for s in ("", "-avg", "-max")),
        "poll-batch-avg-time-ms", "poll-batch-max-time-ms", *(f"transaction-size{s}" for s in SPREAD[1:]),
        "batch-size-avg", "batch-size-max", "status", "running-ratio", "pause-ratio",
        *(f"offset-commit-{one}" for one in ("success-percentage", "failure-percentage", "avg-time-ms", "max-time-ms")),
        "total-record-failures", "total-record-errors", "total-errors-logged", "last-error-timestamp",
        "total-records-skipped", "total-retries",
        "deadletterqueue-produce-requests", "deadletterqueue-produce-failures",
        "connector-count", "task-count", "epoch", "rebalancing",
        *(f"connector-{state}-task-count" for state in TASK_STATES),
        *(f"{one}-startup-{end}" for one in ("connector", "task") for end in ENDS),
        "completed-rebalances-total", "rebalance-avg-time-ms", "rebalance-max-time-ms", "time-since-last-rebalance-ms",
    },
    "The clients of the first two": {
        "records-lag", "records-lag-max", "records-lag-avg", "records-lead", "records-lead-min", "record-error-total",
        "record-error-rate", "record-retry-total", "record-retry-rate",
    },
    "The first MirrorMaker": {"MirrorMaker-numDroppedMessages", "MaxLag", "ConsumerLag"},
    "The Go mirror maker": {
        "FetchDuration", "FetchersIdleTime", "NumWorkerManagers", "WMsActiveWorkers", "WMsIdleTime", "WMsBatchDuration",
        "WMsPendingTasks", "TaskTimeouts",
    },
}  # fmt: skip


@pytest.mark.parametrize("tool", OLDER)
def test_every_metric_of_an_older_tool_has_a_figure_or_the_reason_why_not(exported: Labels, tool: str) -> None:
    table = PAGE.partition(f"\n### {tool}\n")[2].partition("\n#")[0]
    pairs = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)[2:]
    named = [name for metrics, _ in pairs for name in re.findall(r"`([\w-]+)`", metrics)]
    assert sorted(named) == sorted(OLDER[tool])
    for metrics, here in pairs:
        figures = re.findall(r"airflow_mirror_\w+", here)
        stems = {re.sub("_(sum|count)$", "", name) for name in exported}
        assert {re.sub("_(sum|count)$", "", name) for name in figures} <= stems, metrics
        assert here.startswith("none: ") or figures, f"{metrics}: neither a figure nor a reason"
