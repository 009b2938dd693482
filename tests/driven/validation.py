"""What a broker accepts from a client: the rules of ProduceRequest, UnifiedLog and LogValidator for one batch."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from airflow_mirror.wire.batch import BatchHeader
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven import records
from tests.driven.refused import Refused
from tests.driven.release import Release


@dataclass
class TopicConfig:
    """The settings that decide what a partition takes. Compression is always the producer's."""

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1 << 30
    cleanup_policy: str = "delete"
    append_time: bool = False
    retention_ms: int = -1  # told, and never applied; segment_ms likewise
    segment_ms: int = 604_800_000
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000

    @property
    def compacts(self) -> bool:
        """True when keys are needed."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True when records may be deleted by offset."""
        return "delete" in self.cleanup_policy


def check_request(content: bytes) -> BatchHeader:
    """Return the header of the one batch that a request may hold for a partition (ProduceRequest.validateRecords).

    :raises Refused: none, several, or one of an older magic.
    """
    if len(content) < wire_batch.LOG_OVERHEAD + 5:
        raise Refused(ErrorCode.INVALID_RECORD, "no batch")
    if content[16] != 2:
        raise Refused(ErrorCode.INVALID_RECORD, "magic")
    header = records.header_of(content)
    if header.size != len(content):
        raise Refused(ErrorCode.INVALID_RECORD, "more than one batch")
    return header


def accepted(content: bytes, header: BatchHeader, config: TopicConfig, release: Release, now_ms: int) -> bytes:
    """Check a batch and return it with the timestamps and attributes that the log keeps.

    :raises Refused: with the code that the broker answers.
    """
    if header.base_offset != 0:
        raise Refused(ErrorCode.INVALID_RECORD, "base offset")
    if header.size > config.max_message_bytes:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE)
    if not wire_batch.crc_is_valid(memoryview(content), header):
        raise Refused(ErrorCode.CORRUPT_MESSAGE)
    if header.codec > release.newest_codec:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "codec")
    _check_header(header, release)
    rows = _rows(content, header, release)
    if release.renumbers and header.last_offset_delta != len(rows) - 1:
        content, header = _renumbered(rows, header)
    _check_rows(rows, config, now_ms)
    refuses_bit = config.append_time or not release.takes_append_time
    if refuses_bit and header.attributes & wire_batch.LOG_APPEND_TIME:
        raise Refused(ErrorCode.INVALID_TIMESTAMP)
    if header.size > config.segment_bytes:
        raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE)
    attributes = header.attributes & ~wire_batch.LOG_APPEND_TIME
    newest = max(row.timestamp for row in rows)
    if config.append_time:
        attributes, newest = attributes | wire_batch.LOG_APPEND_TIME, now_ms
    if (attributes, newest) == (header.attributes, header.max_timestamp):
        return content
    return records.changed(content, attributes=attributes, max_timestamp=newest)


def _check_header(header: BatchHeader, release: Release) -> None:
    whole = release.renumbers or header.record_count == header.last_offset_delta + 1
    if header.record_count <= 0 or not whole:
        raise Refused(ErrorCode.INVALID_RECORD, "count")
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "control")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise Refused(ErrorCode.INVALID_RECORD, "sequence")


def _renumbered(rows: list[records.Row], header: BatchHeader) -> tuple[bytes, BatchHeader]:
    """Return a batch without holes. An old broker leaves them in one that is not compressed, and counts without them."""
    content = records.encode(
        [row._replace(offset=i) for i, row in enumerate(rows)], codec_number=header.codec,
        attributes=header.attributes & ~wire_batch.CODEC_MASK, producer_id=header.producer_id,
        epoch=header.producer_epoch, sequence=header.base_sequence,
    )  # fmt: skip
    return content, records.header_of(content)


def _rows(content: bytes, header: BatchHeader, release: Release) -> list[records.Row]:
    """Return the records with their inner times, walked as the broker walks them."""
    inner = records.changed(content, attributes=header.attributes & ~wire_batch.LOG_APPEND_TIME)
    if header.codec == codec.LZ4 and not content[wire_batch.HEADER_SIZE + 4] & 0x20:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "LZ4 blocks that depend on each other")
    try:
        rows = records.decode(inner)
    except ValueError as e:
        raise Refused(ErrorCode.INVALID_RECORD, str(e)) from e
    # Of an uncompressed batch the inner offsets are counted, not looked at; readers then see what can't be.
    whole = release.renumbers or [row.offset for row in rows] == list(range(header.record_count))
    if header.codec and not whole:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "offsets")
    return rows


def _check_rows(rows: list[records.Row], config: TopicConfig, now_ms: int) -> None:
    if config.compacts:
        missing = tuple((i, "no key") for i, row in enumerate(rows) if row.key is None)
        if missing:
            raise Refused(ErrorCode.INVALID_RECORD, "null key", missing)
    if config.append_time:
        return
    wrong = tuple(
        (i, "timestamp")
        for i, row in enumerate(rows)
        if row.timestamp != -1
        and (
            row.timestamp - now_ms > config.timestamp_after_max_ms
            or now_ms - row.timestamp > config.timestamp_before_max_ms
        )
    )
    if wrong:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "out of range", wrong)
