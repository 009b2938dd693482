"""What has changed on the clusters since the plan was made: looked at before the fence, and again behind it."""

from __future__ import annotations

from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.plan.selection import missing_topics

_KEPT = "the next plan leaves it out, and its copy is the mirror's until 'airflow-mirror retire' gives it up"


def drift(attempt: Attempt) -> list[str]:
    """Return the differences between the clusters and the plan, one line each."""
    lines = []
    there = attempt.source.topics([t.source_topic for t in attempt.plan.topics])
    here = attempt.target.topics([t.target_topic for t in attempt.plan.topics])
    for t in attempt.plan.topics:
        source, target = there.get(t.source_topic), here.get(t.target_topic)
        # By id: a topic that was created again in the same name has other records at the offsets that were copied.
        if source is None or not same_topic(t.source_topic_id, source.topic_id):
            lines.append(f"source topic {t.source_topic!r} was {'deleted' if source is None else 're-created'}: {_KEPT}")
        elif source.partitions != t.partitions:
            lines.append(f"source topic {t.source_topic!r} has {source.partitions} partitions, the plan {t.partitions}")
        if target is None:
            lines.append(f"target topic {t.target_topic!r} does not exist")
        elif target.partitions < t.partitions:
            lines.append(f"target topic {t.target_topic!r} has {target.partitions} partitions, the plan {t.partitions}")
    # Once the source is fenced, nobody could write to new topics and nobody would copy them.
    lines += [f"source topic {name!r} is new: not in the plan" for name in missing_topics(attempt.plan, attempt.source)]
    return lines
