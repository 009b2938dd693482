"""Back to the old source: its topic is created again and filled from the target, and the group goes on there.

What the source took after the cut has offsets that the target has given to other records by now, and a log's tail can't
be cut off. So the surplus is counted, which is what somebody would have to export, and the topic is created again: the
drill's own, so that nobody needs to be asked. The copy engine and the comparison are those of a mirror, in the other
direction and in this process: the topic is small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import errand
from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import TryAgain
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.reading import everything, id_of, partitions_of, patiently, read_to, write_one
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.wire.errors import UnknownTopic

TIMEOUT_S = 120.0
Note = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class FailbackReport:
    """A failback of the drill's topic.

    :param surplus: records that the old source had, and the target has not, or not at that offset.
    :param nowhere: canaries that were acknowledged, and that neither side has: not even an export would save them.
    :param records: copied back. :param differing: partitions that differ after that, with the first difference.
    :param skipped: records at or after the group's position that it did not get on the old source.
    :param reread: records before it that it got.
    :param took_s: from the first look at the old source until it was read and written again.
    """

    surplus: int
    nowhere: int
    records: int
    differing: list[str]
    skipped: int
    reread: int
    took_s: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self)


def fail_back(
    source: ClientConfig, target: ClientConfig, canaries: Canaries, mirror: str, note: Note = lambda _: None,
    timeout_s: float = TIMEOUT_S,
) -> FailbackReport:  # fmt: skip
    """Create the drill's topic again on the source, copy it back, compare it, and let the group go on there.

    :param mirror: the drill's; the copy back takes a writer lease of its own on the source, which has no ledger for it.
    :param note: see :func:`create_again`.
    :raises DrillMissed: a side has no such topic. :raises BrokerError, TryAgain: a cluster does not serve a request.
    """
    from airflow_mirror.kafka.admin import ClusterAdmin
    from airflow_mirror.kafka.model import GroupPosition, NewTopicSpec

    began, topic, group = time.monotonic(), canaries.topic, canaries.group
    with ClusterAdmin(source) as old, ClusterAdmin(target) as new:
        partitions = partitions_of(new, topic)
        ends = {tp.partition: end for tp, end in new.offsets(partitions, "latest").items()}
        held = everything(target, topic, ends, timeout_s)
        had_ends = {tp.partition: end for tp, end in old.offsets(partitions_of(old, topic), "latest").items()}
        had = everything(source, topic, had_ends, timeout_s)
        positions = new.group_offsets(group)
        replicas = old.topics([topic])[topic].replication_factor
        create_again(old, NewTopicSpec(topic, len(partitions), replicas), timeout_s, note)
        differing = _copy_back(source, target, topic, ends, errand(mirror, "failback"), timeout_s)
        # All of them: a position that it had before the topic was created again may still be there.
        wanted = {tp: positions.get(tp, GroupPosition(0)) for tp in partitions}
        patiently(lambda: old.commit_group_offsets(group, wanted, unfenced), timeout_s)
    stands = {tp.partition: position.offset for tp, position in wanted.items()}
    due = {row for row in held if row[1] >= stands[row[0]]}
    got = set(read_to(source, topic, group, stands, ends, timeout_s).rows)
    write_one(source, topic, timeout_s)
    return FailbackReport(
        surplus=len(had - held),
        nowhere=len({row[:3] for row in canaries.acked} - held - had),
        records=len(held),
        differing=differing,
        skipped=len(due - got),
        reread=len(got - due),
        took_s=round(time.monotonic() - began, 3),
    )


def create_again(old: ClusterAdmin, spec: Any, timeout_s: float, note: Note = lambda _: None) -> None:
    """Delete a topic and create it empty. Brokers delete it when they get to it; until then its name is taken.

    One that the broker does not list is not deleted: by its name alone that would take whatever is there by then.

    :param note: keeps the id of what a clean-up may delete; "": it is not known.
    """
    there = old.topics([spec.name]).get(spec.name)
    # Before the deletion. Dies in between, or before the next note: the clean-up takes what is there under this name. By
    # the id of before it would leave the drill's own topic, as somebody else's.
    note("")
    if there is not None and there.topic_id:
        # By the id that was read just now: what somebody creates in this name meanwhile is another topic.
        old.delete_topic(spec.name, there.topic_id, unfenced)
    elif there is not None:  # brokers before 2.8 have no ids
        old.delete_topics([spec.name], unfenced)

    def is_known() -> None:
        old.wire.refresh([spec.name])
        old.wire.log_ends([TopicPartition(spec.name, p) for p in range(spec.partitions)])

    patiently(lambda: old.create_topics([spec], unfenced), timeout_s)
    patiently(is_known, timeout_s, UnknownTopic)
    note(id_of(old, spec.name, timeout_s))


def _copy_back(
    source: ClientConfig, target: ClientConfig, topic: str, ends: dict[int, int], lease_of: str, timeout_s: float
) -> list[str]:
    """Copy a topic from the target to the source, at the same offsets; return where both differ afterwards.

    :raises MirrorError: what stopped the copy of a partition. :raises TryAgain: it is not done in time.
    """
    from airflow_mirror.copy.loop.clusters import Clusters
    from airflow_mirror.copy.loop.loop import CopyLoop
    from airflow_mirror.copy.options import CopyOptions
    from airflow_mirror.copy.ranges import CopyRange
    from airflow_mirror.copy.writer import lease
    from airflow_mirror.copy.writer.lease_watch import LeaseWatch
    from airflow_mirror.verify.partition import compare_partitions
    from airflow_mirror.verify.result import PartitionPair
    from airflow_mirror.wire.cluster import WireCluster

    ranges = [
        CopyRange(source_topic=topic, target_topic=topic, partition=p, start_offset=0, end_offset=end)
        for p, end in sorted(ends.items())
    ]
    with WireCluster(source) as wire:
        token = lease.take(wire, lease_of)
        time.sleep(token.wait_s)
        with closing(LeaseWatch(source, token)) as watch:
            deadline = time.monotonic() + timeout_s
            loop = CopyLoop(ranges, Clusters.of(target, source), CopyOptions(mirror=lease_of), watch.check)
            loop.run(lambda: time.monotonic() > deadline)
        lease.release(wire, token)
    for one in loop.partitions:
        if one.error is not None:
            raise one.error
        if not one.done:
            raise TryAgain(str(one.range.source), f"it was not copied back within {timeout_s:.0f} s")
    pairs = [PartitionPair(source_topic=topic, target_topic=topic, partition=p) for p in sorted(ends)]
    verdicts = compare_partitions(pairs, target, source)
    return [f"{topic}-{v.partition}: {v.first_difference}" for v in verdicts if not v.equal]
