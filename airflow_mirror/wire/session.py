"""A fetch session (KIP-227): the broker keeps the partitions of a request, the next ones name what has changed.

What a broker keeps is what we told it, in this order: a full request (epoch 0) lays it down, each request behind it has
the next epoch, and an epoch that does not follow is refused. So as long as every request was answered, both sides hold
the same positions. After anything else (a lost answer, an error, a session that the broker has evicted) nothing is
concluded: the next request is a full one, which names everything again.
"""

from __future__ import annotations

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.fetch import FetchSpec, Place

_LAST_EPOCH = 2**31 - 1
# Evicted, closed by somebody else, or of a broker that has restarted: none of them says anything about a partition.
OVER = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FetchSession:
    """The partitions that a broker keeps for one client, and what it still has to be told. One request at a time.

    :ivar takes_ids: the broker knows topics by their ids; they are named so while those of all are known.
    """

    def __init__(self) -> None:
        self._id = self._epoch = 0
        self._held: dict[TopicPartition, FetchSpec] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._gone: dict[TopicPartition, FetchSpec] = {}
        self._without_id: set[TopicPartition] = set()
        self.takes_ids = self._by_id = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_kept(self) -> bool:
        """Whether the broker keeps the session, as far as its last answer goes."""
        return self._epoch > 0

    def put(self, spec: FetchSpec) -> None:
        """Have the next request name a partition."""
        before = self._held.get(spec.tp, self._gone.get(spec.tp))
        if before is not None and before.topic_id != spec.topic_id:
            self.begin_anew()  # for a broker they are two partitions, of which it would keep both
        self._held[spec.tp] = spec
        if not spec.topic_id:
            self._without_id.add(spec.tp)
        else:
            self._without_id.discard(spec.tp)
        self._changed[spec.tp] = None
        # A request that both names and forgets a partition makes the broker forget it.
        self._gone.pop(spec.tp, None)

    def drop(self, tp: TopicPartition) -> None:
        """Have the next request forget a partition."""
        if (spec := self._held.pop(tp, None)) is not None:
            self._changed.pop(tp, None)
            self._without_id.discard(tp)
            self._gone[tp] = spec

    def request(self) -> tuple[list[FetchSpec], Place]:
        """Return the partitions to name in the next request, and its place."""
        forgotten, self._gone = self._gone, {}
        changed, self._changed = self._changed, {}
        by_id = self.takes_ids and not self._without_id
        if by_id != self._by_id:
            self.begin_anew()
            self._by_id = by_id
        if not self.is_kept:
            # With the old id: a broker that still has that session closes it for the new one.
            return list(self._held.values()), Place(self._id, 0, by_id=by_id)
        return [self._held[tp] for tp in changed], Place(self._id, self._epoch, list(forgotten.values()), by_id)

    def answered(self, error: int, session_id: int) -> None:
        """Take what a response says of the session: the next request is incremental, or a full one."""
        if error or not session_id or (self.is_kept and session_id != self._id):
            # No id behind a full request: the broker has no room, or a quota is exceeded. Each request is full then.
            self._id, self._epoch = (0 if error in OVER else self._id), 0
            return
        self._id, self._epoch = session_id, 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def begin_anew(self) -> None:
        """Have the next request name everything: whether the broker has executed the last one is not known."""
        self._epoch = 0
