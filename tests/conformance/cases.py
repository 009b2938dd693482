"""Conversations with a broker. Each is a function that asks and notes the answers: its transcript.

A case has a topic of its own, of one partition, with the settings that `settings` names for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lz4.frame

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from tests.conformance.asker import Asker
from tests.driven import records
from tests.driven.records import Row

Note = Callable[[str, Any], None]
Case = Callable[[Asker, Note], None]
CASES: dict[str, Case] = {}
SETTINGS: dict[str, dict[str, str]] = {}
_SINCE: dict[str, tuple[int, ...]] = {}
TIME_MS = 1_600_000_000_000
OURS = 1 << 62  # an id that no broker gives
READ_COMMITTED = 1
UNKNOWN_ID, NO_ID = "never-created-topic-iQ", "A" * 22


def case(since: tuple[int, ...] = (0, 11), **settings: str) -> Callable[[Case], Case]:
    """Add a conversation; ``_`` in a setting's name stands for ``.``.

    :param since: the first release that has what the conversation is about, which stands beside it.
    """

    def add(function: Case) -> Case:
        CASES[function.__name__] = function
        SETTINGS[function.__name__] = {k.replace("_", "."): v for k, v in settings.items()}
        _SINCE[function.__name__] = since
        return function

    return add


def served(version: str, name: str) -> bool:
    """Say whether a release has what a case is about."""
    return tuple(map(int, version.split("."))) >= _SINCE[name]


def rows(count: int, key: bytes | None = b"k", size: int = 5) -> list[Row]:
    """Records whose times go up and down."""
    return [Row(i, TIME_MS + (i * 7) % 5 * 1000, key, bytes([i % 256]) * size, (("h", None),)) for i in range(count)]


def batch(count: int = 3, codec_number: int = codec.NONE, **fields: int) -> bytes:
    """A batch, with header fields set whatever they are."""
    return records.changed(records.encode(rows(count), codec_number=codec_number), **fields)


def ours(count: int, sequence: int, epoch: int = 0, producer_id: int = OURS, attributes: int = 0) -> bytes:
    """A batch of an idempotent producer."""
    return batch(count, attributes=attributes, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def holed(number: int, **fields: int) -> bytes:
    """Three records at offset deltas 0, 2, 4."""
    spread = [row._replace(offset=row.offset * 2) for row in rows(3)]
    return records.changed(records.encode(spread, codec_number=number), **fields)


def linked_lz4() -> bytes:
    """Blocks that depend on each other, which Kafka can't read."""
    plain = records.encode(rows(300, size=900))
    payload = lz4.frame.compress(plain[61:], block_linked=True, store_size=False)
    return records.signed(
        records.header_of(plain)._replace(length=49 + len(payload), attributes=codec.LZ4), payload
    )  # fmt: skip


@case()
def what_a_batch_must_be(a: Asker, note: Note) -> None:
    flipped = bytearray(batch())
    flipped[-1] ^= 1
    refused = {
        "base offset 7": batch(base_offset=7),
        "two batches": batch() + batch(),
        "holes": holed(codec.NONE),
        "no records": batch(record_count=0, last_offset_delta=-1),
        "count too large": batch(record_count=4, last_offset_delta=3),
        "count too small": batch(record_count=2, last_offset_delta=1),
        "control": batch(attributes=wire_batch.CONTROL),
        "transactional without an id": ours(3, 0, attributes=wire_batch.TRANSACTIONAL),
        "id without a sequence": batch(producer_id=5, producer_epoch=0),
        "wrong checksum": bytes(flipped),
        "linked lz4": linked_lz4(),
    }
    for name, content in refused.items():
        note(name, a.produce(content))
    for number in (codec.GZIP, codec.SNAPPY, codec.LZ4, codec.ZSTD):
        note(f"holes, {codec.NAMES[number]}", a.produce(holed(number)))
        note(f"holes, {codec.NAMES[number]}, only the last delta edited", a.produce(holed(number, last_offset_delta=2)))
    note("unknown topic", a.produce(batch(), topic="never-created"))
    note("end", a.epoch_end(0))
    note("the last delta edited without a codec", a.produce(holed(codec.NONE, last_offset_delta=2)))
    note("end", a.epoch_end(0))


