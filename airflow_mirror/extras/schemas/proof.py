"""Compare what the ids in a mirror's topics mean on both sides, by content. Only reads.

A sample of each partition is read: its first records and its last ones. An id that only records in between carry is not
seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from itertools import islice

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.fingerprint import decoded
from airflow_mirror.cutover.request import Offsets, Prove
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SAME, BehindTheFence, SchemaProof, SchemaRow
from airflow_mirror.errors import BrokerError, MirrorError
from airflow_mirror.extras.schemas.ids import Carried, carried
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.schemas.held import IMPORT
from airflow_mirror.sync.schemas.move import move
from airflow_mirror.sync.schemas.registry import Registered, Registry
from airflow_mirror.sync.schemas.ways import set_mode
from airflow_mirror.verify.compare import Floor
from airflow_mirror.verify.partition import data_batches
from airflow_mirror.wire.records import Record

_AGAIN_S = 5.0  # a move that goes on has another subject in mode IMPORT by then
_BEHIND, _MOST = 100_000, 10_000  # records at the ends of what came behind a first look, of all partitions and of one


def prover(mirror: Mirror, registry: Callable[[str, str], Registry], each: int = 200) -> Prove | None:
    """Return what proves a mirror's schemas for its cutover; None: it names no registries.

    :param registry: returns that of a role, ``source`` or ``target``, by what the mirror names.
    :param each: records to read at each end of a partition.
    :raises InputError: a name leads nowhere.
    """
    if mirror.source_registry is None or mirror.target_registry is None:
        return None
    here, there = registry("source", mirror.source_registry), registry("target", mirror.target_registry)
    return partial(prove, here=here, there=there, each=each, follows=mirror.sync_schemas)


def prove(
    plan: Plan, source: ClusterAdmin, behind: BehindTheFence | None = None, *, here: Registry, there: Registry, each: int,
    follows: bool = False,
) -> SchemaProof:  # fmt: skip
    """Read a sample of each topic, and ask both registries for each id once.

    :param behind: what came behind an earlier look is looked at, while producers wait: nobody is waited for. None: all.
    :param here: the source's registry; ``there``: the target's. :param each: records at each end of a partition.
    :param follows: a tail registers what is missing: look what it could.
    :raises TryAgain: a cluster or a registry does not answer.
    """
    if behind is not None:
        here = here.hurried().by_right(nullcontext, behind.going)
        there = there.hurried().by_right(behind.granted or nullcontext, behind.going)
        each = max(each, min(_MOST, _BEHIND // max(1, sum(t.partitions for t in plan.topics))))
    on_source, on_target = cache(here.schema), cache(there.schema)
    rows, without, subjects, records = list[SchemaRow](), list[str](), set[str](), 0
    ends = dict[TopicPartition, int]()
    for t in plan.topics:
        seen, tps = set[Carried](), [TopicPartition(t.source_topic, p) for p in range(t.partitions)]
        starts = source.offsets(tps, "earliest")
        ends |= (its := source.offsets(tps, "latest_committed"))
        if behind is not None:
            starts = {tp: max(at, behind.first.ends.get(tp, 0)) for tp, at in starts.items()}
        if behind is not None:
            behind.going()
        for record in sample(source, starts, its, each):
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
    proof = SchemaProof(rows=rows, records=records, without=without, ends=ends, subjects=subjects)
    if behind is not None:
        return _settled(proof, behind, here, there)
    if follows and any(row.verdict == MISSING for row in rows):
        proof = _with_what_follows(proof, here, there)
    return replace(proof, importing=_importing(there, subjects), imports=_imports(there, ""))


def _settled(proof: SchemaProof, behind: BehindTheFence, here: Registry, there: Registry) -> SchemaProof:
    """Return the proof with what is missing registered, and no subject left in mode IMPORT, if that is granted.

    The tail has ended: what it was at is nobody's any more.
    """
    if behind.granted is None:
        return proof
    missing = [row for row in proof.rows if row.verdict == MISSING]
    # No more than is missing: producers wait, and a whole registry may take minutes.
    lacking = {name for row in missing if (its := here.schema(row.id)) is not None for name, _ in its.subjects}
    if lacking:
        move(here, there, dry_run=False, only=lacking)
        again = [replace(row, verdict=_verdict(here.schema(row.id), there.schema(row.id))) for row in missing]
        proof = replace(proof, rows=[*(row for row in proof.rows if row.verdict != MISSING), *again])
    left = [one for one in sorted({*behind.first.subjects, *proof.subjects}) if _imports(there, one)]
    for one in left:
        set_mode(there, one, None)
    return replace(proof, importing=[one for one in left if _imports(there, one)])


def _with_what_follows(proof: SchemaProof, here: Registry, there: Registry) -> SchemaProof:
    """Return the proof with the versions that a tail would register, or why it can't."""
    try:
        found = move(here, there, dry_run=True)
    except MirrorError as e:
        return replace(proof, stops=str(e))
    return replace(proof, following=found.lacking)


def _importing(there: Registry, subjects: Iterable[str]) -> list[str]:
    """Return which subjects stay in mode IMPORT on the target: one whose versions just come has it for a moment."""
    found = [one for one in sorted(subjects) if _imports(there, one)]
    if found:
        time.sleep(_AGAIN_S)
    return [one for one in found if _imports(there, one)]


def _imports(there: Registry, name: str) -> bool:
    """Return whether a subject, or the whole registry (""), is in mode IMPORT, as far as it is told to us."""
    try:
        return there.mode(name) == IMPORT
    except BrokerError:  # who may read schemas alone proves them all the same
        return False


def sample(source: ClusterAdmin, starts: Offsets, ends: Offsets, each: int) -> Iterator[Record]:
    """Yield the first and the last records of each partition between two offsets.

    The first ones are counted: where compaction has emptied a log's start, so many offsets may hold none.
    """
    for tp in starts:
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
    subjects = [f"{subject} version {version}" for subject, version in here.subjects]
    return SchemaRow(topic=topic, part=one.part, id=one.id, subjects=subjects, verdict=_verdict(here, there))


def _verdict(here: Registered | None, there: Registered | None) -> str:
    return MISSING if there is None else SAME if here is not None and there.content == here.content else DIFFERENT
