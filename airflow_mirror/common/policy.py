"""Names on the target: of mirrored topics, of principals, and of a Mirror's own groups, scratch topic, transactional ids.

MirrorMaker 2 calls the rule for topics a replication policy. Functions of names; no cluster is queried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.patterns import invalid_pattern
from airflow_mirror.errors import InvalidField

__all__ = ["Policy"]


_LONGEST = 249  # Kafka's Topic.validate
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]+")
_SEPARATOR = re.compile(r"[A-Za-z0-9._-]+")
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class Planned(str):
    """The policy that a stored plan names. A class is not imported because of it: others may write plans, too."""


@dataclass(frozen=True)
class Policy:
    """How topic names are mapped: ``identity`` keeps them, ``prefix`` prepends ``<alias><separator>``.

    Or by a class of one's own, ``package.module:Class``: it is called without arguments, and what it returns has a method
    ``target_topic(source_topic)``. It is imported where the first name is asked for; whoever carries out a plan takes the
    names from there. Like the others it must give each topic a name of its own, and a check of the plan holds it to that.
    """

    kind: str = "identity"
    source_alias: str = ""
    separator: str = "."
    internal: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("identity", "prefix") and not (isinstance(self.kind, str) and _CLASS.fullmatch(self.kind)):
            raise InvalidField(
                "policy", self.kind, "no such naming policy", "Use 'identity', 'prefix' or 'package.module:Class'."
            )
        if self.kind == "prefix" and not self.source_alias:
            raise InvalidField("source_alias", self.source_alias, "policy='prefix' needs it", "Name the source cluster.")
        # The Go mirror maker's prefixes have none.
        nothing = self.separator == "" and self.kind == "prefix"
        if not nothing and (not isinstance(self.separator, str) or not _SEPARATOR.fullmatch(self.separator)):
            raise InvalidField(
                "separator", self.separator, "not usable in a topic's name", "Use letters, digits, '.', '_' or '-'."
            )
        if self.kind == "prefix" and not _SEPARATOR.fullmatch(self.source_alias):
            cause = "policy='prefix' puts it before the names of topics, and no topic may be called so"
            remedy = "Use letters, digits, '.', '_' or '-'; without it the source's connection gives the prefix."
            raise InvalidField("source_alias", self.source_alias, cause, remedy)

    def target_topic(self, source_topic: str) -> str:
        """Return the name of ``source_topic`` on the target.

        :raises InvalidField: the class can't be loaded or fails, or the name is none that a mirrored topic may have.
        """
        if self.kind == "identity":
            return source_topic
        prefixed = self.target_prefix(source_topic)
        name = self._named(source_topic) if prefixed is None else prefixed
        if not isinstance(name, str) or len(name) > _LONGEST or (prefixed is None and not is_topic_name(name)):
            cause = f"{source_topic!r} would be called {name!r}, which is no name of a topic"
        elif is_reserved(name) or (is_internal(name, self.separator) and not self.internal):
            cause = f"{source_topic!r} would be called {name!r}, which is internal to Kafka or to a mirror"
        else:
            return name
        raise InvalidField("policy", self.kind, cause, "Names have 1 to 249 letters, digits, '.', '_', '-'.")

    def target_prefix(self, source_prefix: str) -> str | None:
        """Return what the target names of all topics begin with whose source names begin with ``source_prefix``.

        None: names of a class follow no pattern.
        """
        prefixes = {"identity": "", "prefix": f"{self.source_alias}{self.separator}"}
        return prefixes[self.kind] + source_prefix if self.kind in prefixes else None

    def _named(self, source_topic: str) -> Any:
        if isinstance(self.kind, Planned):
            raise InvalidField(
                "policy", str(self.kind), "a stored plan names this class, and nothing here does",
                "If it is yours, name it where the job or the command gets its Mirror: policy, or --policy.",
            )  # fmt: skip
        naming = _loaded(self.kind)
        try:
            return naming.target_topic(source_topic)
        except Exception as e:
            raise InvalidField("policy", self.kind, f"target_topic({source_topic!r}) failed: {e!r}", "Correct it.") from e


@cache
def _loaded(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)()
    except Exception as e:  # whatever is wrong with it
        raise InvalidField(
            "policy", path, f"it can't be loaded: {e!r}",
            "Install it where the mirror is planned, as a class that takes no arguments.",
        ) from e  # fmt: skip


EVERYBODY = "User:*"  # the only name of a principal that Kafka's authorizers take for a pattern
_PRINCIPAL = re.compile(r"[^:]+:.+", re.DOTALL)


@dataclass(frozen=True)
class Principals:
    """Which principal of the target one of the source becomes. A principal that nothing maps keeps its name.

    A key is a principal, or between two slashes a regular expression of a whole principal, of whose groups the value may
    make use: ``{r"/User:CN=([^,]+),.*/": r"User:\\1"}``. Without the slashes a dot of a certificate's name would also
    match the names of others, and give them its rights. A name wins over patterns, and patterns have no order: the
    map is stored as JSON.

    :raises InvalidField: a regular expression is invalid, or the value names a group that it does not have.
    :raises InvalidField: a key or value is not a principal, or is that of everybody.
    """

    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.names, Mapping):
            raise InvalidField("principals", self.names, "not a mapping", "Map principals of the source to the target's.")
        for key, value in self.names.items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InvalidField("principals", {key: value}, "not text", "Map names such as User:alice.")
            if not is_pattern(key):
                self._require(key, key)
                self._require(key, value)
                continue
            try:
                re.compile(key[1:-1]).sub(value, "")  # parses the value first, whether or not anything matches
            except (re.error, IndexError) as e:
                raise invalid_pattern("principals", key, f"{e} (-> {value!r})") from e

    def target(self, principal: str) -> str:
        """Return the name of the source's ``principal`` on the target; that of everybody is the same everywhere.

        :raises InvalidField: two patterns disagree about it, or one makes everybody of it.
        """
        if principal == EVERYBODY:
            return principal
        if principal in self.names:
            return self.names[principal]
        found = {
            match.expand(value): key
            for key, value in self.names.items()
            if is_pattern(key) and (match := re.fullmatch(key[1:-1], principal, re.DOTALL))
        }
        if len(found) > 1:
            raise InvalidField(
                "principals", principal, f"patterns disagree: {', '.join(sorted(found))}", "Map this principal by name."
            )
        for value, key in found.items():
            self._require(key, value)
            return value
        return principal

    def yields(self, principal: str) -> bool:
        """Return whether ``principal`` may be the target's name of one of the source."""
        kept = self.target(principal) == principal
        return kept or any(value == principal or is_pattern(key) for key, value in self.names.items())

    def _require(self, key: str, value: str) -> None:
        if value == EVERYBODY:
            raise InvalidField("principals", {key: value}, "names everybody", "Nobody's rights may become everybody's.")
        if not _PRINCIPAL.fullmatch(value):
            raise InvalidField("principals", {key: value}, "not a principal", "Principals look like User:alice.")


