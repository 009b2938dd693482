"""Which ACLs keep everybody but the mirror out of topics: worked out from the ACLs that are listed, without a cluster.

A fence denies WRITE to everybody, and so to a mirror that copies back: DENY wins over any ALLOW. One that spares the
mirror denies by name whom an ALLOW lets write. Nobody else may, because who is allowed nothing is denied.

Only ACLs that are about one of these topics and WRITE alone are touched. What lets everybody write and covers more, such
as ALLOW ALL or a prefix, stays: to delete it would take rights away that nobody asked about. Then there is no such fence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from airflow_mirror.errors import FenceNotSwapped
from airflow_mirror.kafka.acls import EVERYBODY, is_write, letting_write
from airflow_mirror.kafka.model import Acl

_UNNAMED = "User:ANONYMOUS"  # what brokers make of anyone who does not log in


@dataclass(frozen=True, kw_only=True)
class Spared:
    """What makes a fence spare one principal.

    :param add: ACLs to create: DENY for each writer by name, ALLOW for the principal. They were not there before.
    :param remove: ACLs to delete: ALLOW WRITE for everybody on one topic.
    """

    add: tuple[Acl, ...]
    remove: tuple[Acl, ...]


def spare(listed: Collection[Acl], topics: Iterable[str], own: str, ours: Collection[Acl] = ()) -> Spared:
    """Return what keeps everybody but ``own`` from writing to topics.

    Super users are bound by no ACL; brokers tell nobody who they are.

    :param listed: all ACLs of the cluster on topics. :param own: principal of the mirror.
    :param ours: of ``listed``, those of the fence, which go.
    :raises FenceNotSwapped: it is not possible; names each ACL that is in the way.
    """
    if own in (EVERYBODY, _UNNAMED):
        raise FenceNotSwapped([f"the mirror is {own} there, as applications are that do not log in: give it a name"])
    add, remove, problems = set[Acl](), set[Acl](), list[str]()
    # Judged without the DENY for everybody, which goes last: what is worked out has to hold when that is gone.
    rest = [acl for acl in listed if acl not in ours]
    for topic in topics:
        for acl in letting_write(rest, topic, own):
            if acl.principal != EVERYBODY:
                add.add(topic_rule(topic, "WRITE", "DENY", acl.principal))
            elif (acl.name, acl.pattern_type, acl.operation) == (topic, "LITERAL", "WRITE"):
                # Deleted at the source, and noted in the intent: who lifts the fence creates it again before he lets
                # anybody in.
                remove.add(acl)
            else:
                # Found before the first change, and all of it: a swap that stops half way leaves the fence up, and a
                # person waits.
                problems.append(f"{acl} lets everybody write to {topic}, and covers more: allow it by name in its place")
        on_it = [acl for acl in rest if is_write(acl, topic)]
        problems += [
            f"{acl} keeps the mirror from writing to {topic}: somebody else's, so they remove it"
            for acl in on_it
            if acl.permission == "DENY" and acl.principal in (own, EVERYBODY)
        ]
        if not any((acl.permission, acl.principal, acl.host) == ("ALLOW", own, "*") for acl in on_it):
            # Also where it is a super user: a topic that is left without any ACL may be open to everybody.
            add.add(topic_rule(topic, "WRITE", "ALLOW", own))
    if problems:
        raise FenceNotSwapped(sorted(set(problems)))
    return Spared(add=tuple(sorted(add)), remove=tuple(sorted(remove)))


def topic_rule(topic: str, operation: str, permission: str, principal: str = EVERYBODY, host: str = "*") -> Acl:
    """Return an ACL on one topic."""
    return Acl(
        resource_type="TOPIC", name=topic, pattern_type="LITERAL", principal=principal, host=host, operation=operation,
        permission=permission,
    )  # fmt: skip
