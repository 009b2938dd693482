"""What the code asks of one cluster, as questions that a real one and the one in memory answer alike.

Like `cases`, one level up: through ClusterAdmin, WireCluster, the writer lease, the ledger and state instead of requests.
A case is a conversation with a :class:`Side`; every answer is a line, errors by their type and code.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer import lease
from airflow_mirror.copy.writer.lease import LeaseToken
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka.model import Acl, GroupPosition, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.ledger.state import State
from airflow_mirror.verify.partition import count_data

GOLDEN = Path(__file__).parents[1] / "golden" / "sides"
ALICE = "User:alice"


class Transaction(ABC):
    """A producer with a transactional id; the transaction begins with its first record."""

    @abstractmethod
    def write(self, tp: TopicPartition, value: bytes) -> None:
        """Write a record, and wait until it is there."""

    @abstractmethod
    def end(self, *, commit: bool) -> None:
        """End the transaction, and wait for the marker."""


class Side(ABC):
    """One cluster, as the super user has it, and what applications do there.

    :ivar admin: a ClusterAdmin. :ivar name: that no other case uses, for topics, groups, mirrors.
    """

    admin: Any
    name: str

    @abstractmethod
    def admin_of(self, user: str) -> Any:
        """Return another user's ClusterAdmin."""

    @abstractmethod
    def ledger(self) -> Decisions:
        """Return the ledger, as one more reader has it."""

    @abstractmethod
    def state(self, *prefixes: str) -> State:
        """Return state, as one more reader has it."""

    @abstractmethod
    def append(self, value: bytes) -> None:
        """Append a record to the log of decisions."""

    @abstractmethod
    def now_ms(self) -> int:
        """Return the brokers' time."""

    @abstractmethod
    def write(self, user: str, tp: TopicPartition, value: bytes) -> str:
        """Write a record as a user; return its offset, or the name of the error."""

    @abstractmethod
    def transaction(self, transactional_id: str) -> Transaction:
        """Return a producer with a transactional id."""

    @abstractmethod
    def member(self, group: str, topic: str) -> AbstractContextManager[None]:
        """Have a member in a group, which has partitions of a topic, while the block lasts."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until every broker knows what its controller knows."""

    # --- shared -------------------------------------------------------------------------------------------------------

    def tp(self, partition: int = 0, suffix: str = "") -> TopicPartition:
        """Return a partition of the case's topic."""
        return TopicPartition(self.name + suffix, partition)

    def create(self, partitions: int = 1, suffix: str = "", **configs: str) -> str:
        """Create a topic of the case."""
        name = self.name + suffix
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.admin.create_topics([NewTopicSpec(name, partitions, 1, named)], unfenced)
        self.settle()
        return name

    def rule(self, operation: str, permission: str = "ALLOW", principal: str = ALICE, **fields: str) -> Acl:
        """Return a rule on the case's topic."""
        one = Acl(
            resource_type="TOPIC", name=self.name, pattern_type="LITERAL", principal=principal, host="*",
            operation=operation, permission=permission,
        )  # fmt: skip
        return replace(one, **fields)


Note = Callable[[str, Any], None]
Case = Callable[[Side, Note], None]
CASES: dict[str, Case] = {}


def case(one: Case) -> Case:
    """Register a case by its name."""
    CASES[one.__name__] = one
    return one


def transcript(side: Side, conversation: Case) -> str:
    """Return a line for each answer. What differs from cluster to cluster is masked: the case's name, producer ids."""
    lines: list[str] = []

    def note(what: str, answer: Any) -> None:
        text = re.sub(r"producer_id=\d+", "producer_id=N", str(answer))
        lines.append(f"{what}: {text}".replace(side.name, "NAME").replace(side.name[:-2], "NA"))

    conversation(side, note)
    return "".join(f"{line}\n" for line in lines)


def told(do: Callable[[], Any]) -> Any:
    """Return an answer, or an error by its type and its broker's code."""
    try:
        return do()
    except MirrorError as e:
        code = getattr(e, "code", None)
        return type(e).__name__ if code is None else f"{type(e).__name__} {int(code)}"


