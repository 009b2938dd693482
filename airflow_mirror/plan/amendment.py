"""Amendments: what a plan's rule has selected since it was made, and the plan with them.

A plan stays what it is; every task names it by its hash. Topics that appeared later, and topics that got more
partitions, are added by amendments. Each has a hash over what it adds and over the amendment before it, so that the
last one's hash, the plan's *revision*, stands for everything that is mirrored: who approved it has approved exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_mirror.errors import InputError, PlanUnreadable
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Amendment, Plan, TopicPlan


def next_amendment(plan: Plan, topics: Sequence[TopicPlan], findings: Sequence[Finding], created_at: str) -> Amendment:
    """Return the amendment that adds topics to a plan as it is by now."""
    return Amendment(
        plan=plan.hash, number=len(plan.amendments) + 1, after=plan.revision, created_at=created_at,
        topics=tuple(sorted(topics, key=lambda t: t.source_topic)), findings=tuple(findings),
    )  # fmt: skip


def amended(plan: Plan, amendments: Sequence[Amendment]) -> Plan:
    """Return a plan with further amendments: its topics are all, its hash stays that of the rule.

    :raises PlanUnreadable: one of them does not continue the plan.
    """
    topics, known, after = {t.source_topic: t for t in plan.topics}, dict(plan.known_topics), plan.revision
    for number, one in enumerate(amendments, len(plan.amendments) + 1):
        if (one.plan, one.number, one.after) != (plan.hash, number, after):
            cause = f"amendment {one.number} does not continue plan {plan.hash[:12]}"
            raise PlanUnreadable(plan.mirror.name, plan.hash, cause)
        topics |= {t.source_topic: t for t in one.topics}
        known |= {t.target_topic: t.mode for t in one.topics}
        after = one.hash
    if not amendments:
        return plan
    return replace(
        plan,
        topics=tuple(t for _, t in sorted(topics.items())),
        known_topics=dict(sorted(known.items())),
        findings=(*plan.findings, *(f for one in amendments for f in one.findings)),
        rule=plan.rule or plan,
        amendments=(*plan.amendments, *amendments),
    )


def chain(found: Mapping[str, Amendment], plan_hash: str, revision: str) -> list[Amendment]:
    """Return a plan's amendments up to a revision, in order.

    :param found: by hash; may hold others, which somebody wrote and nobody decided.
    :raises InputError: one is missing.
    """
    links: list[Amendment] = []
    while revision != plan_hash:
        if revision not in found:
            what = f"the target's ledger lacks amendment {revision[:12]} of plan {plan_hash[:12]}"
            raise InputError(what, remedy="Make a new plan.")
        links.append(found[revision])
        revision = found[revision].after
    return links[::-1]


def added_since(plan: Plan, revision: str) -> list[str]:
    """Return the source topics that amendments after a revision have added or grown; all, if it is not one of them."""
    revisions = [plan.hash, *(one.hash for one in plan.amendments)]
    begin = revisions.index(revision) if revision in revisions else 0
    return sorted({t.source_topic for one in plan.amendments[begin:] for t in one.topics})