def is_pattern(key: str) -> bool:
    """Return whether a key of a map of principals is a regular expression."""
    return len(key) > 2 and key.startswith("/") and key.endswith("/")


# A target's own memory of its mirrors. Copied to the next cluster it would decide there what was decided here.
DECISIONS = "airflow-mirror.decisions"
STATE = "airflow-mirror.ledger"
MAPS = "airflow-mirror.maps"
MAP_PARTITIONS = 16  # for good: a map is found in the partition that its name leads to
WISHES = "airflow-mirror.wishes"  # for people who may ask for a pause and nothing else
LEDGER = frozenset({DECISIONS, STATE, MAPS, WISHES})
SCRATCH_PREFIX = "__airflow-mirror.probe."
DRILL_PREFIX = "mirror-drill."  # of the topics and groups of drills, unless somebody chooses another one
KAFKAS_OWN = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"}
)


def is_topic_name(name: str) -> bool:
    """Return whether Kafka takes ``name`` for a topic."""
    return len(name) <= _LONGEST and _TOPIC.fullmatch(name) is not None


def is_reserved(topic: str) -> bool:
    """Return whether a topic is a broker's own, or a mirror's memory: its bytes mean nothing on another cluster."""
    return topic in KAFKAS_OWN | LEDGER or topic.startswith(SCRATCH_PREFIX)


