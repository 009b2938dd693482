"""Who else uses a cluster: producers, consumers, and people who change topics. Each request is one event too."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import refusal
from tests.driven.refused import Refused
from tests.memory.asking import Ask, at_once, touching

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.memory.cluster import MemoryCluster

T = TypeVar("T")


class Producer:
    """Writes as a principal; the partition's leader asks its authorizer.

    :param transactional_id: writes in transactions of this id: begin, write, end.
    """

    def __init__(
        self, cluster: MemoryCluster, principal: str = "User:app", ask: Ask = at_once, transactional_id: str = ""
    ) -> None:  # fmt: skip
        self._cluster, self._principal, self._ask, self._id = cluster, principal, ask, transactional_id
        self._producer = (-1, -1)

    def begin(self) -> None:
        """Take the transactional id over."""
        self._producer = self._do(
            f"init {self._id}", lambda: self._cluster.transactions.init(self._id, 60_000), "transaction", self._id
        )

    def write(self, tp: TopicPartition, value: bytes) -> int:
        """Write a record; return its offset.

        :raises MissingRight: it may not.
        """

        def append() -> int:
            if not self._cluster.allows(self._principal, "WRITE", tp):
                raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if self._id:
                self._cluster.transactions.add(self._id, *self._producer, {tp})
            offset = self._cluster.append(tp, value, producer_id=self._producer[0], epoch=self._producer[1])
            self._cluster.written.append((self._principal, tp, offset, value))
            return offset

        return self._do(f"{self._principal} writes to {tp}", append, "log", tp.topic)

    def end(self, *, commit: bool = True) -> None:
        """Commit, or abort."""
        self._do(
            f"{'commit' if commit else 'abort'} {self._id}",
            lambda: self._cluster.transactions.end(self._id, *self._producer, commit=commit), "transaction", self._id,
        )  # fmt: skip

    def _do(self, what: str, do: Callable[[], T], kind: str, name: str) -> T:
        def refusing() -> T:
            try:
                return do()
            except Refused as e:
                raise refusal(f"{self._cluster.role} cluster, {what}", e.code, "Write", name, self._principal) from None

        return self._ask(
            f"{self._cluster.role}: {what}", refusing, effect=True, at=self._cluster.role, touches=touching(kind, name)
        )


class Consumer:
    """Reads some partitions for a group: as a member (join, read, leave), or assigned by hand, without a member id.

    :param member: its name in the group; "": it is assigned by hand.
    """

    def __init__(
        self, cluster: MemoryCluster, group: str, member: str = "", ask: Ask = at_once, reset: str = "latest"
    ) -> None:  # fmt: skip
        self._cluster, self.group, self.member, self._ask, self._reset = cluster, group, member, ask, reset
        self.seen: list[tuple[TopicPartition, int, bytes]] = []

    def join(self) -> None:
        """Become a member."""
        self._do(f"{self.member} joins {self.group}", lambda: self._cluster.join(self.group, self.member))

    def leave(self) -> None:
        """Leave the group."""
        self._do(f"{self.member} leaves {self.group}", lambda: self._cluster.leave(self.group, self.member))

    def read(self, tp: TopicPartition, most: int | None = None) -> int:
        """Read what there is from the group's position on, and commit; return the new position.

        One event: what a consumer has read and not committed, it reads again.

        :param most: offsets that are read at most.
        """

        def read() -> int:
            log = self._cluster.log(tp)
            position = self._cluster.positions(self.group).get(tp)
            at = log.last_stable if self._reset == "latest" else log.log_start
            if position is not None:
                at = max(position.offset, log.log_start)
            end = max(log.last_stable if most is None else min(log.last_stable, at + most), at)
            self.seen += [(tp, row.offset, row.value or b"") for row in log.rows() if at <= row.offset < end]
            if code := self._cluster.commit(self.group, {tp: GroupPosition(end)}, self.member):
                raise refusal(
                    f"{self._cluster.role} cluster, commit of {self.group}", code, "Read", self.group, "User:app"
                )
            return end

        return self._do(f"{self.member or 'a consumer'} reads {tp} for {self.group}", read)

    def go_back(self, tp: TopicPartition, offset: int) -> None:
        """Commit an offset, to read again what is behind it."""
        commit = partial(self._cluster.commit, self.group, {tp: GroupPosition(offset)}, self.member)
        self._do(f"{self.member or 'a consumer'} goes back to {offset} of {tp} for {self.group}", commit)

    def _do(self, what: str, do: Callable[[], T]) -> T:
        return self._ask(
            f"{self._cluster.role}: {what}", do, effect=True, at=self._cluster.role, touches=touching("group", self.group)
        )


def add_partitions(cluster: MemoryCluster, topic: str, total: int, ask: Ask = at_once) -> None:
    """As somebody who grows a topic."""
    ask(
        f"{cluster.role}: somebody grows {topic} to {total}", lambda: cluster.grow(topic, total), effect=True,
        at=cluster.role, touches=touching("topic", topic),
    )  # fmt: skip


def create_topic(cluster: MemoryCluster, topic: str, partitions: int = 1, ask: Ask = at_once) -> None:
    """As somebody who creates a topic, or deletes it and creates it again."""
    ask(
        f"{cluster.role}: somebody creates {topic}", lambda: cluster.create(topic, partitions), effect=True,
        at=cluster.role, touches=touching("topic", topic),
    )  # fmt: skip
