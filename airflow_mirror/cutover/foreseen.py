"""What a cutover would refuse whenever it came: asked by the plan, before anything is copied.

The checks of a cutover (:mod:`.check`, :mod:`.preview`) call the same functions. Here blocks what only another form can
mend, and warns what somebody may still grant while the copy runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from airflow_mirror.cutover.fence import fence_of
from airflow_mirror.cutover.opening import require_fits
from airflow_mirror.cutover.request import CutoverRequest, Prove
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SchemaProof, SchemaRow
from airflow_mirror.errors import (
    ClusterUnreachable,
    InputError,
    LedgerOpen,
    MirrorError,
    MissingRight,
    OpeningTooLarge,
)
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.findings import (
    BLOCK,
    PASS,
    WARN,
    Checks,
    Finding,
    Questions,
    block,
    several,
    warn,
    well,
    worst_first,
)
from airflow_mirror.plan.ledger_writers import ledger_writers
from airflow_mirror.plan.missing_acls import Lacking, lacking
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.requirements import require_exclusive_topics
from airflow_mirror.plan.rights import CUTOVER
from airflow_mirror.plan.topic_checks import UNREAD
from airflow_mirror.wording import count

Prover = Callable[[], Prove | None]

GRANT = "Grant it: 'airflow-mirror rights' prints the commands."
_LATER = "The cutover would refuse this after the whole copy."

_SCHEMAS = {  # by verdict: what is wrong, and what to do
    MISSING: (
        "the target's registry has no such schema: consumers there would stop",
        "Move them: airflow-mirror move-schemas. 'airflow-mirror schemas' lists each.",
    ),
    DIFFERENT: (
        "the id is another schema in the target's registry: consumers there would fail, or misread",
        "Let the target have a registry that is empty, and move the schemas with their ids; or let producers write with "
        "ids that the target's knows.",
    ),
}

CHECKS = Checks[[CutoverRequest, ClusterAdmin, ClusterAdmin, SchemaProof | None]](
    lambda request, *_: f"mirror {request.plan.mirror.name!r}"
)


def with_foreseen(
    request: CutoverRequest, source: ClusterAdmin, target: ClusterAdmin, prover: Prover, *, is_wanted: bool = True
) -> Plan:  # fmt: skip
    """Return the request's plan, with what its cutover would find by now; a plan that is blocked is not asked further.

    :param prover: see :func:`foreseen`.
    :param is_wanted: False: nobody has asked for the cutover yet, so what would block it only warns.
    :raises TryAgain: a cluster does not answer.
    """
    plan = request.plan
    if plan.blocks:
        return plan
    found = foreseen(request, source, target, prover)
    if not is_wanted:
        found = [replace(one, level=WARN) if one.level == BLOCK else one for one in found]
    return replace(plan, findings=tuple(worst_first([*plan.findings, *found])))


def foreseen(
    request: CutoverRequest, source: ClusterAdmin, target: ClusterAdmin, prover: Prover
) -> list[Finding]:  # fmt: skip
    """Return what a cutover of the request's plan would find by now, blocks first. Only reads.

    :param prover: returns what proves the schemas of the mirror; None: it names no registries.
    :raises TryAgain: a cluster does not answer.
    """

    def asked() -> SchemaProof | None:
        prove = prover()
        return None if prove is None else prove(request.plan, source, None)

    to = Questions(ClusterUnreachable)
    # The target's can't be started before the cutover of the topic that is its store.
    stores = [one for one in request.plan.findings if one.check == "registry_topics" and one.level != PASS]
    moves = any(not one.evidence.startswith(UNREAD) for one in stores)
    schemas = None if moves else to.ask("cutover_schemas", asked)
    return worst_first(CHECKS.run(to.unknown, request, source, target, schemas))


@CHECKS.check("cutover", "can be cut over", first=True)
def _possible(request: CutoverRequest, *_: object) -> None:
    require_possible(request.plan)


@CHECKS.check("cutover_fence", "the fence can be raised and lifted")
def _fence(request: CutoverRequest, source: ClusterAdmin, *_: object) -> Iterator[Finding]:
    try:
        fence_of(request.fence, source, request.open_by_default).intent([t.source_topic for t in request.plan.topics])
    except MissingRight as e:
        yield warn(str(e), _LATER)
    except InputError as e:
        yield block(e.what_and_why, f"{e.remedy} {_LATER}".strip())


@CHECKS.check("cutover_ledger", "nobody else may write to the target's ledger")
def _ledger(request: CutoverRequest, _: object, target: ClusterAdmin, *more: object) -> Iterator[Finding]:
    try:
        require_alone_in_ledger(request.plan.mirror, target, request.accept_ledger_writers)
    except LedgerOpen as e:
        yield block(f"{e.what}: {e.cause}", f"{e.remedy} {_LATER}")


@CHECKS.check("cutover_opening", "the decision that opens the target fits into a record of its ledger")
def _opening(request: CutoverRequest, _: object, target: ClusterAdmin, *more: object) -> Iterator[Finding]:
    try:
        require_fits(request.plan, target)
    except OpeningTooLarge as e:
        # The topic can be told so at any time from the first plan on, which may be the one that creates it.
        yield warn(f"{e.what}: {e.cause}", f"{e.remedy} {_LATER}")
    except MissingRight as e:
        yield warn(f"not known: {e}")


@CHECKS.check("cutover_rights", "the rights of a cutover are granted")
def _rights(request: CutoverRequest, source: ClusterAdmin, target: ClusterAdmin, _: object) -> Iterator[Finding]:
    try:
        missing, _ = lacking(
            CUTOVER, request.plan, request.plan.positions, source=source, target=target, left_out=request.leave_out_groups
        )
    except MirrorError as e:
        yield warn(f"not known: {e}")
        return
    for right in missing:
        yield warn(str(right), f"{GRANT} {_LATER}", about_right(right))


@CHECKS.check("cutover_schemas", about="both registries")
def _schemas(request: CutoverRequest, _: object, target: object, schemas: SchemaProof | None) -> Iterator[Finding]:
    if schemas is None:
        return
    if following := [row for row in schemas.rows if schemas.follows(row)]:
        yield well(
            f"{count(len(following), 'id')} of the source's registry not on the target yet: the tail registers them"
        )
    yield from of_schemas(schemas, [row for row in schemas.rows if row not in following])


# --- shared with the cutover's own checks -------------------------------------------------------------------------------


def require_possible(plan: Plan) -> None:
    """Return if a mirror's topics can be cut over at all.

    :raises InputError: its records are partitioned anew. :raises TopicsShared: others write to them.
    """
    if plan.mirror.partitioning == "by_key":
        raise InputError(
            f"mirror {plan.mirror.name!r} can't be cut over",
            "partitioning='by_key' splits the records of a partition, so neither groups nor proofs can be translated",
            "Switch producers and consumers by hand, consumers at earliest or by time.",
        )
    require_exclusive_topics(plan, "cut over")


def require_alone_in_ledger(mirror: Mirror, target: ClusterAdmin, accepted: Collection[str]) -> None:
    """Return if nobody but the mirror's principal, and who is accepted, may write to the target's ledger.

    :raises LedgerOpen: names the others.
    """
    # Who may write decisions can have a fence lifted behind our back: no compare-and-set helps against a record that is
    # valid.
    if others := ledger_writers(target, mirror, accepted):
        raise LedgerOpen(
            target.role, [str(one) for one in others], (w.principal for w in others), (w.command for w in others)
        )


def of_schemas(found: SchemaProof, rows: Sequence[SchemaRow] | None = None) -> Iterator[Finding]:
    """Yield what is wrong with the ids in a sample of the topics, or that all is well.

    :param rows: those that have to be right; None: all.
    """
    to_come = [row for row in found.rows if found.follows(row)] if rows is None else []
    for verdict, (what, remedy) in _SCHEMAS.items():
        wrong = [row for row in (found.rows if rows is None else rows) if row.verdict == verdict and row not in to_come]
        yield from several(
            block, wrong, "schema id", what + f"; no tail brings it: {found.stops}" * bool(found.stops), remedy
        )
    yield from several(
        block, to_come, "schema id", _SCHEMAS[MISSING][0],
        "The tail registers them (sync_schemas): look at follows.schemas of its status, and ask again.",
    )  # fmt: skip
    yield from several(
        block, found.importing, "subject", "in mode IMPORT on the target: producers could register nothing there",
        "An interrupted move leaves that: 'airflow-mirror move-schemas --yes' ends it.",
    )  # fmt: skip
    if found.imports:
        yield warn(
            "the whole registry of the target is in mode IMPORT: producers could register nothing there",
            "Set READWRITE behind the cutover, or before it, once whoever fills it has ended.", "the target's registry",
        )  # fmt: skip
    if not found.rows:
        yield warn(
            f"none of {count(found.records, 'record')} carries an id that the source's registry knows: nothing is proven",
            "Look whether source_registry is the registry of these producers.",
        )
    elif not found.wrong:
        yield well(f"{count(len(found.rows), 'id')} in {count(found.records, 'record')} mean the same on both sides")


def about_right(right: Lacking) -> str:
    """Return the object of a finding about a missing right."""
    return f"{right.side}, {count(len(right.names), right.kind)}"