@case(since=(4, 0))
def topic_is_named_by_its_id(a: Asker, note: Note) -> None:
    for sequence in (0, 3):
        note(f"ours at {sequence}", a.produce_by_id(ours(3, sequence)))
    note("again", a.produce_by_id(ours(3, 3)))
    note("a gap", a.produce_by_id(ours(3, 9)))
    note("by name", a.produce(ours(3, 6)))
    note("without an id of a producer", a.produce_by_id(batch()))
    flipped, transactional = bytearray(batch()), ours(3, 9, attributes=wire_batch.TRANSACTIONAL)
    flipped[-1] ^= 1
    wrong = {"wrong checksum": bytes(flipped), "no records": batch(record_count=0), "transactional": transactional}
    for name, content in wrong.items():
        note(name, a.produce_by_id(content))
        note(f"{name}, of a topic that is not there", a.produce_by_id(content, UNKNOWN_ID))
    for topic_id in (UNKNOWN_ID, NO_ID):
        note("a topic that is not there", a.produce_by_id(batch(), topic_id))
    note("a partition that is not there", a.produce_by_id(batch(), partition=1))
    note("both", a.produce_by_id(batch(), UNKNOWN_ID, partition=1))
    note("end", a.epoch_end(0))
    note("log", a.fetch(0))


@case()
def every_codec_arrives_as_it_was_sent(a: Asker, note: Note) -> None:
    for number in range(5):
        note(codec.NAMES[number], a.produce(batch(4, number)))
    for name, fields in {
        "delete horizon": {"attributes": wire_batch.DELETE_HORIZON},
        "append time": {"attributes": wire_batch.LOG_APPEND_TIME},
        "wrong newest time": {"max_timestamp": 5}, "leader epoch": {"leader_epoch": 17},
    }.items():  # fmt: skip
        note(name, a.produce(batch(2, **fields)))
    note("log", a.fetch(0))


@case(max_message_bytes="20000", segment_bytes="1048576")
def sizes(a: Asker, note: Note) -> None:
    large = records.encode(rows(1, size=20_000))
    note("too large", a.produce(large))
    note("just so", a.produce(records.encode(rows(1, size=19_900))))


@case(max_message_bytes="3000000", segment_bytes="1048576")
def larger_than_a_segment(a: Asker, note: Note) -> None:
    note("larger than a segment", a.produce(records.encode(rows(1, size=1_100_000))))


@case(cleanup_policy="compact")
def compacted_topics_want_keys(a: Asker, note: Note) -> None:
    note("null key", a.produce(records.encode(rows(3, key=None))))
    note("keys", a.produce(batch()))
    note("records deleted", a.delete_records(1))


@case(message_timestamp_type="LogAppendTime")
def append_time(a: Asker, note: Note) -> None:
    note("bit set", a.produce(batch(attributes=wire_batch.LOG_APPEND_TIME)))
    note("bit clear", a.produce(batch()))
    note("compressed", a.produce(batch(3, codec.ZSTD)))
    note("log", a.fetch(0))


@case(since=(3, 6), message_timestamp_before_max_ms="1000000", message_timestamp_after_max_ms="1000")  # KIP-937
def times_out_of_range(a: Asker, note: Note) -> None:
    note("too old", a.produce(batch()))
    note("in the far future", a.produce(records.encode([Row(0, 4_000_000_000_000, b"k", b"v")])))
    note("none", a.produce(records.encode([Row(0, -1, b"k", b"v")])))