def _at(positions: Any) -> list[tuple[int, int, str]]:
    return sorted((tp.partition, one.offset, one.metadata) for tp, one in positions.items())


def _numbers(offsets: Any) -> list[tuple[int, int]]:
    return sorted((tp.partition, offset) for tp, offset in offsets.items())


@case
def topics(a: Side, note: Note) -> None:
    note("unknown", (a.admin.topics([a.name]), a.admin.replicas([a.name])))
    note("configs of an unknown one", told(lambda: a.admin.topic_configs([a.name])))
    name = a.create(2, cleanup_policy="compact", min_insync_replicas="1")
    first = a.admin.topics([name])[name]
    note("created", (first.name, first.partitions, first.replication_factor, len(first.topic_id)))
    note("replicas", sorted((tp.partition, one) for tp, one in a.admin.replicas([name]).items()))
    note("again", told(lambda: a.create(1)))
    wire = a.admin.wire
    note("partitions", (wire.partitions(name), wire.topic_id(name) == first.topic_id))
    a.admin.grow_partitions(name, 3, unfenced)
    a.settle()
    note("grown", a.admin.topics([name])[name].partitions)
    note("to fewer", told(lambda: a.admin.grow_partitions(name, 2, unfenced)))
    note("deleted by another id", told(lambda: a.admin.delete_topic(name, "AAAAAAAAAAAAAAAAAAAAAQ", unfenced)))
    note("still there", name in a.admin.topic_names())
    a.admin.delete_topic(name, first.topic_id, unfenced)
    a.settle()
    note("deleted", a.admin.topics([name]))
    note("deleted again", told(lambda: a.admin.delete_topics([name], unfenced)))
    a.create(1)
    note("another id", a.admin.topics([name])[name].topic_id != first.topic_id)


@case
def configs(a: Side, note: Note) -> None:
    name = a.create(1, retention_ms="1000")
    keys = ("cleanup.policy", "max.message.bytes", "message.timestamp.type", "min.insync.replicas", "retention.bytes",
            "retention.ms", "unclean.leader.election.enable")  # fmt: skip

    def shown() -> list[tuple[str, str | None, bool]]:
        found = a.admin.topic_configs([name])[name]
        return [(key, found[key].value, found[key].is_override) for key in keys]

    note("created with one", shown())
    a.admin.alter_topic_configs(name, unfenced, {"retention.ms": "-1", "cleanup.policy": "compact"})
    a.settle()
    note("set", shown())
    a.admin.alter_topic_configs(name, unfenced, {"retention.bytes": "5"}, ["cleanup.policy", "min.insync.replicas"])
    a.settle()
    note("set and removed", shown())
    note("of an unknown one", told(lambda: a.admin.alter_topic_configs(f"{name}-no", unfenced, {"retention.ms": "1"})))


@case
def logs(a: Side, note: Note) -> None:
    name = a.create(2)
    tps, wire = [a.tp(0), a.tp(1)], a.admin.wire

    def shown() -> tuple[Any, ...]:
        asked = (wire.log_starts, wire.high_watermarks, wire.log_ends, wire.last_stable)
        return tuple(_numbers(one(tps)) for one in asked)

    note("empty", shown())
    note("written", [a.write("admin", a.tp(p), b"%d" % n) for n in range(3) for p in (0, 0, 1)])
    note("now", shown())
    note("earliest", _numbers(a.admin.offsets(tps, "earliest")))
    note("latest", _numbers(a.admin.offsets(tps)))
    note("stable", _numbers(a.admin.offsets(tps, "latest_committed")))
    note("of long ago", _numbers(a.admin.offsets(tps, 1000)))
    note("of a time to come", _numbers(wire.offsets_for_time(tps, a.now_ms() + 3_600_000)))
    note("records", (count_data(wire, a.tp(0), 0, 6), count_data(wire, a.tp(0), 2, 4), count_data(wire, a.tp(1), 0, 3)))
    note("deleted", _numbers(a.admin.delete_records({a.tp(0): 2}, unfenced)))
    note("beyond the end", told(lambda: a.admin.delete_records({a.tp(0): 99}, unfenced)))
    note("below the start", _numbers(a.admin.delete_records({a.tp(0): 1}, unfenced)))
    note("to the end", _numbers(wire.delete_records({a.tp(1): -1}, unfenced)))
    note("now", shown())
    note("records", count_data(wire, a.tp(0), 2, 6))
    note("of no partition", told(lambda: wire.log_ends([TopicPartition(name, 7)])))
    note("of no topic", told(lambda: wire.log_ends([a.tp(0, "-no")])))
    note("refreshed", (told(lambda: wire.refresh([name])), told(lambda: wire.refresh([f"{name}-no"]))))
    note("present", wire.refresh_present([name, f"{name}-no"]) == {f"{name}-no"})


