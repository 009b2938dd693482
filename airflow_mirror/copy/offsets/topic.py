"""The topic of offset maps on a target, which a driver creates before its tasks need it."""

from __future__ import annotations

from airflow_mirror.common.policy import MAP_PARTITIONS, MAPS
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.state import SETTINGS, WISHED
from airflow_mirror.ledger.topic import TopicLog, create

_PROOF = "write"  # key of a tombstone, which readers pass over and the cleaner takes
_PATIENCE_S = 60.0


def _unfit(why: str) -> InputError:
    remedy = "Correct it, or delete it: the next copy creates it and derives the maps from both logs."
    return InputError("topic airflow-mirror.maps can't hold offset maps", f"{why}. Nothing was copied", remedy)


def make_ready(target: ClusterAdmin) -> None:
    """Create the topic unless it is there, and make sure that tasks may read and write it.

    :raises MissingRight: no right to create, read or write it. Nothing else was written.
    :raises InputError: it has too few partitions, or is not compacted.
    :raises TryAgain: no broker takes a record for it.
    """
    create(target, MAPS, SETTINGS, WISHED, MAP_PARTITIONS)
    found = target.topics([MAPS]).get(MAPS)
    entries = target.topic_configs([MAPS])[MAPS]
    policy = entries["cleanup.policy"].value if "cleanup.policy" in entries else None
    if found is not None and found.partitions < MAP_PARTITIONS:
        raise _unfit(f"it has {found.partitions} partitions instead of {MAP_PARTITIONS}")
    if policy is not None and policy != "compact":
        raise _unfit(f"its cleanup.policy is {policy} instead of compact")
    log = TopicLog(target.wire, MAPS)
    for _ in log.read(log.start(), log.start() + 1):
        break
    log.put({_PROOF: None}, _PATIENCE_S)
