"""A cluster accessed through the protocol. Requests go to the responsible leader and survive a change of leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.wire import requests
from airflow_mirror.wire.connection import Check, Connection
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ASKED_AGAIN, ConnectionLost
from airflow_mirror.wire.metadata import Metadata
from airflow_mirror.wire.retry import Backoff
from airflow_mirror.wire.topology import Leader, ProducerState

__all__ = ["Leader", "ProducerState", "WireCluster"]

T = TypeVar("T")
Ask = Callable[[Connection, requests.Led], Iterable[tuple[TopicPartition, int, T]]]


class WireCluster(Metadata):
    """Routes requests to partition leaders. Belongs to one thread, like the connections that it caches.

    Calls retry transient errors (a leader moved, a broker restarted) with fresh metadata for ``timeout_s``. Then they
    raise a :class:`TryAgain` that names the cluster, the partition and the last answer. Waiting for a silent broker may
    exceed the timeout by a third. Authorization errors are raised at once, unknown topics once every broker has
    reported them for some seconds. After :meth:`hurry`, waiting is left to the caller.

    :param config: the cluster's settings.
    :param client_id: used unless the settings have a ``client.id``.
    :raises InvalidField: the wire client can't honour a setting.
    """

    # --- offsets ------------------------------------------------------------------------------------------------------

    def log_starts(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        return self._list_offsets("log start", tps, requests.EARLIEST, requests.READ_UNCOMMITTED)

    def high_watermarks(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks, where consumers stop. The log itself may go on: see :meth:`log_ends`."""
        return self._list_offsets("high watermark", tps, requests.LATEST, requests.READ_UNCOMMITTED)

    def last_stable(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where read_committed consumers stop: at the first open transaction, or at the high watermark."""
        return self._list_offsets("last stable offset", tps, requests.LATEST, requests.READ_COMMITTED)

    def offsets_for_time(self, tps: Iterable[TopicPartition], ts_ms: int) -> dict[TopicPartition, int]:
        """Return the offset of the first record with a timestamp of at least ``ts_ms``; -1 if there is none."""
        return self._list_offsets(f"offset for time {ts_ms}", tps, ts_ms, requests.READ_UNCOMMITTED)

    def log_ends(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the log end offset of each partition, including unreplicated batches.

        ListOffsets returns the high watermark, which lags behind after a leader change: a copy that resumed there would
        send batches again that are already in the log. OffsetForLeaderEpoch with the current epoch returns the log end.
        """
        return self._ask_leaders("OffsetForLeaderEpoch", tps, requests.log_ends, "Describe")

    def log_sizes(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the size in bytes of each partition's log at its leader.

        :raises MissingRight: the principal lacks DESCRIBE on the cluster.
        """
        return self._ask_leaders("DescribeLogDirs", tps, requests.log_sizes, "Describe")

    def delete_records(self, offsets: Mapping[TopicPartition, int], check: Check) -> dict[TopicPartition, int]:
        """Raise the log start offsets to ``offsets`` (-1: the high watermark); return the resulting log start offsets.

        :param check: see :meth:`Connection.send`.
        :raises RequestRefused: an offset is above the high watermark, or the topic is compacted only.
        """
        # Repeated after a lost answer, and by whoever comes next: a log start only goes up, so the same offset deletes
        # nothing more.
        # Topics go by their names here: behind a freeze right before the bytes the name may be another topic's.
        wanted = dict(offsets)
        return self._ask_leaders(
            "DeleteRecords",
            wanted,
            lambda c, led: requests.delete_records(c, led, wanted, self.write_timeout_ms, check),
            "Delete",
        )

    def describe_producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, list[ProducerState]]:
        """Return the producers that each leader knows. State expires by *record* time: an empty list proves nothing."""
        # By record time, at the next check (every ten minutes), at a restart and at a change of leader (measured): so
        # who opens a partition takes the last batch first, and this only where that tells nothing.
        return self._ask_leaders("DescribeProducers", tps, requests.describe_producers, "Read")

    def write_answers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the code with which each leader refuses an invalid batch: whether our principal may write there.

        See :func:`airflow_mirror.wire.requests.write_answers`. One request for each broker; nothing is written.
        """
        return self._ask_leaders("Produce (an invalid batch)", tps, requests.write_answers, "Write")

    def ask_each(
        self, what: str, tps: Iterable[TopicPartition], ask: Ask[T], operation: str
    ) -> tuple[dict[TopicPartition, T], dict[TopicPartition, MirrorError]]:
        """Ask each leader once about many partitions. A partition without an answer gets an error and delays no other.

        :param what: names the request in errors.
        :param operation: the ACL operation that is needed, as in kafka-acls: ``Read``.
        """
        wanted = list(dict.fromkeys(tps))
        answers: dict[TopicPartition, T] = {}
        failures = self._ask_once(what, wanted, ask, answers)
        errors: dict[TopicPartition, MirrorError] = {}
        for tp in wanted:
            if tp in answers:
                continue
            # A broker that left a partition out of its answer: it does not lead it.
            failure = failures.get(tp, ErrorCode.LEADER_NOT_AVAILABLE)
            if isinstance(failure, ConnectionLost):
                errors[tp] = ConnectionLost(self.role, failure.address, f"{what} of {tp}", failure.reason, failure.hint)
            elif failure in ASKED_AGAIN:
                errors[tp] = self._transient(f"{what} of {tp}", failure)
            else:
                errors[tp] = self._refusal(f"{what} of {tp}", failure, operation, tp.topic)
        return answers, errors

    # --- inside -------------------------------------------------------------------------------------------------------

    def _list_offsets(
        self, what: str, tps: Iterable[TopicPartition], timestamp: int, isolation: int
    ) -> dict[TopicPartition, int]:
        return self._ask_leaders(
            f"ListOffsets ({what})", tps, lambda c, led: requests.list_offsets(c, led, timestamp, isolation), "Describe"
        )

    def _ask_leaders(
        self, what: str, tps: Iterable[TopicPartition], ask: Ask[T], operation: str
    ) -> dict[TopicPartition, T]:
        """Ask each leader about its partitions until every partition has an answer."""
        pending = list(dict.fromkeys(tps))
        unknown = {tp.topic for tp in pending} - self._topics.keys()
        # In one request for all of them; what is known is used as it is, and asked for again when a leader refuses.
        if unknown:
            self.refresh(unknown)
        answers: dict[TopicPartition, T] = {}
        backoff = Backoff(self.timeout_s)
        while True:
            # Only of questions, and of changes that may be made twice: one whose answer was lost is asked again with
            # the others.
            failures = self._ask_once(what, pending, ask, answers)
            for tp, failure in failures.items():
                # A topic that its leader calls unknown may be gone: metadata will show that.
                if isinstance(failure, int) and failure not in ASKED_AGAIN:
                    raise self._refusal(f"{what} of {tp}", failure, operation, tp.topic)
            # Whoever has answered is not asked again: an answer is one moment's, and those of one call need not be the
            # same moment's.
            pending = [tp for tp in pending if tp not in answers]
            if not pending:
                return answers
            if backoff.expired or not self.patient:
                raise self._gave_up(what, pending[0], failures.get(pending[0], ErrorCode.LEADER_NOT_AVAILABLE))
            backoff.pause()
            self._refresh_if_possible({tp.topic for tp in pending})

    def _ask_once(
        self, what: str, pending: list[TopicPartition], ask: Ask[T], answers: dict[TopicPartition, T]
    ) -> dict[TopicPartition, int | ConnectionLost]:
        """Ask every leader once; add their answers to ``answers`` and return the failures of the other partitions."""
        failures: dict[TopicPartition, int | ConnectionLost] = {}
        by_node: dict[int, list[tuple[TopicPartition, Leader]]] = {}
        for tp in pending:
            leader = self._known_leader(tp)
            if leader.node_id in self._brokers:
                by_node.setdefault(leader.node_id, []).append((tp, leader))
            else:
                # Its leader is unknown, or not among the live brokers: an election is under way, and metadata are asked
                # again.
                failures[tp] = ErrorCode.LEADER_NOT_AVAILABLE
        for node_id, led in by_node.items():
            try:
                for tp, code, value in ask(self.connection(node_id), led):
                    if code:
                        failures[tp] = code
                    else:
                        answers[tp] = value
            # Of one broker: what the others have answered counts.
            except ConnectionLost as e:
                failures.update(dict.fromkeys((tp for tp, _ in led), e))
        return failures
