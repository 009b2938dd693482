"""Conversations at random: producers that repeat, skip and fence each other, transactions, markers, deletions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from airflow_mirror.wire import batch as wire_batch
from airflow_mirror.wire import codec
from tests.conformance.asker import Asker
from tests.conformance.cases import OURS, TIME_MS, Case, Note
from tests.driven import records
from tests.driven.records import Row

STEPS = 60


@dataclass
class _Producer:
    """What a producer of ours believes; it is often wrong."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    sent: list[bytes] = field(default_factory=list)
    transactional_id: str | None = None


def conversation(rng: random.Random) -> Case:
    """Return a conversation that ``rng`` decides; every answer is noted, and the log is read at the end."""

    def talk(a: Asker, note: Note) -> None:
        _Talk(a, note, rng).run()

    return talk


class _Talk:
    def __init__(self, asker: Asker, note: Note, rng: random.Random) -> None:
        self.a, self.note, self.rng = asker, note, rng
        self.producers = [_Producer(OURS + i) for i in range(2)]

    def run(self) -> None:
        for number in range(2):
            name = f"{self.a.tp.topic}-{number}"
            self.a.find_coordinator(name, 1)
            error, producer_id, epoch = self.a.init(name)
            self.note(f"init {number}", (error, epoch))
            self.producers.append(_Producer(producer_id, epoch, transactional_id=name))
        steps = [
            (8, self._data), (3, self._repeat), (2, self._plain), (1, self._wrong_epoch), (1, self._marker),
            (1, self._delete), (4, self._begin), (4, self._end), (1, self._take_over), (3, self._fetch),
            (2, self._offsets), (1, self._describe),
        ]  # fmt: skip
        for _ in range(STEPS):
            self.rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()
        for p in self.producers[2:]:
            assert p.transactional_id is not None
            self.note("end", self.a.end(p.transactional_id, p.producer_id, p.epoch, commit=True))
        self._describe()
        start = self.a.list_offsets(-2)[2]
        for isolation in (0, 1):
            self.note("log", self.a.fetch(start, isolation))

    def _one(self) -> _Producer:
        return self.rng.choice(self.producers)

    def _transactional(self) -> _Producer:
        return self.rng.choice(self.producers[2:])

    def _rows(self) -> list[Row]:
        return [
            Row(
                i, TIME_MS + self.rng.randint(-5000, 5000), self.rng.choice([None, b"", b"k"]),
                self.rng.choice([None, b"v" * self.rng.randint(0, 40)]), (("é", b"x"),) * self.rng.randint(0, 2),
            )
            for i in range(self.rng.randint(1, 6))
        ]  # fmt: skip

    def _batch(self, p: _Producer | None) -> bytes:
        content = records.encode(self._rows(), codec_number=self.rng.choice(range(5)))
        if p is None:
            return content
        attributes = records.header_of(content).attributes
        # Now and then a batch of a transactional producer that is none of its transaction's, and the other way round.
        if (p.transactional_id is not None) != (self.rng.random() < 0.05):
            attributes |= wire_batch.TRANSACTIONAL
        sequence = max(0, p.sequence + self.rng.choice([0] * 9 + [1, -1]))
        return records.changed(
            content, attributes=attributes, producer_id=p.producer_id, producer_epoch=p.epoch, base_sequence=sequence
        )

    def _send(self, p: _Producer, content: bytes, what: str) -> None:
        header = records.header_of(content)
        answer = self.a.produce(content, p.transactional_id)
        self.note(
            f"{what} of {self.producers.index(p)}, epoch {header.producer_epoch}, sequence {header.base_sequence}, "
            f"{header.record_count} records, attributes {header.attributes:#x}, {codec.NAMES[header.codec]}",
            answer,
        )
        if answer[0] == 0 and what == "data":
            p.sent.append(content)
            p.sequence = wire_batch.next_sequence(header.base_sequence, header.record_count)

    def _data(self) -> None:
        p = self._one()
        self._send(p, self._batch(p), "data")

    def _repeat(self) -> None:
        p = self._one()
        if p.sent:
            self._send(p, self.rng.choice(p.sent[-8:]), "repeat")

    def _plain(self) -> None:
        self.note("plain", self.a.produce(self._batch(None)))

    def _wrong_epoch(self) -> None:
        p = self.rng.choice(self.producers[:2])
        if self.rng.random() < 0.5:
            p.epoch, p.sequence = p.epoch + 1, 0
        else:
            older = _Producer(p.producer_id, max(0, p.epoch - 1), p.sequence)
            self.producers.append(older)
            self._send(older, self._batch(older), "old epoch")
            self.producers.pop()

    def _marker(self) -> None:
        p = self.rng.choice(self.producers[:2])
        p.epoch += self.rng.choice([0, 0, 1])
        count, term = self.rng.randint(1, 3), self.rng.choice([0, 0, 1])
        commit = self.rng.random() < 0.5
        answer = self.a.markers([(p.producer_id, p.epoch)] * count, commit=commit, coordinator_epoch=term)
        self.note(f"{count} markers of {self.producers.index(p)}, epoch {p.epoch}, term {term}", answer)
        p.sequence = 0

    def _delete(self) -> None:
        end = self.a.list_offsets(-1)[2]
        before = self.rng.choice([-1, end // 2, end + 1, self.rng.randint(0, end)])
        self.note(f"delete before {before}", self.a.delete_records(before))

    def _begin(self) -> None:
        p = self._transactional()
        assert p.transactional_id is not None
        self.note(
            f"begin {self.producers.index(p)}", self.a.add_partition(p.transactional_id, p.producer_id, p.epoch)
        )  # fmt: skip

    def _end(self) -> None:
        p = self._transactional()
        assert p.transactional_id is not None
        commit = self.rng.random() < 0.6
        answer = self.a.end(p.transactional_id, p.producer_id, p.epoch, commit=commit)
        self.note(f"{'commit' if commit else 'abort'} {self.producers.index(p)}", answer)

    def _take_over(self) -> None:
        p = self._transactional()
        assert p.transactional_id is not None
        compared = (p.producer_id, p.epoch) if self.rng.random() < 0.5 else (-1, -1)
        error, producer_id, epoch = self.a.init(p.transactional_id, 60_000, *compared)
        self.note(f"take over {self.producers.index(p)}", (error, producer_id == p.producer_id, epoch))
        if not error:
            p.epoch, p.sequence, p.sent = epoch, 0, []

    def _fetch(self) -> None:
        end = self.a.list_offsets(-1)[2]
        offset, isolation = self.rng.randint(0, end + 1), self.rng.randint(0, 1)
        size = self.rng.choice([1 << 20, 1, 100, 300])
        self.note(f"fetch {offset}, {isolation}, {size}", self.a.fetch(offset, isolation, size))

    def _offsets(self) -> None:
        timestamp = self.rng.choice([-1, -2, TIME_MS + self.rng.randint(-6000, 6000)])
        isolation = self.rng.randint(0, 1)
        self.note(f"offsets {timestamp}, {isolation}", self.a.list_offsets(timestamp, isolation))

    def _describe(self) -> None:
        self.note("producers", self.a.producers())
        for p in self.producers[2:]:
            assert p.transactional_id is not None
            self.note("transaction", self.a.described(p.transactional_id))
        self.note("end", self.a.epoch_end(0))
