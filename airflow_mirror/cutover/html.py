"""report.html: the report for people. One file, no script, nothing from elsewhere; it stays small with 10,000 partitions.

What is as it should be is counted, by topic and by group; only what is not has a row of its own. ``report.json`` has
everything. Names of topics, groups and principals are whatever their owners chose: every value is escaped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.page import MOST_ROWS, template
from airflow_mirror.cutover.intent import fence_text
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.timeline import catch_up_charts, fence_axis, fence_charts, partition_charts

_OUTCOMES = {
    "cut_over": "Cut over",
    "backed_out": "Backed out: everything was restored",
    "undo_failed": "Backing out failed",
    "running": "Running, or interrupted",
}
_AS_IT_SHOULD_BE = ("", "commit", "same")  # actions of sync.group_translation.GroupMove


@dataclass(kw_only=True)
class _Topic:
    """One topic: its fenced ends, what was compared behind the fence, and where it differs."""

    partitions: int = 0
    ends: int = 0
    compared: int = 0
    records: int = 0
    bad: list[dict[str, Any]] = field(default_factory=list)


def render(report: CutoverReport) -> str:
    """Return the report as one HTML page; every value is escaped."""
    topics = _topics(report)
    differing = {name: one for name, one in topics.items() if one.bad}
    drain = next((s for s in reversed(report.steps) if s.name == "drain"), None)
    return template("cutover/report.html.jinja").render(
        r=report, outcome=_OUTCOMES.get(report.outcome, report.outcome), most=MOST_ROWS, topics=topics,
        differing=differing, groups=[_group(g) for g in report.groups], drain=drain, charts=fence_charts(report),
        axis=fence_axis(report), course=catch_up_charts(report), partitions=partition_charts(report),
        records=sum(one.records for one in topics.values()),
        fence=fence_text(report.fence.kind, report.fence.changes) if report.fence else [],
    )  # fmt: skip


def _topics(report: CutoverReport) -> dict[str, _Topic]:
    found: dict[str, _Topic] = {}
    for row in report.ends:
        one = found.setdefault(row["topic"], _Topic())
        one.partitions += 1
        one.ends += row["end"]
    for row in report.verification:
        one = found.setdefault(row["source_topic"], _Topic())
        one.compared += 1
        one.records += row["records"]
        if not row["equal"]:
            one.bad.append(row)
    return found


def _group(record: Any) -> dict[str, Any]:
    rows = record.positions
    return {
        "name": record.group, "settled": record.settled, "state": record.source_state, "committed": record.committed,
        "partitions": len(rows), "lag": sum(row.get("lag") or 0 for row in rows),
        "odd": [row for row in rows if row.get("note") or row.get("action", "") not in _AS_IT_SHOULD_BE],
    }  # fmt: skip
