"""What a real broker does with a raw batch, rule by rule; and that the engine never sends what is refused or kept wrong.

The rules were measured on 4.3.1. A broker that changes one of them fails a test here before it damages a copy.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import lz4.frame
import pytest
from confluent_kafka import Producer

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec, records
from airflow_mirror.wire.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, RawBatch
from airflow_mirror.wire.records import Record
from sandbox import Cluster
from tests.integration import segments
from tests.integration.copying import (
    TILL_FLUSH,
    assert_equal,
    copy,
    create,
    ends,
    ranges_of,
    read,
    wait_until,
    write,
    write_transactions,
)
from tests.integration.raw_batches import NOW, assert_acceptable, batch, rows, send, stored, watched, with_header

CORRUPT, TOO_LARGE, BAD_TIME, NOT_AUTHORIZED, INVALID, UNKNOWN = 2, 10, 32, 53, 87, -1
SMALL = 20_000  # max.message.bytes of a target that takes less than its source
CODECS = [codec.NONE, codec.GZIP, codec.SNAPPY, codec.LZ4, codec.ZSTD]


# --- what the broker does -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scratch(target_cluster: Cluster) -> dict[str, str]:
    """Topics to be refused by, one for each setting that matters."""
    kinds = {
        "plain": {}, "append-time": {"message_timestamp_type": "LogAppendTime"},
        "compact": {"cleanup_policy": "compact"}, "small": {"max_message_bytes": str(SMALL)},
    }  # fmt: skip
    for kind, configs in kinds.items():
        create(target_cluster, f"conformance-{kind}", **configs)
    create(target_cluster, "conformance-clock", message_timestamp_after_max_ms="3600000")
    return {kind: f"conformance-{kind}" for kind in (*kinds, "clock")}


def linked_lz4() -> bytearray:
    plain = batch(rows(300, size=900))
    payload = lz4.frame.compress(bytes(plain[61:]), block_linked=True, store_size=False)
    return with_header(bytearray(plain[:61] + payload), length=49 + len(payload), attributes=codec.LZ4)


def unreadable(number: int, **header: int) -> bytearray:
    """Three records that their codec can't read, or whose codec nobody knows; the checksum fits."""
    content = batch(rows(3, size=300), number if number <= codec.ZSTD else codec.NONE)
    content[61:] = bytes(len(content) - 61)
    return with_header(content, attributes=number, **header)


def flipped(content: bytearray) -> bytearray:
    content[70] ^= 1
    return content


def holed(number: int) -> bytearray:
    """Three records at offset deltas 0, 2, 4, as the cleaner leaves them."""
    view = records.encode(rows(3), codec.NONE, -1, -1, -1)
    content = bytearray(view)
    at = 61
    for delta in range(
        3
    ):  # length, attributes, time delta (2 bytes but for the first), offset delta: all in one byte each
        length = content[at] >> 1
        where = at + 2
        while content[where] & 0x80:
            where += 1
        content[where + 1] = delta * 2 << 1
        at += 1 + length
    payload = bytes(codec.compress(number, bytes(content[61:])))
    return with_header(
        bytearray(content[:61] + payload), length=49 + len(payload), last_offset_delta=4, attributes=number
    )