@case
def transactions(a: Side, note: Note) -> None:
    a.create(2)
    tps, wire = [a.tp(0), a.tp(1)], a.admin.wire

    def mine() -> list[Any]:
        return [one for one in a.admin.open_transactions() if one.transactional_id.startswith(a.name)]

    def shown() -> tuple[Any, ...]:
        until = time.monotonic() + 60  # a coordinator tells that one has ended once that is in its own log, too
        while any(one.state.startswith("Prepare") for one in mine()) and time.monotonic() < until:
            time.sleep(0.05)
        known = [(one.transactional_id, one.state, sorted(tp.partition for tp in one.partitions)) for one in mine()]
        return _numbers(wire.last_stable(tps)), _numbers(wire.log_ends(tps)), known

    note("hidden", a.admin.transactions_hidden())
    note("none", shown())
    first, second = a.transaction(f"{a.name}-1"), a.transaction(f"{a.name}-2")
    a.write("admin", a.tp(0), b"before")
    first.write(a.tp(0), b"1")
    note("one is open", shown())
    second.write(a.tp(0), b"2")
    second.write(a.tp(1), b"2")
    a.write("admin", a.tp(0), b"behind")
    note("two are", shown())
    second.end(commit=True)
    note("the second is committed", shown())
    first.end(commit=False)
    note("the first is aborted", shown())
    ends = wire.log_ends(tps)
    note("records", [count_data(wire, tp, 0, ends[tp], committed=c) for tp in tps for c in (True, False)])
    first.write(a.tp(1), b"3")
    note("begun again", shown())
    first.end(commit=True)
    note("ended", shown())
    note("ids", sorted(one for one in a.admin.transactional_ids().values() if one.startswith(a.name)))


@case
def acls(a: Side, note: Note) -> None:
    a.create(1)
    mine = [a.rule("WRITE"), a.rule("READ", "DENY", "User:*"), a.rule("WRITE", name=a.name[:-2], pattern_type="PREFIXED"),
            a.rule("READ", name=f"{a.name}-g", resource_type="GROUP"), a.rule("READ", name=a.name, resource_type="GROUP"),
            a.rule("ALL", principal="User:bob"), a.rule("WRITE", name=f"{a.name}-x")]  # fmt: skip

    def shown(**fields: str) -> list[str]:
        found = a.admin.describe_acls(**fields)
        return [str(one) for one in found if one.name.startswith(a.name[:-2])]

    note("none", shown())
    a.admin.create_acls(mine, unfenced)
    a.settle()
    for fields in (
        {}, {"resource_type": "TOPIC"}, {"resource_type": "GROUP"}, {"resource_type": "TOPIC", "name": a.name},
        {"name": a.name}, {"resource_type": "TOPIC", "name": a.name, "pattern_type": "MATCH"}, {"name": a.name[:-2]},
        {"pattern_type": "PREFIXED"}, {"name": a.name, "pattern_type": "LITERAL"}, {"principal": ALICE},
        {"principal": "User:*"}, {"operation": "WRITE"}, {"operation": "ALL"}, {"permission": "DENY"},
        {"operation": "READ", "principal": ALICE, "resource_type": "GROUP"},
    ):  # fmt: skip
        note(f"with {', '.join(f'{k}={v}' for k, v in fields.items()) or 'anything'}", shown(**fields))
    by_broker = a.admin.acls_by_broker(resource_type="TOPIC")
    note("each broker lists them", all(set(mine[:3]) <= set(rules) for rules in by_broker.values()))
    note("created again", told(lambda: a.admin.create_acls(mine[:2], unfenced)))
    note("deleted", [str(one) for one in a.admin.delete_acls([mine[0], mine[3], a.rule("DELETE")], unfenced)])
    a.settle()
    note("left", shown())
    note("deleted again", a.admin.delete_acls([mine[0]], unfenced))
    a.admin.delete_acls(mine, unfenced)
    a.settle()
    note("none", shown())