def is_internal(topic: str, separator: str = ".") -> bool:
    """Return whether a topic has the name of one that belongs to Kafka or to a mirror. Others may have given it as well.

    Rule: MirrorMaker 2 4.0+ ReplicationPolicy.isInternalTopic (KAFKA-17200).

    :param separator: also of names that are made with this one (KIP-949).
    """
    mm2 = topic.startswith("mm2") and topic.endswith("internal")
    checkpoints = "checkpoints.internal", f"{separator}checkpoints{separator}internal"
    return topic in LEDGER or topic.startswith(("__", ".")) or mm2 or topic.endswith(checkpoints)


# What MirrorMaker 2 leaves on a target for Java clients (MirrorClient, RemoteClusterUtils).
TRACES = ("heartbeats", "checkpoints", "offset-syncs")
HEARTBEATS = "heartbeats"  # this one has its name whatever the separator is


def trace_topics(kind: str, source_alias: str, separator: str) -> tuple[str, ...]:
    """Return the topics on a target in which traces of a kind lie, by MirrorMaker 2's names.

    Of heartbeats there are two: its own, and the one that stands for the source's, by which clients find the cluster.
    Rule: DefaultReplicationPolicy of connect-mirror-client, with its internal topics separated alike (KIP-949).
    """
    names = {
        "heartbeats": (HEARTBEATS, f"{source_alias}{separator}{HEARTBEATS}"),
        "checkpoints": (f"{source_alias}{separator}checkpoints{separator}internal",),
        "offset-syncs": (f"mm2-offset-syncs{separator}{source_alias}{separator}internal",),
    }
    return names[kind]


# Between the parts of what is named after a mirror: names of mirrors and topics have none. No slash, because brokers with
# ZooKeeper keep a rule at a path that ends in the name of what it is about, and can't store it there.
COLON = ":"
# What the groups and transactional ids of all mirrors begin with; with the dot, what names their fences at a source.
OWN_IDS = (f"airflow-mirror{COLON}", "airflow-mirror.")
# What the names of fences begin with, and the principal that does not exist of which their rules are.
FENCES, NOBODY = f"{OWN_IDS[1]}fence.", "User:airflow-mirror-fence"
OWN_GROUPS = f"airflow-mirror[{COLON}.].*"  # the same as a pattern


def own_ids(mirror: str) -> str:
    """Return what a Mirror's groups and transactional ids begin with, and no other one's."""
    return f"{OWN_IDS[0]}{mirror}{COLON}"


def lease_id(mirror: str) -> str:
    """Return the transactional id that serves as a Mirror's writer lease."""
    return f"{own_ids(mirror)}lease"


def is_lease(transactional_id: str) -> bool:
    """Return whether a transactional id is the writer lease of a Mirror."""
    return transactional_id == lease_id(transactional_id.removeprefix(OWN_IDS[0]).partition(COLON)[0])


def errand(mirror: str, name: str) -> str:
    """Return under which name a short copy beside a Mirror's own goes, like a trial.

    No mirror's name has a colon. So it takes nobody's lease, and its own, which a cluster without a ledger may hold for a
    week, is none of a Mirror's (:func:`is_lease`). Rights go by what names begin with, and hold for it too.
    """
    return f"{mirror}{COLON}{name}"


def progress_group(mirror: str) -> str:
    """Return the consumer group on the target in which transactional delivery stores its progress."""
    return f"{own_ids(mirror)}progress"


def starts_group(mirror: str) -> str:
    """Return the consumer group on the target that stores, for each partition, where a mirror without a plan began.

    It has no members and commits no progress: its position in a partition is the source offset of the first record to
    copy, with the source topic's id as metadata. Kafka deletes it with the topic, or if no job runs for
    offsets.retention.minutes; by then the log shows where the copy began.
    """
    return f"{own_ids(mirror)}starts"


def scratch_topic(mirror: str) -> str:
    """Return the topic on which a plan tries out rights; it is internal, so that no mirror copies it."""
    return f"{SCRATCH_PREFIX}{mirror}"


def marker_id(mirror: str, tp: TopicPartition) -> str:
    """Return the transactional id of one target partition, used to guard padding and for transactional delivery."""
    return f"{own_ids(mirror)}{tp.topic}{COLON}{tp.partition}"
