"""A view of the cluster as one actor's :class:`airflow_mirror.kafka.admin.ClusterAdmin`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeVar

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, GroupActive, MirrorError, MissingRight, RequestRefused, TryAgain
from airflow_mirror.kafka.acls import OPEN_BY_DEFAULT
from airflow_mirror.kafka.model import (
    Acl,
    ConfigEntry,
    GroupCommit,
    GroupInfo,
    GroupPosition,
    NewTopicSpec,
    Replicas,
    TopicInfo,
)
from airflow_mirror.kafka.transactions import OpenTransaction
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.errors import ConnectionLost, acl_missing
from tests.memory.asking import NOTHING, Ask, at_once, touching
from tests.memory.rules import OPERATIONS, matches
from tests.memory.wire import MemoryWire, out_of_reach

if TYPE_CHECKING:
    from airflow_mirror.common.partition import TopicPartition
    from airflow_mirror.kafka.permit import Permit
    from tests.memory.cluster import MemoryCluster

T = TypeVar("T")
Positions = dict["TopicPartition", GroupPosition]

# Those of a topic that the code looks at, as a broker of 4.4.0 has them.
DEFAULTS = {
    "cleanup.policy": "delete", "max.message.bytes": "1048588", "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1", "retention.bytes": "-1", "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}  # fmt: skip
_SPECS = {"earliest": "log_start", "latest": "high_watermark", "latest_committed": "last_stable"}
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


class MemoryAdmin:
    """See the module. :param principal: of the actor."""

    def __init__(self, cluster: MemoryCluster, ask: Ask = at_once, principal: str = "User:mirror") -> None:
        self.cluster, self.principal = cluster, principal
        self.config = ClientConfig({"bootstrap.servers": f"memory-{cluster.role}:9092"}, cluster.role)
        self.wire = MemoryWire(cluster, ask, principal)
        self._hook = ask

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        """Nothing to close."""

    @property
    def role(self) -> str:
        """See ClusterAdmin."""
        return self.cluster.role

    # --- the cluster ---

    def cluster_id(self) -> str:
        """See ClusterAdmin."""
        return self._ask("cluster id", lambda: self.cluster.cluster_id)

    def broker_count(self) -> int:
        """See ClusterAdmin."""
        return self._ask("count brokers", lambda: len(self.cluster.brokers))

    def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
        """See ClusterAdmin; only whether resources are open by default."""
        entry = ConfigEntry(value=str(self.cluster.rules.open_by_default).lower())
        return self._ask("broker configs", lambda: {broker: {OPEN_BY_DEFAULT: entry} for broker in self.cluster.brokers})

    def usable_bytes(self) -> dict[int, int | None]:
        """See ClusterAdmin; nobody knows."""
        return dict.fromkeys(self.cluster.brokers)

    # --- topics ---

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        """See ClusterAdmin."""

        def found() -> dict[str, TopicInfo]:
            known = self.cluster.topics
            wanted = sorted(known if names is None else known.keys() & set(names))
            return {n: TopicInfo(n, known[n].topic_id, len(known[n].logs), 1) for n in wanted}

        return self._ask(f"describe topics {_some(names)}", found, touching("topic", *(names or ())))

    def topic_names(self) -> list[str]:
        """See ClusterAdmin."""
        return list(self.topics())

    def replicas(self, names: Collection[str]) -> dict[TopicPartition, Replicas]:
        """See ClusterAdmin: one of each partition."""

        def found() -> dict[TopicPartition, Replicas]:
            there = [self.cluster.topics[n] for n in sorted(set(names)) if n in self.cluster.topics]
            return {log.tp: Replicas(1, 1) for topic in there for log in topic.logs}

        return self._ask(f"replicas of {_some(names)}", found, touching("topic", *names))

    def topic_configs(self, names: Collection[str]) -> dict[str, dict[str, ConfigEntry]]:
        """See ClusterAdmin; of the defaults only :data:`DEFAULTS`."""

        def found() -> dict[str, dict[str, ConfigEntry]]:
            entries = {}
            for name in sorted(set(names)):
                topic = self._topic("describe configs", name)
                own = {k: ConfigEntry(value=v, source="DYNAMIC_TOPIC_CONFIG") for k, v in topic.configs.items()}
                given = {k: ConfigEntry(value=v, is_default=True, source="DEFAULT_CONFIG") for k, v in DEFAULTS.items()}
                entries[name] = given | own
            return entries

        return self._ask(f"configs of {_some(names)}", found, touching("topic", *names))

    def create_topics(self, specs: Iterable[NewTopicSpec], permit: Permit) -> None:
        """See ClusterAdmin."""
        specs = list(specs)
        names = [spec.name for spec in specs]

        def create() -> None:
            for spec in specs:
                if spec.name in self.cluster.topics:
                    raise self._broker_error(f"create topic {spec.name!r}", ErrorCode.TOPIC_ALREADY_EXISTS)
                self.cluster.create(spec.name, spec.partitions, spec.configs)

        self._ask(f"create topics {_some(names)}", create, touching("topic", *names), effect=True, check=permit)

    def grow_partitions(self, topic: str, total: int, permit: Permit) -> None:
        """See ClusterAdmin."""

        def grow() -> None:
            if total < len(self._topic("grow", topic).logs):
                code = ErrorCode.INVALID_PARTITIONS
                raise RequestRefused(f"grow to {total} partitions topic {topic!r}", code, error_name(code))
            self.cluster.grow(topic, total)

        self._ask(f"grow {topic} to {total}", grow, touching("topic", topic), effect=True, check=permit)

    def delete_topics(self, names: Collection[str], permit: Permit) -> None:
        """See ClusterAdmin."""

        def delete() -> None:
            for name in names:
                self._topic("delete", name)
                del self.cluster.topics[name]

        self._ask(f"delete topics {_some(names)}", delete, touching("topic", *names), effect=True, check=permit)

    def delete_topic(self, name: str, topic_id: str, permit: Permit) -> None:
        """See ClusterAdmin."""

        def delete() -> None:
            if name in self.cluster.topics and self.cluster.topics[name].topic_id == topic_id:
                del self.cluster.topics[name]

        self._ask(f"delete topic {name} of its id", delete, touching("topic", name), effect=True, check=permit)

    def alter_topic_configs(
        self, topic: str, permit: Permit, set: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> None:  # fmt: skip
        """See ClusterAdmin."""

        def alter() -> None:
            configs = self._topic("alter configs", topic).configs
            configs.update(set or {})
            for key in delete:
                configs.pop(key, None)

        self._ask(f"alter configs of {topic}", alter, touching("topic", topic), effect=True, check=permit)

    # --- offsets ---

    def offsets(self, partitions: Iterable[TopicPartition], spec: str | int = "latest") -> dict[TopicPartition, int]:
        """See ClusterAdmin."""
        if isinstance(spec, int):
            return self.wire.offsets_for_time(partitions, spec)
        return self.wire._each(f"{spec} offsets", partitions, lambda log: int(getattr(log, _SPECS[spec])))

    def delete_records(self, before: Mapping[TopicPartition, int], permit: Permit) -> dict[TopicPartition, int]:
        """See ClusterAdmin."""
        return self.wire.delete_records(before, permit)

    # --- groups ---

    def groups(self, *, every: bool = False) -> list[GroupInfo]:
        """See ClusterAdmin."""
        known = self.cluster.groups.committed.keys() | self.cluster.members.keys()
        return self._ask("list groups", lambda: [self.cluster.group(group) for group in sorted(known)], touching("group"))

    def describe_groups(self, ids: Collection[str]) -> dict[str, GroupInfo]:
        """See ClusterAdmin."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}
        what = f"describe groups {_some(wanted)}"
        return self._ask(what, lambda: {group: self.cluster.group(group) for group in wanted}, touching("group", *wanted))

    def unseen_groups(self, ids: Collection[str]) -> list[str]:
        """See ClusterAdmin."""
        return [group for group, allowed in self.allowed_on_groups(ids).items() if "DESCRIBE" not in allowed]

    def group_states(self, ids: Collection[str]) -> dict[str, str]:
        """See ClusterAdmin."""
        return {group: info.state for group, info in self.describe_groups(ids).items()}

    def group_offsets(self, group: str) -> Positions:
        """See ClusterAdmin."""
        return self.groups_offsets([group])[group]

    def groups_offsets(
        self, ids: Collection[str], only: Mapping[str, Collection[TopicPartition]] | None = None
    ) -> dict[str, Positions]:
        """See ClusterAdmin."""
        wanted = sorted(set(ids))
        if not wanted:
            return {}

        def found() -> dict[str, Positions]:
            return {
                g: {tp: p for tp, p in sorted(self.cluster.positions(g).items()) if only is None or tp in only[g]}
                for g in wanted
            }

        return self._ask(f"positions of {_some(wanted)}", found, touching("group", *wanted))

    def groups_offsets_apart(
        self, ids: Collection[str], patience_s: float = 2.0, *, stable: bool = True
    ) -> tuple[dict[str, Positions], dict[str, MirrorError]]:
        """See ClusterAdmin. No transaction holds an offset commit here."""
        return self.groups_offsets(ids), {}

    def commit_groups(
        self, wanted: Mapping[str, Mapping[TopicPartition, GroupPosition]], permit: Permit
    ) -> dict[str, GroupCommit]:
        """See ClusterAdmin: a request for each group."""
        commits = {group: GroupCommit() for group in wanted}
        refused: TryAgain | None = None
        for group, positions in wanted.items():
            commit = commits[group]
            try:
                if refused is not None:
                    raise refused
                if code := self._commit(group, positions, permit):
                    commit.active = code == ErrorCode.UNKNOWN_MEMBER_ID
                    commit.error, commit.refused = self._refusal(group, positions, code), set(positions)
                else:
                    commit.done = set(positions)
            except ConnectionLost as e:
                commit.error = e
            except TryAgain as e:  # the permit is gone: not a byte was sent
                refused, commit.error, commit.refused = e, e, set(positions)
        return commits

    def commit_group_offsets(self, group: str, positions: Mapping[TopicPartition, GroupPosition], permit: Permit) -> None:
        """See ClusterAdmin."""
        code = self._commit(group, positions, permit)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            raise GroupActive(group, self.role, "not empty")
        if code:
            raise self._refusal(group, positions, code)

    def forget_group_offsets(self, group: str, partitions: Collection[TopicPartition], permit: Permit) -> None:
        """See ClusterAdmin."""

        def forget() -> None:
            code = ErrorCode.NONE
            if not all(self.cluster.has(tp) for tp in partitions):
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif self.cluster.group(group).has_members:
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if code:
                raise self._broker_error(f"delete offset of consumer group {group!r}", code)
            there = self.cluster.groups.committed.get(group, {})
            for tp in partitions:
                there.pop(tp, None)

        if partitions:
            self._ask(
                f"forget positions of {group} in {_places(partitions)}", forget, touching("group", group), effect=True,
                check=permit, may_be_late=True,
            )  # fmt: skip

    def _commit(self, group: str, positions: Mapping[TopicPartition, GroupPosition], permit: Permit) -> ErrorCode:
        if not positions:
            return ErrorCode.NONE
        to = ", ".join(f"{tp} to {position.offset}" for tp, position in sorted(positions.items()))
        return self._ask(
            f"set {group} at {to}", lambda: self.cluster.commit(group, positions), touching("group", group), effect=True,
            check=permit, may_be_late=True,
        )  # fmt: skip

    def _refusal(self, group: str, positions: Mapping[TopicPartition, GroupPosition], code: ErrorCode) -> MirrorError:
        return self._broker_error(f"set offset of consumer group {group!r} at {min(positions)}", code)

    # --- ACLs ---

    def describe_acls(self, **match: str | None) -> list[Acl]:
        """See ClusterAdmin; the broker with the lowest id is asked."""
        what = " ".join(["describe ACLs", *(value for value in match.values() if value)])
        return self._ask(what, lambda: self._rules(1, **match), touching("acl", match.get("resource_type") or "*"))

    def acls_by_broker(self, **match: str | None) -> dict[int, list[Acl]]:
        """See ClusterAdmin."""
        kind = match.get("resource_type")
        return self._ask(
            f"describe ACLs {kind or ''} at each broker",
            lambda: {broker: self._rules(broker, **match) for broker in self.cluster.brokers},
            touching("acl", kind or "*"),
        )  # fmt: skip

    def create_acls(self, rules: Collection[Acl], permit: Permit) -> None:
        """See ClusterAdmin."""
        if rules:
            self._ask(
                f"create {_rules(rules)}", lambda: self.cluster.create_acls(*rules), _touched(rules), effect=True,
                check=permit, may_be_late=True,
            )  # fmt: skip

    def delete_acls(self, rules: Collection[Acl], permit: Permit) -> list[Acl]:
        """See ClusterAdmin."""
        if not rules:
            return []
        return self._ask(
            f"delete {_rules(rules)}", lambda: self.cluster.delete_acls(*rules), _touched(rules), effect=True,
            check=permit, may_be_late=True,
        )  # fmt: skip

    def allowed_on_topics(self, names: Collection[str]) -> dict[str, frozenset[str]]:
        """See ClusterAdmin: topics that exist."""
        return self._allowed("TOPIC", [n for n in names if n in self.cluster.topics])

    def allowed_on_groups(self, ids: Collection[str]) -> dict[str, frozenset[str]]:
        """See ClusterAdmin."""
        return self._allowed("GROUP", ids)

    def allowed_on_cluster(self) -> dict[str, frozenset[str]]:
        """See ClusterAdmin."""
        return self._allowed("CLUSTER", ["kafka-cluster"])

    def lacking_on_topics(self, needed: Mapping[str, Collection[str]]) -> dict[str, list[MissingRight]]:
        """See ClusterAdmin."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

        def found() -> dict[str, list[MissingRight]]:
            lacks = {
                name: [
                    acl_missing(f"{self.role} cluster", code, self.principal, _option(one), "topic", name)
                    for one in sorted(operations) if not self.cluster.allows(self.principal, one, name)
                ]
                for name, operations in needed.items()
            }  # fmt: skip
            return {name: errors for name, errors in lacks.items() if errors}

        return self._ask(f"rights on {_some(needed)}", found, touching("acl", "TOPIC"))

    def _allowed(self, kind: str, names: Collection[str]) -> dict[str, frozenset[str]]:
        def found() -> dict[str, frozenset[str]]:
            mine = {
                n: frozenset(o for o in OPERATIONS[kind] if self.cluster.allows(self.principal, o, n, kind))
                for n in sorted(set(names))
            }
            return {n: its if "DESCRIBE" in its else frozenset() for n, its in mine.items()}  # nothing is told of others

        return self._ask(f"rights on {kind} {_some(names)}", found, touching("acl", kind)) if names else {}

    def _rules(self, broker: int, **fields: str | None) -> list[Acl]:
        rules = self.cluster.rules.at(broker, self.cluster.now_ms)
        return sorted(rule for rule in rules if matches(rule, **fields))

    # --- transactions ---

    def open_transactions(self) -> list[OpenTransaction]:
        """See ClusterAdmin."""

        def found() -> list[OpenTransaction]:
            return [
                OpenTransaction(
                    transactional_id=name, producer_id=one.producer_id, epoch=one.epoch, state=one.state,
                    started_ms=one.started_ms, partitions=frozenset(one.partitions),
                )
                for name, one in sorted(self.cluster.transactions.known.items()) if one.state in _OPEN
            ]  # fmt: skip

        return self._ask("open transactions", found, touching("transaction"))

    def transactional_ids(self) -> dict[int, str]:
        """See ClusterAdmin."""
        known = self.cluster.transactions.known
        return self._ask(
            "transactional ids", lambda: {one.producer_id: name for name, one in known.items()}, touching("transaction")
        )

    def transactions_hidden(self) -> str:
        """See ClusterAdmin; none is hidden."""
        return ""

    # --- inside ---

    def _ask(
        self, what: str, do: Callable[[], T], touches: frozenset[str] = NOTHING, *, effect: bool = False,
        check: Permit | None = None, may_be_late: bool = False,
    ) -> T:  # fmt: skip
        what = f"{self.role}: {what}"
        return self._hook(
            what, do, effect=effect, at=self.role, touches=touches, check=check, may_be_late=may_be_late,
            lost=out_of_reach(self.role, what),
        )  # fmt: skip

    def _topic(self, what: str, name: str) -> Any:
        if name not in self.cluster.topics:
            raise self._broker_error(f"{what} of topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.cluster.topics[name]

    def _broker_error(self, what: str, code: ErrorCode) -> MirrorError:
        return BrokerError(f"{self.role} cluster, {what}", code, error_name(code))


def _option(operation: str) -> str:
    """Return an operation as kafka-acls has it: ``DescribeConfigs``."""
    return operation.title().replace("_", "")


def _some(names: Collection[str] | None) -> str:
    return "*" if names is None else ",".join(sorted(names))


def _places(tps: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps)))


def _touched(rules: Iterable[Acl]) -> frozenset[str]:
    return touching("acl", *{rule.resource_type for rule in rules})


def _rules(rules: Iterable[Acl]) -> str:
    """Return rules in words: what, and on which names; of whom, unless it is everybody."""
    grouped: dict[str, list[str]] = {}
    for rule in sorted(rules):
        whose = "" if rule.principal == "User:*" else f" for {rule.principal}"
        grouped.setdefault(f"{rule.permission} {rule.operation}{whose} on {rule.resource_type.lower()} ", []).append(
            rule.name
        )
    return "; ".join(what + ",".join(names) for what, names in grouped.items())
