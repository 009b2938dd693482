"""The owner's mark at the source: "I am about to decide that the target is open".

It is an ACL on a *group* that nobody uses, named after mirror, run and attempt. Whoever can't ask the target's ledger
sees by it that a fence may have an open target behind it, and leaves it to a person. It is set before that decision, and
goes with the fence.

It denies to a principal that does not exist what nobody does: read as that group. An ACL on a topic would not do: on a
cluster that is open by default it would be the topic's only one, and close it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.kafka.admin import Acl

if TYPE_CHECKING:
    from airflow_mirror.kafka.admin import ClusterAdmin

_PREFIX = "airflow-mirror.fence."
_NOBODY = "User:airflow-mirror-fence"


def group_of(mirror: str, run: str, attempt: int) -> str:
    """Return the name of the group whose ACLs name an attempt's fence. It must never have a member."""
    return f"{_PREFIX}{mirror}.{run}.{attempt}"


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
    found = source.describe_acls(resource_type="GROUP", principal=_NOBODY)
    return frozenset(acl.name for acl in found if acl.name.startswith(f"{_PREFIX}{mirror}."))


def remove_marker(source: ClusterAdmin, mirror: str, run: str, attempt: int) -> None:
    """Remove an attempt's marker, if there is one."""
    source.delete_acls([_acl(mirror, run, attempt)])


def _acl(mirror: str, run: str, attempt: int) -> Acl:
    return Acl(
        resource_type="GROUP", name=group_of(mirror, run, attempt), pattern_type="LITERAL", principal=_NOBODY, host="*",
        operation="READ", permission="DENY",
    )  # fmt: skip
