"""A target with a ledger, on the driven broker: mirrors in every state, as their own code writes them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, STATE, WISHES
from airflow_mirror.copy.writer import lease
from airflow_mirror.cutover.decision import UP, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.intent import Intent
from airflow_mirror.cutover.report import CutoverReport, FenceRecord, StepRecord, as_recorded
from airflow_mirror.cutover.report_store import ReportStore, reports_of
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, JobId, Sign
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, ledger_store, refused
from airflow_mirror.plan.findings import BLOCK, PASS, WARN, Finding
from airflow_mirror.plan.refused import Refusal
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.copying import id_of
from tests.driven.groups import Committed
from tests.driven.records import Row, encode
from tests.driven.validation import TopicConfig

HOSTILE = '<img src=x onerror="globalThis.pwned=1">'


class World:
    """Two clusters; the target has a ledger.

    :param source_id: connection id of the source, as plans name it; ``target_id`` likewise.
    """

    def __init__(
        self, source: DrivenCluster, target: DrivenCluster, source_id: str = "dc1", target_id: str = "dc2"
    ) -> None:  # fmt: skip
        self.source, self.target, self.source_id, self.target_id = source, target, source_id, target_id
        for name in (STATE, DECISIONS, WISHES):
            target.create(name, config=TopicConfig(append_time=True))
        self._signs: list[Heartbeat] = []
        self._admin = ClusterAdmin(target.config)
        self.ledger = Ledger(self._admin)
        self.ledger.create()
        self.state = state_of(self._admin, "")

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def create(self, lags: Mapping[str, list[int]]) -> None:
        """Create topics on both sides; of each partition the target lacks so many records."""
        for topic, partitions in lags.items():
            for side in (self.source, self.target):
                side.create(topic, len(partitions))
            for p, lag in enumerate(partitions):
                if lag:
                    rows = [Row(n, round(time.time() * 1000), b"k", b"v" * 20) for n in range(lag)]
                    self.source.topics[topic].logs[p].lay(encode(rows))

    def commit(self, side: str, group: str, positions: Mapping[tuple[str, int], int]) -> None:
        """Let a group stand at these offsets, by topic and partition. :param side: ``source`` or ``target``."""
        cluster = self.source if side == "source" else self.target
        made = {TopicPartition(*tp): Committed(at, "", -1) for tp, at in positions.items()}
        cluster.groups.committed.setdefault(group, {}).update(made)

    def plan(
        self, name: str, topics: Mapping[str, int], dag: str | None = None,
        held_configs: Mapping[str, str] | None = None, **more: Any,
    ) -> Plan:  # fmt: skip
        """Plan a mirror of topics with so many partitions, as a DAG does; None: as a person does."""
        mirror = Mirror(name=name, source=self.source_id, target=self.target_id, topics=list(topics))
        planned = [
            topic_plan(
                t, dict.fromkeys(range(n), 0), source_topic_id=id_of(self.source, t) or "id",
                held_configs=held_configs or {},
            ) for t, n in topics.items()
        ]  # fmt: skip
        plan = replace(
            plan_of(mirror, *planned, source_cluster_id=self.source.cluster_id, target_cluster_id=self.target.cluster_id),
            **more,
        )  # fmt: skip
        ledger_store.keep(plan, self.state, self.ledger, dag=dag)
        return plan

    def own(self, mirror: str, *topics: str, opened: str | None = None, source_id: str = "A") -> None:
        """Decide whose target topics are."""
        value = {"v": 1, "topic_id": "x", "mirror": mirror, "source_id": source_id, "opened_by": opened}
        self.ledger.decide(lambda _: {f"topic/{topic}": value for topic in topics})

    def tail(self, plan: Plan, host: str = "worker-3") -> ActiveTail:
        """Decide that a process of another host is the mirror's tail."""
        one = ActiveTail(
            mirror=plan.mirror.to_dict(), plan=plan.hash, inputs="i", directory="/jobs/1", host=host, where=host, pid=1
        )
        self.ledger.decide(lambda _: {f"active/{one.name}": one.value()})
        lease.take(self._admin.wire, one.name)
        return one

    def says(self, job: JobId, state: str = "RUNNING", **content: Any) -> None:
        """Let a job give a sign of life."""
        signs = next((one for one in self._signs if one._me is job), None)
        if signs is None:
            self._signs.append(signs := Heartbeat(self.state, job))
        signs.give(state, **content)

    def pause(self, mirror: str, by: str = "ann@desk") -> None:
        """Let somebody wish that it rests."""
        wish(self.state, mirror, "pause", Wish(by=by, at="2026-01-01T12:00:00+00:00"))

    def fence(
        self, plan: Plan, run: str = "monday", max_fence_s: float = 900.0, kind: str = "acl", name: str = "acl"
    ) -> None:
        """Decide that a fence is up."""
        self.target.clock.now_ms = round(time.time() * 1000)  # from which what is left is counted
        state = FenceState(
            run=run, attempt=1, id="a", plan=plan.hash, revision=plan.hash, owner="o", max_fence_s=max_fence_s, phase=UP,
            kind=kind, name=name, process={"host": "worker-3"},
        )  # fmt: skip
        note_copy(self.ledger, plan.mirror.name, state)

    def report(self, plan: Plan, run: str, **more: Any) -> CutoverReport:
        """Keep the report of a cutover that has fenced, and has not opened yet."""
        at = time.time() - 40
        steps = [
            StepRecord(name="fence", status="done", started=at, seconds=2.1),
            StepRecord(name="prove_fence", status="done", started=at + 2.1, seconds=11.0),
            StepRecord(name="drain", status="running", started=at + 13.1),
        ]
        intent = as_recorded(Intent(topics=tuple(t.source_topic for t in plan.topics)))
        fence = FenceRecord(kind="acl", intent=intent, requested=at, name="acl")
        one = CutoverReport(
            mirror=plan.mirror.name, plan_hash=plan.hash, started=at, steps=steps, fence=fence, max_fence_s=900.0,
            state="PROVEN", lags=[{"at": at + s, "lag": max(0, 900 - 30 * s), "partitions": 3} for s in range(0, 40, 4)],
            **more,
        )  # fmt: skip
        ReportStore(reports_of(self._admin, one.mirror), one.mirror, run, None).save(one)
        return one