@case()
def sequences(a: Asker, note: Note) -> None:
    note("an unknown id may begin anywhere", a.produce(ours(3, 12_345)))
    note("repeat", a.produce(ours(3, 12_345)))
    note("gap", a.produce(ours(3, 12_349)))
    note("same sequence, fewer", a.produce(ours(2, 12_345)))
    for i in range(5):
        note(f"batch {i}", a.produce(ours(2, 12_348 + 2 * i)))
    note("the oldest that is remembered", a.produce(ours(2, 12_348)))
    note("one older", a.produce(ours(3, 12_345)))
    note("producers", a.producers())
    note("wrap", a.produce(ours(2, 2**31 - 2, producer_id=OURS + 1)))
    note("wrapped", a.produce(ours(2, 0, producer_id=OURS + 1)))
    note("across", a.produce(ours(4, 2**31 - 2, producer_id=OURS + 2)))
    note("behind", a.produce(ours(1, 2, producer_id=OURS + 2)))
    note("repeat across", a.produce(ours(4, 2**31 - 2, producer_id=OURS + 2)))
    note("producers", a.producers())


@case()
def epochs(a: Asker, note: Note) -> None:
    note("first", a.produce(ours(2, 7, epoch=3)))
    note("next epoch, not from 0", a.produce(ours(2, 9, epoch=4)))
    note("next epoch", a.produce(ours(2, 0, epoch=4)))
    note("old epoch", a.produce(ours(2, 9, epoch=3)))
    note("repeat of the old epoch", a.produce(ours(2, 7, epoch=3)))
    note("without an id", a.produce(batch()))
    note("two epochs on", a.produce(ours(2, 0, epoch=6)))
    note("producers", a.producers())


@case()
def direct_markers(a: Asker, note: Note) -> None:
    note("one", a.markers([(OURS, 2)]))
    note("three at once", a.markers([(OURS, 2)] * 3))
    note("of two", a.markers([(OURS, 2), (OURS + 1, 0)]))
    note("old epoch", a.markers([(OURS, 1)]))
    note("newer term of the coordinator", a.markers([(OURS, 2)], coordinator_epoch=3))
    note("older term", a.markers([(OURS, 2)], coordinator_epoch=2))
    note("new epoch, older term", a.markers([(OURS, 3)], coordinator_epoch=2))
    note("no id", a.markers([(-1, 0)]))
    note("no epoch", a.markers([(OURS, -1)]))
    note("producers", a.producers())
    note("data of the marker's epoch, not from 0", a.produce(ours(2, 5, epoch=2)))
    note("data of the marker's epoch", a.produce(ours(2, 0, epoch=2)))
    note("abort", a.markers([(OURS, 4)], commit=False, coordinator_epoch=3))
    note("data of an old epoch", a.produce(ours(2, 2, epoch=2)))
    note("its repeat", a.produce(ours(2, 0, epoch=2)))
    note("data of the new epoch", a.produce(ours(2, 0, epoch=4)))
    note("log", a.fetch(0))
    note("stable", a.list_offsets(-1, READ_COMMITTED))


@case()
def reading(a: Asker, note: Note) -> None:
    for count in (3, 1, 5):
        a.produce(batch(count))
    for offset in (0, 2, 3, 8, 9, 10, -1):
        note(f"from {offset}", a.fetch(offset))
    for size in (0, 1, 70, 130, 160):
        note(f"at most {size} bytes", a.fetch(0, max_bytes=size))
    for epoch in (0, 1):
        note(f"as of epoch {epoch}", a.fetch(0, epoch=epoch)[:4])
        note(f"offsets as of epoch {epoch}", a.list_offsets(-1, epoch=epoch))
        note(f"end as of epoch {epoch}", a.epoch_end(0, epoch))
    for epoch in (-1, 0, 1):
        note(f"end of epoch {epoch}", a.epoch_end(epoch))
    for time_ms in (-2, -1, 0, TIME_MS, TIME_MS + 1, TIME_MS + 2000, TIME_MS + 4000, TIME_MS + 4001):
        note(f"offset for {time_ms}", a.list_offsets(time_ms))


