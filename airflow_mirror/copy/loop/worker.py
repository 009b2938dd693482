"""A thread for the steps that wait for a coordinator: padding, and the begin and end of transactions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from airflow_mirror.copy.writer.padding import Padder
from airflow_mirror.copy.writer.transactional import Deliveries
from airflow_mirror.partition import TopicPartition
from airflow_mirror.wire.cluster import WireCluster


class Worker:
    """Takes one step at a time, in the order given; each future holds what the step returned, or its error.

    :param target: its own, closed with it.
    :param check: called before every step that has an effect; raises when the writer lease is gone.
    :param direct_markers: as of :class:`~airflow_mirror.copy.options.CopyOptions`.
    """

    def __init__(
        self, index: int, target: WireCluster, mirror: str, check: Callable[[], None], direct_markers: bool
    ) -> None:
        self._cluster = target
        self._padder = Padder(self._cluster, mirror, check, direct_markers)
        self._deliveries = Deliveries(self._cluster, mirror, check)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"worker-{index}")

    def pad(self, tp: TopicPartition, start: int, end: int) -> Future[int]:
        """Fill [start, end) with markers; returns how many were written."""
        return self._thread.submit(self._padder.fill, tp, start, end)

    def begin(self, tp: TopicPartition, producer_id: int, epoch: int) -> Future[None]:
        """Open a transaction."""
        return self._thread.submit(self._deliveries.begin, tp, producer_id, epoch)

    def commit(self, tp: TopicPartition, position: int, producer_id: int, epoch: int) -> Future[None]:
        """Commit the open transaction with the next source offset."""
        return self._thread.submit(self._deliveries.commit, tp, position, producer_id, epoch)

    def close(self) -> None:
        """Wait for the step under way, give the partitions back and disconnect."""
        self._thread.submit(self._padder.release)
        self._thread.shutdown(wait=True)
        self._cluster.close()