REFUSED: dict[str, tuple[str, int, Callable[[], bytes | bytearray]]] = {
    "base-offset-not-0": ("plain", INVALID, lambda: batch(base_offset=7)),
    "two-batches-for-a-partition": ("plain", INVALID, lambda: batch() + batch()),
    "holes": ("plain", INVALID, lambda: holed(codec.NONE)),
    "holes-compressed": ("plain", INVALID, lambda: holed(codec.ZSTD)),
    **{
        f"holes-{codec.NAMES[n]}-with-only-the-last-delta-edited": (
            "plain", UNKNOWN, lambda n=n: with_header(holed(n), last_offset_delta=2)
        ) for n in CODECS[1:]
    },
    "no-records": ("plain", INVALID, lambda: batch(record_count=0)),
    "control": ("plain", INVALID, lambda: batch(attributes=CONTROL)),
    "transactional-without-a-transaction": (
        "plain", NOT_AUTHORIZED, lambda: batch(attributes=TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0)
    ),
    "producer-id-without-sequence": ("plain", INVALID, lambda: batch(producer_id=5, producer_epoch=0)),
    "magic-1": ("plain", INVALID, lambda: segments.message(0, (NOW, b"k", b"v"), 1)),
    "wrong-checksum": ("plain", CORRUPT, lambda: flipped(batch())),
    "lz4-linked-blocks": ("plain", UNKNOWN, linked_lz4),
    **{f"payload-that-codec-{n}-can-not-read": ("plain", UNKNOWN, lambda n=n: unreadable(n)) for n in (*CODECS[1:], 5)},
    "append-time-bit-where-the-broker-sets-it": ("append-time", BAD_TIME, lambda: batch(attributes=LOG_APPEND_TIME)),
    "null-key-where-compacted": ("compact", INVALID, lambda: batch(rows(3, key=None))),
    "larger-than-max-message-bytes": ("small", TOO_LARGE, lambda: batch(rows(3, size=SMALL))),
    "two-hours-ahead": ("clock", BAD_TIME, lambda: batch([Record(0, int(time.time() + 7200) * 1000, b"k", b"v", [])])),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_broker_refuses(target_cluster: Cluster, scratch: dict[str, str], rule: str) -> None:
    kind, code, make = REFUSED[rule]
    before = ends(target_cluster, scratch[kind])
    assert send(target_cluster, scratch[kind], make()) == code
    assert ends(target_cluster, scratch[kind]) == before


@pytest.mark.parametrize(
    ("bit", "kept"), [(LOG_APPEND_TIME, 0), (DELETE_HORIZON, DELETE_HORIZON)], ids=["append-time", "delete-horizon"]
)
def test_broker_takes_a_bit_that_means_something_else_there(
    target_cluster: Cluster, topic_name: str, bit: int, kept: int
) -> None:
    create(target_cluster, topic_name)
    assert send(target_cluster, topic_name, batch(attributes=bit, max_timestamp=NOW + 99)) == 0
    (raw,) = stored(target_cluster, topic_name)
    assert raw.header is not None
    assert raw.header.attributes == kept
    # What readers saw on the source (the batch's time, by the append-time bit) is gone: they see the inner times.
    assert [row[1] for row in read(target_cluster, topic_name)] == [(1, NOW), (1, NOW - 13), (1, NOW - 26)]


# --- what becomes of what a source may hold -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compacted(source_cluster: Cluster) -> str:
    """A topic that the real cleaner went through: holes in batches of all codecs, tombstones, batches without records."""
    topic = "conformance-compacted"
    cleaning = {"min_cleanable_dirty_ratio": "0.01", "segment_ms": "100", "max_compaction_lag_ms": "100"}
    create(source_cluster, topic, cleanup_policy="compact", **cleaning)
    rng = random.Random(11)
    for number in CODECS:
        conf = {"compression.type": codec.NAMES[number], "linger.ms": TILL_FLUSH, "enable.idempotence": "true"}
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap, **conf})
        for i in range(100):
            value = None if i % 11 == 0 else rng.randbytes(rng.randint(0, 40))
            key = b"once %d-%d" % (number, i) if i % 3 == 0 else b"key %d" % rng.randint(0, 70)
            producer.produce(topic, value, key, timestamp=NOW + rng.randint(-(10**9), 10**9), headers=[("n", b"%d" % i)])
        producer.flush()
    # The second producer writes all keys of the first again, whose batch stays, empty, so that it is remembered.
    for value in (b"gone", b"last"):
        producer = Producer(
            {"bootstrap.servers": source_cluster.bootstrap, "enable.idempotence": "true", "linger.ms": TILL_FLUSH}
        )
        for i in range(5):
            producer.produce(topic, value, b"emptied %d" % i)
        producer.flush()
        time.sleep(0.2)
    # A batch without holes that has a delete horizon all the same, because of its tombstones: it could pass.
    for i in range(9):
        producer.produce(topic, b"v" if i % 2 else None, b"never again %d" % i)
    producer.flush()

    def cleaned() -> bool:
        tick = Producer({"bootstrap.servers": source_cluster.bootstrap})
        tick.produce(topic, b"tick", b"tick")  # the cleaner takes no active segment; this one rolls it
        tick.flush()
        time.sleep(1)
        # The last tick is in the active segment, and the cleaner has seen none behind the one before it. When no other is
        # left the cleaner has been through, and without a tick it has nothing more to do while the tests look.
        ticks = sum(row[2] == b"tick" for row in read(source_cluster, topic))
        counts = [raw.header.record_count for raw in stored(source_cluster, topic) if raw.header]
        return ticks == 2 and sum(counts) < 450 and 0 in counts

    wait_until(cleaned, "the cleaner comes", 300)
    return topic