@case
def who_may_write(a: Side, note: Note) -> None:
    a.create(1)
    alice, may = a.admin_of("alice"), ("READ", "WRITE", "DESCRIBE", "ALTER", "DELETE", "DESCRIBE_CONFIGS")

    def shown(what: str) -> None:
        a.settle()
        wrote = a.write("alice", a.tp(), b"x")
        answers = list(told(lambda: alice.wire.write_answers([a.tp()]).values()))
        lacks = told(lambda: alice.lacking_on_topics({a.name: ["WRITE", "READ", "DESCRIBE_CONFIGS"]}))
        lacking = sorted(one.acl.operation for one in lacks.get(a.name, ()))
        allowed = alice.allowed_on_topics([a.name]).get(a.name, frozenset())
        note(what, (wrote, answers, lacking, [one for one in may if one in allowed]))

    def change(what: str, *create: Acl, delete: tuple[Acl, ...] = ()) -> None:
        a.admin.create_acls(create, unfenced)
        a.admin.delete_acls(delete, unfenced)
        shown(what)

    deny, deny_alice = a.rule("WRITE", "DENY", "User:*"), a.rule("WRITE", "DENY")
    all_of, prefixed = a.rule("ALL"), a.rule("WRITE", name=a.name[:-2], pattern_type="PREFIXED")
    another = a.rule("READ", principal="User:bob")
    shown("no rule")
    change("somebody else may read", another)
    change("she may write", a.rule("WRITE"))
    change("nobody may", deny)
    note("super user", a.write("admin", a.tp(), b"x"))
    change("all may again", delete=(deny,))
    change("she may not", deny_alice)
    change("by a prefix, but she may not", prefixed, delete=(a.rule("WRITE"),))
    change("by a prefix", delete=(deny_alice,))
    change("denied by a prefix", a.rule("WRITE", "DENY", name=a.name[:-2], pattern_type="PREFIXED"))
    change("by no rule of hers", delete=(prefixed, a.rule("WRITE", "DENY", name=a.name[:-2], pattern_type="PREFIXED")))
    change("everything", all_of)
    change("everything, but not writing", deny)
    change("everything, but not all", a.rule("ALL", "DENY", "User:*"), delete=(deny,))
    change("everybody may write", a.rule("WRITE", principal="User:*"), delete=(all_of, a.rule("ALL", "DENY", "User:*")))
    change("alter", a.rule("ALTER"), delete=(a.rule("WRITE", principal="User:*"),))
    change("alter configs", a.rule("ALTER_CONFIGS"), delete=(a.rule("ALTER"),))
    a.admin.delete_acls([another, a.rule("ALTER_CONFIGS")], unfenced)
    group = a.rule("READ", name=a.name, resource_type="GROUP")
    a.admin.create_acls([group], unfenced)
    a.settle()
    note("group", sorted(alice.allowed_on_groups([a.name])[a.name]))
    note("super user's", sorted(a.admin.allowed_on_groups([a.name])[a.name]))
    note("super user's cluster", sorted(a.admin.allowed_on_cluster()["kafka-cluster"]))
    a.admin.delete_acls([group], unfenced)


