"""Which rights of a role a connection's principal lacks, as the brokers tell it (KIP-430: since Kafka 2.3).

Nobody can ask for rights on transactional ids, nor for those on topics that are not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_mirror.common.policy import DECISIONS, MAPS, STATE, WISHES
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.inventory import hides_groups, unlisted
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.resources import ANY
from airflow_mirror.plan.rights import NEWEST, RIGHTS, SOURCE, TARGET
from airflow_mirror.wording import some

_KINDS = {"groups": "group", "all groups": "group", "cluster": "cluster"}


@dataclass(frozen=True, kw_only=True)
class Lacking:
    """A right that the mirror's principal does not have.

    :param kind: ``topic``, ``group`` or ``cluster``. :param names: those on which it is missing.
    :param why: what it is for, as in :data:`.rights.RIGHTS`.
    """

    side: str
    kind: str
    operation: str
    names: Sequence[str]
    why: str

    def __str__(self) -> str:
        kind = self.kind if len(self.names) == 1 else f"{self.kind}s"
        return f"{self.operation} is not allowed to the mirror on {kind} {some(self.names)} ({self.why})"


def lacking(
    role: str, plan: Plan, groups: Collection[str], *, target: ClusterAdmin, source: ClusterAdmin | None = None,
    left_out: Collection[str] = (),
) -> tuple[list[Lacking], int]:  # fmt: skip
    """Return the rights of a role that are not granted, and on how many topics, groups and clusters was asked.

    :param role: of :data:`.rights.ROLES` or :data:`.rights.COMMANDS`.
    :param groups: on which to ask; they need not exist.
    :param source: None: it is not asked. :param left_out: selected groups that don't move; nothing of them is read there.
    :raises ApiNotServed: by brokers before 2.3.
    """
    ask: dict[tuple[str, str], Callable[[], Mapping[str, Collection[str]]]] = {
        (TARGET, "topics"): lambda: target.allowed_on_topics(sorted({t.target_topic for t in plan.topics})),
        (TARGET, "ledger"): lambda: target.allowed_on_topics([DECISIONS]),
        (TARGET, "state"): lambda: target.allowed_on_topics([STATE]),
        (TARGET, "wishes"): lambda: target.allowed_on_topics([WISHES]),
        (TARGET, "maps"): lambda: target.allowed_on_topics([MAPS]),
        (TARGET, "groups"): lambda: target.allowed_on_groups(groups),
        (TARGET, "cluster"): target.allowed_on_cluster,
    }
    if source is not None:
        ask[SOURCE, "topics"] = lambda: source.allowed_on_topics(sorted({t.source_topic for t in plan.topics}))
        ask[SOURCE, "all groups"] = lambda: _listed(source, plan.mirror, left_out)
    rights = [one for one in RIGHTS if role in one.roles and one.is_for(plan.mirror, NEWEST)]
    allowed = {key: ask[key]() for key in dict.fromkeys((one.side, one.on) for one in rights) if key in ask}
    found = []
    for right in rights:
        on = allowed.get((right.side, right.on), {})
        if names := sorted(name for name, operations in on.items() if right.operation not in operations):
            kind = _KINDS.get(right.on, "topic")
            found.append(Lacking(side=right.side, kind=kind, operation=right.operation, names=names, why=right.why))
    return found, sum(map(len, allowed.values()))


def _listed(cluster: ClusterAdmin, mirror: Mirror, left_out: Collection[str]) -> dict[str, Collection[str]]:
    """Return the groups whose list a mirror goes by, with DESCRIBE where the cluster would list them."""
    if not mirror.names_its_groups:
        return {ANY: () if hides_groups(cluster) else ("DESCRIBE",)}
    named = sorted({*mirror.named_groups}.difference(left_out))
    hidden = unlisted(cluster, named)
    return {group: () if group in hidden else ("DESCRIBE",) for group in named}
