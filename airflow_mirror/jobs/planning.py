"""Make a plan: what was done before is looked up, then both clusters are read and decided about.

One function, whoever asks: the operator, the command, or a job that was started without a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_mirror.errors import LedgerMissing
from airflow_mirror.jobs.start_memory import begun_at, copy_modes
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Decisions, Ledger, Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan, build
from airflow_mirror.plan.build import Before
from airflow_mirror.plan.ledger_store import last_between
from airflow_mirror.plan.owned import former_ids, target_ids, topics_of
from airflow_mirror.plan.recreated_topics import decisions_of
from airflow_mirror.plan.requirements import target_topics
from airflow_mirror.sync.taking_over import begun_before


def planned(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, ledger: Decisions, *, probe: bool, by_hand: bool = False,
    told: Callable[[str], object] = lambda _: None,
) -> tuple[Plan, Plan | None]:  # fmt: skip
    """Return the mirror's next plan, and its last one. Nothing is stored, and nothing written but for the probe.

    :param probe: try out the rights on the target with a scratch topic.
    :param by_hand: for a job that was started without a plan. It may be about a part of the mirror, so that its last plan
        says neither where it began nor which topics are its own: the target does.
    :param told: is told why an earlier plan does not count.
    :raises LedgerLost: nobody knows whose the topics are.
    """
    Ledger(source).sound_out()  # asked for last, and usually there is none
    last = last_between(mirror.name, source, target, ledger, told)
    known = known_by_hand(mirror, source, target, ledger)
    values = decisions_of(ledger)
    still = _still_known(last, values, target) if last is not None else {}
    if not by_hand:
        known = {**known, **still}
    if mirror.begins_once and (by_hand or (last is None and known)):
        begun = begun_at(mirror, source, target, known)
    else:
        begun = begun_before(mirror, last, source, target)
    configs = {topic: configs for topic, configs in last.final_configs.items() if topic in still} if last else {}
    topics = [t.source_topic for t in last.topics] if last else []
    before = Before(begun=begun, configs=configs, topics=topics, goes_on=by_hand)
    plan = build(mirror, source, target, known, probe_target=probe, before=before, decisions=values)
    return replace(plan, superseded=former_ids(values, target_topics(plan), target_ids(plan, target))), last


def _still_known(last: Plan, values: Values, target: ClusterAdmin) -> dict[str, str]:
    """Return the last plan's known topics without those that were created again: what is in these, others have written.

    It knows them by name alone. All topics are asked for: of one that it had once the right to ask may be gone.
    """
    former = former_ids(values, last.known_topics, {name: info.topic_id for name, info in target.topics().items()})
    return {topic: mode for topic, mode in last.known_topics.items() if topic not in former}


def plan_to_read(mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin) -> Plan:
    """Return a plan by which nothing is to be copied, as if all topics of the target were the mirror's.

    Whoever compares or translates by it finds out.
    """
    known = copy_modes(mirror, source.topic_names(), target)
    begun = begun_at(mirror, source, target, known) if mirror.begins_once else None
    # Nothing is tried out either: a scratch topic is created, written and deleted for that.
    return build(mirror, source, target, known, to_copy=False, probe_target=False, before=Before(begun=begun))


def known_by_hand(
    mirror: Mirror, source: ClusterAdmin, target: ClusterAdmin, ledger: Decisions
) -> Mapping[str, str]:  # fmt: skip
    """Return the target topics that jobs by hand have made the mirror's own, each with the mode in which its copy began.

    :raises LedgerLost: nobody knows.
    """
    try:
        owned = topics_of(ledger, mirror.name, source.cluster_id(), target)
    except LedgerMissing:  # nobody has ever copied to this cluster
        return {}
    return {topic: mode for topic, mode in copy_modes(mirror, source.topic_names(), target).items() if topic in owned}
