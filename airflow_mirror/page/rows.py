"""What the page is told of a mirror: values for JSON, from what a ledger and both clusters say. No socket, no clock."""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.status import View, judged
from airflow_mirror.cutover.decision import UP, fence_state
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.timeline import fence_charts
from airflow_mirror.errors import LedgerNewer
from airflow_mirror.extras.clients.inventory import Inventory
from airflow_mirror.extras.drill.report import over
from airflow_mirror.extras.drill.store import Drill
from airflow_mirror.extras.drill.trend import charts
from airflow_mirror.jobs.health.copies import LISTENING
from airflow_mirror.jobs.health.judging import Facts
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.findings import BLOCK, PASS, Finding
from airflow_mirror.plan.ledger_store import dag_of
from airflow_mirror.plan.model import Plan

Positions = Mapping[TopicPartition, GroupPosition]
PHASES = ("plan", "copy", "follow", "cut over", "in production")
MOST = 500  # names of one kind, and findings
MOST_DRILLS = 30
MOST_POSITIONS = 200  # of a group
_FIGURES = ("lag", "lag_s", "headroom_s", "records_per_s", "bytes_per_s", "eta_s", "held", "offsets")


def row_of(
    target: str, view: View, row: Mapping[str, Any], planned: Callable[[str, str], Mirror | None]
) -> dict[str, Any]:
    """Return one mirror of the list.

    :param target: connection id. :param row: of :meth:`.View.rows`; ``view`` is as that look has left it.
    :param planned: returns the Mirror of a plan by the mirror's name and the plan's hash; None if it is not kept.
    """
    name = row["mirror"]
    tail = view.tails[name]
    copy = view.copies[name]
    summary = copy.summary if copy is not None and copy.summary else tail.said.summary
    figures = {key: _number(summary.get(key)) for key in _FIGURES}
    fences = [{**fence, "until": _until(view, name, fence)} for fence in row["fences"]]
    up = [fence for fence in fences if not fence["kept"]]
    clusters = tail.active.mirror if tail.active else {}
    if not clusters and row["plan"] and (found := planned(name, row["plan"])) is not None:
        clusters = found.to_dict()
    phase = _phase(row, bool(up), tail.active is not None)
    findings = [*(copy.findings if copy is not None else ()), *judged(tail)]
    blocks = row["refused"] or row["tail"] == "unreadable" or any(one.level == BLOCK for one in findings)
    offsets = figures.pop("offsets")
    whole = None if copy is None else offsets
    return {
        "target_id": target, "mirror": name, "dag": dag_in(view, name), "plan": row["plan"], "host": _text(row["host"]),
        "source": _text(clusters.get("source")), "target": _text(clusters.get("target")),
        "topics": row["topics"], "in_production": row["in_production"], "phase": phase, "said": row["said"],
        "state": _state(row, bool(up)), "pause": row["pause"], "rate": row["rate"],
        "done": None if not whole else max(0.0, 1 - (figures["lag"] or 0) / whole),
        # A mirror's name comes from a ledger that others may write to: one word for a shell, whatever it holds.
        "lift_command": shlex.join(["airflow-mirror", "lift-fence", "--target", target, "--mirror", name]),
        "fences": fences, "findings": findings_of(findings), "refused": row["refused"],
        "needs_person": bool(up or blocks),
        "follows": {kind: _followed(one) for kind, one in tail.said.followed.items()},
        **figures,
    }  # fmt: skip


def _number(value: object) -> float | None:
    """Return a number that JSON has, of whatever a job said; None for anything else."""
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def dag_in(view: View, name: str) -> str | None:
    """Return the DAG that has planned a mirror, as a look at its target has it; None: none is noted, or readable."""
    try:
        return dag_of(view.values, name)
    except LedgerNewer:
        return None  # what can't be read lets nobody see more


def _until(view: View, name: str, fence: Mapping[str, Any]) -> float | None:
    """Return until when a fence may be up, in seconds since the epoch; None for one that is being lifted, or is kept."""
    state = fence_state(view.values, name)
    if fence["phase"] != UP or state is None:
        return None
    return datetime.fromisoformat(fence["since"]).timestamp() + state.max_fence_s


def _is_over(row: Mapping[str, Any]) -> bool:
    return bool(row["topics"]) and row["in_production"] == row["topics"]


def _phase(row: Mapping[str, Any], fenced: bool, had_tail: bool) -> int:
    if _is_over(row):
        return PHASES.index("in production")
    if fenced:
        return PHASES.index("cut over")
    if had_tail and not row["copy"]:
        return PHASES.index("follow")
    # A bulk copy that has ended leaves nothing but the topics that it has claimed.
    return PHASES.index("copy" if row["copy"] or row["topics"] else "plan")


def _state(row: Mapping[str, Any], fenced: bool) -> str:
    if _is_over(row):
        return "in production"
    if fenced:
        return "source fenced"
    if row["copy"]:
        return "copying" if row["copy"] == "running" else str(row["copy"])
    if row["pause"] and row["tail"] in ("running", LISTENING):
        return "paused"
    if row["tail"] == "running":
        return "following" if row["phase"] == "copying" else str(row["phase"] or "starting")
    return {"none": "at rest" if row["topics"] else "planned"}.get(row["tail"], str(row["tail"]))


