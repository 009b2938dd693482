"""What differs between the releases that a driven cluster can be, as far as the conformance suite has shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_mirror.wire import codec
from airflow_mirror.wire.error_codes import ErrorCode

(
    _PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _OFFSET_FETCH, _FIND_COORDINATOR, _API_VERSIONS, _DELETE_RECORDS,
    _INIT_PRODUCER_ID, _OFFSET_FOR_LEADER_EPOCH, _ADD_PARTITIONS, _ADD_OFFSETS, _END_TXN, _WRITE_MARKERS,
    _TXN_OFFSET_COMMIT, _DESCRIBE_LOG_DIRS, _DESCRIBE_PRODUCERS, _DESCRIBE_TRANSACTIONS,
    _LIST_TRANSACTIONS, _DESCRIBE_ACLS, _DESCRIBE_CONFIGS, _LIST_GROUPS, _DESCRIBE_GROUPS, _OFFSET_COMMIT, _OFFSET_DELETE,
    _CREATE_TOPICS, _CREATE_PARTITIONS, _DELETE_TOPICS, _ALTER_CONFIGS, _CREATE_ACLS, _DELETE_ACLS, _HANDSHAKE,
    _AUTHENTICATE, _DELETE_GROUPS,
) = (
    0, 1, 2, 3, 9, 10, 18, 21, 22, 23, 24, 25, 26, 27, 28, 35, 61, 65, 66, 29, 32, 16, 15, 8, 47, 19, 37, 20, 44, 30, 31,
    17, 36, 42,
)  # fmt: skip
_NONE = (0, -1)
_OF_4 = {_WRITE_MARKERS: (1, 1), _DESCRIBE_ACLS: (1, 3), _CREATE_ACLS: (1, 3), _DELETE_ACLS: (1, 3)}


@dataclass(frozen=True)
class Release:
    """One release.

    :param answers: the release whose transcripts are its own, too; "": it has its own.
    :param serves: API key -> its versions where they are not those of our handler; _NONE where it serves none.
    :param verifies: a transactional batch or offset must belong to a transaction that knows its partition (KIP-890).
    :param remembers_fenced: a producer whose open transaction was aborted by a takeover may still compare with its epoch.
    :param takes_append_time: the LogAppendTime bit on a topic of CreateTime is cleared, not refused.
    :param newest_codec: of the codecs that it knows.
    :param renumbers: it does not mind holes in a client's batch, and takes them out.
    :param invalid_record: the error for a batch that is not what a client may send.
    :param names_transactions: a transactional batch needs a transactional id.
    :param always_stable: a reader of everything is told the last stable offset too.
    :param stable_in_log: the last stable offset is never below the log start.
    :param hangs_up: a Produce request with no batch, or several, is not answered.
    :param batches_remembered: so many of a producer's last batches are known again when they are repeated.
    :param begins_anywhere: a producer of which a leader knows nothing may begin with any sequence.
    :param markers_are_batches: a marker counts as the producer's last batch, and as a transaction if there was none.
    :param forgets_deleted: a leader forgets a producer with its last record.
    """

    version: str
    answers: str = ""
    serves: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    verifies: bool = True
    remembers_fenced: bool = True
    takes_append_time: bool = True
    newest_codec: int = codec.ZSTD
    renumbers: bool = False
    invalid_record: ErrorCode = ErrorCode.INVALID_RECORD
    names_transactions: bool = True
    always_stable: bool = True
    stable_in_log: bool = False
    hangs_up: bool = False
    batches_remembered: int = 5
    begins_anywhere: bool = True
    markers_are_batches: bool = False
    forgets_deleted: bool = False

    def served(self, handlers: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """Return which versions of what our handlers can do this release serves."""
        ranges = {key: self.serves.get(key, versions) for key, versions in handlers.items()}
        return {key: versions for key, versions in ranges.items() if versions != _NONE}


RELEASES = {
    release.version: release
    for release in (
        Release("4.4.0", serves=_OF_4),
        Release("4.3.1", answers="4.4.0", serves=_OF_4),
        Release(
            "2.8.2",
            serves={
                _PRODUCE: (3, 8), _FETCH: (4, 12), _METADATA: (0, 11), _DESCRIBE_LOG_DIRS: (1, 2),
                _DESCRIBE_TRANSACTIONS: _NONE, _LIST_TRANSACTIONS: _NONE, _DESCRIBE_ACLS: (0, 2),
                _CREATE_ACLS: (0, 2), _DELETE_ACLS: (0, 2), _LIST_GROUPS: (0, 4), _OFFSET_COMMIT: (2, 8),
            },
            verifies=False, remembers_fenced=False, takes_append_time=False, stable_in_log=True,
        ),
        Release(
            "0.11.0.3",
            serves={
                _PRODUCE: (3, 3), _FETCH: (4, 5), _LIST_OFFSETS: (1, 2), _METADATA: (0, 4), _OFFSET_FETCH: (1, 3),
                _FIND_COORDINATOR: (0, 1), _API_VERSIONS: (0, 1), _DELETE_RECORDS: (0, 0), _INIT_PRODUCER_ID: (0, 0),
                _OFFSET_FOR_LEADER_EPOCH: _NONE, _ADD_PARTITIONS: (0, 0), _ADD_OFFSETS: (0, 0), _END_TXN: (0, 0),
                _WRITE_MARKERS: (0, 0), _TXN_OFFSET_COMMIT: (0, 0), _DESCRIBE_LOG_DIRS: _NONE,
                _DESCRIBE_PRODUCERS: _NONE, _DESCRIBE_TRANSACTIONS: _NONE, _LIST_TRANSACTIONS: _NONE,
                _DESCRIBE_ACLS: (0, 0), _DESCRIBE_CONFIGS: _NONE, _CREATE_ACLS: (0, 0), _DELETE_ACLS: (0, 0),
                _LIST_GROUPS: (0, 1), _DESCRIBE_GROUPS: (0, 1), _OFFSET_COMMIT: (2, 3), _OFFSET_DELETE: _NONE,
                _CREATE_TOPICS: (2, 2), _CREATE_PARTITIONS: _NONE, _DELETE_TOPICS: (1, 1), _ALTER_CONFIGS: _NONE,
                _HANDSHAKE: _NONE, _AUTHENTICATE: _NONE, _DELETE_GROUPS: _NONE,
            },
            verifies=False, takes_append_time=False, newest_codec=codec.LZ4, renumbers=True,
            invalid_record=ErrorCode.CORRUPT_MESSAGE, names_transactions=False, always_stable=False, stable_in_log=True,
            hangs_up=True, batches_remembered=1, begins_anywhere=False, markers_are_batches=True, forgets_deleted=True,
        ),
    )
}  # fmt: skip