def first_holed(batches: list[RawBatch], number: int) -> RawBatch:
    return next(
        b for b in batches if b.header and b.header.record_count and not b.header.is_dense and b.header.codec == number
    )


def test_compacted_batch_with_edited_last_delta_damages_a_log(
    source_cluster: Cluster, target_cluster: Cluster, compacted: str, topic_name: str
) -> None:
    """The trap that the re-encoder is for: the broker says that all is well."""
    raw = first_holed(stored(source_cluster, compacted), codec.NONE)
    assert raw.header is not None
    count = raw.header.record_count
    edited = with_header(
        bytearray(raw.view), base_offset=0, last_offset_delta=count - 1, attributes=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1,
    )  # fmt: skip
    create(target_cluster, topic_name)
    assert send(target_cluster, topic_name, edited) == 0
    assert ends(target_cluster, topic_name)[0] == (0, count, count)
    (damaged,) = stored(target_cluster, topic_name)
    offsets = [r.offset for r in records.decode(damaged)]
    assert len(offsets) == count
    assert max(offsets) >= count, "records stand beyond the end of the log"
    # And this is what the engine's signature refuses to do.
    with pytest.raises(ValueError, match="must not pass"):
        wire_batch.resign(raw.view, raw.header, 1, 0, 0)


def test_compacted_topic_arrives_equal_with_holes_without_delete_horizon(
    source_cluster: Cluster, target_cluster: Cluster, compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(target_cluster, compacted)
    here = [raw.header for raw in stored(source_cluster, compacted) if raw.header]
    assert {h.codec for h in here if h.record_count and not h.is_dense} == set(CODECS)
    assert any(h.attributes & DELETE_HORIZON and h.is_dense for h in here), (
        "no batch that could pass has a delete horizon"
    )
    assert any(h.attributes & DELETE_HORIZON and not h.is_dense for h in here)
    assert any(h.record_count == 0 for h in here)
    with watched(monkeypatch) as sent:
        (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, compacted), merge_below=0)
    assert result.done, result.error
    assert result.padded > 50 and result.dropped > 0 and result.batches > result.reencoded > 0
    assert_acceptable(sent)
    assert_equal(source_cluster, target_cluster, compacted)
    assert not any(raw.header and raw.header.attributes & DELETE_HORIZON for raw in stored(target_cluster, compacted))


def test_whatever_clients_write_is_sent_as_a_broker_wants_it(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    for number in CODECS:
        write(source_cluster, topic_name, 60, number, codec.NAMES[number])
        write(source_cluster, topic_name, 40, number, codec.NAMES[number], **{"enable.idempotence": "true"})
    write_transactions(source_cluster, topic_name, seed=9, transactions=4)
    payloads = [
        bytes(raw.view[61:]) for raw in stored(source_cluster, topic_name) if raw.header and not raw.header.is_control
    ]
    with watched(monkeypatch) as sent:
        (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), merge_below=0)
    assert (result.done, result.reencoded) == (True, 0)
    assert result.dropped > 12 and result.padded > result.dropped  # markers, and aborted batches with many records
    assert_acceptable(sent)
    assert {bytes(raw.view[61:]) for raw in sent} <= set(payloads), "payload bytes pass as they are"
    assert_equal(source_cluster, target_cluster, topic_name)