@case
def groups(a: Side, note: Note) -> None:
    name = a.create(2)
    group = f"{name}-g"

    def shown() -> tuple[Any, ...]:
        listed = [one for one in a.admin.groups() if one.group_id == group]
        info = a.admin.describe_groups([group])[group]
        return [one.state for one in listed], info.state, info.protocol_type, _at(a.admin.group_offsets(group))

    def position(offset: int, metadata: str = "") -> GroupPosition:
        return GroupPosition(offset, metadata)

    note("unknown", shown())
    a.admin.commit_group_offsets(group, {a.tp(0): position(5, "m"), a.tp(1): position(7)}, unfenced)
    note("committed", shown())
    a.admin.commit_group_offsets(group, {a.tp(0): position(3)}, unfenced)
    note("back", shown())
    note("no topic", told(lambda: a.admin.commit_group_offsets(group, {a.tp(0, "-no"): position(1)}, unfenced)))
    note("no partition", told(lambda: a.admin.commit_group_offsets(group, {a.tp(9): position(1)}, unfenced)))
    note("nothing", told(lambda: a.admin.commit_group_offsets(group, {}, unfenced)))
    only = a.admin.groups_offsets([group], {group: [a.tp(1)]})
    note("of one partition", _at(only[group]))
    done = a.admin.commit_groups({group: {a.tp(0): position(4)}, f"{group}2": {a.tp(9): position(1)}}, lambda: None)
    note(
        "many",
        [
            (sorted(map(int, (tp.partition for tp in one.done))), one.active, type(one.error).__name__)
            for one in done.values()
        ],
    )
    note("now", shown())
    a.admin.forget_group_offsets(group, [a.tp(0)], unfenced)
    a.admin.forget_group_offsets(group, [a.tp(0)], unfenced)
    note("of no partition", told(lambda: a.admin.forget_group_offsets(group, [a.tp(9)], unfenced)))
    note("of no topic", told(lambda: a.admin.forget_group_offsets(group, [a.tp(0, "-no")], unfenced)))
    note("one is forgotten", shown())
    with a.member(group, name):
        note("with a member", shown())
        note("set", told(lambda: a.admin.commit_group_offsets(group, {a.tp(0): position(1)}, unfenced)))
        done = a.admin.commit_groups({group: {a.tp(0): position(4)}}, lambda: None)
        note("many", [(len(one.done), len(one.refused), one.active) for one in done.values()])
        note("forgotten", told(lambda: a.admin.forget_group_offsets(group, [a.tp(1)], unfenced)))
        note("still", shown())
    a.settle()
    note("without members", shown())
    a.admin.commit_group_offsets(group, {a.tp(0): position(2)}, unfenced)
    note("set", shown())
    a.admin.forget_group_offsets(group, [a.tp(0), a.tp(1)], unfenced)
    note("all are forgotten", shown())
    alone = f"{name}-alone"
    a.admin.commit_group_offsets(alone, {a.tp(0): position(2)}, unfenced)
    a.admin.forget_group_offsets(alone, [a.tp(0)], unfenced)
    note("all of one that never had members", (a.admin.group_states([alone]), _at(a.admin.group_offsets(alone))))


