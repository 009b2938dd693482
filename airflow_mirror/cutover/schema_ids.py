"""What is known of the schema ids in a mirror's topics before its fence. Values alone: who asks registries is an extra.

A record carries the id of its schema, not the schema. Where the target's registry has none of that id, consumers stop;
where it has another one, they may read something else than was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_mirror.common.partition import TopicPartition

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
class BehindTheFence:
    """A second look, at what came behind the first one.

    :param first: what that one found. :param going: called before each question; raises where
        nobody waits for the answer any more. :param granted: takes a right: then what is missing is registered, each
        change by it. None: nothing is.
    """

    first: SchemaProof
    going: Callable[[], object]
    granted: Callable[[], AbstractContextManager[object]] | None = None


@dataclass(frozen=True, kw_only=True)
class SchemaProof:
    """What was found.

    :param rows: sorted by topic and id. :param records: that were looked at.
    :param without: topics none of whose records carries an id that the source's registry knows.
    :param importing: subjects that stay in mode IMPORT on the target: producers could register nothing there.
    :param imports: the whole registry of the target is in mode IMPORT.
    :param following: versions that the mirror's tail would register, as in a row; ``stops``: why it can't.
    :param subjects: of what was found, on the source. :param ends: up to which it was looked, by source partition.
    """

    rows: Sequence[SchemaRow]
    records: int
    without: Sequence[str]
    importing: Sequence[str] = ()
    imports: bool = False
    following: Collection[str] = ()
    stops: str = ""
    subjects: Collection[str] = ()
    ends: Mapping[TopicPartition, int] = field(default_factory=dict, repr=False)

    @property
    def wrong(self) -> list[SchemaRow]:
        """What consumers on the target could not read, or would read by another schema."""
        return [row for row in self.rows if row.verdict != SAME]

    @property
    def shut(self) -> list[str]:
        """Where producers on the target could register nothing, a line each."""
        return [f"subject {one!r} is in mode IMPORT on the target: nobody could register there" for one in self.importing]

    @property
    def lines(self) -> list[str]:
        """What is wrong, a line each."""
        return [*map(str, self.wrong), *self.shut]

    def follows(self, row: SchemaRow) -> bool:
        """Return whether the mirror's tail would bring what a row lacks."""
        # By version: an id is one context's, and a GUID is an id of none.
        return row.verdict == MISSING and any(one in self.following for one in row.subjects)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: what was found, and not how far it was looked."""
        return {
            "rows": [asdict(row) for row in self.rows], "records": self.records, "without": list(self.without),
            "importing": list(self.importing), "imports": self.imports,
        }  # fmt: skip
