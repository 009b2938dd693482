"""Mirror: the declaration of a one-way flow between two clusters. No sockets, no clock.

Users write Mirrors, plans and jobs are made from them, and they are sent to Spark. A Mirror therefore holds names of
connections, never their contents: it can't contain a secret.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import Any, cast

from airflow_mirror.common.knobs import (
    anything,
    check,
    knob,
    names,
    of_several,
    one_of,
    seconds,
    share,
    switch,
    text,
    whole,
)
from airflow_mirror.common.nearest import nearest
from airflow_mirror.common.patterns import exact, matches, name_of
from airflow_mirror.common.policy import (
    DRILL_PREFIX,
    OWN_GROUPS,
    OWN_IDS,
    TRACES,
    Policy,
    Principals,
    is_internal,
    is_reserved,
    is_topic_name,
    trace_topics,
)
from airflow_mirror.common.text_files import json_of, read_text, yaml_of
from airflow_mirror.errors import InputError, InvalidField

__all__ = ["Mirror"]

# Defaults of MirrorMaker 2's DefaultGroupFilter, which exclude groups of tools, and our own progress groups.
DEFAULT_EXCLUDED_GROUPS = ("console-consumer-.*", "connect-.*", "__.*", OWN_GROUPS)

# On neither depends a copy; a tail depends on those that it lets follow.
_OF_SCHEMAS = frozenset({"source_registry", "target_registry", "schema_interval_s"})
_OF_RIGHTS = frozenset({"own_principals", "principals"})
COPY_IGNORES = _OF_SCHEMAS | _OF_RIGHTS | {"sync_schemas"}
# Kinds of managed clusters; a test holds them against `plan.targets`.
TARGET_KINDS = (
    "msk", "msk-express", "msk-serverless", "confluent-cloud", "event-hubs", "aiven", "redpanda", "google",
)  # fmt: skip
SHORTEST_HOLD_MS = 3_600_000  # of hold_retention_ms: less is no time to migrate in
_FIELDS = "Write fields such as name, source, target."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REPLICAS = whole(1, "not a replica count", "Use a whole number of brokers, or None.", most=32767)
_FROM_ZERO = whole(0, "not a whole number from 0", "Give a number such as 2000000000.", optional=False)


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """One one-way flow: which topics and groups of ``source`` go to ``target``, and how.

    :param name: identity of the flow; names its directory, its jobs and its writer lease on the target.
    :param source: Airflow connection id (type ``kafka``) of the cluster to read.
    :param target: Airflow connection id (type ``kafka``) of the cluster to write.

    The other fields are knobs: each is declared with its values, its default and what it means, once.

    :raises InvalidField: names the field, its value and the remedy.
    """

    name: str
    source: str
    target: str
    topics: Sequence[str] = knob(
        (".*",), names(commas=True),
        "topic name or regex, which has to match the whole name; as a list, or as one text with commas",
        "--include", "RE",
    )  # fmt: skip
    exclude_topics: Sequence[str] = knob(
        (), names(commas=True), "topic name or regex to leave out; exclusion wins", "--exclude", "RE"
    )
    internal_topics: bool = knob(
        False, switch(),
        "also take topics whose names look internal (__..., ...., MirrorMaker 2's); never Kafka's own, nor what mirrors "
        "keep for themselves",
        "--internal-topics",
    )  # fmt: skip
    groups: Sequence[str] = knob(
        (".*",), names(commas=False), "consumer group name or regex: whose positions move", "--groups", "RE"
    )
    exclude_groups: Sequence[str] = knob(
        DEFAULT_EXCLUDED_GROUPS, names(commas=False), "groups to leave out; exclusion wins"
    )
    sync_groups: bool = knob(
        True, switch(), "a tail keeps the groups' positions on the target where they are on the source"
    )
    group_interval_s: float = knob(5.0, seconds(0.1, 3600), "seconds between two passes over all groups")
    sync_configs: bool = knob(
        True, switch(),
        "a tail keeps the target's topic settings as they are on the source. What is on hold follows when the mirror has "
        "ended",
    )  # fmt: skip
    config_interval_s: float = knob(30.0, seconds(1, 3600), "seconds between two passes over all topics")
    sync_acls: bool = knob(
        False, switch(), "a tail lets the rights of readers follow, as SyncAclsOperator does before the cutover"
    )
    acl_interval_s: float = knob(60.0, seconds(60, 3600), "seconds between two passes over all ACLs")
    remove_acls: bool = knob(
        False, switch(), "a tail also removes ACLs that are gone on the source and that this mirror could have written"
    )
    exclude_configs: Sequence[str] = knob(
        (), names(commas=True),
        "names or patterns of topic settings that are not carried over, besides those that belong to a cluster "
        "(airflow_mirror.plan.configs.EXCLUDED)",
    )  # fmt: skip
    keep_configs: Sequence[str] = knob(
        (), names(commas=True),
        "the same, of settings that an existing target topic keeps. A topic that the mirror creates begins with the "
        "source's value",
    )  # fmt: skip
    use_defaults_from: str = knob(
        "auto", one_of("auto", "source", "target"),
        "what a setting becomes that the source has by default. source: the source's value; target: the target's own "
        "default; auto: the source's if it decides which records a topic keeps and accepts "
        "(airflow_mirror.plan.configs.SURVIVES), else the target's",
    )  # fmt: skip
    sync_topics: bool = knob(True, switch(), "a tail takes in topics that appear, and partitions that are added")
    topic_interval_s: float = knob(30.0, seconds(0.1, 3600), "seconds between two looks for them")
    sync_log_starts: bool = knob(True, switch(), "a tail deletes on the target what the source's retention has deleted")
    log_start_delay_s: float = knob(86_400.0, seconds(60, 10**9), "seconds that pass in between")
    compacted_hold: str = knob(
        "delete", one_of("delete", "lag"),
        "how compacted topics of the target keep every record while the mirror writes. delete: by cleanup.policy=delete "
        "until the backlog has arrived; lag: with the source's cleanup.policy, by the longest min.compaction.lag.ms, for "
        "a target that lets no topic's policy change. Then no record lacks a key, and no log with compact alone starts "
        "above 0",
    )  # fmt: skip
    hold_retention_ms: int | None = knob(
        None, whole(
            SHORTEST_HOLD_MS, "no time to migrate in",
            f"Give milliseconds from {SHORTEST_HOLD_MS} (an hour), or None: nothing is deleted.",
        ),
        "retention.ms of the target's topics while the mirror writes, where the target refuses -1; no record of the "
        "source may be that old (airflow_mirror.plan.finite_hold); without it -1, for ever",
        "--hold-retention-ms", "MS",
    )  # fmt: skip
    traces: Sequence[str] = knob(
        (), of_several(TRACES),
        "what a tail writes on the target for Java clients, as MirrorMaker 2 does: heartbeats, checkpoints, "
        "offset-syncs, as a list or as one text with commas. Nothing is written on the source",
    )  # fmt: skip
    target_alias: str | None = knob(
        None, text(remedy="Name the target cluster."),
        "the target's name in heartbeats; without it the target's connection id. The source's is source_alias",
    )  # fmt: skip
    heartbeat_interval_s: float = knob(1.0, seconds(0.1, 3600), "seconds between two heartbeats")
    checkpoint_interval_s: float = knob(
        60.0, seconds(0.1, 3600), "seconds between two passes over checkpoints and offset-syncs"
    )
    trace_replication_factor: int | None = knob(
        None, _REPLICAS, "of the topics of traces; without it 3, capped by the target's broker count"
    )
    policy: str = knob(
        "identity", anything(),
        "topic names on the target: identity keeps them, prefix prepends source_alias and separator, module:Class names "
        "them itself (airflow_mirror.common.policy.Policy)",
        "--policy", "identity|prefix|MODULE:CLASS",
    )  # fmt: skip
    source_alias: str | None = knob(
        None, text(remedy="Name the source cluster."),
        "the prefix of policy prefix; without it the source's connection id", "--source-alias", "A",
    )  # fmt: skip
    separator: str = knob(".", anything(), "between the prefix and the topic's name", "--separator", "S")
    principals: Mapping[str, str] = knob(
        {}, anything(),
        "names on the target of the source's principals, for ACLs, quotas and SCRAM users "
        "(airflow_mirror.common.policy.Principals). The others keep their names",
    )  # fmt: skip
    own_principals: Mapping[str, str] = knob(
        {}, anything(lambda _, value: own_principals(value)),
        "the mirror's own principal on the source and on the target, such as User:CN=mirror, where a connection does not "
        "say it: brokers make it of a certificate or a token. Its rights are never touched",
    )  # fmt: skip
    source_registry: str | None = knob(
        None, anything(lambda name, value: _registry(name, value)),
        "the source's schema registry: an address, a file of properties, or an Airflow connection. With both, a cutover "
        "is refused unless the schema ids in the topics mean the same in both",
        "--source-registry", "REGISTRY",
    )  # fmt: skip
    target_registry: str | None = knob(
        None, anything(lambda name, value: _registry(name, value)), "the target's", "--target-registry", "REGISTRY"
    )
    sync_schemas: bool = knob(
        False, switch(),
        "a tail registers in target_registry what source_registry has and it lacks, with the same ids; a cutover brings "
        "the last ones. Nothing that it has is changed: what differs is reported",
    )  # fmt: skip
    schema_interval_s: float = knob(60.0, seconds(1, 86_400), "seconds between two passes over both registries")
    offsets: str = knob(
        "auto", one_of("auto", "identical", "mapped"),
        "identical keeps every offset; mapped keeps an exact offset map instead; auto keeps the offsets of each topic as "
        "long as the budgets and the rights allow it, and says why if they don't",
        "--offsets",
    )  # fmt: skip
    target_kind: str = knob(
        "auto", one_of("auto", "kafka", *TARGET_KINDS),
        "what the target is, for what such a cluster fixes and forbids (airflow_mirror.plan.targets); auto goes by its "
        "addresses, kafka: none of the managed ones",
        "--target-kind", "KIND",
    )  # fmt: skip
    partitioning: str = knob(
        "preserve", one_of("preserve", "by_key"),
        "by_key: records go to the partition that Kafka's Java producer would choose on a target topic of any partition "
        "count. Offsets are then not translated: groups don't move, nothing is compared",
        "--partitioning",
    )  # fmt: skip
    start: str = knob(
        "earliest", anything(lambda name, value: value if value in ("earliest", "latest") else _is_time(name, value)),
        "where a partition begins that is not yet on the target; ISO 8601 with a zone", "--start", "earliest|latest|ISO",
    )  # fmt: skip
    start_group: str | None = knob(
        None, text("no group id", "Name a consumer group of the source.", empty=False),
        "a consumer group on the source: a partition in which it has a position begins there, the others as start says. "
        "Give the group of an older tool that this mirror takes over from, once that tool has stopped",
        "--start-group", "GROUP",
    )  # fmt: skip
    start_overlap: str = knob(
        "search", one_of("search", "none"),
        "with start_group: search finds what that tool wrote after its last commit, so that it is not copied again "
        "(airflow_mirror.sync.overlap); none: it ended cleanly, there is nothing",
        "--start-overlap",
    )  # fmt: skip
    isolation: str = knob(
        "read_committed", one_of("read_committed", "read_uncommitted"),
        "read_committed skips aborted records (as holes); read_uncommitted copies them", "--isolation",
    )  # fmt: skip
    replication_factor: int | None = knob(
        None, _REPLICAS,
        "of topics created on the target; without it that of the kind of target, or the source's, capped by the target's "
        "broker count",
    )  # fmt: skip
    prime_budget: int = knob(  # 5.5 minutes (measured: 6 M offsets/s)
        2_000_000_000, _FROM_ZERO, "most offsets to fill below the first record of a partition", "--prime-budget", "N"
    )
    hole_budget: float = knob(
        0.5, share(), "largest share of a topic's offsets that may be filled with markers; 0 allows no hole",
        "--hole-budget", "SHARE",
    )  # fmt: skip
    hole_budget_bytes: int = knob(  # 100 million markers: half an hour in bulk on one partition (54 k/s)
        8_000_000_000, _FROM_ZERO, "most bytes of markers (78 each) that a topic may cost on the target, per replica"
    )
    compacted_filler: str = knob(
        "markers", one_of("markers", "tombstones"),
        "what fills holes of compacted topics: markers, which no consumer sees, or tombstones of a reserved key, which "
        "consumers see until the target's log cleaner has removed them",
        "--compacted-filler",
    )  # fmt: skip
    delivery: str = knob(
        "idempotent", one_of("idempotent", "transactional"),
        "transactional: in transactions that also commit the progress, for read_committed consumers that must never see "
        "part of a transaction of the mirror. Needs mapped offsets",
        "--delivery",
    )  # fmt: skip
    ownership: str = knob(
        "exclusive", one_of("exclusive", "shared"),
        "exclusive: each target topic has one mirror. shared: several mirrors may write to one target topic, with "
        "transactional delivery only. Order within a partition holds for each source. A position of a group would stand "
        "for all sources, so groups don't move, settings don't follow, and there is no cutover",
        "--ownership",
    )  # fmt: skip
    max_bytes_per_second: int | None = knob(
        None, whole(1, "not a rate", "Give bytes per second, or None for no limit."),
        "average write rate of a job to the target, over all its tasks; without it there is no limit",
        "--max-bytes-per-second", "N",
    )  # fmt: skip
    merge_below: int = knob(
        65536, _FROM_ZERO,
        "in bytes, uncompressed; waiting batches that are smaller than this on average are merged, with lz4 and snappy "
        "half of it, with zstd a third, with gzip a 32nd; 0 never. Without the compiled heart, no more than 1024 counts",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidField(
                "name", self.name, "not usable as a directory and job name", "Use 1-128 letters, digits, '.', '_', '-'."
            )
        self._check_ends()
        check(self)
        if not self.topics:
            raise InvalidField("topics", [], "nothing to mirror", "Give at least one topic name or regex.")
        if (self.source_registry is None) != (self.target_registry is None):
            given = "target_registry" if self.source_registry is None else "source_registry"
            raise InvalidField(given, getattr(self, given), "only one of both registries is named", "Name both, or none.")
        if self.sync_schemas and self.source_registry is None:
            raise InvalidField(
                "sync_schemas", True, "no registries are named", "Set source_registry and target_registry."
            )
        self._check_mapping()
        _ = self.naming, Principals(self.principals)  # rejects an unknown policy here, with its field
        self._check_traces()

    def _check_ends(self) -> None:
        for end in ("source", "target"):
            value = getattr(self, end)
            if not isinstance(value, str) or not value:
                shown = "(a mapping)" if isinstance(value, Mapping) else value  # perhaps of settings, a secret among them
                raise InvalidField(end, shown, "no connection id", "Name a connection of type kafka.")
        if self.source == self.target:
            raise InvalidField(
                "target", self.target, "source and target are the same connection", "Name two different clusters."
            )

    def _check_mapping(self) -> None:
        for name, value in (("delivery", "transactional"), ("partitioning", "by_key")):
            if getattr(self, name) == value and self.offsets == "identical":
                raise InvalidField(name, value, "it can't keep offsets identical", "Use offsets='auto' or 'mapped'.")
        if self.delivery == "transactional" and self.partitioning == "by_key":
            raise InvalidField("delivery", self.delivery, "not together with by_key", "Use partitioning='preserve'.")
        if self.shares and self.delivery != "transactional":
            raise InvalidField(
                "ownership", self.ownership, "where others write, the log does not say how far a copy got",
                "Use delivery='transactional', or policy='prefix' with a topic for each source.",
            )  # fmt: skip
        if self.shares and self.hold_retention_ms is not None:
            raise InvalidField(
                "hold_retention_ms", self.hold_retention_ms,
                "ownership='shared': mirrors of one topic would set it back, each to its own", "Leave it out.",
            )  # fmt: skip
        for name, cause in (
            ("sync_groups", "a position on a shared topic stands for the records of all its sources"),
            ("sync_configs", "the sources would set each other's settings for ever"),
            ("sync_acls", "readers of one source's records would be given another's"),
        ):
            if self.shares and getattr(self, name):
                raise InvalidField(name, True, f"ownership='shared': {cause}", f"Use {name}=False.")

    def _check_traces(self) -> None:
        """Refuse traces that could not be written, or would be wrong."""
        alias = self.source_alias or self.source
        if "heartbeats" in self.traces and self.separator in alias:
            raise InvalidField(
                "source_alias", alias, f"traces: clients take what is before {self.separator!r} for the cluster",
                "Give an alias without the separator, or another separator.",
            )  # fmt: skip
        for kind in self.traces:
            if kind == "heartbeats":
                continue
            if self.partitioning == "by_key":
                raise InvalidField("traces", kind, "partitioning='by_key': offsets have no counterpart", "Leave it out.")
            if self.shares:
                raise InvalidField(
                    "traces", kind, "ownership='shared': a position stands for all sources of a topic", "Leave it out."
                )
        for topic in self.trace_topics:
            if not is_topic_name(topic):
                raise InvalidField(
                    "source_alias", alias, f"{topic!r} would be no name of a topic",
                    "Give the alias that Java clients use: letters, digits, '.', '_', '-'.",
                )  # fmt: skip

    @property
    def naming(self) -> Policy:
        """The naming policy as a value."""
        return Policy(self.policy, self.source_alias or self.source, self.separator, self.internal_topics)

    @property
    def begins_once(self) -> bool:
        """Whether where it begins is a moment's, so that it is found once and then remembered."""
        return self.start == "latest" or self.start_group is not None

    @property
    def trace_topics(self) -> tuple[str, ...]:
        """The topics on the target that hold this mirror's traces."""
        return tuple(name for kind in self.traces for name in self.trace_topics_of(kind))

    def trace_topics_of(self, kind: str) -> tuple[str, ...]:
        """Return the topics of one kind of traces; see :func:`.policy.trace_topics`."""
        return trace_topics(kind, self.source_alias or self.source, self.separator)

    @property
    def shares(self) -> bool:
        """Whether other mirrors may write to the same target topics."""
        return self.ownership == "shared"

    @property
    def may_keep_offsets(self) -> bool:
        """Whether offsets of some topic may stay identical; ``auto`` decides that for each topic."""
        mapped = self.offsets == "mapped" or self.delivery == "transactional" or self.partitioning == "by_key"
        return not mapped

    @property
    def tail_ignores(self) -> frozenset[str]:
        """Fields on which this mirror's tail does not depend: they may change while it runs. A bulk copy never does."""
        return (frozenset() if self.sync_acls else _OF_RIGHTS) | (frozenset() if self.sync_schemas else _OF_SCHEMAS)

    def selects_topic(self, topic: str) -> bool:
        """Return whether the source topic ``topic`` belongs to this flow."""
        kept_out = is_reserved(topic) or (is_internal(topic, self.separator) and not self.internal_topics)
        return self.names_topic(topic) and not kept_out and not self.is_displaced(topic)

    def names_topic(self, topic: str) -> bool:
        """Return whether the patterns are for ``topic``, be it internal or not.

        A drill's topic is for who names it, as its own mirror does: no pattern means what the drill deletes again.
        """
        if topic.startswith(DRILL_PREFIX) and topic not in self.topics and exact(topic) not in self.topics:
            return False
        return matches(self.topics, topic) and not matches(self.exclude_topics, topic)

    def is_displaced(self, topic: str) -> bool:
        """Return whether the source topic ``topic`` would lie where the mirror writes its own heartbeats."""
        prefix = self.naming.target_prefix("")
        return prefix is not None and prefix + topic in self.trace_topics

    def selects_group(self, group: str) -> bool:
        """Return whether the consumer group ``group`` belongs to this flow.

        Those of mirrors never do, whatever the patterns say: their positions are no reader's, and mean one cluster alone.
        """
        return matches(self.groups, group) and not (matches(self.exclude_groups, group) or group.startswith(OWN_IDS))

    @property
    def named_groups(self) -> tuple[str, ...]:
        """Those of ``groups`` that are names: who asks for one of them hears of it, also where none is listed."""
        return tuple(name for name in map(name_of, self.groups) if name is not None and self.selects_group(name))

    @property
    def names_its_groups(self) -> bool:
        """Whether ``groups`` holds names alone: then nothing depends on which groups a cluster lists."""
        return None not in map(name_of, self.groups)

    def leaves_behind(self, group: str) -> bool:
        """Return whether ``group`` may be a reader's, and does not belong to this flow."""
        return not (self.selects_group(group) or group.startswith(OWN_IDS))

    def excludes_config(self, key: str) -> bool:
        """Return whether the topic setting ``key`` is not carried over."""
        return matches(self.exclude_configs, key)

    def keeps_config(self, key: str) -> bool:
        """Return whether an existing target topic keeps its own ``key``."""
        return matches(self.keep_configs, key)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; ``from_dict`` is its inverse."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Mirror:
        """Build from a dict of the constructor's fields.

        :raises InvalidField: a key is unknown or missing, or has a bad value.
        """
        known = {f.name for f in fields(cls)}
        for key in values:
            if key not in known:
                meant = nearest(str(key), known)
                remedy = f"Correct or remove it.{meant}" if meant else f"Known: {', '.join(sorted(known))}."
                # No value: it may be of a connection's setting, and a secret.
                raise InvalidField(str(key), "(set)", "a Mirror has no such field", remedy)
        for key in ("name", "source", "target"):
            if key not in values:
                raise InvalidField(key, None, "required", "Add it to the Mirror.")
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | Path) -> Mirror:
        """Build from a YAML or JSON file.

        :raises InputError: the file is missing, is not a mapping, or has a key twice; InvalidField as in ``from_dict``.
        """
        text = read_text(Path(path), f"mirror file {str(path)!r}")
        try:
            values = json_of(text) if str(path).endswith(".json") else yaml_of(text)
        except ValueError as e:
            raise InputError(f"mirror file {str(path)!r} can't be read as YAML or JSON", str(e)) from e
        except RecursionError:
            raise InputError(
                f"mirror file {str(path)!r}", "it is nested too deeply for a mapping of fields", _FIELDS
            ) from None
        if not isinstance(values, dict):
            raise InputError(f"mirror file {str(path)!r}", "it holds no mapping of fields", _FIELDS)
        return cls.from_dict(values)

    @classmethod
    def from_properties(cls, *paths: str | Path, clusters: Collection[str] = ()) -> list[Mirror]:
        """Return one Mirror for each enabled ``A->B`` of MirrorMaker 2's file, or of the files of its connectors.

        Secrets need not be here: they belong into the connections that the Mirrors name, ``kafka_A`` and ``kafka_B``;
        ``airflow-mirror import-mm2`` makes them.

        :param clusters: only flows into these, by their aliases; empty: all.
        :raises InputError: names each key that can't be kept.
        :raises InputError: a file can't be read, or no flow leads into one of ``clusters``.
        """
        from airflow_mirror.compat import files

        brought = files.read([Path(p) for p in paths], secrets=False)
        return [cls.from_dict(one) for one in brought.into(clusters).values()]

    @classmethod
    def coerce(cls, value: Mirror | Mapping[str, Any] | str | Path) -> Mirror:
        """Accept what operators accept: a Mirror, a dict or a path."""
        if isinstance(value, Mirror):
            return value
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        return cls.from_file(value)


