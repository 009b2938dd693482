"""The requests of :mod:`airflow_mirror.wire.cluster`, encoded and decoded with kafka-python's schema classes.

Each function asks one broker about partitions that it leads and yields ``(partition, error code, value)``. kafka-python
is imported inside the functions: the import takes a quarter of a second, too much for a process that only parses DAGs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import KAFKAS_OWN
from airflow_mirror.wire import produce
from airflow_mirror.wire.connection import Check, Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import RETRIABLE, ConnectionLost
from airflow_mirror.wire.topology import Leader, ProducerState, by_topic, grouped

Led = Sequence[tuple[TopicPartition, Leader]]
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_LIST_OFFSETS, _SAYS_NOT_READY = 2, 5
_OFFSET_FOR_LEADER_EPOCH = 23
_importing = threading.Lock()
_LIST_TRANSACTIONS = 66  # since 3.0
_CREATES_NOTHING = 10  # of Metadata: brokers before 2.8 create Kafka's own topics when these are named, whoever asks
_PROBE_TIMEOUT_MS = 5000


def import_protocol() -> None:
    """Import the modules of requests and responses whole, in one thread.

    They import each other. Two threads that begin at different ones at once find half of a module, or are refused as a
    deadlock. Imported late at all, because they take a third of a second, and who asks for help needs none.
    """
    with _importing:
        import kafka  # noqa: F401


def metadata(connection: Connection, topics: Iterable[str] | None, exist: bool = False) -> Any:
    """Return the MetadataResponse for ``topics``; None: for all visible topics. Never creates a topic.

    :param exist: some broker of the cluster has them, so that none can be created.
    """
    from kafka.protocol.metadata import MetadataRequest

    # 4: does not auto-create topics; 7: leader epochs (2.1); 10: topic ids (2.8).
    version = connection.newest(MetadataRequest.API_KEY, 4, 12)
    if topics is None:
        return _metadata(connection, None, version)
    names = list(topics)
    own = [name for name in names if version < _CREATES_NOTHING and name in KAFKAS_OWN and not exist]
    answer = _metadata(connection, [name for name in names if name not in own], version)
    if own:
        listed = {topic.name: topic for topic in _metadata(connection, None, version).topics}
        answer.topics += [listed.get(name) or _unlisted(connection, name, version) for name in own]
    return answer


def _metadata(connection: Connection, names: Iterable[str] | None, version: int) -> Any:
    from kafka.protocol.metadata import MetadataRequest

    asked = MetadataRequest.MetadataRequestTopic
    wanted = None if names is None else [asked(name=name, version=version) for name in names]
    # A broker would create what it is asked about, with its own defaults in place of the source's settings.
    message = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, version=version)
    return connection.request(message, version)


def _unlisted(connection: Connection, topic: str, version: int) -> Any:
    """Return what Metadata would say of a topic that a broker's list of all topics lacks."""
    from kafka.protocol.metadata import MetadataResponse

    # The list leaves out what may not be described; ListOffsets says so, and creates nothing.
    ((_tp, code, _),) = list_offsets(connection, [(TopicPartition(topic, 0), Leader(-1, -1))], LATEST, READ_UNCOMMITTED)
    if code not in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        code = ErrorCode.LEADER_NOT_AVAILABLE  # it has heard of the topic since
    return MetadataResponse.MetadataResponseTopic(error_code=code, name=topic, partitions=[], version=version)


def known_metadata(connection: Connection, topics: Iterable[str] | None, exist: bool = False) -> Any:
    """Return :func:`metadata` of a broker that knows its cluster.

    :param exist: as there.
    :raises ConnectionLost: it lists no brokers: it has just started, and knows as little of topics.
    """
    answer = metadata(connection, topics, exist)
    if not answer.brokers:
        reason = "it lists no brokers: it has just started, and has not heard of its cluster yet"
        raise ConnectionLost(connection.settings.role, connection.address, "Metadata", reason)
    return answer


def tells_ready_ends(connection: Connection) -> bool:
    """Return whether a leader that does not know its high watermark yet says so (KIP-207), instead of one too low."""
    return connection.serves(_LIST_OFFSETS, _SAYS_NOT_READY)


