"""Keep producers away from the source, provably and reversibly.

Measured on 4.3.1: among Kafka's own means only an ACL stops writers. ``min.insync.replicas`` above the replica count
fences nothing, a producer quota only delays, and a small ``max.message.bytes`` rejects transaction markers and hangs
the transaction for good. Super users bypass ACLs, so a fence is trusted only after the log end offsets have stopped
moving (`cutover.quiet`).

The order is describe, record, create: the intended changes are on the target before the first change is made. Any process
that finds that record can undo exactly these changes and nothing that existed before.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_mirror.cutover.spared import covers, letting_write, topic_rule
from airflow_mirror.dotted import function_at
from airflow_mirror.errors import (
    FenceNotLifted,
    FenceUnproven,
    InvalidField,
    MissingRight,
    NoAuthorizer,
    OpenByDefaultUnknown,
    RequestRefused,
)
from airflow_mirror.kafka.acls import OPEN_BY_DEFAULT, open_by_default
from airflow_mirror.kafka.admin import Acl
from airflow_mirror.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_mirror.kafka.admin import ClusterAdmin

__all__ = ["CallableFence"]

READ_BACK_S = 10.0

# What raising a fence changes and lifting it undoes. JSON, because it must survive the process. Of one by ACL that was
# swapped (:mod:`.swap`), or may be half: ``spared``, who may write; ``instead``, ACLs that were created for that;
# ``replaced``, ACLs of others that were deleted; ``copied_by``, the mirror that copies back.
Intent = dict[str, Any]


@runtime_checkable
class Fence(Protocol):
    """A way to stop all writers of some topics.

    ``intent`` is read-only. ``raise_`` and ``lift`` may be called twice, and ``lift`` with another process's intent.
    """

    kind: str

    def intent(self, topics: Sequence[str]) -> Intent:
        """Return what ``raise_`` would change for these topics; changes nothing."""

    def raise_(self, intent: Intent) -> None:
        """Stop the writers."""

    def lift(self, intent: Intent) -> None:
        """Let the writers in again: undo what ``raise_`` did, or would have done, with this intent."""

    def is_up(self, intent: Intent) -> bool:
        """Return whether everything that ``raise_`` changed is still in place."""


class AclFence:
    """Deny WRITE on each topic to ``User:*`` from any host.

    A topic without any ACL may be open to everybody (``allow.everyone.if.no.acl.found=true``). Its first ACL ends that
    for reading too, and would cut off the consumers and the mirror itself. For such a topic the fence first allows
    reading to everybody, which was allowed before, and removes that ACL last.

    :param source: admin of the cluster to fence. Its principal needs ALTER on the cluster.
    :param open_by_default: whether topics without ACLs are open to everybody (``allow.everyone.if.no.acl.found``); None
        asks the brokers, which seldom report it.
    """

    kind = "acl"

    def __init__(self, source: ClusterAdmin, open_by_default: bool | None = None) -> None:
        self._source, self._open_by_default = source, open_by_default

    def intent(self, topics: Sequence[str]) -> Intent:
        """Return ``{"deny": [...], "allow": [...], "held": [...]}``; ``held`` lists ACLs that existed before and stay.

        :raises NoAuthorizer: the cluster has none, so no ACL could stop anybody.
        :raises OpenByDefaultUnknown: a topic has no ACL, and it is unknown whether it is open to everybody.
        :raises MissingRight: this principal may not change ACLs, so it could not lift the fence either.
        """
        self._prove_right()
        existing = self._source.describe_acls(resource_type="TOPIC")
        wanted = [_deny(topic) for topic in sorted(set(topics))]
        bare = [topic for topic in sorted(set(topics)) if not any(covers(acl, topic) for acl in existing)]
        allow = [acl for topic in bare for acl in _allow(topic)] if bare and self._is_open_by_default(bare) else []
        return {
            "deny": [asdict(acl) for acl in wanted if acl not in existing],
            "allow": [asdict(acl) for acl in allow],
            "held": [asdict(acl) for acl in wanted if acl in existing],
        }

    def raise_(self, intent: Intent) -> None:
        """Create the ACLs, the allowing ones first, so that reading stays possible at every moment."""
        self._source.create_acls(_acls(intent, "allow"))
        self._source.create_acls(_acls(intent, "deny"))

    def lift(self, intent: Intent) -> None:
        """Delete the ACLs of the intent, and no other; what it has replaced is there again before.

        :raises FenceNotLifted: a broker still lists one of them afterwards.
        """
        denying = [*_acls(intent, "deny"), *_of(intent, "instead", "DENY")]
        allowing = [*_acls(intent, "allow"), *_of(intent, "instead", "ALLOW")]
        self._source.create_acls(_acls(intent, "replaced"))
        self._source.delete_acls(denying)
        self._source.delete_acls(allowing)
        ours = {*denying, *allowing}
        # The controller has deleted them, but each broker learns of it a moment later. Until then they are in force
        # there, and the next fence, which asks any one of them, would treat them as somebody else's.
        deadline = time.monotonic() + READ_BACK_S
        while left := ours & set(chain(*self._source.acls_by_broker(resource_type="TOPIC").values())):
            if time.monotonic() > deadline:
                lines = [_line(acl, "") for acl in sorted(left)]
                raise FenceNotLifted(self._source.role, lines, f"they are still listed after {READ_BACK_S:.0f} s")
            time.sleep(0.05)

    def is_up(self, intent: Intent) -> bool:
        """Return whether the cluster lists every denying ACL; once it was swapped: nobody else is let in."""
        return _is_shut(intent, self._source.describe_acls(resource_type="TOPIC"))

    def brokers_without(self, intent: Intent) -> list[int]:
        """Return the live brokers that do not list every denying ACL yet; each goes by its own list."""
        listed = self._source.acls_by_broker(resource_type="TOPIC")
        return [broker for broker, acls in sorted(listed.items()) if not _is_shut(intent, acls)]

    def swap(self, intent: Intent) -> None:
        """Let the principal in that the intent spares, and nobody else. May be repeated.

        The DENY for everybody goes last, once every live broker knows of what takes its place: until then DENY wins.

        :raises FenceUnproven: a broker does not, or somebody else was allowed to write meanwhile; the DENY stays.
        """
        self._source.create_acls(_acls(intent, "instead"))
        self._source.delete_acls(_acls(intent, "replaced"))
        gone = set(_acls(intent, "deny"))
        deadline = time.monotonic() + READ_BACK_S
        while True:
            listed = self._source.acls_by_broker(resource_type="TOPIC")
            without = {broker: [acl for acl in acls if acl not in gone] for broker, acls in listed.items()}
            if not (open_at := [broker for broker, acls in sorted(without.items()) if not _is_shut(intent, acls)]):
                break
            if time.monotonic() > deadline:
                left = [f"without the DENY for everybody, broker {broker} would let others write" for broker in open_at]
                raise FenceUnproven(self._source.role, READ_BACK_S, left)
            time.sleep(0.05)
        self._source.delete_acls(sorted(gone))

    def _prove_right(self) -> None:
        # Deletes nothing, because no principal has this name. It needs the same right as lifting; listing needs less.
        nobody = topic_rule("airflow-mirror-probe", "WRITE", "DENY", "User:airflow-mirror-probe")
        try:
            self._source.delete_acls([nobody])
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
        said = open_by_default(brokers)
        if said is None:
            raise OpenByDefaultUnknown(self._source.role, bare, f"{OPEN_BY_DEFAULT} is set, and brokers hide its value")
        return said


class CallableFence:
    """Fence with the means of the platform: a gateway, a feature flag, a deployment scaled to 0.

    :param on: stops the writers; returns once they have stopped. May be called again.
    :param off: lets them in again. Called after any failure, even in a new process, so it must not need ``on``'s state.
    :param check: returns whether the fence is in place; by default that is assumed, and proven by the log end offsets.
    """

    kind = "callable"

    def __init__(
        self, on: Callable[[], object], off: Callable[[], object], check: Callable[[], bool] = lambda: True
    ) -> None:
        self._on, self._off, self._check = on, off, check

    def intent(self, topics: Sequence[str]) -> Intent:
        """Return the topics; there is nothing to describe."""
        return {"topics": sorted(topics)}

    def raise_(self, intent: Intent) -> None:
        """Call ``on``."""
        self._on()

    def lift(self, intent: Intent) -> None:
        """Call ``off``."""
        self._off()

    def is_up(self, intent: Intent) -> bool:
        """Call ``check``."""
        return self._check()


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
        raise InvalidField(
            "fence", fence, f"returned {made!r}, which is no fence", "Return an AclFence or a CallableFence."
        )
    return made


def fence_text(kind: str, intent: Mapping[str, Any]) -> list[str]:
    """Return a fence's changes as readable lines."""
    if kind != "acl":
        return [f"callable, topics {', '.join(intent.get('topics', []))}"]
    notes = _NOTES if intent.get("spared") is None else {**_NOTES, **_SWAPPED}
    return [_line(acl, note) for field, note in notes.items() for acl in _acls(intent, field)]


