"""Read a topic at a copier's pace and throw it away: what a limit lacks that only produces."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire import fetch
from airflow_mirror.wire.batch import scan
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Connection
from airflow_mirror.wire.error_codes import error_name
from airflow_mirror.wire.fetch import FetchSpec

# The copier's own sizes.
_PARTITION_FETCH_BYTES = 2 << 20
_FETCH_BYTES = 16 << 20


class Reader:
    """Reads partitions to the ends that they have now, ahead of whoever spends what was read.

    :param cluster: the source.
    :param ahead: batches that may be read and not spent before no more is asked for.
    :ivar allowance: batches that were read and not spent.
    """

    def __init__(
        self, cluster: WireCluster, partitions: Iterable[TopicPartition], ahead: int, selector: selectors.BaseSelector
    ) -> None:
        self.allowance, self._ahead = 0, ahead
        tps = list(partitions)
        starts, ends = cluster.log_starts(tps), cluster.high_watermarks(tps)
        by_leader: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for tp in tps:
            if starts[tp] < ends[tp]:
                by_leader.setdefault(cluster.leader(tp).node_id, {})[tp] = starts[tp], ends[tp]
        self._lanes = [_Lane(self, cluster.dedicated(node_id), left) for node_id, left in by_leader.items()]
        for lane in self._lanes:
            selector.register(lane.connection, selectors.EVENT_READ, lane)

    @property
    def done(self) -> bool:
        """Whether everything was read."""
        return not any(lane.left or lane.under_way is not None for lane in self._lanes)

    def ask(self) -> None:
        """Fetch on, unless enough was read ahead."""
        if self.allowance < self._ahead:
            for lane in self._lanes:
                lane.ask()

    def close(self) -> None:
        """Close the connections."""
        for lane in self._lanes:
            lane.connection.close()


@dataclass
class _Lane:
    """One connection to a leader; ``left`` has the next offset and the end of each partition with something left."""

    reader: Reader
    connection: Connection
    left: dict[TopicPartition, tuple[int, int]]
    under_way: int | None = None

    def ask(self) -> None:
        """Send the next fetch, unless one is under way or nothing is left."""
        if self.left and self.under_way is None:
            specs = [FetchSpec(tp, at, _PARTITION_FETCH_BYTES) for tp, (at, _) in self.left.items()]
            body = fetch.encode(specs, 50, 1, _FETCH_BYTES, fetch.READ_COMMITTED)
            self.under_way = self.connection.send(fetch.API_KEY, fetch.NEWEST, [body])

    def take_answer(self) -> None:
        """Receive an answer and throw it away.

        :raises RuntimeError: when the broker refused.
        """
        assert self.under_way is not None
        body, self.under_way = self.connection.receive(self.under_way), None
        _, error, answers = fetch.decode(body)
        for answer in answers:
            if error or answer.error:
                raise RuntimeError(f"{answer.tp}: {error_name(error or answer.error)}")
            count, after = scan(answer.records)
            if count:
                self.reader.allowance += count
                _, end = self.left.pop(answer.tp)
                if after < end:
                    self.left[answer.tp] = after, end  # behind the others: a broker fills an answer in this order