def own_principals(value: object) -> dict[str, str]:
    """Return a mirror's own principals by role; None is none.

    :raises InvalidField: a role does not exist, or a principal is none.
    """
    given = {} if value is None else value
    if not isinstance(given, Mapping) or not all(
        role in ("source", "target") and ":" in str(name) for role, name in given.items()
    ):
        raise InvalidField(
            "own_principals", value, "not principals by role", 'Give {"target": "User:..."}, "source", or both.'
        )
    return {str(role): str(name) for role, name in given.items()}


def _registry(name: str, value: object) -> object:
    if value is not None and (not isinstance(value, str) or not value):
        raise InvalidField(name, value, "no registry", "Give an address, a file of properties or a connection id.")
    if isinstance(value, str) and "://" in value and "@" in value:
        raise InvalidField(
            name, value.rpartition("@")[2], "an address with a password: plans are stored, and shown",
            "Put it into a connection, or into a file of properties, and name that.",
        )  # fmt: skip
    return value


def _is_time(name: str, when: object) -> object:
    time_ms(name, when)
    return when


def time_ms(name: str, when: object) -> int:
    """Return an ISO 8601 time in ms since the epoch. It has a zone: without one it would be another time on each host.

    :param name: of the field that has it.
    :raises InvalidField: it is no such time.
    """
    if isinstance(when, date):  # as YAML reads a time without quotes
        raise InvalidField(name, str(when), "not text", "Put it in quotes, with a zone, as '2026-01-31T00:00:00+00:00'.")
    try:
        parsed = datetime.fromisoformat(cast("str", when))
    except (TypeError, ValueError) as e:
        raise InvalidField(name, when, "not a point in time", "Use an ISO 8601 time, or 'latest'.") from e
    if parsed.tzinfo is None:
        raise InvalidField(name, when, "has no time zone", "Add one, for example 2026-01-31T00:00:00+00:00.")
    return round(parsed.timestamp() * 1000)
