"""Names of fences at the source, the ids of attempts in them, and the runs of those that no cutover raised."""

from __future__ import annotations

from airflow_mirror.common.policy import COLON, FENCES

# With the failover's attempt behind it: the run by which the target keeps the fence of a source that returned, as it
# keeps those of cutovers.
RETURNED = "failover-"
_AT = "@"


def name_of(mirror: str, run: str, attempt: str) -> str:
    """Return the name that an attempt's fence has at the source.

    It is that of a *group* that nobody uses, and must never have a member. ACLs on it deny to a principal that does not
    exist what nobody does: describe it (a fence of this attempt is there, or comes), read it (its target is about to be
    opened). An ACL on a topic would not do: on a cluster that is open by default it would be the topic's only one.

    :param attempt: its id, from :func:`attempt_id`.
    """
    return f"{prefix_of(mirror)}{run}{COLON}{attempt}"


def attempt_id(own: str, target_id: str) -> str:
    """Return the id of an attempt.

    It ends with the cluster that decides about it: mirrors of one name may copy one source to several targets.

    :param own: a name that nobody else has. :param target_id: that cluster's id.
    """
    return f"{own}{_AT}{target_id}"


def target_of(attempt: str) -> str:
    """Return the id of the cluster that decides about an attempt. :param attempt: its id, or the name of its fence."""
    return attempt.rpartition(COLON)[2].partition(_AT)[2]


def prefix_of(mirror: str) -> str:
    """Return how the names of a mirror's fences begin."""
    return f"{FENCES}{mirror}{COLON}"


def is_of(name: str, mirror: str, target_id: str) -> bool:
    """Return whether a name is that of a mirror's fence; one that names no cluster is of any.

    :param target_id: of the mirror's target; "": of whichever.
    """
    return name.startswith(prefix_of(mirror)) and (not target_id or target_of(name) in ("", target_id))
