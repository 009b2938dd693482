"""report.html: the report for people. One file, no script, nothing from elsewhere; it stays small with 10,000 partitions.

What is as it should be is counted, by topic and by group; only what is not has a row of its own. ``report.json`` has
everything. Names of topics, groups and principals are whatever their owners chose: every value is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.common.page import MOST_ROWS, template
from airflow_mirror.cutover.intent import fence_text
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.timeline import catch_up_charts, fence_axis, fence_charts, partition_charts
from airflow_mirror.kafka.model import NO_MEMBERS
from airflow_mirror.wording import some

_OUTCOMES = {
    "cut_over": "Cut over",
    "backed_out": "Backed out: everything was restored",
    "undo_failed": "Backing out failed",
    "running": "Running, or interrupted",
}
RELOADS = re.compile(rb'<meta http-equiv="refresh" content="(\d+)">')  # of a page that is not the last one of its run
# Said of clients since the opening, beside what extras.clients.inventory says.
_STILL_READS, _STILL_WRITES = "still has members on the source", "has written to the source"
_MISSING = ("not yet", _STILL_READS, _STILL_WRITES)
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
    topics, clients = _topics(report), _clients(report)
    differing = {name: one for name, one in topics.items() if one.bad}
    drain = next((s for s in reversed(report.steps) if s.name == "drain"), None)
    return template("cutover/report.html.jinja").render(
        r=report, outcome=_OUTCOMES.get(report.outcome, report.outcome), most=MOST_ROWS, topics=topics,
        differing=differing, groups=[_group(g) for g in report.groups], drain=drain, charts=fence_charts(report),
        axis=fence_axis(report), course=catch_up_charts(report), partitions=partition_charts(report),
        clients=clients, users=_by_topic(clients), missing=_MISSING,
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


def _clients(report: CutoverReport) -> list[dict[str, Any]]:
    """Return a row for each client that used the topics before the fence, those that are waited for first, then by wave.

    ``since``: what the target has said of it; "": nobody has looked, or nobody can tell.
    """
    before = report.clients.get("before") or report.clients.get("since") or {}
    since = report.clients.get("since") or {}
    readers = {one["group"]: one for one in since.get("readers", ())}
    writers = {one["name"]: one for one in since.get("writers", ())}
    rows = list[dict[str, Any]]()
    for one in before.get("readers", ()):
        now = readers.get(one["group"], {})
        was = f"{one['state']}: {some(one['clients'], 3) or 'no member'}"
        seen = now.get("on_target", "") if now.get("state", "") in ("", *NO_MEMBERS) else _STILL_READS
        rows.append({
            "name": one["group"], "does": "reads", "topics": one["topics"], "was": was, "since": seen,
            "waves": [one["wave"]] if one.get("wave") else [], "last_ms": one.get("commit_ms", -1),
            "last": f"{one.get('commit_is', '')} ".removeprefix("at ").lstrip(),
        })  # fmt: skip
    for one in before.get("writers", ()):
        now = writers.get(one["name"], {})
        seen = _STILL_WRITES if now.get("since_opening") else now.get("on_target", "")
        rows.append({
            "name": one["name"], "does": "writes", "topics": one["topics"], "since": seen,
            "was": f"producer id {one['producer_id']}" if one.get("transactional") and "producer_id" in one else "",
            "waves": one.get("waves", []), "last_ms": one.get("last_ms", -1), "last": "",
        })  # fmt: skip
    return sorted(rows, key=lambda row: (row["since"] not in _MISSING, not row["waves"], row["waves"]))


def _by_topic(clients: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return who reads and who writes each topic, and how many of them have not come; ``clients`` as above."""
    found: dict[str, dict[str, Any]] = {}
    for row in clients:
        for topic in row["topics"]:
            one = found.setdefault(topic, {"topic": topic, "reads": [], "writes": [], "missing": 0})
            one[row["does"]].append(row["name"])
            one["missing"] += row["since"] in _MISSING
    return sorted(found.values(), key=lambda one: (-one["missing"], one["topic"]))


def _group(record: Any) -> dict[str, Any]:
    rows = record.positions
    return {
        "name": record.group, "settled": record.settled, "state": record.source_state, "committed": record.committed,
        "partitions": len(rows), "lag": sum(row.get("lag") or 0 for row in rows),
        "odd": [row for row in rows if row.get("note") or row.get("action", "") not in _AS_IT_SHOULD_BE],
    }  # fmt: skip
