"""Which resources of an ACL cover the names that a Mirror selects: a regular expression is no ACL pattern.

What can't be expressed is covered by more, never by less, and a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from airflow_mirror.kafka.model import Acl

LITERAL, PREFIXED, ANY = "LITERAL", "PREFIXED", "*"

_SPECIAL = re.compile(r"[\\^$*+?{}\[\]|()]")
# The characters with which every match of a pattern begins. One that is followed by *, ? or { may be absent.
_BEGINNING = re.compile(r"(?:(?:[^\\^$*+?{}\[\]|().]|\\[^A-Za-z0-9]|\[[^\\^\]]\])(?![*?{]))*")

# What an ALLOW of the first operation includes: StandardAuthorizer and AclAuthorizer.
_IMPLIES = {
    "READ": {"DESCRIBE"},
    "WRITE": {"DESCRIBE"},
    "DELETE": {"DESCRIBE"},
    "ALTER": {"DESCRIBE"},
    "ALTER_CONFIGS": {"DESCRIBE_CONFIGS"},
}


class Resource(NamedTuple):
    """The resource of an ACL, in Kafka's words: ``TOPIC``, a name or ``*``, ``LITERAL`` or ``PREFIXED``."""

    kind: str
    name: str
    pattern_type: str = LITERAL


def covering(
    kind: str, patterns: Iterable[str], excluded: Collection[str] = (), *, prefix: str = "", prefixes: bool = True
) -> tuple[list[Resource], list[str]]:
    """Return the resources that cover all names which the patterns match, and notes on what else they cover.

    :param patterns: names or regular expressions, as in a Mirror.
    :param excluded: the same, of names that are left out.
    :param prefix: stands before each name.
    :param prefixes: the brokers know prefixed patterns.
    """
    noun = kind.lower()
    too = f", also for what is excluded ({', '.join(map(repr, excluded))})" if excluded else ""
    found: dict[Resource, None] = {}
    notes = []
    for pattern in patterns:
        one = _covering(kind, pattern, prefix, prefixes)
        found[one] = None
        if one.pattern_type == PREFIXED or one.name == ANY:
            which = f"every {noun}" if one.name == ANY else f"each {noun} that begins with {one.name!r}"
            notes.append(f"{pattern!r} is a regular expression, and no pattern of ACLs: the rights are for {which}{too}.")
        elif "." in pattern:
            notes.append(
                f"{pattern!r} is taken as the name of one {noun}. As a regular expression it also matches names with "
                "another character for a dot; the principal does not see those."
            )
    return list(found), notes


def _covering(kind: str, pattern: str, prefix: str, prefixes: bool) -> Resource:
    if not _SPECIAL.search(pattern):
        return Resource(kind, prefix + pattern)
    beginning = prefix + ("" if "|" in pattern else _beginning(pattern))
    return Resource(kind, beginning, PREFIXED) if beginning and prefixes else Resource(kind, ANY)


def _beginning(pattern: str) -> str:
    found = _BEGINNING.match(pattern)
    return re.sub(r"\\(.)|\[(.)\]", lambda m: m[1] or m[2], found[0]) if found else ""


def includes(wide: Acl, narrow: Acl) -> bool:
    """Return whether one ALLOW of a principal makes another one of it needless."""
    if (wide.resource_type, wide.principal, wide.host) != (narrow.resource_type, narrow.principal, narrow.host):
        return False
    if wide.operation != narrow.operation and narrow.operation not in _IMPLIES.get(wide.operation, ()):
        return False
    if wide.pattern_type == PREFIXED:
        return narrow.name != ANY and narrow.name.startswith(wide.name)
    return wide.name == ANY or (wide.name, LITERAL) == (narrow.name, narrow.pattern_type)