def list_offsets(
    connection: Connection, led: Led, timestamp: int, isolation: int
) -> Iterator[tuple[TopicPartition, int, int]]:
    """ListOffsets: the offset for ``timestamp`` in ms, or for EARLIEST or LATEST; -1 if no record is that late."""
    from kafka.protocol.consumer import ListOffsetsRequest as Request

    # 2: isolation (0.11); 4: leader epochs (2.1). Told too low an end, the log seems to have lost records.
    version = connection.newest(Request.API_KEY, 2, _SAYS_NOT_READY)
    asked, leaders = Request.ListOffsetsTopic, dict(led)

    def one(tp: TopicPartition) -> Any:
        epoch = leaders[tp].epoch
        return asked.ListOffsetsPartition(partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp)

    topics = [asked(name=topic, partitions=its) for topic, its in grouped(leaders, one).items()]
    response = connection.request(Request(replica_id=-1, isolation_level=isolation, topics=topics), version)
    for answered in response.topics:
        for p in answered.partitions:
            yield TopicPartition(answered.name, p.partition_index), p.error_code, p.offset


class EpochEnd(NamedTuple):
    """The end offset of an epoch in a leader's log. ``epoch`` is the highest one it has up to the requested epoch.

    Both are -1 if it knows no epoch, or none as high as the requested one.
    """

    epoch: int
    end: int


_NO_EPOCH = EpochEnd(-1, -1)


def log_ends(connection: Connection, led: Led) -> Iterator[tuple[TopicPartition, int, int]]:
    """Yield where the leader's own epoch ends: the log end offset, including records above the high watermark.

    Brokers before 2.1 do not report epochs to clients, and brokers before 3.0 keep none of logs whose message format is
    older than 0.11. For those only the high watermark is known: records that a leader has appended above it and not
    replicated yet are not seen.
    """
    # Only a source may be that old: on a target the log end decides where a copy goes on (`served.NEEDED`).
    if not connection.serves(_OFFSET_FOR_LEADER_EPOCH, 2):
        yield from list_offsets(connection, led, LATEST, READ_UNCOMMITTED)
        return
    epochs, without = {tp: leader.epoch for tp, leader in led}, set[TopicPartition]()
    may_lack = not connection.serves(_LIST_TRANSACTIONS, 0)
    for tp, error, epoch_end in epoch_ends(connection, led, epochs):
        # A leader has noted its own epoch before it answers for it, unless it notes none.
        if may_lack and not error and epoch_end == _NO_EPOCH:
            without.add(tp)
            continue
        # If the returned epoch is older than ours, it ends before the log does: the broker does not know our epoch yet.
        news = ErrorCode.UNKNOWN_LEADER_EPOCH if epoch_end.end < 0 or epoch_end.epoch != epochs[tp] else ErrorCode.NONE
        yield tp, error or news, epoch_end.end
    if without:
        yield from list_offsets(
            connection, [(tp, leader) for tp, leader in led if tp in without], LATEST, READ_UNCOMMITTED
        )


def epoch_ends(
    connection: Connection, led: Led, epochs: Mapping[TopicPartition, int]
) -> Iterator[tuple[TopicPartition, int, EpochEnd]]:
    """OffsetForLeaderEpoch: the end offsets of epochs in the leader's log (KIP-320)."""
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest as Request

    version = connection.newest(Request.API_KEY, 2, 3)
    # With the epoch that we believe its leader has: one that was deposed, or has not heard yet, refuses (KIP-320),
    # where it would tell the end of a log that is no longer the partition's.
    asked, leaders = Request.OffsetForLeaderTopic, dict(led)

    def one(tp: TopicPartition) -> Any:
        epoch = leaders[tp].epoch
        return asked.OffsetForLeaderPartition(partition=tp.partition, current_leader_epoch=epoch, leader_epoch=epochs[tp])

    topics = [asked(topic=topic, partitions=its) for topic, its in grouped(leaders, one).items()]
    response = connection.request(Request(replica_id=-1, topics=topics), version)
    for answered in response.topics:
        for p in answered.partitions:
            yield TopicPartition(answered.topic, p.partition), p.error_code, EpochEnd(p.leader_epoch, p.end_offset)


def delete_records(
    connection: Connection, led: Led, offsets: dict[TopicPartition, int], timeout_ms: int, check: Check
) -> Iterator[tuple[TopicPartition, int, int]]:
    """DeleteRecords: the resulting log start offsets, which are at least the requested offsets."""
    from kafka.protocol.admin import DeleteRecordsRequest as Request

    # KIP-107. A broker raises the log start in memory, and writes it down once a minute: see `priming.restore_start`.
    version = connection.newest(Request.API_KEY, 0, 1)
    asked = Request.DeleteRecordsTopic

    def one(tp: TopicPartition) -> Any:
        return asked.DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp])

    topics = [asked(name=topic, partitions=its) for topic, its in grouped(dict(led), one).items()]
    # Who dies behind it, or gets no answer, asks for the same offsets again: see `WireCluster.delete_records`.
    response = connection.request(Request(topics=topics, timeout_ms=timeout_ms), version, check)
    for answered in response.topics:
        for p in answered.partitions:
            yield TopicPartition(answered.name, p.partition_index), p.error_code, p.low_watermark