_NOTES = {"deny": "", "allow": " (the topic had no ACL and was open)", "held": " (was there before, stays)"}
_SWAPPED = {
    "deny": " (replaced by what follows)",
    "instead": " (so that only the mirror may write)",
    "replaced": " (deleted; comes back when the fence is lifted)",
}


def _line(acl: Acl, note: str) -> str:
    return f"{acl.permission} {acl.operation} on topic {acl.name} for {acl.principal} from {acl.host}{note}"


def _acls(intent: Mapping[str, Any], field: str) -> list[Acl]:
    rows: Iterable[Mapping[str, str]] = intent.get(field, [])
    return [Acl(**row) for row in rows]


def _is_shut(intent: Mapping[str, Any], listed: Sequence[Acl]) -> bool:
    """Return whether these ACLs keep everybody out; of a fence that was swapped, everybody but whom it spares."""
    there, own = set(listed), intent.get("spared")
    missing = [acl for acl in _acls(intent, "deny") + _acls(intent, "held") if acl not in there]
    if not missing or own is None:
        return not missing
    return set(_acls(intent, "instead")) <= there and not any(letting_write(listed, acl.name, own) for acl in missing)


def _of(intent: Mapping[str, Any], field: str, permission: str) -> list[Acl]:
    return [acl for acl in _acls(intent, field) if acl.permission == permission]


def _deny(topic: str) -> Acl:
    return topic_rule(topic, "WRITE", "DENY")


def _allow(topic: str) -> list[Acl]:
    return [topic_rule(topic, operation, "ALLOW") for operation in ("READ", "DESCRIBE_CONFIGS")]