@case()
def deleted_records(a: Asker, note: Note) -> None:
    note("of an empty log", a.delete_records(0))
    note("offsets of an empty log", (a.list_offsets(-2), a.list_offsets(-1), a.epoch_end(0)))
    for count in (4, 4):
        a.produce(ours(count, 0 if count else 0, producer_id=OURS + count))
    a.produce(ours(4, 4, producer_id=OURS + 4))
    for before in (2, 1, 9, -2, 5, -1):
        note(f"before {before}", a.delete_records(before))
        note("start and end", (a.list_offsets(-2), a.list_offsets(-1)))
        note("from the start", a.fetch(a.list_offsets(-2)[2]))
    note("below the start", a.fetch(0))
    note("by time", a.list_offsets(0))
    note("producers", a.producers())
    note("next batch", a.produce(ours(2, 8, producer_id=OURS + 4)))
    note("end", a.epoch_end(0))


@case()
def who_has_transactions_open(a: Asker, note: Note) -> None:
    is_open = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
    names = [f"{a.tp.topic}-{n}" for n in ("data", "empty", "idle")]
    note("nobody", a.listed(*is_open))
    for name in names:
        note("coordinator", a.find_coordinator(name, 1))
    ids = [a.init(name) for name in names]
    note("none begun", (a.listed(*is_open), a.listed()))
    for name, (_, pid, epoch) in zip(names[:2], ids, strict=False):
        note("begun", a.add_partition(name, pid, epoch))
    note("data", a.produce(ours(2, 0, producer_id=ids[0][1], attributes=wire_batch.TRANSACTIONAL), names[0]))
    note("stable", (a.list_offsets(-1, READ_COMMITTED), a.list_offsets(-1)))
    note("open", a.listed(*is_open))
    note("with data", a.end(names[0], ids[0][1], ids[0][2], commit=True))
    note("holds nothing back", (a.list_offsets(-1, READ_COMMITTED), a.list_offsets(-1), a.listed(*is_open)))
    note("all", a.listed())
    note("unknown states", a.listed("Ongoing", "Asleep"))
    note("without data", a.end(names[1], ids[1][1], ids[1][2], commit=False))
    note("marker", (a.list_offsets(-1), a.listed(*is_open)))
    note("rules", a.acls())


@case()
def transactions(a: Asker, note: Note) -> None:
    name = f"{a.tp.topic}-t"
    note("coordinator", a.find_coordinator(name, 1))
    note("unknown id", a.described(name))
    error, pid, epoch = a.init(name)
    note("taken", (error, epoch))
    note("described", a.described(name))
    data = {"producer_id": pid, "attributes": wire_batch.TRANSACTIONAL}
    note("not begun", a.produce(ours(2, 0, **data), name))
    note("end without a transaction", a.end(name, pid, epoch, commit=True))
    note("unknown topic", a.add_partition(name, pid, epoch, "never-created"))
    note("begun", a.add_partition(name, pid, epoch))
    note("described", a.described(name))
    note("data", a.produce(ours(2, 0, **data), name))
    note("not transactional", a.produce(ours(2, 2, producer_id=pid)))
    note("more", a.produce(ours(2, 2, **data), name))
    note("stable", (a.list_offsets(-1, READ_COMMITTED), a.list_offsets(-1)))
    note("producers", a.producers())
    note("seen while it is open", a.fetch(0, READ_COMMITTED))
    note("committed", a.end(name, pid, epoch, commit=True))
    note("described", a.described(name))
    note("again", a.end(name, pid, epoch, commit=True))
    note("aborted after all", a.end(name, pid, epoch, commit=False))
    note("stable", a.list_offsets(-1, READ_COMMITTED))
    note("data after the end", a.produce(ours(1, 4, **data), name))
    note("second", a.add_partition(name, pid, epoch))
    note("its data", a.produce(ours(3, 4, **data), name))
    note("aborted", a.end(name, pid, epoch, commit=False))
    note("aborted again", a.end(name, pid, epoch, commit=False))
    note("empty", (a.add_partition(name, pid, epoch), a.end(name, pid, epoch, commit=True)))
    note("producers", a.producers())
    note("committed only", a.fetch(0, READ_COMMITTED))
    note("everything", a.fetch(0))
    note("described", a.described(name))


