"""Make the plan for the night: look at both clusters, then decide. Only a trial copy writes, if one is wanted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from airflow_mirror.common.policy import is_internal
from airflow_mirror.errors import ClusterUnreachable
from airflow_mirror.extras.readiness.estimate import Trial, estimates, whole_s
from airflow_mirror.extras.readiness.external_state import UNSEEN, elsewhere, streams
from airflow_mirror.extras.readiness.findings import findings
from airflow_mirror.extras.readiness.groups import groups
from airflow_mirror.extras.readiness.look import ReadinessFacts, look, said
from airflow_mirror.extras.readiness.model import NightPlan, Shape
from airflow_mirror.extras.readiness.producers import producers
from airflow_mirror.extras.readiness.race import estimated, race
from airflow_mirror.extras.readiness.trial import try_copy
from airflow_mirror.extras.readiness.waves import reads_of, waves
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.plan import Plan
from airflow_mirror.plan.findings import Questions
from airflow_mirror.sync.maps import OffsetMaps

NO_ID = (
    "producers that don't number their batches (enable.idempotence=false, the default before Kafka 3.0), and those that "
    "wrote nothing for a day: no broker lists them. Ask the owners of topics"
)


def night_plan(
    plan: Plan, source: ClusterAdmin, target: ClusterAdmin, *, trial_s: float = 0.0, tasks: int = 1
) -> NightPlan:  # fmt: skip
    """Return the plan for the night of a plan's topics. It takes some seconds, for which both clusters are watched.

    :param trial_s: seconds of a trial copy to the target's scratch topic, which is deleted again; 0: nothing is written.
        Of what was not tried the result says why.
    :param tasks: that a copy is to have; what a trial shows is of one.
    :raises ClusterUnreachable: one of them does not answer. What they may not tell is listed in the result.
    """
    copied = [t for t in plan.topics if t.target_exists]
    with OffsetMaps(replace(plan, topics=tuple(copied)), source.config, target.config) as maps:
        seen = look(plan, source, target, lambda: maps.positions() if maps else {})
    trial = None
    if trial_s:
        to = Questions(ClusterUnreachable)
        trial = to.ask("how fast a trial copy is", lambda: try_copy(plan, seen.logs, source, target, trial_s))
        seen = replace(seen, unseen=[*seen.unseen, *said(to.unknown)])
    return decide(plan, seen, trial, tasks)


def decide(plan: Plan, seen: ReadinessFacts, trial: Trial | None = None, tasks: int = 1) -> NightPlan:
    """Return the plan for the night from what was seen, without asking a cluster."""
    topics = [t.source_topic for t in plan.topics]
    names = sorted({*seen.positions, *(one.group_id for one in seen.groups)})
    kept = elsewhere(seen.topics, topics, names, seen.modes)
    reads = reads_of(names, seen.positions, streams(kept))
    selected = {group: its for group, its in reads.items() if plan.mirror.selects_group(group)}
    ways = waves(topics, selected)
    races = [race(tp.topic, tp.partition, log) for tp, log in seen.logs.items()]
    bytes_of = {tp: log.offset_bytes for tp, log in seen.logs.items() if log.offset_bytes is not None}
    took = estimates(races, bytes_of, plan.mirror.max_bytes_per_second, trial, tasks)
    seconds = {one.topic: one.seconds for one in took}
    races = [estimated(one, seconds.get(one.topic)) for one in races]
    night = NightPlan(
        mirror=plan.mirror.name,
        plan=plan.hash,
        at=datetime.fromtimestamp(seen.at_ms / 1000, UTC).isoformat(timespec="seconds"),
        topics={t.source_topic: Shape(topic_id=t.source_topic_id, partitions=t.partitions) for t in plan.topics},
        waves=ways,
        races=races,
        estimates=took,
        trial=trial,
        tasks=tasks,
        whole_s=None if trial is None else whole_s(races, bytes_of, trial, tasks),
        producers=producers(seen.producers, seen.transactional_ids, ways),
        groups=groups(seen.groups, streams(kept), reads, ways),
        elsewhere=kept,
        left_topics=[t for t in seen.topics if t not in topics and not is_internal(t)],
        left_groups=[g for g, its in reads.items() if g not in selected and its.intersection(topics)],
        unseen=[*seen.unseen, NO_ID, UNSEEN],
        findings=(),
    )
    return replace(night, findings=findings(night, seen))