@case
def leases(a: Side, note: Note) -> None:
    mirror, wire = a.name, a.admin.wire

    def shown() -> tuple[bool, bool]:
        return lease.is_anybody_writing(wire, mirror), lease.is_writing_ended(wire, mirror)

    def token(one: LeaseToken, before: LeaseToken | None = None) -> tuple[Any, ...]:
        follows = None if before is None else (one.producer_id == before.producer_id, one.epoch - before.epoch)
        return one.epoch, one.mark_ms, one.wait_s, follows

    note("never taken", shown())
    first = lease.take(wire, mirror)
    note("taken", token(first))
    note("writes", shown())
    note("confirmed", told(lambda: lease.confirm(wire, first)))
    note("renewed", told(lambda: lease.renew(wire, first)))
    note("confirmed", told(lambda: lease.confirm(wire, first)))
    second = lease.take(wire, mirror)
    note("taken by another one", token(second, first))
    for one in (lease.confirm, lease.renew, lease.withdraw, lease.release):
        note(f"the first is to {one.__name__}", told(partial(one, wire, first)))
    note("the second", told(lambda: lease.confirm(wire, second)))
    withdrawn = lease.withdraw(wire, second)
    note("withdrawn", (token(withdrawn, second), told(lambda: lease.confirm(wire, second)), shown()))
    lease.release(wire, withdrawn)
    note("released", (shown(), told(lambda: lease.confirm(wire, withdrawn))))
    third = lease.take(wire, mirror, to_end=True)
    note("taken to end writing", (token(third, withdrawn), shown()))
    fourth = lease.take(wire, mirror, to_end=True)
    note(
        "again",
        (token(fourth, third), told(lambda: lease.confirm(wire, third)), told(lambda: lease.confirm(wire, fourth))),
    )
    fifth = lease.take(wire, mirror)
    note("taken to write", (token(fifth, fourth), shown()))
    lease.shorten(wire, fifth, True)
    seen = lease.seen_short(wire, mirror)
    note("made short", (seen is not None and fifth.is_short(seen), told(lambda: lease.confirm(wire, fifth)), shown()))
    lease.renew(wire, fifth)
    note("renewed, and the same", lease.seen_short(wire, mirror) == seen)
    lease.shorten(wire, fifth, False)
    note("made longer", (lease.seen_short(wire, mirror), told(lambda: lease.confirm(wire, fifth))))
    lease.shorten(wire, fifth, True)
    sixth = lease.take(wire, mirror, to_end=True, short=lease.seen_short(wire, mirror))
    note("taken behind a short one", (token(sixth, fifth), told(lambda: lease.shorten(wire, fifth, False)), shown()))


@case
def decisions(a: Side, note: Note) -> None:
    one, other, key = a.ledger(), a.ledger(), f"{a.name}/k"

    def mine(values: Any) -> dict[str, Any]:
        return {k: v for k, v in values.items() if k.startswith(a.name)}

    note("nothing", mine(one.values()))
    note("decided", one.decide(lambda _: {key: 1}))
    note("another reader", mine(other.values()))
    note("nothing to change", one.decide(lambda _: None))
    note(
        "on what the other decided", (other.decide(lambda v: {key: v[key] + 1}), one.decide(lambda v: {key: v[key] + 1}))
    )
    note("read", (mine(one.values()), mine(other.values())))
    note("both in one", (one.decide(lambda v: {key: None, f"{key}2": [v[key]]}), mine(other.values())))
    now_ms = a.now_ms()
    note("time", abs(one.time_ms(f"{key}2") - now_ms) < 60_000)
    note("never", one.time_ms(f"{a.name}/never"))
    note("in time", one.decide(lambda _: {key: "in time"}, until_ms=now_ms + 600_000))
    note("late", told(lambda: one.decide(lambda _: {key: "late"}, until_ms=now_ms - 600_000)))
    note("read", mine(other.values()))
    a.append(b"noise")
    note("noise", mine(other.values()))

    def fails(_: Any) -> None:
        raise LookupError("no")

    try:
        one.decide(fails)
    except LookupError as e:
        note("what it raises ends it", e)
    note("read", mine(one.values()))


@case
def state(a: Side, note: Note) -> None:
    all_of, some, none = a.state(f"{a.name}/"), a.state(f"{a.name}/a/"), a.state(f"{a.name}/no/")

    def shown() -> tuple[Any, ...]:
        return {k: v for k, v in all_of.read().items() if k.startswith(a.name)}, dict(some.read()), dict(none.read())

    note("nothing", shown())
    some.write({f"{a.name}/a/1": b"one", f"{a.name}/b": b"two"})
    note("written", shown())
    all_of.write({f"{a.name}/a/1": None, f"{a.name}/a/2": b"three", f"{a.name}/b": b"four"})
    note("changed", shown())
    none.write({})
    note("nothing more", shown())
    note("without a prefix", dict(a.state().read()))
