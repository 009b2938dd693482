"""The last checkpoints of a mirror, left by whoever has ended its writing: where its groups were set.

No tail writes any more then, so that nothing comes after them. Who dies before or between them writes them all when he is
called again: the same values once more, which readers do not tell from the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.ranges import IDENTICAL
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.mm2_topics import marked
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.mm2_topics.formats import Checkpoint, is_writable, read_checkpoint
from airflow_mirror.sync.mm2_topics.log import TraceLog
from airflow_mirror.wire.connection import Check

Positions = Mapping[str, Mapping[TopicPartition, "GroupPosition"]]


def has_checkpoints(mirror: Mirror, decisions: Values) -> bool:
    """Return whether a tail of the mirror has written checkpoints, or was about to.

    Its Mirror may have been another one than the plan's, so the target's ledger is asked.
    """
    return not marked(decisions).isdisjoint(mirror.trace_topics_of("checkpoints"))


def leave(
    target: ClusterAdmin, mirror: Mirror, places: Iterable[Checkpoint], at_ms: int, check: Check = lambda: None
) -> int:
    """Write checkpoints; return how many. What stands there is not read: behind a fence every second counts.

    :param at_ms: wall-clock time. :param check: called before each request: a process that was frozen must not write
        behind a tail that was started meanwhile.
    :raises MirrorError: not all of them are known to be written.
    """
    (topic,) = mirror.trace_topics_of("checkpoints")
    rows = [(one.key, one.value) for one in places if is_writable(one.group, one.metadata)]
    TraceLog(target, topic, mirror.trace_replication_factor).write(rows, at_ms, check)
    return len(rows)


def leave_found(
    plan: Plan, target: ClusterAdmin, positions: Positions, stable: Mapping[TopicPartition, int],
    noted: Mapping[str, bytes], at_ms: int, check: Check,
) -> list[Checkpoint]:  # fmt: skip
    """Write where the groups stand on the target, with the source gone; return what was written.

    Groups follow every few seconds, checkpoints once a minute: the groups know better. A position that somebody else has
    set says nothing about the source, and one behind its checkpoint is of a group that could not be set.

    :param positions: on the target. :param stable: the last stable offsets of their partitions.
    :param noted: the mirror's notes about groups (:mod:`..following.notes`).
    :param at_ms, check: as for :func:`leave`, and its errors.
    """
    (topic,) = plan.mirror.trace_topics_of("checkpoints")
    stored = TraceLog(target, topic).read()
    identical = {t.target_topic for t in plan.topics if t.mode == IDENTICAL}
    found = []
    for group, its in positions.items():
        note = notes.load(noted.get(notes.key(plan.mirror.name, group), b""))
        for tp, position in its.items():
            marks = () if note is None else note.ours.get(tp, ())
            set_back = position.offset == stable[tp] and any(offset > position.offset for offset, _ in marks)
            if notes.mark(position) not in marks and not set_back:
                continue
            one = Checkpoint(group, tp, position.offset, position.offset, position.metadata)
            before = read_checkpoint(one.key, stored.get(one.key, b""))
            if tp.topic not in identical:
                if before is None:
                    continue  # the offset map does not say how far the group had read on the source
                one = one._replace(upstream=before.upstream)
            if before is None or one.downstream > before.downstream or before.downstream > stable[tp]:
                found.append(one)
    leave(target, plan.mirror, found, at_ms, check)
    return found
