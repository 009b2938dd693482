"""What a cutover is asked for, and what it is carried out with: the same from an operator, a command and a rollback.

Who asks makes a :class:`CutoverRequest` of what a person said. :func:`connected` makes the :class:`Clusters` of it, which
live as long as the call does. What one attempt then does is :class:`airflow_mirror.cutover.attempt.Attempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from airflow_mirror.common.knobs import check, given_names, knob, one_of, switch
from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.config import ClientConfig
from airflow_mirror.cutover.fence import Fence, fence_of
from airflow_mirror.cutover.intent import ACL
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.platform import Platform
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.cutover.schema_ids import BehindTheFence, SchemaProof
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import target_ids
from airflow_mirror.sync.group_translation import Translate
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.verify.proof import Proofs, standing
from airflow_mirror.verify.remaining import verify_rest
from airflow_mirror.verify.result import LEVELS, PartitionComparison

Offsets = Mapping[TopicPartition, int]
Verify = Callable[[Offsets], Sequence[PartitionComparison]]
_accepted = partial(knob, section="what else is accepted, as for CutoverOperator")
Prove = Callable[[Plan, ClusterAdmin, BehindTheFence | None], SchemaProof]


@dataclass(frozen=True, kw_only=True)
class CutoverRequest:
    """What is wanted, as plain values.

    :param plan: what is cut over.
    :param mirror: as who asks has it; it may differ from the plan's in what changes no plan. None: the plan's.
    :param fence: ``acl``, or the path of a function; see :func:`.fence_of`. By it a guard makes the fence that it lifts,
        and others are told it. ``open_by_default``: for an ACL fence; None: the brokers are asked.
    :param keep_fence: leave the source fenced afterwards, so that nobody writes where nobody reads.
    :param level: of the comparison behind the fence.
    :param allow_rewind: also commit a position that is behind the group's position on the target; otherwise such a
        group is refused.
    :param accept_still_groups: groups that may have members and lag, once they have stood still for ``group_quiet_s``.
    :param leave_out_groups: selected groups that don't move: nothing of them is read on the source, or set on the target;
        the report says what that means for each of them.
    :param accept_ledger_writers: principals who may write to the target's ledger beside the mirror's own, and are trusted
        with that; ``User:*``: everybody.
    :param compared: revisions of the plan that were compared, and perhaps approved, before: each must be the present one.
    :param shown_at: when was seen what a preview has shown before; seconds since the epoch. None: nothing was.
    :param approved: who has approved it, for the report: ``answer, by, at``.
    :param course: how the lag went while somebody waited for it before, for the report (:class:`.sync.lag.Course`).
    :param alarm: path of a function by which our guard calls a person (:mod:`.alarm`), if this process dies behind its
        fence.
    :param is_rollback: the plan is a way back's, which nothing else may cut over.
    :raises InvalidField: a value makes no sense. Nothing was touched.
    """

    plan: Plan
    mirror: Mirror | None = None
    fence: str = ACL
    open_by_default: bool | None = None
    keep_fence: bool = True
    level: str = knob("batches", one_of(*LEVELS), "of the comparison", "--level")
    limits: Limits = Limits()
    accept_still_groups: Collection[str] = _accepted(
        (), given_names(), "groups that may stand still with members and lag", "--accept-still-groups", "GROUP"
    )
    leave_out_groups: Collection[str] = _accepted(
        (), given_names(), "groups that don't move", "--leave-out-groups", "GROUP"
    )
    accept_ledger_writers: Collection[str] = _accepted(
        (), given_names(),
        "who else may write to the target's ledger; User:*: everybody, also where nobody can tell",
        "--accept-ledger-writers", "PRINCIPAL",
    )  # fmt: skip
    allow_rewind: bool = _accepted(
        False, switch(), "also set positions that are below the group's own on the target", "--allow-rewind"
    )
    compared: Sequence[str] = ()
    shown_at: float | None = None
    approved: Mapping[str, str] | None = None
    course: Sequence[Mapping[str, Any]] = ()
    alarm: str = ""
    is_rollback: bool = False

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Both clusters as one cutover reaches them, and what it compares and translates with. Of one call alone.

    :param fence: how producers are kept away; see :mod:`airflow_mirror.cutover.fence`.
    :param verify: compares up to the given source ends. It runs while the source is fenced, so it should compare only
        what was not compared before.
    :param compared_to: source offsets up to which an earlier comparison found both sides equal; ``verify`` begins there.
        None: nobody knows.
    :param tail_positions: source offsets up to which the target holds everything, for topics with mapped offsets.
    :param translate_offset: translates an offset of a source partition, for topics with mapped offsets.
    :param schemas: proves the schema ids in the source's topics, or in what came last; None: the mirror names no
        registries.
    """

    on: Platform
    fence: Fence
    verify: Verify
    compared_to: Offsets | None = None
    tail_positions: Callable[[], Offsets] | None = None
    translate_offset: Translate | None = None
    schemas: Callable[[BehindTheFence | None], SchemaProof] | None = None


@dataclass(frozen=True, kw_only=True)
class Additions:
    """What a cutover does beside its steps, for whom it is a part of something else.

    :param require: raises what else refuses it, before anything is touched. Not asked for a finished cutover.
    :param clients: who uses the topics, as the report shows it; empty: nobody looked. Asked with the report, before there
        is a fence, and of a finished cutover. It raises nothing: it is for people.
    :param decide_with: what is decided in the record that opens the target.
    :param afterwards: what is left to do then, also for a finished cutover. While it runs guards watch over this process.
    """

    require: Callable[[], object] = lambda: None
    clients: Callable[[CutoverReport], Mapping[str, Any]] = lambda _: {}
    decide_with: Callable[[Values], Values] = lambda _: {}
    afterwards: Callable[[], object] = lambda: None


ALONE = Additions()  # of a cutover that is nothing but one


@contextmanager
def connected(
    request: CutoverRequest, source: ClientConfig, target: ClientConfig, prove: Prove | None = None
) -> Iterator[Clusters]:
    """Yield both clusters for the block. What comparisons have proven, on whichever host, is not compared again.

    :param prove: asks schema registries what the ids in the source's topics mean.
    :raises InputError: the fence is none. Errors of the connections.
    """
    plan, name = request.plan, request.plan.mirror.name
    with (
        ClusterAdmin(source) as source_admin,
        ClusterAdmin(target) as target_admin,
        OffsetMaps(plan, source, target) as maps,
    ):
        fence = fence_of(request.fence, source_admin, request.open_by_default)
        proofs = Proofs.on(target_admin, name)
        # Of these very topics, by id: what was compared of a topic that was created again since proves nothing about
        # this one.
        # Read once: what is proven behind this is compared once more, never too little.
        ids = target_ids(plan, target_admin)
        proven = standing(proofs.ends(plan, ids, request.level), plan, target_admin.topic_configs(ids))
        yield Clusters(
            on=Platform.of(source_admin, target_admin),
            fence=fence,
            verify=verify_rest(plan, source, target, proven, request.level),
            compared_to=proven,
            tail_positions=maps.positions,
            translate_offset=maps.to_target,
            schemas=None if prove is None else partial(prove, plan, source_admin),
        )
