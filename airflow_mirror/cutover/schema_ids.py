"""What is known of the schema ids in a mirror's topics before its fence. Values alone: who asks registries is an extra.

A record carries the id of its schema, not the schema. Where the target's registry has none of that id, consumers stop;
where it has another one, they may read something else than was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

SAME, MISSING, DIFFERENT = "same", "missing", "different"


@dataclass(frozen=True, kw_only=True)
class SchemaRow:
    """An id in a topic.

    :param part: ``key`` or ``value``. :param subjects: of the source, each as ``subject version N``.
    :param verdict: of what it is on the target.
    """

    topic: str
    part: str
    id: int | str
    subjects: Sequence[str]
    verdict: str

    def __str__(self) -> str:
        named = f" ({', '.join(self.subjects)})" if self.subjects else ""
        said = {SAME: "the same", MISSING: "not there", DIFFERENT: "another schema"}[self.verdict]
        return f"topic {self.topic!r}: id {self.id} of the {self.part}{named} is {said} on the target"


@dataclass(frozen=True, kw_only=True)
class SchemaProof:
    """What was found.

    :param rows: sorted by topic and id. :param records: that were looked at.
    :param without: topics none of whose records carries an id that the source's registry knows.
    :param importing: subjects in mode IMPORT on the target and not on the source: producers could register nothing.
    """

    rows: Sequence[SchemaRow]
    records: int
    without: Sequence[str]
    importing: Sequence[str] = ()

    @property
    def wrong(self) -> list[SchemaRow]:
        """What consumers on the target could not read, or would read by another schema."""
        return [row for row in self.rows if row.verdict != SAME]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)