def _followed(report: Mapping[str, Any]) -> dict[str, Any]:
    said = report.get("said")
    return {
        "error": _text(report.get("error")),
        "said": [str(one) for one in (said if isinstance(said, list) else ())[:MOST]],
    }


def findings_of(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return what is wrong, worst first as it comes; what passes is left out."""
    shown = [asdict(one) for one in findings if one.level != PASS][:MOST]
    return [{key: str(value) for key, value in one.items()} for one in shown]


def plan_of(plan: Plan) -> dict[str, Any]:
    """Return what there is to say of a plan, but for its topics. ``partitions``: in which a group had a position."""
    groups = [(group, sum(map(len, plan.positions[group].values()))) for group in plan.groups[:MOST]]
    return {
        "hash": plan.hash, "created_at": plan.created_at, "source": plan.mirror.source, "target": plan.mirror.target,
        "findings": findings_of(plan.findings), "group_count": len(plan.groups),
        "groups": [{"group": group, "partitions": partitions} for group, partitions in groups],
        "left_out": list(plan.returning)[:MOST], "amendments": [
            {"number": one.number, "at": one.created_at, "topics": [t.source_topic for t in one.topics][:MOST]}
            for one in plan.amendments[-50:]
        ],
    }  # fmt: skip


def topics_of(plan: Plan, facts: Facts | None) -> list[dict[str, Any]]:
    """Return a plan's topics, each with the lag of its partitions in offsets, as lists; as small as 10,000 allow.

    ``late`` and ``short`` are partitions that are too far behind, and that the source may delete too soon.
    """
    lags: dict[str, list[int]] = defaultdict(list)
    late, short = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    if facts is not None:
        for one in facts.lags:  # sorted by partition
            lags[one.source.topic].append(one.records)
        for which, partitions in ((late, facts.late), (short, {*facts.racing, *facts.lost})):
            for tp in sorted(partitions):
                which[tp.topic].append(tp.partition)
    return [
        {
            "source": t.source_topic, "target": t.target_topic, "mode": t.mode, "partitions": t.partitions,
            "lags": lags.get(t.source_topic), "late": late.get(t.source_topic, []),
            "short": short.get(t.source_topic, []),
        }
        for t in plan.topics
    ]  # fmt: skip


def positions_as_planned(plan: Plan, group: str) -> dict[TopicPartition, GroupPosition]:
    """Return where a group stood on the source when its mirror was planned."""
    its = plan.positions[group].items()
    return {TopicPartition(topic, p): GroupPosition(at) for topic, found in its for p, at in found.items()}


def group_of(plan: Plan, here: Positions, there: Positions, ends: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return a group's positions in a plan's topics, those furthest behind first: as lists, the others are counted.

    :param here: on the source. :param there: on the target, by its topics. :param ends: the source's log ends.
    """
    routes = plan.routes
    rows = list[tuple[str, int, int | None, int | None, int | None]]()
    for tp in sorted(tp for tp in routes if tp in here or routes[tp] in there):
        at, on_target = (None if one is None else one.offset for one in (here.get(tp), there.get(routes[tp])))
        lag = None if at is None or tp not in ends else max(0, ends[tp] - at)
        rows.append((tp.topic, tp.partition, at, on_target, lag))
    rows.sort(key=lambda row: -(row[-1] or 0))
    known = [row[-1] for row in rows if row[-1] is not None]
    return {
        "partitions": len(rows), "lag": sum(known) if known else None, "positions": rows[:MOST_POSITIONS],
        "left": len(rows[MOST_POSITIONS:]), "unseen": [],
    }  # fmt: skip


def clients_in(found: Inventory) -> dict[str, Any]:
    """Return who is there, each with why he is waited for, if he is."""
    whole = found.to_dict()
    for kind, every in (("readers", found.readers), ("writers", found.writers)):
        rows = [{**asdict(one), "waiting": one.waiting if found.opened_ms else ""} for one in every[:MOST]]
        whole |= {kind: rows, f"{kind}_count": len(every)}
    return whole | {"waiting": len(found.waiting)}


def drills_in(drills: Sequence[Drill]) -> dict[str, Any]:
    """Return what drills have found, the newest first, and their trend as coordinates. :param drills: oldest first."""
    rows = [
        {
            "run": one.run, "at": one.at_ms / 1000, "outcome": one.outcome, "missed": one.missed != [],
            "over": list(over(one)),
            **{key: _number(one.figures.get(key)) for key in ("rpo_s", "rto_s", "lost", "reread")},
        }
        for one in drills[: -MOST_DRILLS - 1 : -1]
    ]  # fmt: skip
    return {"rows": rows, "charts": [asdict(chart) for chart in charts(drills)]}


def night_of(reports: Mapping[str, CutoverReport]) -> dict[str, Any] | None:
    """Return the last cutover, with the drawing of its fence; None: there was none. :param reports: by run."""
    if not reports:
        return None
    run, last = max(reports.items(), key=lambda one: one[1].updated)
    return {
        "run": run, "outcome": last.outcome, "state": last.state, "updated": last.updated,
        "seconds": last.fence.seconds if last.fence else None, "max_fence_s": last.max_fence_s,
        "charts": [asdict(chart) for chart in fence_charts(last)],
    }  # fmt: skip