def test_log_append_time_is_kept_as_create_time(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers see the same times; the attribute bit for log append time is not sent."""
    create(source_cluster, topic_name, message_timestamp_type="LogAppendTime")
    create(target_cluster, topic_name)
    for number in CODECS:
        write(source_cluster, topic_name, 30, number, codec.NAMES[number])
    with watched(monkeypatch) as sent:
        (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), merge_below=0)
    assert result.reencoded == result.batches > 0
    assert_acceptable(sent)
    theirs = stored(source_cluster, topic_name)
    assert {raw.header.codec for raw in sent if raw.header} == {raw.header.codec for raw in theirs if raw.header}
    here, there = read(source_cluster, topic_name), read(target_cluster, topic_name)
    assert [(o, t[1], *rest) for o, t, *rest in here] == [(o, t[1], *rest) for o, t, *rest in there]
    assert {t[0] for _, t, *_ in here} == {2} and {t[0] for _, t, *_ in there} == {1}


@pytest.mark.parametrize("number", CODECS, ids=codec.NAMES)
def test_range_trims_batches_spanning_days_and_continues_later(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time delta above 2^31 ms (24.8 days) is a varlong; a re-encoder that takes it for 32 bits changes the time."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    for back in (1, -1):
        days = [Record(i, NOW + back * i * 86_400_000 * 9, None, b"v" * i, [(b"day", b"%d" % i)]) for i in range(40)]
        assert send(source_cluster, topic_name, batch(days, number)) == 0
    spans = [h.max_timestamp - h.base_timestamp for b in stored(source_cluster, topic_name) if (h := b.header)]
    assert len(spans) == 2 and max(spans) > 2**31
    (whole,) = ranges_of(source_cluster, topic_name)
    with watched(monkeypatch) as sent:
        (result,) = copy(source_cluster, target_cluster, [replace(whole, start_offset=17, end_offset=61)])
    assert (result.primed, result.records, result.position) == (17, 44, 61)
    assert result.reencoded + result.merged == 2  # where they are small, both become one
    (result,) = copy(source_cluster, target_cluster, [replace(whole, start_offset=17)])
    assert (result.records, result.position) == (19, 80)
    assert_acceptable(sent[1:])  # the first one primes
    assert [row for row in read(source_cluster, topic_name) if row[0] >= 17] == read(target_cluster, topic_name)
    assert ends(target_cluster, topic_name)[0] == (17, 80, 80)


def test_oversized_batches_are_split_and_oversized_record_is_named(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target's max.message.bytes is the limit; what stands before the record arrives."""
    create(source_cluster, topic_name, partitions=2)
    create(target_cluster, topic_name, partitions=2, max_message_bytes=str(SMALL))
    rng = random.Random(5)
    for number in CODECS:
        conf = {"compression.type": codec.NAMES[number], "linger.ms": TILL_FLUSH}
        producer = Producer({"bootstrap.servers": source_cluster.bootstrap, **conf})
        for partition in range(2):
            for _ in range(30):
                producer.produce(topic_name, rng.randbytes(rng.randint(0, 6000)), partition=partition)
        producer.flush()
    # Random bytes that fit only as they are: a codec makes them longer. In a batch with others they are compressed.
    producer = Producer(
        {"bootstrap.servers": source_cluster.bootstrap, "compression.type": "gzip", "linger.ms": TILL_FLUSH}
    )
    for value in (b"a" * 5000, rng.randbytes(SMALL - 90), b"b" * 5000):
        producer.produce(topic_name, value, partition=0)
    producer.flush()
    assert max(h.size for b in stored(source_cluster, topic_name) if (h := b.header)) > SMALL
    producer.produce(topic_name, rng.randbytes(SMALL + 1), partition=1)
    producer.flush()
    limits = {topic_name: SMALL}
    with watched(monkeypatch) as sent:
        fine, refused = copy(
            source_cluster, target_cluster, ranges_of(source_cluster, topic_name, 2), max_batch_bytes=limits
        )
    assert fine.done and fine.reencoded > 5
    (offered,) = (raw for raw in sent if raw.header and raw.header.size > SMALL)  # the broker decides
    assert offered.header is not None and offered.header.record_count == 1
    assert_acceptable([raw for raw in sent if raw is not offered], SMALL)
    assert (refused.position, refused.records, refused.final) == (150, 150, True)
    assert f"{topic_name}-1 offsets [150, 151): the target refuses these records" in str(refused.error)
    assert f"max.message.bytes={SMALL}" in str(refused.error)
    assert_equal(source_cluster, target_cluster, topic_name)
    assert read(source_cluster, topic_name, 1)[:150] == read(target_cluster, topic_name, 1)


@pytest.mark.parametrize("name", [b"trace", b"trace-\xff"], ids=["no-time", "no-time-and-a-name-that-is-no-text"])
def test_records_a_library_would_change_are_copied_unchanged(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, name: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first timestamp of -1, and a header name that is no UTF-8: brokers take both."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    untimed = [Record(i, NOW + i if i % 3 else -1, b"k", b"v%d" % i, [(name, b"1"), (name, None)]) for i in range(10)]
    assert send(source_cluster, topic_name, batch(untimed, codec.ZSTD)) == 0
    (whole,) = ranges_of(source_cluster, topic_name)
    for end in (7, 10):  # cuts the batch
        with watched(monkeypatch) as sent:
            (result,) = copy(source_cluster, target_cluster, [replace(whole, end_offset=end)])
        assert (result.done, result.position, result.reencoded) == (True, end, 1)
        assert_acceptable(sent)
    here, there = (
        [record for raw in stored(cluster, topic_name) for record in records.decode(raw)]
        for cluster in (source_cluster, target_cluster)
    )
    assert here == there == untimed
    if name.isascii():  # the referee's library fails at other names
        assert_equal(source_cluster, target_cluster, topic_name)


# --- formats of the past --------------------------------------------------------------------------------------------


def old_log(magic: int, seed: int) -> bytes:
    """Plain messages, wrappers of every codec of the time, one of them compacted, and of magic 1 one with append time."""
    rng = random.Random(seed)

    def some(count: int) -> list[segments.OldRecord]:
        keys, values = [None, b"", b"k1", rng.randbytes(9)], [None, b"", rng.randbytes(300), b"v" * 70]
        return [(NOW + rng.randint(-(10**10), 10**10), rng.choice(keys), rng.choice(values)) for _ in range(count)]

    content = b"".join(segments.message(i, record, magic) for i, record in enumerate(some(7)))
    offset = 7
    for number in (segments.GZIP, segments.SNAPPY, segments.LZ4):
        for holes in (frozenset[int](), frozenset({0, 3, 4, 9})):
            content += segments.wrapper(offset, some(13), magic, number, holes=holes)
            offset += 13
    if magic == 1:
        content += segments.wrapper(offset, some(6), magic, segments.SNAPPY, append_time=NOW + 5)
    return content


@pytest.mark.parametrize("number", [codec.NONE, codec.LZ4, codec.ZSTD])
def test_tiny_batches_are_merged_into_ones_the_broker_keeps(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that waits for nothing writes a batch for each record."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    conf = {"compression.type": codec.NAMES[number], "batch.num.messages": 1}
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap, **conf})
    rng = random.Random(number)
    for i in range(700):
        # What does not shrink is stored as it is, and only batches of one codec become one.
        value = b"tiny %d " % i * 20 if number else rng.choice([None, b"", b"tiny"])
        producer.produce(
            topic_name, value, rng.choice([None, b"", b"key %d" % i]),
            timestamp=NOW + rng.randint(-(10**9), 10**9), headers=rng.choice([[], [("h", None), ("day", b"%d" % i)]]),
        )  # fmt: skip
    assert producer.flush(240) == 0
    assert [raw.header.record_count for raw in stored(source_cluster, topic_name) if raw.header] == [1] * 700
    with watched(monkeypatch) as sent:
        (result,) = copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name))
    assert (result.reencoded, result.records) == (0, 700)
    assert result.passed <= 5, "but for one that was alone in an answer"
    assert result.merged == 700 - result.passed
    assert_acceptable(sent)
    there = stored(target_cluster, topic_name)
    assert [bytes(raw.view[17:]) for raw in there] == [bytes(raw.view[17:]) for raw in sent]  # from the checksum on
    assert sum(raw.header.record_count for raw in there if raw.header) == 700 and len(there) < 35
    assert_equal(source_cluster, target_cluster, topic_name)


