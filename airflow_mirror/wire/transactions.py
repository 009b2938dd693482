"""Transactions: the epoch at a coordinator, control markers that fill holes, and commits of records with offsets.

There are two ways to write a marker, both needed (measured on 4.3.1):

- Through the coordinator (:meth:`TransactionClient.write_marker`): one marker per empty transaction, ordinary rights,
  and **fenced**: a writer with an old epoch gets :class:`Fenced` and writes nothing.
- Directly to the leader (:func:`write_txn_markers`): thousands per request, cluster rights, and **no protection at
  all**. The same epoch is accepted repeatedly, so a request that is sent twice fills twice. Never retried here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError, LeaseLost, LeaseUnconfirmed, MirrorError, TryAgain
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.connection import Check, Connection
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import FENCED, RETRIABLE, Fenced, meaning, refusal
from airflow_mirror.wire.markers import markers_body, markers_error
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.routing import GROUP, TRANSACTION, find_coordinators

T = TypeVar("T")

# In these a marker is still to come; Empty and the two Complete ones are ends (TransactionState).
_UNDECIDED = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})
_ABOUT_TOPIC = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_INIT_PRODUCER_ID, _WRITE_TXN_MARKERS = 22, 27


@dataclass(frozen=True)
class TransactionDescription:
    """What a coordinator knows of a transactional id; ``state`` as Kafka names it: Empty, Ongoing, CompleteCommit, ..."""

    producer_id: int
    epoch: int
    state: str
    timeout_ms: int


class TransactionClient:
    """Client of the coordinator of one transactional id. Belongs to one thread, like the cluster that it uses.

    Calls retry while the coordinator moves, loads or finishes the previous transaction, for the cluster's
    ``timeout_s``.

    :param check: called right before sending each request that starts something, including retries (`Connection.send`).
        The end of a transaction is always sent: an open one would write its marker later, when the coordinator aborts
        it.
    """

    def __init__(self, cluster: WireCluster, transactional_id: str, check: Check | None = None) -> None:
        self._cluster, self.transactional_id, self._check = cluster, transactional_id, check
        self._coordinators: dict[tuple[str, int], int] = {}
        self._unsettled = False  # a marker of ours may still be in flight

    def init(self, timeout_ms: int, producer_id: int = -1, epoch: int = -1) -> tuple[int, int]:
        """Take over the transactional id; return (producer id, epoch) with a new epoch.

        The coordinator first aborts an open transaction of the predecessor, which writes its markers: when this
        returns, no marker of an earlier epoch is in flight through the coordinator.

        :param timeout_ms: the coordinator aborts a transaction of ours that stays open longer.
        :param producer_id: with ``epoch``: take over only if both are still current (compare and bump, KIP-360).
        :raises Fenced: they are not: somebody else took over.
        """
        from kafka.protocol.producer import InitProducerIdRequest as Request

        def ask(connection: Connection) -> tuple[int, Any]:
            compare = producer_id >= 0
            # 3 has the comparison (KIP-360), 4 the error PRODUCER_FENCED (KIP-588).
            version = connection.newest(Request.API_KEY, 3, 4) if compare else 1
            message = Request(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms, version=version)
            if compare:
                message.producer_id, message.producer_epoch = producer_id, epoch
            # With a comparison the coordinator itself rejects the request if somebody else took over.
            answer = connection.request(message, version, None if compare else self._check)
            return answer.error_code, answer

        # A lost answer is asked for again. Without a comparison that takes one more epoch; with one the coordinator
        # knows the request by the epoch that it led away from, and gives the same answer until it dies.
        answer = self._ask("InitProducerId", ask, producer_id, epoch)
        self._unsettled = False
        return answer.producer_id, answer.producer_epoch

    def describe(self) -> TransactionDescription | None:
        """Return what the coordinator knows; None if it never knew the id or has forgotten it."""
        from kafka.protocol.admin import DescribeTransactionsRequest as Request

        def ask(connection: Connection) -> tuple[int, TransactionDescription | None]:
            state = connection.request(Request(transactional_ids=[self.transactional_id]), 0).transaction_states[0]
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return 0, None
            return state.error_code, TransactionDescription(
                state.producer_id, state.producer_epoch, state.transaction_state, state.transaction_timeout_ms
            )

        # What the one that was asked has: a coordinator that is cut off from its cluster may tell of an earlier owner
        # (`lease_watch.Confirmation.ask`).
        return self._ask("DescribeTransactions", ask, operation="Describe")

    def write_marker(self, tp: TopicPartition, producer_id: int, epoch: int, commit: bool = True) -> None:
        """Append a control marker to ``tp`` with a transaction without data; return once it is in the log for good.

        It is exactly one marker, unless the coordinator dies after it wrote the marker and before it recorded that: the
        next coordinator then writes it again (measured: in 5 of 12 kills in the middle of a series). That happens
        before this call returns, never after it, so **read the log end again after each call**, before sending the next
        record.

        An internal retry can't write a second marker: a partition is in a transaction once, and a transaction ends
        once. After a :class:`TryAgain` the marker may still come. The next call then waits until that is settled,
        writes nothing and raises :class:`TryAgain`, so that nobody continues from a log end that was read too
        early.

        :raises Fenced: another writer took over this transactional id.
        :raises MissingRight: no WRITE on the topic or on the transactional id.
        """
        # Noted before the first request: whichever of them loses its answer, the next call must not count on a log end
        # that a marker may still move.
        unsettled, self._unsettled = self._unsettled, True
        if unsettled:
            described = self.describe()
            # Added and not ended: ended now, or its marker would come when the coordinator times it out.
            if described is not None and described.state == "Ongoing":
                self._end(producer_id, epoch, commit=commit)
        else:
            self._add_partition(tp, producer_id, epoch)
            self._end(producer_id, epoch, commit=commit)
        self._await_completion(tp, producer_id, epoch)
        self._unsettled = False
        if unsettled:
            raise TryAgain(
                f"transactional id {self.transactional_id!r}",
                "an earlier control marker may have been written after its call had failed; nothing was written now",
                "Read the log end offset again and continue from there.",
            )

    # --- transactions with data ---------------------------------------------------------------------------------------

    def begin(self, tp: TopicPartition, group: str, producer_id: int, epoch: int) -> None:
        """Open a transaction that will write to ``tp`` and commit offsets of ``group``.

        :raises Fenced: another writer took over this transactional id.
        :raises MissingRight: no WRITE on topic or transactional id, no READ on the group.
        """
        from kafka.protocol.producer import AddOffsetsToTxnRequest as Request

        def add_offsets(connection: Connection) -> tuple[int, None]:
            request = Request(
                transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group
            )
            return connection.request(request, 1, self._check).error_code, None

        # Before the first record: a batch of a partition that is not in the transaction would be refused, and without the
        # group its position could not be committed with them. Who dies in between leaves an empty transaction.
        self._add_partition(tp, producer_id, epoch)
        self._ask(f"AddOffsetsToTxn of group {group!r}", add_offsets, producer_id, epoch, topic=group)

    def commit(
        self, tp: TopicPartition, group: str, offset: int, metadata: str, producer_id: int, epoch: int
    ) -> None:  # fmt: skip
        """Commit the open transaction, with ``offset`` and ``metadata`` for ``group`` and ``tp``.

        When it returns, every reader sees both records and offset; before that, neither.
        """
        from kafka.protocol.producer import TxnOffsetCommitRequest as Request

        topic = Request.TxnOffsetCommitRequestTopic
        committed = topic.TxnOffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
        )

        def commit_offset(connection: Connection) -> tuple[int, None]:
            request = Request(
                transactional_id=self.transactional_id, group_id=group, producer_id=producer_id, producer_epoch=epoch,
                topics=[topic(name=tp.topic, partitions=[committed])],
            )  # fmt: skip
            return connection.request(request, 2, self._check).topics[0].partitions[0].error_code, None

        # The position belongs to the transaction: until EndTxn it counts for nobody, and who dies before that leaves a
        # transaction that the next copier's takeover aborts, records and position together.
        what = f"TxnOffsetCommit of group {group!r}"
        self._ask(what, commit_offset, producer_id, epoch, topic=group, at=(group, GROUP))
        # Asked again after a lost answer: one that is decided is answered as committed. Without any answer nobody
        # knows; the next takeover completes or aborts it, and reads the position behind that.
        self._end(producer_id, epoch, commit=True)
        self._await_completion(tp, producer_id, epoch)

    def committed_offset(self, tp: TopicPartition, group: str) -> tuple[int, str] | None:
        """Return the offset and metadata that ``group`` has committed for ``tp``; None if it has not.

        Waits while a transaction that would change the offset is open: an offset that is about to change is no answer
        (KIP-447).
        """
        from kafka.protocol.consumer.group import OffsetFetchRequest as Request

        asked = Request.OffsetFetchRequestTopic(name=tp.topic, partition_indexes=[tp.partition], version=7)

        def fetch(connection: Connection) -> tuple[int, tuple[int, str] | None]:
            request = Request(group_id=group, topics=[asked], require_stable=True, version=7)
            answer = connection.request(request, 7)
            if answer.error_code:
                return answer.error_code, None
            for topic in answer.topics:
                for p in topic.partitions:
                    committed = None if p.committed_offset < 0 else (p.committed_offset, p.metadata or "")
                    return p.error_code, committed
            return 0, None

        return self._ask(f"OffsetFetch of group {group!r}", fetch, operation="Read", topic=group, at=(group, GROUP))

    # --- inside -------------------------------------------------------------------------------------------------------

    def _add_partition(self, tp: TopicPartition, producer_id: int, epoch: int) -> None:
        from kafka.protocol.producer import AddPartitionsToTxnRequest as Request

        def add(connection: Connection) -> tuple[int, None]:
            request = Request(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[Request.AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition])],
            )
            # 2: 3 is the same with tagged fields, from 4 on it is for brokers (KIP-890). Added twice, a partition is in
            # it once.
            answer = connection.request(request, 2, self._check)
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code, None

        self._ask(f"AddPartitionsToTxn of {tp}", add, producer_id, epoch, topic=tp.topic)

    def _end(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        from kafka.protocol.producer import EndTxnRequest as Request

        def end(connection: Connection) -> tuple[int, None]:
            request = Request(
                transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=commit
            )
            # Without the check: it ends what is open, and if somebody else has taken the id over, its epoch is refused.
            # Below 5, where an end takes another epoch with it (KIP-890).
            return connection.request(request, 2).error_code, None

        self._ask("EndTxn", end, producer_id, epoch)

    def _await_completion(self, tp: TopicPartition, producer_id: int, epoch: int) -> None:
        """Wait until the coordinator has recorded that the marker is written; EndTxn returns once that is decided."""
        # The decision stands once EndTxn is answered: whoever is coordinator from now on carries it out, whoever dies.
        what = f"{self._cluster.role} cluster, marker to {tp} for transactional id {self.transactional_id!r}"
        backoff = Backoff(self._cluster.timeout_s, first_s=0.001, longest_s=0.01)
        while True:
            seen = self.describe()
            if seen is None or (seen.producer_id, seen.epoch) != (producer_id, epoch):
                raise Fenced(what, ErrorCode.PRODUCER_FENCED, producer_id, epoch)
            if seen.state not in _UNDECIDED:
                return
            if backoff.expired:
                # Decided, and not carried out in time: the marker will still come. `write_marker` stays unsettled, a
                # commit is read by the opening that follows.
                busy = ErrorCode.CONCURRENT_TRANSACTIONS
                raise BrokerError(what, busy, busy.name, seen.state)
            backoff.pause()

    def _ask(
        self,
        what: str,
        ask: Callable[[Connection], tuple[int, T]],
        producer_id: int = -1,
        epoch: int = -1,
        operation: str = "Write",
        topic: str = "",
        at: tuple[str, int] | None = None,
    ) -> T:
        """Ask the coordinator, retrying transient errors, until it gives a final answer.

        :param topic: resource of an authorization error, if it is not the transactional id: a topic or a group.
        :param at: key and type of the coordinator; default: that of the transactional id.
        """
        at = at or (self.transactional_id, TRANSACTION)
        asked = f"{self._cluster.role} cluster, {what} for transactional id {self.transactional_id!r}"
        backoff = Backoff(self._cluster.timeout_s)
        # For the time until the last transaction's marker is written: milliseconds, and holes come in thousands.
        busy = Backoff(self._cluster.timeout_s, first_s=0.002, longest_s=0.01)
        while True:
            failure: int | TryAgain
            try:
                failure, value = ask(self._connect(asked, at))
                if failure == 0:
                    return value
            except (LeaseLost, LeaseUnconfirmed):  # raised by the check: nothing was sent
                raise
            except TryAgain as e:  # including those of FindCoordinator
                failure = e
            if isinstance(failure, int) and failure not in RETRIABLE and failure != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise self._refusal(asked, failure, producer_id, epoch, operation, topic)
            if backoff.expired:
                if isinstance(failure, TryAgain):
                    raise failure
                raise BrokerError(asked, failure, error_name(failure), meaning(failure))
            if failure in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT):
                busy.pause()
            else:
                # It moves with the leader of its partition of the internal topic: the next try asks who it is.
                self._coordinators.pop(at, None)
                backoff.pause()

    def _refusal(self, asked: str, code: int, producer_id: int, epoch: int, operation: str, topic: str) -> MirrorError:
        if code in FENCED:
            return Fenced(asked, code, producer_id, epoch)
        name = topic if code in _ABOUT_TOPIC else self.transactional_id
        return refusal(asked, code, operation, name, self._cluster.settings.principal)

    def _connect(self, asked: str, at: tuple[str, int]) -> Connection:
        # As it was last heard of. One that is it no longer says NOT_COORDINATOR, and has done nothing.
        if at not in self._coordinators:
            key, key_type = at
            (coordinator,) = find_coordinators(self._cluster.any_connection(), [key], key_type)
            if coordinator.code:
                raise self._refusal(asked, coordinator.code, -1, -1, "Describe", key)
            self._coordinators[at] = coordinator.node_id
        return self._cluster.connection(self._coordinators[at])


def new_producer(cluster: WireCluster) -> tuple[int, int]:
    """Return a producer id that nobody had before, and its epoch, for appends outside of transactions (KIP-98).

    :raises TryAgain: no broker has one at the moment.
    """
    from kafka.protocol.producer import InitProducerIdRequest as Request

    # An answer that is lost costs an id that nobody uses.
    answer = cluster.any_connection().request(Request(transactional_id=None, transaction_timeout_ms=60_000, version=1), 1)
    if answer.error_code:
        principal = cluster.settings.principal
        raise refusal(f"{cluster.role} cluster, InitProducerId", answer.error_code, "IdempotentWrite", "", principal)
    return answer.producer_id, answer.producer_epoch


def write_txn_markers(
    cluster: WireCluster,
    tp: TopicPartition,
    producer_id: int,
    epoch: int,
    count: int,
    coordinator_epoch: int = 0,
    commit: bool = True,
    check: Check | None = None,
) -> None:
    """Append ``count`` control markers to ``tp`` with one request to its leader. Sent once, never retried.

    After **any** error all, some or none of the markers may have been written: read the log end again before deciding.

    :param check: see :meth:`Connection.send`.
    :raises ApiNotServed: the listener lets only brokers write markers; nothing was written.
    :raises MissingRight: needs CLUSTER_ACTION on the cluster; ALTER is enough from 3.8 on.
    :raises Fenced: a marker or batch with a higher epoch of this producer was written before.
    :raises Fenced: with TRANSACTION_COORDINATOR_FENCED: a marker with a higher coordinator epoch was written before the
        refused ones. See :func:`coordinator_epoch_of`.
    :raises ConnectionLost: no response; :raises BrokerError: not the leader any more, too few replicas.
    """
    if count < 1:
        raise ValueError(f"count={count}: at least one marker")
    asked = f"{cluster.role} cluster, WriteTxnMarkers ({count}) to {tp}"
    connection = cluster.connection(cluster.leader(tp).node_id)
    body = markers_body(tp, producer_id, epoch, count, coordinator_epoch, commit)
    # The one append that nothing refuses when it comes twice. So it goes once, and who gets no answer, or comes after
    # one who died here, reads the log end before anything else (`Padder.step`).
    code = markers_error(connection.roundtrip(_WRITE_TXN_MARKERS, 1, body, True, check))
    if code == 0:
        return
    if code in RETRIABLE:
        cluster.forget(tp.topic)  # the leader may have moved
    if code in FENCED or code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        raise Fenced(asked, code, producer_id, epoch)
    # From 3.8 on ALTER is enough (KIP-1037); InitProducerId v5 came with the same release.
    right = "Alter (or ClusterAction)" if connection.serves(_INIT_PRODUCER_ID, 5) else "ClusterAction"
    raise refusal(asked, code, right, tp.topic, cluster.settings.principal)


def coordinator_epoch_of(cluster: WireCluster, tp: TopicPartition, producer_id: int) -> int:
    """Return the lowest coordinator epoch that a direct marker of ``producer_id`` may carry on ``tp``.

    The epoch grows with each restart and move of the coordinator, so on a cluster with a past it is never 0. The leader
    learns it from the coordinator's last marker and requires nothing before the first one.
    """
    # If the coordinator moves behind this look, the leader refuses the markers once more.
    states = cluster.describe_producers([tp])[tp]
    return max([0, *(s.coordinator_epoch for s in states if s.producer_id == producer_id)])