@case()
def a_transactional_id_is_taken_over(a: Asker, note: Note) -> None:
    name = f"{a.tp.topic}-t"
    a.find_coordinator(name, 1)
    _, pid, epoch = a.init(name)
    a.add_partition(name, pid, epoch)
    a.produce(ours(2, 0, producer_id=pid, attributes=wire_batch.TRANSACTIONAL), name)
    error, same, newer = a.init(name, 30_000)
    note("taken over", (error, same == pid, newer))
    note("described", a.described(name))
    note("log", a.fetch(0, READ_COMMITTED))
    note("producers", a.producers())
    for what, code in {
        "the old one adds": a.add_partition(name, pid, epoch), "ends": a.end(name, pid, epoch, commit=True),
        "adds a group": a.add_offsets(name, pid, epoch, "g"), "another id": a.add_partition(name, pid + 1, newer),
        "an unknown name": a.add_partition("never-seen", pid, newer), "ends it": a.end("never-seen", pid, 0, commit=True),
    }.items():  # fmt: skip
        note(what, code)
    note("the old one writes", a.produce(ours(2, 2, producer_id=pid, attributes=wire_batch.TRANSACTIONAL), name))
    note("compared with an old epoch", a.init(name, 60_000, pid, epoch)[::2])
    note("compared", a.init(name, 60_000, pid, newer)[::2])
    note("compared again: a repeat", a.init(name, 60_000, pid, newer)[::2])
    note("compared with the newest", a.init(name, 60_000, pid, newer + 1)[::2])
    note("compared with another id", a.init(name, 60_000, pid + 1, newer + 2)[0])
    note("without an epoch", a.init(name, 60_000, pid, -1)[0])
    note("taken once more", a.init(name, 60_000)[::2])
    note("too long a time", a.init(name, 900_001)[0])
    note("no time", a.init(name, 0)[0])
    note("an empty name", a.init("", 60_000)[0])
    note("described", a.described(name))
    note("no name", a.init(None, 60_000)[::2])
    note("a new name, compared", a.init(f"{name}-2", 60_000, 77, 3)[::2])


@case(since=(2, 5))  # an InitProducerId that compares (KIP-360)
def a_transaction_is_taken_over_when_empty(a: Asker, note: Note) -> None:
    name = f"{a.tp.topic}-t"
    a.find_coordinator(name, 1)
    _, pid, epoch = a.init(name)
    a.add_partition(name, pid, epoch)
    note("compared", a.init(name, 60_000, pid, epoch)[::2])
    note("log", a.fetch(0))
    note("a direct marker of the old epoch", a.markers([(pid, epoch)]))
    note("producers", a.producers())


@case()
def a_groups_offset_in_a_transaction(a: Asker, note: Note) -> None:
    name, group = f"{a.tp.topic}-t", f"{a.tp.topic}-g"
    a.find_coordinator(name, 1)
    a.find_coordinator(group, 0)
    _, pid, epoch = a.init(name)
    note("never committed", a.offset(group))
    a.add_partition(name, pid, epoch)
    note("group added", a.add_offsets(name, pid, epoch, group))
    note("described", a.described(name)[:2])
    a.produce(ours(2, 0, producer_id=pid, attributes=wire_batch.TRANSACTIONAL), name)
    note("offset", a.commit_offset(name, pid, epoch, group, 41))
    note("before the end", (a.offset(group, is_open=True), a.offset(group, stable=False)))
    note("committed", a.end(name, pid, epoch, commit=True))
    note("after the end", a.offset(group, awaited=41))
    a.add_partition(name, pid, epoch)
    note("not added", a.commit_offset(name, pid, epoch, group, 42))
    a.add_offsets(name, pid, epoch, group)
    note("added", a.commit_offset(name, pid, epoch, group, 42))
    note("of an old epoch", a.commit_offset(name, pid, epoch - 1, group, 43))
    note("aborted", a.end(name, pid, epoch, commit=False))
    note("after the abort", a.offset(group))
    note("after the end", a.commit_offset(name, pid, epoch, group, 44))


