"""Rules at the source that are not this attempt's: other mirrors' fences, the site's own, and what nothing explains."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from airflow_mirror.cutover import decision
from airflow_mirror.cutover.attempt import Attempt
from airflow_mirror.cutover.decided_fence import intent_of, topics_of_another
from airflow_mirror.cutover.fence import READ_BACK_S, AclFence, Fence
from airflow_mirror.cutover.fence_names import name_of
from airflow_mirror.cutover.intent import Intent, line
from airflow_mirror.cutover.platform import Platform, require_source
from airflow_mirror.errors import FencedByAnother, FenceStands, MirrorError
from airflow_mirror.kafka.model import Acl
from airflow_mirror.plan import ledger_store as plans
from airflow_mirror.plan.model import Plan

_ON_THE_WAY_S = 2.0  # from the last look of a fence that is named to its rules


def unexplained(on: Platform, mirror: str) -> list[Acl]:
    """Return rules of a mirror's fences that nothing decided explains: what keeps everybody out, and what names them.

    A request of a process that is long gone may have come late. What a fence has found there before is the site's own.

    :raises PlanNotKept: the ledger has lost the mirror's plan. :raises FencedByAnother: they may be another mirror's.
    :raises InputError: the source is another cluster: what is there explains nothing, and is nobody's to remove.
    """
    values = on.target.ledger.values()
    state = decision.fence_state(values, mirror)
    # By the plan that the decision pins: a rule on a topic that was left out of the next plan is still one of ours.
    plan_hash = state.plan if state is not None else plans.last_hash(values, mirror)
    if plan_hash is None:
        return []
    plan = on.target.plan(mirror, plan_hash)
    require_source(on.source.admin, plan)
    topics = {t.source_topic for t in plan.topics}
    intent = None if state is None else intent_of(on.target, mirror, state)
    known: set[Acl] = set()
    # What a fence has found there is the site's own, and never named as a leftover. Nor is anything on topics that have
    # passed on: it was about none of these.
    name, not_ours = "", frozenset[str]() if intent is None else intent.held | intent.others
    # Of one that is over no rule is explained any more: what is there came late.
    if intent is not None and state is not None and not state.is_over:
        known, name = set(intent.deny), name_of(mirror, state.run, state.id)
    left = AclFence(on.source.admin).left(mirror, topics - not_ours, known, name, plan.target_cluster_id)
    # Rules and record are read one after the other: a fence that goes up in between has rules that the record which was
    # read does not explain. A person would be told to remove them.
    if left and decision.fence_state(on.target.ledger.values(), mirror) != state:
        return unexplained(on, mirror)  # a fence went up, or came down, while we looked
    return left


def told_unexplained(on: Platform, mirror: str, log: Callable[..., object]) -> list[str]:
    """Return such rules as readable lines, for who looks at a mirror; where they can't be told, that is no alarm.

    :param log: takes what is said quietly, as loggers do: a source that is away, or does not list its rules;
        fences of other mirrors, which may be about the same topics.
    """
    try:
        return [line(one) for one in unexplained(on, mirror)]
    except MirrorError as e:
        log("rules of the source that no record explains were not looked for: %s", e)
        return []


def described(attempt: Attempt) -> Intent:
    """Return what raising a run's fence changes, if no other fence stands in its way.

    A rule that keeps everybody out is taken for the site's own, and stays. Where an earlier fence of the mirror did not
    find it there, it may be a late request of that fence's, and nobody would ever lift it.

    :raises FencedByAnother: :raises FenceStands: something does. Errors as of :meth:`.fence.Fence.intent`.
    """
    intent, before = attempt.fence.intent(attempt.topics), attempt.before
    if not isinstance(attempt.fence, AclFence):
        return intent
    attempt.waits_for = "another target's fence, which may be about these topics, to have its rules"
    # Kept for `Raised.claim`: a fence that is named behind our own name, and is not among these, was not looked at yet.
    attempt.others = require_no_other(attempt.on, attempt.fence, attempt.plan, wait=attempt.pause)
    attempt.waits_for = ""
    if before is not None and before.kind == AclFence.kind:
        earlier = intent_of(attempt.on.target, attempt.mirror.name, before)
        # A request of the last fence's owner that was applied behind its lifting. Taken for the site's own it would
        # stay behind ours, and nobody would know why producers are refused.
        late = sorted(intent.held.intersection(earlier.topics) - earlier.held)
        # Nor on a topic that has left the plan: `unexplained` goes by the last fence's plan, so once ours is up nobody
        # would name it any more. Where other mirrors' fences stand it may be theirs.
        gone = {*earlier.topics} - {*intent.topics, *earlier.held}
        if gone and not attempt.others:
            left = attempt.fence.left(attempt.mirror.name, gone, (), "", attempt.plan.target_cluster_id)
            late += [acl.name for acl in left if acl.resource_type == "TOPIC"]
        if late:
            cause = f"was lifted, and WRITE is denied to everybody again on {', '.join(late[:5])}: late, or by you"
            raise FenceStands(attempt.mirror.name, before.run, cause)
    return intent


def require_no_other(
    on: Platform, fence: AclFence, plan: Plan, run: str = "", wait: Callable[[float], object] | None = None
) -> list[str]:  # fmt: skip
    """Return the fences of other mirrors that stand at the source, if none is about some of the topics of a plan.

    A fence is named some time before its rules are there. Which topics it is about only our own ledger tells: where the
    decision is in another target's, its rules are waited for.

    :param wait: sleeps so many seconds, and raises if it is to end before; None: nobody ends it.
    :raises FenceStands: :raises FencedByAnother: as :meth:`.fence.AclFence.require_no_other`.
    """
    look = partial(
        fence.require_no_other, plan.mirror.name, [t.source_topic for t in plan.topics], plan.target_cluster_id, run
    )  # fmt: skip
    others = look()
    # Each of them, so that their plans are at hand when `Raised.claim` looks again, behind its own name.
    if None in [topics_of_another(on, other) for other in others]:
        # It may be between its name and its first rule. Nothing of ours is up yet, so the wait keeps nobody out.
        (wait or on.source.clock.sleep)(READ_BACK_S + _ON_THE_WAY_S)
        look()
    return others


def lift_unexplained(on: Platform, mirror: str, acls: Collection[Acl]) -> list[Acl]:
    """Remove such rules, because a person said so; return those that were there.

    :raises CutoverTakenOver: a fence of the mirror stands by now. :raises FencedByAnother: another mirror's does.
    """
    fence, unowned = AclFence(on.source.admin), decision.nobodys(on.target.ledger, mirror)
    target_id = on.target.admin.cluster_id()
    denied = sorted(acl.name for acl in acls if acl.resource_type == "TOPIC")

    # A person has looked at a list that is seconds old. Asked before each request: a fence that has gone up since
    # consists of these very rules. So may another mirror's, whose decision is in a ledger that we don't know: it takes
    # what it finds for the site's own, and opens its target behind that. A mirror's name is nobody else's.
    def nobodys() -> None:
        unowned()
        if denied and (others := fence.others(mirror, target_id)):
            raise FencedByAnother(on.source.admin.role, denied, others)

    # Dies amid it: what is left is listed again, and a person says so again. A fence that goes up behind a look, and
    # loses a rule to it, finds that when it is proven.
    return fence.remove(acls, nobodys)


def let_in(on: Platform, mirror: str, fence: Fence) -> None:
    """Have a fence that has no name at the source let everybody in, because a person said so.

    An owner that slept before it called the function, and thaws without the target, shuts it behind its own lifting:
    nothing tells that then.

    :raises CutoverTakenOver: a fence of the mirror stands by now. Errors of the function.
    """
    fence.lift(Intent(topics=()), "", decision.nobodys(on.target.ledger, mirror))
