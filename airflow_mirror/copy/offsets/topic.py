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
    # By several jobs at once, if need be: who comes second finds it (`ledger.topic.create`). A death behind it leaves
    # an empty topic, which the next job takes as it is.
    create(target, MAPS, SETTINGS, WISHED, MAP_PARTITIONS)
    described = target.topics([MAPS]).get(MAPS)
    entries = target.topic_configs([MAPS])[MAPS]
    policy = entries["cleanup.policy"].value if "cleanup.policy" in entries else None
    # Where a map lies is counted with this number, by every version of the mirror: with fewer, a writer would ask for a
    # partition that is not there.
    if described is not None and described.partitions < MAP_PARTITIONS:
        raise _unfit(f"it has {described.partitions} partitions instead of {MAP_PARTITIONS}")
    if policy is not None and policy != "compact":
        raise _unfit(f"its cleanup.policy is {policy} instead of compact")
    log = TopicLog(target.wire, MAPS)
    for _ in log.read(log.start(), log.start() + 1):
        break
    # Before any task begins: otherwise each of them would find out for itself that nobody may write here, when it
    # stores its first origin. The tombstone stays until the cleaner comes.
    log.put({_PROOF: None}, _PATIENCE_S)
