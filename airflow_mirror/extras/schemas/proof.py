"""Compare what the ids in a mirror's topics mean on both sides, by content. Only reads.

A sample of each partition is read: its first records and its last ones. An id that only records in between carry is not
seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Protocol

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.cutover.request import Prove
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SAME, SchemaProof, SchemaRow
from airflow_mirror.extras.schemas.ids import Carried, carried
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.schemas.held import IMPORT
from airflow_mirror.sync.schemas.registry import Registered
from airflow_mirror.verify.compare import Floor
from airflow_mirror.verify.partition import data_batches
from airflow_mirror.wire.records import Record


class Schemas(Protocol):
    """The part of a registry that is asked."""

    def mode(self, subject: str) -> str:
        """Return the mode by which a subject goes; "": the registry has none."""

    def schema(self, schema_id: int | str) -> Registered | None:
        """Return the schema of an id; None: there is none."""


def prover(mirror: Mirror, registry: Callable[[str, str], Schemas], each: int = 200) -> Prove | None:
    """Return what proves a mirror's schemas before its cutover; None: it names no registries.

    :param registry: returns that of a role, ``source`` or ``target``, by what the mirror names.
    :param each: records to read at each end of a partition.
    :raises InputError: a name leads nowhere.
    """
    if mirror.source_registry is None or mirror.target_registry is None:
        return None
    here, there = registry("source", mirror.source_registry), registry("target", mirror.target_registry)
    return partial(prove, here=here, there=there, each=each)


def prove(plan: Plan, source: ClusterAdmin, here: Schemas, there: Schemas, each: int) -> SchemaProof:
    """Read a sample of each topic, and ask both registries for each id once.

    :param here: the source's registry; ``there``: the target's. :param each: records at each end of a partition.
    :raises TryAgain: a cluster or a registry does not answer.
    """
    on_source, on_target = cache(here.schema), cache(there.schema)
    rows, without, subjects, records = list[SchemaRow](), list[str](), set[str](), 0
    for t in plan.topics:
        seen = set[Carried]()
        for record in sample(source, t.source_topic, t.partitions, each):
            records += 1
            seen.update(carried([record]))
        found = list[SchemaRow]()
        for one in sorted(seen, key=lambda one: (isinstance(one.id, str), one.id, one.part)):
            if (registered := on_source(one.id)) is not None:
                found.append(_row(t.source_topic, one, registered, on_target(one.id)))
                subjects.update(subject for subject, _ in registered.subjects)
        rows += found
        if not found:
            without.append(t.source_topic)
    importing = [one for one in sorted(subjects) if there.mode(one) == IMPORT and here.mode(one) != IMPORT]
    return SchemaProof(rows=rows, records=records, without=without, importing=importing)


def sample(source: ClusterAdmin, topic: str, partitions: int, each: int) -> Iterator[Record]:
    """Yield the first and the last records of each partition of a topic, committed ones.

    The first ones are counted: where compaction has emptied a log's start, so many offsets may hold none.
    """
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    starts, ends = source.offsets(tps, "earliest"), source.offsets(tps, "latest_committed")
    for tp in tps:
        first = list(islice(_records(source, tp, starts[tp], ends[tp]), each))
        yield from first
        after = first[-1].offset + 1 if first else ends[tp]
        yield from _records(source, tp, max(after, ends[tp] - each), ends[tp])


def _records(source: ClusterAdmin, tp: TopicPartition, begin: int, end: int) -> Iterator[Record]:
    """Yield the records of [begin, end), but for what retention deletes meanwhile."""
    if begin < end:
        for raw in data_batches(source.wire, tp, begin, end, floor=Floor(begin)):
            yield from (record for record in decoded(raw, tp, source.role) if begin <= record.offset < end)


def _row(topic: str, one: Carried, here: Registered, there: Registered | None) -> SchemaRow:
    verdict = MISSING if there is None else SAME if there.content == here.content else DIFFERENT
    subjects = [f"{subject} version {version}" for subject, version in here.subjects]
    return SchemaRow(topic=topic, part=one.part, id=one.id, subjects=subjects, verdict=verdict)