def end_in_order(cluster: Cluster) -> None:
    """End the node however long that takes; one that was killed would cut off at its start what is put into its logs."""
    pid = cluster.pid(1)
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not cluster.alive(1), "the node ends in order", poll_s=0.1)
    cluster.shut_down(1)  # its bookkeeping


@pytest.fixture(scope="module")
def old_cluster(target_cluster: Cluster) -> Iterator[Cluster]:
    """A source whose topics have segments that no broker writes any more."""
    with Cluster("old-source", ready_timeout_s=180) as cluster:
        for topic in ("old-0", "old-1", "linked-lz4", "unreadable"):
            create(cluster, topic)
            create(target_cluster, topic)
        end_in_order(cluster)
        segments.put(cluster, "old-0", old_log(0, 1))
        segments.put(cluster, "old-1", old_log(1, 2))
        segments.put(cluster, "linked-lz4", bytes(linked_lz4()))
        segments.put(cluster, "unreadable", bytes(batch() + unreadable(codec.ZSTD, base_offset=3) + batch(base_offset=6)))
        cluster.restart(1)
        yield cluster


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_of_old_brokers_arrive_record_by_record(
    old_cluster: Cluster, target_cluster: Cluster, magic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"old-{magic}"
    write(old_cluster, topic, 20, 3, "lz4")  # the topic went on with today's format
    assert [raw.magic for raw in stored(old_cluster, topic)][0] == magic
    with watched(monkeypatch) as sent:
        (result,) = copy(old_cluster, target_cluster, ranges_of(old_cluster, topic))
    assert result.done, result.error
    assert result.merged + result.reencoded > 10
    assert_acceptable(sent)
    here, there = read(old_cluster, topic), read(target_cluster, topic)
    assert len(here) == 7 + 3 * 13 + 3 * 9 + (6 if magic else 0) + 20
    assert [(o, *rest) for o, _, *rest in here] == [(o, *rest) for o, _, *rest in there]
    # A magic 0 message has no time: librdkafka shows 0 of kind "none" for it, and -1 where a later format stores "none".
    times = [(kind, -1 if kind == 0 else ms) for _, (kind, ms), *_ in here]
    assert [ms for _, ms in times] == [ms for _, (_, ms), *_ in there]
    assert ends(old_cluster, topic) == ends(target_cluster, topic)
    (again,) = copy(old_cluster, target_cluster, ranges_of(old_cluster, topic))
    assert (again.done, again.records) == (True, 0)


def test_lz4_that_no_kafka_broker_reads_is_encoded_again(
    old_cluster: Cluster, target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks that depend on each other: a source of another make may store them."""
    with watched(monkeypatch) as sent:
        (result,) = copy(old_cluster, target_cluster, ranges_of(old_cluster, "linked-lz4"), duration_s=300)
    assert (result.done, result.records, result.reencoded) == (True, 300, 1)
    assert_acceptable(sent)
    assert_equal(old_cluster, target_cluster, "linked-lz4")


def test_batch_that_nobody_can_read_stops_its_own_partition_alone(
    old_cluster: Cluster, target_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(old_cluster, "readable")
    create(target_cluster, "readable")
    write(old_cluster, "readable", 50, 3, "zstd")
    ranges = [*ranges_of(old_cluster, "unreadable"), *ranges_of(old_cluster, "readable")]
    with watched(monkeypatch) as sent:
        stopped, done = copy(old_cluster, target_cluster, ranges, merge_below=0)
    assert (done.done, done.records) == (True, 50)
    assert (stopped.position, stopped.records, stopped.final) == (3, 3, True)
    assert "unreadable-0 offsets [3, 6): the target refuses this batch unchanged" in str(stopped.error)
    assert any(raw.header and raw.header.codec == codec.ZSTD and raw.header.record_count == 3 for raw in sent)