def in_sessions(a: Asker, note: Note, by: str = "") -> Callable[..., int]:
    """Return what asks in a session, notes the answer, and returns the session's number.

    :param by: the id by which the topic is named, if a request says no other; empty: by its name.
    """

    def ask(
        what: str, number: int, epoch: int, offsets: dict[int, int], forgotten: tuple[int, ...] = (),
        topic_id: str = by,
    ) -> int:  # fmt: skip
        told, answer = a.fetch_in_session(number, epoch, offsets, forgotten, topic_id)
        note(what, answer)
        return told

    return ask


@case(since=(1, 1))  # fetch sessions (KIP-227)
def a_fetch_session(a: Asker, note: Note) -> None:
    ask = in_sessions(a, note)
    a.produce(batch(2))
    one = ask("it begins", 0, 0, {0: 0})
    ask("at the same offset", one, 1, {})
    ask("behind the batch", one, 2, {0: 2})
    ask("nothing is new", one, 3, {})
    a.produce(batch(2))
    ask("a batch is new", one, 4, {})
    ask("and it still is", one, 5, {})
    ask("named at the end", one, 6, {0: 4})
    a.delete_records(3)
    ask("the log start is new", one, 7, {})
    ask("nothing is new", one, 8, {})
    ask("beyond the end", one, 9, {0: 5})
    ask("errors are told each time", one, 10, {})
    ask("back again", one, 11, {0: 4})
    ask("a partition that is not there", one, 12, {7: 0})
    ask("its error is told each time", one, 13, {})
    ask("it is forgotten", one, 14, {}, (7,))
    ask("named and forgotten at once", one, 15, {7: 0}, (7,))
    ask("forgotten, and never named", one, 16, {}, (9,))
    ask("an epoch that was", one, 16, {})
    ask("an epoch that is not yet", one, 18, {})
    ask("the session goes on", one, 17, {})
    ask("another session", one + 1 if one < 2**31 - 1 else 1, 1, {})
    two = ask("a new one for the old one", one, 0, {0: 2})
    ask("the old one is closed", one, 18, {})
    a.produce(batch(2))
    ask("the new one", two, 1, {0: 4})
    ask("all is forgotten", two, 2, {}, (0,))
    ask("that was its end", two, 3, {0: 4})
    three = ask("it begins with an error", 0, 0, {7: 0, 0: 4})
    ask("it is told again", three, 1, {})
    ask("it is closed, without another one", three, -1, {0: 4})
    ask("it is", three, 2, {})
    ask("no session", 0, -1, {0: 4})


@case(since=(3, 1))  # ids in place of names (KIP-516)
def a_fetch_names_its_topic_by_the_id(a: Asker, note: Note) -> None:
    a.produce(batch(3))
    a.produce(batch(2))
    for offset in (0, 3, 5, 6, -1):
        note(f"from {offset}", a.fetch_by_id(offset))
    for epoch in (0, 7):
        note(f"as of epoch {epoch}", a.fetch_by_id(0, epoch=epoch))
    note("a partition that is not there", a.fetch_by_id(0, partition=1))
    for topic_id in (UNKNOWN_ID, NO_ID):
        note("a topic that is not there", a.fetch_by_id(0, topic_id))


@case(since=(3, 1))
def a_fetch_session_names_topics_by_ids(a: Asker, note: Note) -> None:
    ask = in_sessions(a, note, a.topic_id)
    a.produce(batch(2))
    one = ask("it begins", 0, 0, {0: 0})
    ask("at the same offset", one, 1, {})
    ask("behind the batch", one, 2, {0: 2})
    ask("nothing is new", one, 3, {})
    ask("a topic that is not there", one, 4, {0: 0}, topic_id=UNKNOWN_ID)
    ask("its error is told each time", one, 5, {})
    ask("it is forgotten", one, 6, {}, (0,), topic_id=UNKNOWN_ID)
    ask("it is", one, 7, {})
    ask("a partition that is not there", one, 8, {7: 0})
    ask("it is forgotten", one, 9, {}, (7,))
    ask("by its name", one, 10, {0: 2}, topic_id="")
    ask("the session goes on", one, 10, {0: 0})
    two = ask("one by names for the old one", one, 0, {0: 0}, topic_id="")
    ask("by its id", two, 1, {0: 0})
    ask("this one goes on, too", two, 1, {}, topic_id="")
