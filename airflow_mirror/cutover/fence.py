"""Keep producers away from the source, provably and reversibly.

Measured on 4.3.1: among Kafka's own means only an ACL stops writers. ``min.insync.replicas`` above the replica count
fences nothing, a producer quota only delays, and a small ``max.message.bytes`` rejects transaction markers and hangs
the transaction for good. Super users bypass ACLs, so a fence is trusted only after the log end offsets have stopped
moving (`cutover.quiet`).

The order is describe, decide, create: the intended changes are in the decision that the fence is up, before the first
change is made. Any process that reads it can undo exactly these changes and nothing that existed before.

This module alone creates and deletes the ACLs of fences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

from airflow_mirror.common.clock import Clock
from airflow_mirror.common.dotted import function_at
from airflow_mirror.common.policy import COLON, FENCES, NOBODY
from airflow_mirror.cutover.fence_names import is_of, prefix_of, target_of
from airflow_mirror.cutover.intent import ACL, Intent, line
from airflow_mirror.cutover.mirror_only_fence import topic_rule
from airflow_mirror.errors import (
    FencedByAnother,
    FenceNotLifted,
    FenceStands,
    FenceUnproven,
    InvalidField,
    MayBeOpen,
    MissingRight,
    NoAuthorizer,
    OpenByDefaultUnknown,
    RequestRefused,
)
from airflow_mirror.kafka.acls import OPEN_BY_DEFAULT, covers, open_by_default, unless_none_is_enforced
from airflow_mirror.kafka.admin import Acl, ClusterAdmin
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.wire.error_codes import ErrorCode

READ_BACK_S = 10.0

_FENCED, _OPENING = "DESCRIBE", "READ"  # what the ACL of a name denies says what it means
_RETRY_S = 0.05


@runtime_checkable
class Fence(Protocol):
    """A way to stop all writers of some topics.

    ``intent`` is read-only. ``raise_`` and ``lift`` may be called twice, and ``lift`` with another process's intent.
    Each calls ``permit`` right before the bytes of each of its effects; what that raises ends it.
    """

    kind: str

    def intent(self, topics: Sequence[str]) -> Intent:
        """Return what ``raise_`` would change for these topics; changes nothing."""

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        """Stop the writers. :param name: of the attempt, from :func:`name_of`."""

    def lift(self, intent: Intent, name: str, permit: Permit) -> None:
        """Let the writers in again: undo what ``raise_`` did, or would have done, with this intent."""

    def is_up(self, intent: Intent) -> bool:
        """Return whether everything that ``raise_`` changed is still in place."""


class AclFence:
    """Deny WRITE on each topic to ``User:*`` from any host.

    A topic without any ACL may be open to everybody (``allow.everyone.if.no.acl.found=true``). Its first ACL ends that
    for reading too, and would cut off the consumers and the mirror itself. For such a topic the fence first allows
    reading to everybody, which was allowed before, and removes that ACL last.

    These rules are the same for every attempt and every mirror. So each attempt gives its fence a name (:func:`name_of`),
    which is there before the first of them, and goes after the last.

    :param source: admin of the cluster to fence. Its principal needs ALTER on the cluster.
    :param open_by_default: whether topics without ACLs are open to everybody (``allow.everyone.if.no.acl.found``); None
        asks the brokers, which seldom report it.
    """

    kind = ACL

    def __init__(self, source: ClusterAdmin, open_by_default: bool | None = None, clock: Clock = time) -> None:
        self._source, self._open_by_default, self._clock = source, open_by_default, clock

    def intent(self, topics: Sequence[str]) -> Intent:
        """See :class:`Fence`.

        :raises NoAuthorizer: the cluster has none, so no ACL could stop anybody.
        :raises OpenByDefaultUnknown: a topic has no ACL, and it is unknown whether it is open to everybody.
        :raises MissingRight: this principal may not change ACLs, so it could not lift the fence either.
        """
        # Before anything is decided: who could raise it and not lift it again would keep producers out for good.
        self._prove_right()
        existing, wanted = self._source.describe_acls(resource_type="TOPIC"), sorted(set(topics))
        denied = {acl for acl in existing if (acl.operation, acl.permission) == ("WRITE", "DENY")}
        bare = [topic for topic in wanted if not any(covers(acl, topic) for acl in existing)]
        return Intent(
            topics=tuple(wanted),
            held=frozenset(topic for topic in wanted if topic_rule(topic, "WRITE", "DENY") in denied),
            bare=frozenset(bare if bare and self._is_open_by_default(bare) else ()),
        )

    def claim(self, name: str, permit: Permit) -> None:
        """Name the fence at the source, before its first rule, and wait until every live broker lists the name.

        Whichever broker is asked then lists each name that came before: of two fences one sees the other at least.

        :raises FenceUnproven: a broker does not list it.
        """
        # Dies behind it: a name, which keeps nobody out; the lifter of this attempt takes it away, whether a rule came
        # or not.
        self._source.create_acls([_named(name, _FENCED)], permit)

        def without() -> list[str]:
            listed = self._source.acls_by_broker(resource_type="GROUP")
            lacking = [broker for broker, acls in sorted(listed.items()) if _named(name, _FENCED) not in acls]
            return [f"broker {broker} does not list the fence's name" for broker in lacking]

        if left := self._read_back(without):
            # A cutover backs out, and takes the name away. Who fences a source that returned tries again under it.
            raise FenceUnproven(self._source.role, READ_BACK_S, left)

    def raise_(self, intent: Intent, name: str, permit: Permit) -> None:
        """Create the ACLs, the allowing ones first, so that reading stays possible at every moment."""
        # Once more, which does nothing where it stands: no rule may come to be there without its name.
        self._source.create_acls([_named(name, _FENCED)], permit)
        # Dies between the two: reading is allowed to everybody on topics that were open anyway. Chunk by chunk each
        # request asks the permit anew, so an owner that thaws amid thousands of topics stops there.
        self._source.create_acls(intent.allow, permit)
        self._source.create_acls(intent.deny, permit)

    def announce(self, name: str, permit: Permit) -> None:
        """Say at the source that the target behind the fence is about to be opened, for whoever can't ask the ledger."""
        # Goes with the name. Dies behind it: nobody lifts without the ledger any more, since the record may follow.
        # Sent, and applied behind somebody's lifting: a name alone, which refuses the mirror's next fence until a person
        # has it removed (`other_fences.unexplained`).
        self._source.create_acls([_named(name, _OPENING)], permit)

    def lift(self, intent: Intent, name: str, permit: Permit) -> None:
        """Delete the ACLs of the intent, and no other; what it has taken away is there again before. The name goes last.

        :raises FenceNotLifted: a broker still lists one of them afterwards.
        """
        denying = [*intent.deny, *intent.instead_deny]
        allowing = [*intent.allow, *intent.instead_allow]
        # What a swap had taken away comes back before what it denied by name goes: in the other order those whom that
        # rule lets write would be shut out in between.
        self._source.create_acls(intent.taken_away, permit)
        # Producers are in from here on. Dies behind it: readers keep the rule that lets them read until the next lifter
        # comes.
        self._source.delete_acls(denying, permit)
        self._source.delete_acls(allowing, permit)
        ours = {*denying, *allowing}

        # The controller has deleted them, but each broker learns of it a moment later. Until then they are in force
        # there, and the next fence, which asks any one of them, would treat them as somebody else's.
        def listed() -> list[str]:
            there = chain(*self._source.acls_by_broker(resource_type="TOPIC").values())
            return [line(acl) for acl in sorted(ours.intersection(there))]

        if left := self._read_back(listed):
            raise FenceNotLifted(self._source.role, left, f"they are still listed after {READ_BACK_S:.0f} s")
        # Only when no broker lists a rule: as long as the name stands, who can't ask the ledger knows that rules may be
        # there.
        # Dies before it: the next lifter deletes rules that are gone, which does nothing, and then the name.
        self._source.delete_acls([_named(name, _OPENING), _named(name, _FENCED)], permit)

    def is_up(self, intent: Intent) -> bool:
        """Return whether the cluster lists every denying ACL; once it was swapped: nobody else is let in."""
        # By the list of any one broker: it shows that somebody has removed the fence. That each broker acts on it only a
        # proof shows (`proof.prove`).
        return intent.is_shut(self._source.describe_acls(resource_type="TOPIC"))

    def brokers_without(self, intent: Intent) -> list[int]:
        """Return the live brokers that do not list every denying ACL yet; each goes by its own list."""
        listed = self._source.acls_by_broker(resource_type="TOPIC")
        return [broker for broker, acls in sorted(listed.items()) if not intent.is_shut(acls)]

    def swap(self, intent: Intent, permit: Permit) -> None:
        """Let the principal in that the intent spares, and nobody else. May be repeated.

        The DENY for everybody goes last, once every live broker knows of what takes its place: until then DENY wins.

        :raises FenceUnproven: a broker does not, or somebody else was allowed to write meanwhile; the DENY stays.
        """
        # What keeps others out before what let them in goes; both behind the DENY for everybody, whoever dies at
        # whichever line.
        self._source.create_acls([*intent.instead_deny, *intent.instead_allow], permit)
        self._source.delete_acls(intent.taken_away, permit)
        gone = set(intent.deny)

        def open_at() -> list[str]:
            permit()  # somebody may lift it while brokers are waited for
            listed = self._source.acls_by_broker(resource_type="TOPIC")
            without = {broker: [acl for acl in acls if acl not in gone] for broker, acls in listed.items()}
            lacking = [broker for broker, acls in sorted(without.items()) if not intent.is_shut(acls)]
            return [f"without the DENY for everybody, broker {broker} would let others write" for broker in lacking]

        if left := self._read_back(open_at):
            raise FenceUnproven(self._source.role, READ_BACK_S, left)
        # Request by request: amid them some topics are shut by the one form and some by the other, and each look takes
        # either (`Intent.is_shut`).
        self._source.delete_acls(sorted(gone), permit)

    def forget(self, name: str, permit: Permit) -> None:
        """Remove an attempt's name, which is nobody else's: but several processes may go on with one attempt."""
        self._source.delete_acls([_named(name, _OPENING), _named(name, _FENCED)], permit)

    # --- names at the source ---

    def standing(self, mirror: str, target_id: str) -> dict[str, bool]:
        """Return the names that fences of a mirror have at the source, each with whether its opening is announced.

        :param target_id: of the mirror's target; "": mirrors of that name to any target.
        """
        found = [(name, operation) for name, operation in self._names() if is_of(name, mirror, target_id)]
        return {name: (name, _OPENING) in found for name, _ in found}

    def alone(self, mirror: str, name: str, *, opened: bool) -> Permit:
        """Return what takes a decision's place where the ledger can't be asked: only this attempt's fence is there.

        :param opened: also if its opening is announced: the caller knows that it was not decided.
        """

        def check() -> None:
            # Read at each request, as a decision would be. A name that comes behind this look is refused by ours, which
            # stands still.
            standing = self.standing(mirror, target_of(name))
            if standing.keys() != {name}:
                others = ", ".join(sorted(standing.keys() - {name})) or "nobody's"
                raise MayBeOpen(name, self._source.role, f"the fence there is that of another attempt by now ({others})")
            if standing[name] and not opened:
                raise MayBeOpen(name, self._source.role, "it is said there that the target is about to be opened")

        return check

    def require_no_other(
        self, mirror: str, topics: Collection[str], target_id: str, run: str = ""
    ) -> list[str]:  # fmt: skip
        """Return :meth:`others` unless one of them may be about some of these topics, or one of ours is left.

        It denies to everybody, or, once it was swapped for the way back, to principals by name. Which topics a fence is
        about its name does not say: so a site's own rule counts too while fences of others stand.

        :param target_id: as in :meth:`standing`. :param run: several processes raise the fence of this run together.
        :raises FenceStands: one of this mirror is. :raises FencedByAnother: names the topics and the fences.
        """
        names = self.standing(mirror, target_id)
        runs = sorted(name.rpartition(COLON)[0].removeprefix(prefix_of(mirror)) for name in names)
        if ours := [one for one in runs if one != run]:
            raise FenceStands(mirror, ours[0], "is named at the source")
        # Before their rules are listed: one that is named in between is new behind our own name (`Raised.claim`).
        if not (others := self.others(mirror, target_id)):
            return []
        listed = self._source.describe_acls(resource_type="TOPIC")
        denying = {a.name for a in listed if (a.operation, a.permission) == ("WRITE", "DENY")}
        if denied := sorted(denying.intersection(topics)):
            raise FencedByAnother(self._source.role, denied, others)
        return others

    def others(self, mirror: str, target_id: str) -> list[str]:
        """Return the fences of other mirrors that stand at the source, as ``mirror:run:attempt``.

        :param target_id: as in :meth:`standing`.
        """
        names = {name for name, _ in self._names() if not is_of(name, mirror, target_id)}
        return sorted(name.removeprefix(FENCES) for name in names)

    def is_gone(self, mirror: str, name: str) -> bool:
        """Return whether a fence of a mirror is not named at the source, and others' are, whose rules are the same."""
        names = {one for one, _ in self._names()}
        return name not in names and any(not is_of(one, mirror, target_of(name)) for one in names)

    def listed(self, intent: Intent) -> list[Acl]:
        """Return the rules of an intent that the cluster lists."""
        its = {*intent.deny, *intent.allow, *intent.instead_deny, *intent.instead_allow}
        return sorted(its.intersection(self._listed(resource_type="TOPIC")))

    def left(
        self, mirror: str, topics: Iterable[str], but: Collection[Acl], name: str, target_id: str
    ) -> list[Acl]:  # fmt: skip
        """Return the rules that keep everybody out of topics, and those that name a mirror's fences, but for some.

        :param name: of the fence whose rules stay. :param target_id: as in :meth:`standing`.
        :raises FencedByAnother: the rules may be those of other mirrors' fences, which explain them.
        """
        wanted = {topic_rule(topic, "WRITE", "DENY") for topic in topics}.difference(but)
        denying = wanted.intersection(self._listed(resource_type="TOPIC"))
        if denying and (others := self.others(mirror, target_id)):
            raise FencedByAnother(self._source.role, sorted(acl.name for acl in denying), others)
        names = {_named(*one) for one in self._names() if is_of(one[0], mirror, target_id) and one[0] != name}
        return sorted(denying | names)

    def remove(self, acls: Collection[Acl], permit: Permit) -> list[Acl]:
        """Remove rules that no fence explains; return those that were there."""
        return self._source.delete_acls(acls, permit)

    def _read_back(self, left: Callable[[], list[str]]) -> list[str]:
        """Ask the brokers until nothing is left to wait for; return what is left when the time is over."""
        deadline = self._clock.monotonic() + READ_BACK_S
        while (found := left()) and self._clock.monotonic() <= deadline:
            self._clock.sleep(_RETRY_S)
        return found

    def _names(self) -> list[tuple[str, str]]:
        found = self._listed(resource_type="GROUP", principal=NOBODY)
        return [(acl.name, acl.operation) for acl in found if acl.name.startswith(FENCES)]

    def _listed(self, **match: str) -> list[Acl]:  # nothing where a fence by a function needs no authorizer
        return unless_none_is_enforced(lambda: self._source.describe_acls(**match)) or []

    def _prove_right(self) -> None:
        # Deletes nothing, because no principal has this name. It needs the same right as lifting; listing needs less.
        nobody = topic_rule("airflow-mirror-probe", "WRITE", "DENY", "User:airflow-mirror-probe")
        try:
            self._source.delete_acls([nobody], unfenced)
        except RequestRefused as e:
            if e.code == ErrorCode.SECURITY_DISABLED:
                remedy = "Fence by a callable that stops the producers, or configure an authorizer."
                raise NoAuthorizer(self._source.role, "no ACL can fence producers", remedy) from None
            raise

    def _is_open_by_default(self, bare: Sequence[str]) -> bool:
        """Return whether topics without ACLs are open to everybody.

        :param bare: the topics for which it matters.
        :raises OpenByDefaultUnknown: no broker tells. A wrong guess would do harm either way.
        """
        if self._open_by_default is not None:
            return self._open_by_default
        try:
            brokers = self._source.broker_configs()
        except MissingRight:
            raise OpenByDefaultUnknown(
                self._source.role, bare, f"{OPEN_BY_DEFAULT} can't be read (no DESCRIBE_CONFIGS on the cluster)"
            ) from None
        if (said := open_by_default(brokers)) is None:
            raise OpenByDefaultUnknown(self._source.role, bare, f"{OPEN_BY_DEFAULT} is set, and brokers hide its value")
        return said


def fence_of(fence: str, source: ClusterAdmin, open_by_default: bool | None = None) -> Fence:
    """Return the fence that an argument names.

    :param open_by_default: for an ACL fence, see :class:`AclFence`.
    :raises InvalidField: it is neither ``acl`` nor the path of a function that returns a fence.
    """
    if fence == "acl":
        return AclFence(source, open_by_default)
    try:
        make = function_at(str(fence))
    except ImportError as e:
        raise InvalidField("fence", fence, f"can't be imported: {e}", "Use 'acl', or package.module.function.") from None
    made = make(source)
    if not isinstance(made, Fence):
        raise InvalidField("fence", fence, f"returned no fence: {made!r}", "Return an AclFence or a CallableFence.")
    return made


def _named(name: str, operation: str) -> Acl:
    return Acl(
        resource_type="GROUP", name=name, pattern_type="LITERAL", principal=NOBODY, host="*", operation=operation,
        permission="DENY",
    )  # fmt: skip
