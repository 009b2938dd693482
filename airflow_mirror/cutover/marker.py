"""What a fence leaves at the source beside itself: whose it is, and "I am about to decide that the target is open".

Each is an ACL on a *group* that nobody uses, named after mirror, run and attempt. Whoever can't ask the target's ledger
sees by the second that a fence may have an open target behind it, and leaves it to a person. It is set before that
decision; the first before the fence is raised, so that no other mirror takes the fence for somebody's own ACLs. Both go
with the fence.

They deny to a principal that does not exist what nobody does: describe and read that group. An ACL on a topic would not
do: on a cluster that is open by default it would be the topic's only one, and close it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.errors import FencedByAnother
from airflow_mirror.kafka.admin import Acl

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_mirror.kafka.admin import ClusterAdmin

_PREFIX = "airflow-mirror.fence."
_NOBODY = "User:airflow-mirror-fence"
_KEEPS_OUT = "WRITE", "DENY"
_FENCED, _OPENING = "DESCRIBE", "READ"  # what the ACL denies says what it means


def group_of(mirror: str, run: str, attempt: int) -> str:
    """Return the name of the group whose ACLs name an attempt's fence. It must never have a member."""
    return f"{_PREFIX}{mirror}.{run}.{attempt}"


def name_fence(source: ClusterAdmin, mirror: str, run: str, attempt: int) -> None:
    """Say at the source whose fence it is that is about to be raised. May be repeated."""
    source.create_acls([_acl(mirror, run, attempt, _FENCED)])


def fences_of_others(source: ClusterAdmin, mirror: str) -> list[str]:
    """Return the names that fences of other mirrors have at the source: ``<mirror>.<run>.<attempt>``.

    One whose mirror's name begins with ours and a dot can't be told from ours.
    """
    found = source.describe_acls(resource_type="GROUP", principal=_NOBODY)
    named = sorted({acl.name.removeprefix(_PREFIX) for acl in found if acl.name.startswith(_PREFIX)})
    return [name for name in named if not name.startswith(f"{mirror}.")]


def require_none_of_others(source: ClusterAdmin, mirror: str, topics: Collection[str]) -> None:
    """Return unless a fence of another mirror may be about some of these topics.

    It denies to everybody, or, once it was swapped for the way back, to principals by name. Which topics a fence is about
    its name does not say: so a site's own rule counts too while fences of others stand.

    :raises FencedByAnother: names the topics and the fences.
    """
    others = fences_of_others(source, mirror)
    if not others:
        return
    denying = {a.name for a in source.describe_acls(resource_type="TOPIC") if (a.operation, a.permission) == _KEEPS_OUT}
    if denied := sorted(denying.intersection(topics)):
        raise FencedByAnother(source.role, denied, others)


def set_marker(source: ClusterAdmin, mirror: str, run: str, attempt: int) -> None:
    """Set an attempt's marker. May be repeated.

    :raises MissingRight: no ALTER on the cluster. :raises RequestRefused: the cluster has no authorizer.
    """
    source.create_acls([_acl(mirror, run, attempt)])


def has_marker(source: ClusterAdmin, mirror: str, run: str, attempt: int) -> bool:
    """Return whether an attempt's marker stands."""
    marker = _acl(mirror, run, attempt)
    return marker in source.describe_acls(resource_type="GROUP", name=marker.name)


def markers(source: ClusterAdmin, mirror: str) -> frozenset[str]:
    """Return the names of a mirror's markers that stand, and of those whose names begin like them."""
    return _standing(source, mirror, _OPENING)


def attempts_named(source: ClusterAdmin, mirror: str) -> frozenset[str]:
    """Return the names that fences of a mirror have at the source, as :func:`group_of`, and of those that begin alike."""
    return _standing(source, mirror, _FENCED)


def _standing(source: ClusterAdmin, mirror: str, operation: str) -> frozenset[str]:
    found = source.describe_acls(resource_type="GROUP", principal=_NOBODY)
    return frozenset(a.name for a in found if a.name.startswith(f"{_PREFIX}{mirror}.") and a.operation == operation)


def remove_marker(source: ClusterAdmin, mirror: str, run: str, attempt: int) -> None:
    """Remove an attempt's marker and the name of its fence, where they stand."""
    source.delete_acls([_acl(mirror, run, attempt), _acl(mirror, run, attempt, _FENCED)])


def _acl(mirror: str, run: str, attempt: int, operation: str = _OPENING) -> Acl:
    return Acl(
        resource_type="GROUP", name=group_of(mirror, run, attempt), pattern_type="LITERAL", principal=_NOBODY, host="*",
        operation=operation, permission="DENY",
    )  # fmt: skip