def weekly_drills(world: World) -> None:
    """Leave what five drills have found, of which one was too slow."""
    for week, (rpo_s, rto_s) in enumerate([(0.4, 31.0), (0.6, 28.5), (6.2, 140.0), (0.5, 30.1), (0.3, 27.9)]):
        missed = ["RPO 6.20 s (31 records lost), wanted at most 5 s"] if rpo_s > 5 else []
        figures = {"rpo_s": rpo_s, "rto_s": rto_s, "lost": round(5 * rpo_s), "reread": 0, "skipped": 0}
        one = Drill(
            run=f"scheduled__week{week}", at_ms=round(time.time() * 1000) - (5 - week) * 7 * 86_400_000, figures=figures,
            wanted={"rpo_s": 5.0, "rto_s": 120.0}, source_id=world.source.cluster_id, missed=missed,
        )  # fmt: skip
        Drills(world.state, "dr-drill").save(one)


def finding(level: str, evidence: str, remedy: str) -> Finding:
    """Return one of a plan."""
    return Finding(level, "fence_rights" if level == BLOCK else "hold", "", evidence, remedy)


def a_night(world: World, dag: str) -> None:
    """Lay out mirrors in every state, each a DAG's but for the last one. The one to look at closely is ``orders``."""
    at = random.Random(7)
    lags = {
        "orders.eu": [at.choice([0, 0, 0, 12, 40, 900]) for _ in range(48)], "orders.us": [0] * 48, "customers": [0] * 12,
        "payments": [at.choice([0, 0, 3, 25]) for _ in range(24)], "clicks": [at.randrange(300) for _ in range(96)],
    }  # fmt: skip
    world.create(lags)
    held = "retention.ms is on hold while the mirror writes"
    said = finding(WARN, held, "It is set back when topics are opened."), finding(PASS, "well", "")
    topics = {topic: len(partitions) for topic, partitions in lags.items()}
    reads = {"billing": "orders.eu", "fraud-detection": "payments", "search-indexer": "customers"}
    groups = {group: {topic: dict.fromkeys(range(len(lags[topic])), 0)} for group, topic in reads.items()}
    world.commit("source", "billing", {("orders.eu", p): max(0, lag - 5) for p, lag in enumerate(lags["orders.eu"])})
    world.commit("target", "billing", {("orders.eu", 0): 0})
    orders = world.plan("orders", topics, dag, findings=said, positions=groups)
    world.own("orders", *topics)
    follows = {"groups": {"said": ["group 'fraud-detection' is active on the target: left alone"]}, "configs": {}}
    figures = {
        "lag": sum(map(sum, lags.values())),
        "records_per_s": 48_210,
        "bytes_per_s": 62_400_000,
        "eta_s": 2,
        "lag_s": 3.2,
        "headroom_s": 518_000,
    }
    world.says(world.tail(orders), phase="copying", summary=figures, follows=follows)
    world.fence(orders)
    world.report(orders, "manual__2026-11-27T19_30")
    weekly_drills(world)

    world.plan("bigmove", {"archive": 1}, "night_of_bigmove")
    world.own("bigmove", "archive")
    half = {
        "lag": 5_800_000,
        "offsets": 10_000_000,
        "records_per_s": 276_000,
        "bytes_per_s": 62_000_000,
        "eta_s": 21,
        "lag_s": 71_000,
        "headroom_s": 533_800,
    }
    world.says(JobId(name="bigmove", host="worker-1", where="worker-1", bulk=True), phase="copying", summary=half)

    world.own("analytics", "events", "sessions", opened="plan")
    world.tail(world.plan("analytics", {"events": 1, "sessions": 1}, dag), "worker-2")

    audit = world.tail(world.plan("audit", {"audit.log": 1}, dag), "worker-1")
    world.own("audit", "audit.log")
    world.says(audit, "FAILED", error="audit.log-0: records of somebody else at the end (offset 4,112)")

    replica = world.tail(world.plan("replica", {"catalog": 1}, dag))
    world.own("replica", "catalog")
    keeps_up = {
        "lag": 0,
        "records_per_s": 1_904,
        "bytes_per_s": 1_400_000,
        "eta_s": 0,
        "lag_s": 0.0,
        "headroom_s": 604_800,
    }
    world.says(replica, phase="copying", summary=keeps_up)

    world.own("reports", "reports")
    world.says(world.tail(world.plan("reports", {"reports": 1}, dag)), phase="paused", summary={"lag": 91_000})
    world.pause("reports")
    tail = Finding(BLOCK, "tail", "tail", "it rests: somebody has paused it", "Resume it, and let it catch up.")
    refused.note(world.state, "reports", "preview", Refusal.of([tail], f"{dag}.preview, run manual__1", time.time() + 5))

    world.plan("by-hand", {HOSTILE: 1}, positions={HOSTILE: {HOSTILE: {0: 0}}})
    world.own("by-hand", HOSTILE)


def keep_alive(world: World) -> None:
    """Let those that live give their next sign."""
    at = random.Random(time.time())
    for one in world._signs:
        if one._me.name not in ("audit",):
            sign = Sign.decode(world.state.read().get(f"job/{one._me.name}/{one._me.job}/sign"))
            assert sign is not None
            summary = dict(sign.summary)
            if one._me.name == "orders":  # what moves has a line
                summary |= {"lag_s": round(at.uniform(1.2, 4.0), 1), "bytes_per_s": at.randrange(50_000_000, 70_000_000)}
            one.give(sign.state, phase=sign.phase, summary=summary, follows=sign.follows)