def log_sizes(connection: Connection, led: Led) -> Iterator[tuple[TopicPartition, int, int]]:
    """DescribeLogDirs: bytes of each partition's log on this broker, its leader. Needs DESCRIBE on the cluster."""
    from kafka.protocol.admin import DescribeLogDirsRequest as Request

    # A broker tells of its own directories alone (KIP-113): so the leader is asked.
    version = connection.newest(Request.API_KEY, 1, 4)
    asked = Request.DescribableLogDirTopic
    topics = [asked(topic=topic, partitions=its, version=version) for topic, its in by_topic(dict(led)).items()]
    response = connection.request(Request(topics=topics, version=version), version)
    # Before v3 a principal without the right gets an empty response.
    refused = getattr(response, "error_code", 0) or (0 if response.results else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    sizes: dict[TopicPartition, int] = {}
    for directory in response.results:
        for topic in directory.topics:
            for p in topic.partitions:
                # The copy that is being moved to another disk is not the log yet.
                if not p.is_future_key:
                    sizes[TopicPartition(topic.name, p.partition_index)] = p.partition_size
    # A leader lists an empty log as well: one that it leaves out has moved, or its disk is offline.
    for tp, _ in led:
        yield tp, refused or (0 if tp in sizes else ErrorCode.LEADER_NOT_AVAILABLE), sizes.get(tp, 0)


def write_answers(connection: Connection, led: Led) -> Iterator[tuple[TopicPartition, int, int]]:
    """Produce an invalid batch: yield the code with which the leader refuses it. It is never written.

    TOPIC_AUTHORIZATION_FAILED: this principal may not write; CORRUPT_MESSAGE: it may. Only for brokers of which
    :func:`airflow_mirror.wire.served.unproven` says nothing.
    """
    for tp, code in write_refusals(connection, [tp for tp, _ in led]):
        # A leader below min.insync.replicas has let this principal in before it says so.
        passing = code in RETRIABLE and code != ErrorCode.NOT_ENOUGH_REPLICAS
        unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        yield tp, code if passing or unknown else 0, code


def write_refusals(connection: Connection, tps: list[TopicPartition]) -> Iterator[tuple[TopicPartition, int]]:
    """Produce an invalid batch to partitions, whoever leads them: yield the broker's code for each."""
    from kafka.protocol.producer import ProduceRequest as Request

    # 3 is the first with record batches of magic 2; none of these names topics by id, so that any broker can be asked.
    version = connection.newest(Request.API_KEY, 3, produce.API_VERSION)
    asked = Request.TopicProduceData

    def one(tp: TopicPartition) -> Any:
        return asked.PartitionProduceData(index=tp.partition, records=produce.INVALID)

    topics = [asked(name=topic, partition_data=its) for topic, its in grouped(tps, one).items()]
    message = Request(transactional_id=None, acks=produce.ACKS_ALL, timeout_ms=_PROBE_TIMEOUT_MS, topic_data=topics)
    response = connection.request(message, version)
    for answered in response.responses:
        for p in answered.partition_responses:
            yield TopicPartition(answered.name, p.index), p.error_code


def describe_producers(connection: Connection, led: Led) -> Iterator[tuple[TopicPartition, int, list[ProducerState]]]:
    """DescribeProducers v0: the producers that the leader knows, in no particular order."""
    from kafka.protocol.admin import DescribeProducersRequest as Request

    # KIP-664. What the leader has of them in memory and in its snapshots (ProducerStateManager), and a new leader
    # rebuilds from the log.
    topics = [Request.TopicRequest(name=topic, partition_indexes=its) for topic, its in by_topic(dict(led)).items()]
    response = connection.request(Request(topics=topics), 0)
    for answered in response.topics:
        for p in answered.partitions:
            states = [
                ProducerState(
                    s.producer_id, s.producer_epoch, s.last_sequence, s.last_timestamp, s.current_txn_start_offset,
                    s.coordinator_epoch,
                )
                for s in p.active_producers
            ]  # fmt: skip
            yield TopicPartition(answered.name, p.partition_index), p.error_code, states
