"""Decisions by log order: what only one may decide, as one partition that everybody reads from its start.

A record of the log is a :class:`Decision`: it names the versions that it expects of some keys, and new values of them.
Readers replay the log in order and apply a decision only if every version is the expected one (compare-and-set). All
readers of the same records therefore know the same, whichever version of the package they are, and a writer learns what
became of its decision by reading up to it. No transaction is involved, so that nobody can hide what another one wrote.

A decision may have a deadline, for what others do unasked after a while: it is void if the broker appended it later. The
writer's own clock can't tell that, because its process may be frozen between the last look and the request.

The envelope never changes between versions of the package. Values may: what is in them is for others to read.

Pure: no clock, no socket. The log itself is `log`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from airflow_mirror.errors import LedgerLost


class Position(NamedTuple):
    """A decision that was read: its offset and its claim. :data:`NOTHING` before the first one."""

    offset: int
    claim: str


NOTHING = Position(-1, "")


class Verdict(Enum):
    """What a record of the log did."""

    APPLIED = "applied"
    REFUSED = "refused"  # a version was another one than expected
    LATE = "late"  # it was appended after its deadline
    REPEATED = "repeated"  # its claim was decided on before
    NOISE = "noise"  # no decision at all: somebody else wrote it


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A compare-and-set on some keys.

    :param claim: names this decision, however often it is sent.
    :param expects: version of each key that it depends on; 0 for a key that was never set. Not empty.
    :param sets: new values, as JSON has them, of some of these keys; None for a key that ends. Not empty.
    :param read: the last decision that its writer had read.
    :param until_ms: void if it is appended at this time or later, as the broker's clock says; None: never.
    """

    expects: Mapping[str, int]
    sets: Mapping[str, Any]
    read: Position
    until_ms: int | None = None
    claim: str = field(default_factory=lambda: uuid.uuid4().hex)

    def encode(self) -> bytes:
        """Return the record's value."""
        envelope: dict[str, Any] = {"claim": self.claim, "expects": self.expects, "sets": self.sets, "read": self.read}
        if self.until_ms is not None:
            envelope["until_ms"] = self.until_ms
        return json.dumps(envelope, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def decode(value: bytes | None) -> Decision | None:
    """Return the decision of a record's value; None when it is none."""
    try:
        envelope = json.loads(value or b"")
        claim, expects, sets, (offset, seen) = (envelope[key] for key in ("claim", "expects", "sets", "read"))
        until_ms = envelope.get("until_ms")
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # Nothing in it is believed: whoever may write there may append anything, and all readers must take it for the same.
    texts = isinstance(claim, str) and claim and isinstance(seen, str)
    maps = isinstance(expects, dict) and isinstance(sets, dict) and sets and sets.keys() <= expects.keys()
    if not texts or not maps or not all(map(_is_count, expects.values())) or not (offset == -1 or _is_count(offset)):
        return None
    if until_ms is not None and not _is_count(until_ms):
        return None
    return Decision(claim=claim, expects=expects, sets=sets, read=Position(offset, seen), until_ms=until_ms)


def timeless(value: bytes | None, appended_ms: int) -> bytes | None:
    """Return a record's value with what its deadline has come to, for a log in which it is appended at another time."""
    decision = decode(value)
    if decision is None or decision.until_ms is None:
        return value
    return replace(decision, until_ms=0 if appended_ms >= decision.until_ms else None).encode()


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


class Fold:
    """What the decisions up to an offset amount to.

    :ivar end: offset of the next record to apply.
    :ivar head: the last decision that was read; every decision of this reader's own carries it.
    :ivar values: by key, as JSON has them; a key that ended has none.
    """

    def __init__(self) -> None:
        self.end = 0
        self.head = NOTHING
        self.values: dict[str, Any] = {}
        self._versions: dict[str, int] = {}
        self._times: dict[str, int] = {}
        self._claims: dict[int, str] = {}  # by offset
        self._verdicts: dict[str, Verdict] = {}

    def version(self, key: str) -> int:
        """Return how often a key was set; 0: never. It survives the key's end."""
        return self._versions.get(key, 0)

    def time_ms(self, key: str) -> int:
        """Return when a key was last set, as the broker's clock says; 0: never."""
        return self._times.get(key, 0)

    def verdict(self, claim: str) -> Verdict | None:
        """Return what became of a claim: applied, refused or late; None while no record of it was read."""
        return self._verdicts.get(claim)

    def decision(
        self, sets: Mapping[str, Any], also_expects: Mapping[str, int] | None = None, until_ms: int | None = None
    ) -> Decision:
        """Return a decision that sets keys from what is known now.

        :param also_expects: versions of keys that it depends on and does not set. :param until_ms: its deadline.
        """
        return Decision(
            expects={**(also_expects or {}), **{key: self.version(key) for key in sets}},
            sets=sets,
            read=self.head,
            until_ms=until_ms,
        )

    def can_still_apply(self, decision: Decision) -> bool:
        """Say whether a decision without a verdict would be applied if it were the next record."""
        return all(self.version(key) == version for key, version in decision.expects.items())

    def apply(self, offset: int, value: bytes | None, appended_ms: int = 0) -> Verdict:
        """Apply the record at ``offset``; offsets rise from call to call.

        :param appended_ms: when, as the broker's clock says.
        :raises LedgerLost: the record's writer had read another decision than the one that stands here: part of the log
            was lost, or it is another log. Nothing was applied.
        :raises ValueError: the record was applied before.
        """
        if offset < self.end:
            raise ValueError(f"offset {offset} was read already: the next one is {self.end}")
        decision = decode(value)
        if (
            decision is not None
            and decision.read != NOTHING
            and self._claims.get(decision.read.offset) != decision.read.claim
        ):
            raise LedgerLost(
                f"the decision at offset {offset} was made by somebody who had read decision {decision.read.claim} at "
                f"offset {decision.read.offset}, which is not there"
            )
        # Only behind that: a reader that stopped above has not read this record, and stops there again. Noise is passed
        # over by all readers alike, so nobody who may write there can split what they know.
        self.end = offset + 1
        if decision is None:
            return Verdict.NOISE
        # A decision that is refused was read as well: that later ones name it proves that this is still the same log.
        self.head = Position(offset, decision.claim)
        self._claims[offset] = decision.claim
        # A second copy: a lost answer, or a proxy that sent it again. By its versions it would be refused now, and its
        # writer would take that for the verdict on the first one.
        if decision.claim in self._verdicts:
            return Verdict.REPEATED
        # Versions before the deadline: what comes late, and would be refused anyway, was overtaken, and its writer is
        # told so.
        verdict = Verdict.APPLIED if self.can_still_apply(decision) else Verdict.REFUSED
        if verdict is Verdict.APPLIED and decision.until_ms is not None and appended_ms >= decision.until_ms:
            verdict = Verdict.LATE
        self._verdicts[decision.claim] = verdict
        if verdict is Verdict.APPLIED:
            for key, new in decision.sets.items():
                # Also where a key ends, or gets the value that it has: a writer in doubt moves a version by that, and a
                # claim that was made before the end can't apply behind it.
                self._versions[key] = self.version(key) + 1
                self._times[key] = appended_ms
                if new is None:
                    self.values.pop(key, None)
                else:
                    self.values[key] = new
        return verdict
