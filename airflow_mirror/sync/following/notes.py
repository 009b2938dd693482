"""What a mirror last wrote for a group, and what it intends to write: the only proof that a position is the mirror's own.

Kafka keeps no author of a position. So a note stands in the target's state before a commit, with the position that the
target held and the one that it gets: whichever of both is found after a crash is the mirror's. When the answer is there
the note is settled to the one that holds.

A wrong note would let the mirror overwrite what somebody else set. Hence these rules:

- A position that merely equals the source's is nobody's: two groups of one name that have both read everything are
  equal by chance, and it is the most frequent place of all to stand at.
- A commit that was refused is taken out of the note at once. The members for which it was refused will probably stand
  there soon, by their own reading.
- What can't be read, or was written by a newer version, is no proof. It is not replaced either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2s
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.ledger.records import GROUP

key, prefix = GROUP.key, GROUP.below  # of a mirror and a group; of all of a mirror
# Offset, and a digest of the metadata: these may be long, and are only compared.
Mark = tuple[int, str]
Marks = tuple[Mark, ...]


@dataclass(frozen=True)
class Note:
    """The note about one group.

    :param at_ms: when all of its positions were last written, by the clock of the process that did.
    :param ours: positions on the target that are the mirror's: one of each partition, two while one is being written.
    """

    at_ms: int
    ours: Mapping[TopicPartition, Marks] = field(default_factory=dict)


def mark(position: GroupPosition) -> Mark:
    """Return what a note keeps of a position."""
    digest = blake2s(position.metadata.encode(), digest_size=6).hexdigest() if position.metadata else ""
    return position.offset, digest


def dump(note: Note) -> bytes:
    """Return a note as JSON; :func:`load` is the inverse."""
    topics: dict[str, dict[str, list[list[int | str]]]] = {}
    for tp, marks in sorted(note.ours.items()):
        of_topic = topics.setdefault(tp.topic, {})
        of_topic[str(tp.partition)] = [[offset, digest] if digest else [offset] for offset, digest in marks]
    return GROUP.encode({"at": note.at_ms, "ours": topics})


def load(value: bytes) -> Note | None:
    """Return the note; None if it says something that this version can't read."""
    return GROUP.one(_note, value)


def _note(content: Mapping[str, Any]) -> Note:
    ours = {
        TopicPartition(topic, int(number)): tuple((int(m[0]), str(m[1]) if len(m) > 1 else "") for m in marks)
        for topic, of_topic in content["ours"].items()
        for number, marks in of_topic.items()
    }
    return Note(int(content["at"]), ours)
