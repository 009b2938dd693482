"""Who writes: the producers that partition leaders remember, with their transactional ids where coordinators tell.

A leader remembers a producer that numbers its batches, for a day after its last record (``producer.id.expiration.ms``).
Others (``enable.idempotence=false``, the default before 3.0) are listed by nobody. Rule: KIP-664.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.identity import is_ours
from airflow_mirror.extras.readiness.waves import Wave
from airflow_mirror.wire.topology import ProducerState


@dataclass(frozen=True, kw_only=True)
class Producer:
    """One producer id.

    :param transactional_id: "" where it has none, or nobody may tell. :param last_ms: newest time among its records.
    :param partitions: that it has written to, sorted. :param waves: numbers of theirs, from 1 on.
    :param in_transaction: it has an open one. :param is_mirror: a mirror that copies to this cluster.
    """

    producer_id: int
    epoch: int
    transactional_id: str
    last_ms: int
    partitions: Sequence[str]
    waves: Sequence[int]
    in_transaction: bool
    is_mirror: bool

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.transactional_id or f"producer {self.producer_id}"


def producers(
    known: Mapping[TopicPartition, Sequence[ProducerState]], ids: Mapping[int, str], waves: Sequence[Wave]
) -> list[Producer]:
    """Return each producer once, the one that wrote last first.

    :param ids: transactional ids by producer id.
    """
    wave_of = {topic: number for number, wave in enumerate(waves, 1) for topic in wave.topics}
    found: dict[int, list[tuple[TopicPartition, ProducerState]]] = {}
    for tp, states in known.items():
        for state in states:
            found.setdefault(state.producer_id, []).append((tp, state))
    every = [
        Producer(
            producer_id=producer_id,
            epoch=max(state.epoch for _, state in its),
            transactional_id=ids.get(producer_id, ""),
            last_ms=max(state.last_timestamp for _, state in its),
            partitions=[str(tp) for tp in sorted(tp for tp, _ in its)],
            waves=sorted({wave_of[tp.topic] for tp, _ in its if tp.topic in wave_of}),
            in_transaction=any(state.current_txn_start >= 0 for _, state in its),
            is_mirror=is_ours(producer_id),
        )
        for producer_id, its in found.items()
    ]
    return sorted(every, key=lambda one: (-one.last_ms, one.producer_id))
