"""What a fence by ACL changes, as values: on which topics of a plan it adds which rule, and which it takes the place of.

A decision that a fence is up holds its intent, so that whoever lifts it undoes exactly that. The topics are not in it,
but those of the plan that the decision pins by its hash: only what differs between them is, as places in the plan's list.
Ten thousand topics fit into a record, and no record can name a topic, an operation or a kind of rule that a fence of this
plan would not have touched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_mirror.cutover.mirror_only_fence import topic_rule
from airflow_mirror.errors import LedgerNewer
from airflow_mirror.kafka.acls import EVERYBODY, letting_write
from airflow_mirror.kafka.model import Acl

ACL = "acl"  # the kind of fence that consists of rules
_KNOWN = ("held", "bare", "spared", "allowed", "denied", "replaced", "copied_by", "pending", "others")


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What raising a fence changes, and lifting it undoes.

    :param topics: that are fenced, sorted.
    :param held: those that denied WRITE to everybody before: that rule stays.
    :param bare: those that had no rule and were open to everybody: reading is allowed by a rule while they are fenced.
    :param spared: principal that may write once the fence was swapped (:mod:`.swap`), or may be half; "": nobody.
    :param allowed: topics on which a rule lets that principal write.
    :param denied: by principal, topics on which it is denied by name.
    :param replaced: by host, topics on which ``ALLOW WRITE`` for everybody is taken away until the fence is lifted.
    :param copied_by: the mirror that copies back.
    :param others: topics of the plan that it is not about, since they have passed on to other mirrors.
    :param pending: it is described, and no rule of it is there, or may come: whoever lifts it deletes none.
    """

    topics: tuple[str, ...]
    held: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    spared: str = ""
    allowed: frozenset[str] = frozenset()
    denied: Mapping[str, frozenset[str]] = field(default_factory=dict)
    replaced: Mapping[str, frozenset[str]] = field(default_factory=dict)
    copied_by: str = ""
    pending: bool = False
    others: frozenset[str] = frozenset()

    @property
    def deny(self) -> list[Acl]:
        """The rules that keep everybody out, but for those that were there before."""
        topics = () if self.pending else self.topics
        return [topic_rule(topic, "WRITE", "DENY") for topic in topics if topic not in self.held]

    @property
    def allow(self) -> list[Acl]:
        """The rules that keep topics readable that had none."""
        topics = () if self.pending else sorted(self.bare)
        return [topic_rule(t, op, "ALLOW") for t in topics for op in ("READ", "DESCRIBE_CONFIGS")]

    @property
    def instead_deny(self) -> list[Acl]:
        """Of a fence that was swapped: the rules that keep writers out by name."""
        return [topic_rule(t, "WRITE", "DENY", who) for who, its in sorted(self.denied.items()) for t in sorted(its)]

    @property
    def instead_allow(self) -> list[Acl]:
        """Of a fence that was swapped: the rules that let its one writer in."""
        return [topic_rule(topic, "WRITE", "ALLOW", self.spared) for topic in sorted(self.allowed)]

    @property
    def taken_away(self) -> list[Acl]:
        """Of a fence that was swapped: the rules of others that come back when it is lifted."""
        return [
            topic_rule(topic, "WRITE", "ALLOW", EVERYBODY, host)
            for host, its in sorted(self.replaced.items())
            for topic in sorted(its)
        ]

    def is_shut(self, listed: Sequence[Acl]) -> bool:
        """Return whether these rules keep everybody out; of a fence that was swapped, everybody but whom it spares."""
        there = set(listed)
        missing = [acl for acl in (topic_rule(t, "WRITE", "DENY") for t in self.topics) if acl not in there]
        if not missing or not self.spared:
            return not missing
        # Swapped, or half swapped: a process may have died at any of its rules. It counts as shut where either form is
        # complete.
        instead = {*self.instead_deny, *self.instead_allow}
        return instead <= there and not any(letting_write(listed, acl.name, self.spared) for acl in missing)

    def lines(self) -> list[str]:
        """Return every change as a readable line."""
        swapped = bool(self.spared)
        rows = (
            (self.deny, " (replaced by what follows)" if swapped else ""),
            (self.allow, " (the topic had no ACL and was open)"),
            ([topic_rule(t, "WRITE", "DENY") for t in sorted(self.held)], " (was there before, stays)"),
            ([*self.instead_deny, *self.instead_allow], " (so that only the mirror may write)"),
            (self.taken_away, " (deleted; comes back when the fence is lifted)"),
        )
        return [line(acl, note) for acls, note in rows for acl in acls]

    def value(self) -> dict[str, Any]:
        """Return what differs between the topics of the plan, as JSON has it."""
        at = {topic: place for place, topic in enumerate(sorted({*self.topics, *self.others}))}

        def places(topics: Iterable[str]) -> str:
            return ",".join(_ranges(sorted(at[topic] for topic in topics)))

        found: dict[str, Any] = {name: places(getattr(self, name)) for name in ("held", "bare", "allowed", "others")}
        found |= {name: {k: places(v) for k, v in getattr(self, name).items()} for name in ("denied", "replaced")}
        found |= {"spared": self.spared, "copied_by": self.copied_by, "pending": self.pending}
        return {name: one for name, one in found.items() if one}

    @classmethod
    def of(cls, value: Mapping[str, Any], topics: Iterable[str]) -> Intent:
        """Return the intent that a decision holds.

        :param topics: of the plan that it pins.
        :raises LedgerNewer: it holds what this version does not know, so that it could not be undone.
        """
        # The same order as when the places were written: of the plan that the decision pins by its hash, not of
        # today's.
        listed = tuple(sorted(set(topics)))

        def those(places: str) -> frozenset[str]:
            return frozenset(listed[place] for place in _places(places))

        try:
            # A newer version has changed something that this one can't undo. Lifted without it, the rest would count as
            # lifted.
            if not value.keys() <= set(_KNOWN):
                raise KeyError
            others = those(value.get("others", ""))
            return cls(
                topics=tuple(topic for topic in listed if topic not in others), others=others,
                held=those(value.get("held", "")), bare=those(value.get("bare", "")),
                spared=str(value.get("spared", "")), allowed=those(value.get("allowed", "")),
                denied={who: those(its) for who, its in value.get("denied", {}).items()},
                replaced={host: those(its) for host, its in value.get("replaced", {}).items()},
                copied_by=str(value.get("copied_by", "")), pending=bool(value.get("pending")),
            )  # fmt: skip
        # A place beyond the plan's topics, say: whoever may write to decisions can't have a rule touched that no fence
        # of it has.
        except (KeyError, IndexError, ValueError, AttributeError, TypeError):
            raise LedgerNewer("what a fence has changed", value) from None


def fence_text(kind: str, intent: Intent) -> list[str]:
    """Return the changes of a fence of some kind as readable lines."""
    return intent.lines() if kind == ACL else [f"callable, topics {', '.join(intent.topics)}"]


def line(acl: Acl, note: str = "") -> str:
    """Return a rule for people."""
    on = f"{acl.resource_type.lower()} {acl.name}"
    return f"{acl.permission} {acl.operation} on {on} for {acl.principal} from {acl.host}{note}"


def by_key(acls: Collection[Acl], key: str) -> dict[str, frozenset[str]]:
    """Return the topics of rules, by one of their fields."""
    found: dict[str, set[str]] = {}
    for acl in acls:
        found.setdefault(getattr(acl, key), set()).add(acl.name)
    return {name: frozenset(topics) for name, topics in found.items()}


def _ranges(places: Sequence[int]) -> Iterator[str]:
    """Yield ``3`` or ``3-7`` for each run of neighbours."""
    first = 0
    for n, place in enumerate(places):
        if n + 1 == len(places) or places[n + 1] != place + 1:
            yield str(place) if places[first] == place else f"{places[first]}-{place}"
            first = n + 1


def _places(ranges: str) -> Iterator[int]:
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
