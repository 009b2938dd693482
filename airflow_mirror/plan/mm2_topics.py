"""The topics of traces on a target: whether it can hold them, and that nobody copies them.

A name proves nothing: a topic ``heartbeats`` may be an application's. So the mirror that writes traces says in the ledger
which topics they are, before it creates them. Whoever mirrors that cluster to a next one leaves them out: heartbeats of
one flow are none of another, and checkpoints name offsets of one cluster. That stays decided when the mirror is retired,
because its topics stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_mirror.common.policy import HEARTBEATS
from airflow_mirror.errors import LedgerNewer, MissingRight
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import NewTopicSpec, TopicInfo
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.ledger.records import TRACE
from airflow_mirror.plan.owned import decided

SETTINGS = {"cleanup.policy": "compact"}


def mark(ledger: Decisions, topics: Iterable[str]) -> None:
    """Decide that topics hold traces.

    :raises LedgerMissing: :raises LedgerLost: see :class:`Ledger`.
    """
    marks = {key: mark for topic in topics for key, mark in TRACE.put({}, topic).items()}
    ledger.decide(lambda values: {key: mark for key, mark in marks.items() if key not in values} or None)


def marked(values: Values) -> frozenset[str]:
    """Return the topics of which the ledger says that they hold traces."""
    return frozenset(TRACE.under(values))


def specs(target: ClusterAdmin, topics: Iterable[str], replicas: int | None) -> list[NewTopicSpec]:
    """Return the topics as they are created.

    :param replicas: None: 3, as far as there are brokers for it.
    """
    count = replicas or min(3, target.broker_count())
    return [NewTopicSpec(topic, 1, count, SETTINGS) for topic in topics]


def needed(topic: str) -> tuple[str, ...]:
    """Return the operations that the mirror carries out on a topic of traces, as ACLs name them.

    Heartbeats are never read. Of the others the newest values are, to see what is news.
    """
    return ("WRITE", "DESCRIBE_CONFIGS") if topic.endswith(HEARTBEATS) else ("WRITE", "READ", "DESCRIBE_CONFIGS")


def unfit(target: ClusterAdmin, topics: Iterable[str], replicas: int | None, values: Values) -> dict[str, str]:
    """Return which topics can't hold traces, and why. Nothing is written.

    Clients read partition 0 alone, and a topic that deletes by age would lose the checkpoint of a group that rests. All
    rights that the mirror needs there are tried, also on topics that are missing: a tail would lack them once it writes.

    :param replicas: as for :func:`specs`. :param values: what the target's ledger says.
    """
    if not (wanted := list(topics)):
        return {}
    lacking = target.lacking_on_topics({topic: needed(topic) for topic in wanted})
    found = {topic: [*map(str, errors)] for topic, errors in lacking.items()}
    # Who may not write there may not even see whether it exists.
    hidden = {topic for topic, errors in lacking.items() if any(e.acl and e.acl.operation == "Write" for e in errors)}
    there = target.topics([topic for topic in wanted if topic not in hidden])
    for topic, one in there.items():
        if one.partitions > 1:
            found.setdefault(topic, []).append(f"it has {one.partitions} partitions instead of 1")
    for topic, entries in target.topic_configs([topic for topic in there if topic not in lacking]).items():
        policy = entries["cleanup.policy"].value if "cleanup.policy" in entries else None
        if policy not in (None, SETTINGS["cleanup.policy"]):
            said = f"its cleanup.policy is {policy} instead of {SETTINGS['cleanup.policy']}"
            found.setdefault(topic, []).append(said)
    for topic, owner in _owners(values, there).items():
        found.setdefault(topic, []).append(owner)
    for topic, e in target.refused_topics(specs(target, [t for t in wanted if t not in there], replicas)).items():
        if topic not in hidden or isinstance(e, MissingRight):
            found.setdefault(topic, []).append(str(e))
    return {topic: "; ".join(causes) for topic, causes in found.items()}


def _owners(values: Values, there: Mapping[str, TopicInfo]) -> dict[str, str]:
    """Return for topics that belong to a mirror, or may, to which."""
    try:
        owners = decided(values, {topic: one.topic_id for topic, one in there.items()})
    except LedgerNewer as e:
        return dict.fromkeys(there, str(e))
    return {topic: f"it belongs to {one.owner}" for topic, one in owners.items()}
