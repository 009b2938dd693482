"""Source topics that were deleted and created again, while the target still holds the records of the old one.

The new one's records would come at the same offsets, between and behind the old one's. The copy notices that and stops,
as a whole. So a plan leaves such a topic out, and the others go on. Which source topic a target topic holds is decided
with its owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_mirror.errors import LedgerMissing
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.ledger.decisions import Decisions, Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.inventory import Inventory, TopicState
from airflow_mirror.plan.owned import of_mirror

_REMEDY = "Delete the target topic, or exclude this one. Then a tail takes it in at its next look, or the next plan does."


def decisions_of(ledger: Decisions) -> Values:
    """Return what is decided; nothing where there never was a ledger. :raises LedgerLost: nobody knows."""
    try:
        return ledger.values()
    except LedgerMissing:
        return {}


def created_again(
    mirror: Mirror, source_id: str, here: Mapping[str, TopicState], there: Inventory, values: Values
) -> dict[str, str]:
    """Return the source topics that the target holds an older one of, each with its target topic.

    Where brokers have no topic ids (before 2.8), or nobody has written them down, the copy alone can notice it.

    :param here: topics of the source.
    :param values: the target's decisions.
    :raises LedgerNewer: a newer version of the package decided about one of the target topics.
    """
    names = {mirror.naming.target_topic(name): state.info for name, state in here.items()}
    filled = {t: state.info.topic_id for t, state in there.topics.items() if any(state.ends.values())}
    ours = of_mirror(values, mirror.name, source_id, {t: topic_id for t, topic_id in filled.items() if t in names})
    held = {t: one.source_topic_id for t, one in ours.items() if one.source_topic_id}
    return {names[t].name: t for t, held_id in sorted(held.items()) if not same_topic(held_id, names[t].topic_id)}


def sentence(target_topic: str) -> tuple[str, str]:
    """Return what is wrong with such a topic, and what to do, for people."""
    return f"it was deleted and created again, and target topic {target_topic!r} holds the old one's records", _REMEDY
