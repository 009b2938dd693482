"""Plan: what a mirror will do, frozen before anything is written. Values, their JSON and their hash.

Other processes use a plan days later. It has a version, a hash over its canonical JSON (without its creation time), and
never a secret: connections appear by id only. Offsets are those of the next record to read; ranges are half-open.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import Planned
from airflow_mirror.common.text_files import read_text
from airflow_mirror.errors import InputError, InvalidField
from airflow_mirror.ledger.records import AMENDMENT, PLAN
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.findings import LEVELS, Finding, Judged
from airflow_mirror.wording import listed

VERSION = PLAN.version
_AGAIN = "Make it again with PlanMirrorOperator."

# Measured on two shared cores, one partition, one replica; lower bounds for real machines.
PRIME_OFFSETS_PER_S = 6_000_000
MARKER_BYTES = 78
COORDINATOR_MARKERS_PER_S = 200
DIRECT_MARKERS_PER_S = 54_000
PADDED_AT_ONCE = 4  # partitions that one task pads at the same time


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What the mirror's principal may do on the target, as tested on a scratch topic.

    :param markers: how holes can be padded: ``direct`` (in bulk), ``coordinator`` (one by one), ``none``, or
        ``unknown`` if it was not tested.
    :param prime: False if a log can't be made to start above 0 (no DELETE on topics).
    :param lacks: the missing rights, as an operator would grant them.
    :param note: other results: why nothing could be tested, what was left behind.
    :param keeps_policy: the target's words if it lets no topic go from ``delete`` to compaction; "" if it does, or if it
        was not asked.
    """

    markers: str = "unknown"
    prime: bool = True
    lacks: tuple[str, ...] = ()
    note: str = ""
    keeps_policy: str = ""


@dataclass(frozen=True)
class HoleEstimate:
    """Estimate of a topic's offsets that hold no record for its consumers: markers, aborted and compacted records.

    :param count: offsets without a record, among those to copy.
    :param runs: number of contiguous runs that they form.
    :param share: ``count`` as a share of the offsets to copy, 0 to 1.
    :param sampled: offsets that were read; the estimate is exact if that is all of them.
    """

    count: int
    runs: int
    share: float
    sampled: int

    @property
    def bytes(self) -> int:
        """Bytes of the markers that would fill them, on each replica."""
        return self.count * MARKER_BYTES

    def padding_s(self, markers: str, partitions: int) -> float:
        """Return the estimated seconds that one task takes to pad them.

        Even with every right, each run costs a request to the coordinator or a marker through it, so many short runs
        take about as long as without the right.

        :param markers: as in :class:`Capabilities`; only ``direct`` is fast.
        """
        lanes = max(1, min(partitions, PADDED_AT_ONCE))
        guards = min(self.count, self.runs) if markers == "direct" else self.count
        return (guards / COORDINATOR_MARKERS_PER_S + (self.count - guards) / DIRECT_MARKERS_PER_S) / lanes


@dataclass(frozen=True, kw_only=True)
class TopicPlan:
    """What happens to one topic.

    :param source_topic_id: the source's topic id; if it changes, the topic was re-created.
    :param target_exists: the target had the topic when the plan was made.
    :param partitions: of the source.
    :param replication_factor: of the topic to create, already capped by the target's broker count.
    :param configs: topic overrides on the target once the mirror is done.
    :param held_configs: topic overrides on the target while the mirror writes.
    :param left_out: the source's non-default settings that are not carried over.
    :param compacted: the source's cleanup.policy contains ``compact``.
    :param mode: ``identical`` or ``mapped``; ``reason`` says why.
    :param starts: first offset to copy, by partition.
    :param ends: end offset on the source when the plan was made (of stable data for ``read_committed``), by partition.
    :param prime: offsets to fill before the first record, by partition; only partitions that need it.
    :param holes: estimate of the holes; None when the source was not sampled.
    :param filler: what fills them: ``markers`` or ``tombstones``.
    :param key_partitions: with key partitioning, among how many target partitions keys are dealt out: those that the
        topic had when its copy began. None: otherwise, and in plans of before it was kept.
    """

    source_topic: str
    target_topic: str
    source_topic_id: str
    target_exists: bool
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    held_configs: Mapping[str, str]
    left_out: Mapping[str, str]
    compacted: bool
    mode: str
    reason: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    prime: Mapping[int, int] = field(default_factory=dict)
    holes: HoleEstimate | None = None
    filler: str = "markers"
    key_partitions: int | None = None

    @property
    def target_partitions(self) -> int:
        """Partitions that the copy needs on the target."""
        return self.partitions if self.key_partitions is None else self.key_partitions

    @property
    def offsets(self) -> int:
        """Offsets to copy: an upper bound for the number of records, because of holes."""
        return sum(max(0, self.ends[p] - self.starts[p]) for p in self.ends)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TopicPlan:
        """Build from JSON, whose object keys are strings."""
        by_partition = {k: {int(p): o for p, o in values[k].items()} for k in ("starts", "ends", "prime")}
        holes = HoleEstimate(**values["holes"]) if values["holes"] else None
        return cls(**{**values, **by_partition, "holes": holes})


@dataclass(frozen=True, kw_only=True)
class Amendment:
    """Topics that a plan has from now on, besides its own; see :mod:`.amendment`.

    :param plan: the plan's hash.
    :param number: from 1 on.
    :param after: the plan's revision before: the hash of the amendment before this one, or the plan's.
    :param created_at: ISO 8601; not part of the hash.
    :param topics: new ones, and known ones with more partitions than before; sorted by source topic.
    :param findings: warnings about them.
    """

    plan: str
    number: int
    after: str
    created_at: str
    topics: tuple[TopicPlan, ...]
    findings: tuple[Finding, ...] = ()

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON without ``created_at``."""
        return _hash(self._content())

    def to_json(self) -> str:
        """Return JSON; it does not include the hash, which is its name."""
        return json.dumps({"v": AMENDMENT.version, **self._content()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Amendment:
        """Parse the output of ``to_json``.

        :raises InputError: it is not an amendment, or one of another version.
        """
        try:
            values = json.loads(text)
            if (version := values.pop("v")) != AMENDMENT.version:
                what, cause = "an amendment was written by another version", f"it is of version {version!r}"
                raise InputError(what, cause, "Install the one that the tail has.")
            topics, findings = values.pop("topics"), values.pop("findings")
            return cls(
                **values,
                topics=tuple(TopicPlan.from_dict(t) for t in topics),
                findings=tuple(Finding(**f) for f in findings),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise InputError("not an amendment", repr(e), "Make a new plan.") from e

    def _content(self) -> dict[str, Any]:
        return _as_loaded(_without_unset(asdict(self)))


def blocked(findings: Sequence[str]) -> InputError:
    """Return the error for checks that found reasons not to start. All of them are listed, not just the first."""
    what = f"{len(findings)} check(s) block this mirror; nothing was written"
    return InputError(what, f"\n{listed(findings)}\n")


@dataclass(frozen=True, kw_only=True)
class Plan(Judged):
    """A mirror's plan.

    :param created_at: ISO 8601; not part of the hash.
    :param topics: sorted by source topic.
    :param positions: committed offsets of the selected groups: group, source topic, partition.
    :param known_topics: target topics that this mirror created or filled, or may from now on, with the offset mode of
        each; input of the next plan. A copy that began in one mode never continues in the other.
    :param capabilities: what the principal may do on the target.
    :param returning: source topics that match the mirror and are left out: they come from the target, or hold traces of
        mirrors into the source.
    :param superseded: target topics that were gone, or created again, when the plan was made, each with the id under
        which the ledger knew it. Who carries out the plan takes what has their names.
    :param amendments: what the rule has selected since; ``topics`` has them all. See :mod:`.amendment`.
    :param rule: the plan as it was made, if there are any, or if ``topics`` lacks some of it. Hash, digest and JSON are
        always those of the rule, so that nobody takes an amended plan for another one.
    """

    mirror: Mirror
    created_at: str
    source_cluster_id: str
    target_cluster_id: str
    topics: tuple[TopicPlan, ...]
    positions: Mapping[str, Mapping[str, Mapping[int, int]]]
    findings: tuple[Finding, ...]
    known_topics: Mapping[str, str] = field(default_factory=dict)
    capabilities: Capabilities = field(default_factory=Capabilities)
    returning: tuple[str, ...] = ()
    version: int = VERSION
    superseded: Mapping[str, str] = field(default_factory=dict)
    amendments: tuple[Amendment, ...] = ()
    rule: Plan | None = None

    @property
    def final_configs(self) -> dict[str, Mapping[str, str]]:
        """The overrides that target topics get once the mirror is done, by their names."""
        return {t.target_topic: t.configs for t in self.topics}

    @property
    def groups(self) -> list[str]:
        """The consumer groups that move, sorted."""
        return sorted(self.positions)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over the canonical JSON without ``created_at``."""
        if self.rule is not None:
            return self.rule.hash
        return _hash(self._content())

    @property
    def revision(self) -> str:
        """Hash of the last amendment, or of the plan: it stands for all topics that are mirrored by now."""
        return self.amendments[-1].hash if self.amendments else self.hash

    @property
    def digest(self) -> str:
        """16 hex digits that change if the plan's topics change (not if only time has passed, nor by amendments)."""
        if self.rule is not None:
            return self.rule.digest
        topics = [(t.source_topic, t.target_topic, t.source_topic_id, t.mode) for t in self.topics]
        return hashlib.sha256(json.dumps(topics).encode()).hexdigest()[:16]

    @property
    def offsets(self) -> int:
        """Total offsets to copy; an upper bound for the number of records."""
        return sum(t.offsets for t in self.topics)

    @property
    def prime_offsets(self) -> int:
        """Total offsets to fill before the first record of each partition."""
        return sum(sum(t.prime.values()) for t in self.topics)

    @property
    def holes(self) -> int:
        """Estimated number of offsets without a record that will be filled."""
        return sum(t.holes.count for t in self.topics if t.holes and t.mode == "identical")

    @cached_property  # a cutover asks for each partition behind the fence
    def routes(self) -> Mapping[TopicPartition, TopicPartition]:
        """Target partition by source partition, of all topics."""
        return {
            TopicPartition(t.source_topic, p): TopicPartition(t.target_topic, p)
            for t in self.topics
            for p in range(t.partitions)
        }

    def topic(self, source_topic: str) -> TopicPlan:
        """Return the plan of one source topic; KeyError if it has none."""
        return {t.source_topic: t for t in self.topics}[source_topic]

    def raise_if_blocked(self) -> None:
        """Raise if a check blocks.

        :raises InputError: with every block, not only the first.
        """
        if self.blocks:
            raise blocked([str(f) for f in self.blocks])

    def summary(self) -> dict[str, Any]:
        """Return counts and the hash: small enough for XCom at any number of topics."""
        levels = [f.level for f in self.findings]
        return {
            "mirror": self.mirror.name,
            "hash": self.hash,
            "revision": self.revision,
            "topics": len(self.topics),
            "partitions": sum(t.partitions for t in self.topics),
            "groups": len(self.positions),
            "offsets": self.offsets,
            "prime_offsets": self.prime_offsets,
            "holes": self.holes,
            "markers": self.capabilities.markers,
            **{level: levels.count(level) for level in LEVELS},
        }

    def to_json(self) -> str:
        """Return canonical JSON that includes the hash."""
        return json.dumps({**self._content(), "hash": self.hash}, sort_keys=True, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Parse the output of ``to_json``.

        :raises InputError: it is not a plan, has another version, or was edited (its hash differs).
        """
        try:
            values = json.loads(text)
            if (version := values.pop("version")) != VERSION:
                raise InputError(f"the plan is not of version {VERSION}", f"it is of version {version!r}", _AGAIN)
            written = values.pop("hash")
            plan = cls(
                **{
                    **values,
                    "mirror": Mirror.from_dict({**values["mirror"], "policy": Planned(values["mirror"]["policy"])}),
                    "topics": tuple(TopicPlan.from_dict(t) for t in values["topics"]),
                    "findings": tuple(Finding(**f) for f in values["findings"]),
                    "capabilities": Capabilities(
                        **{**values["capabilities"], "lacks": tuple(values["capabilities"]["lacks"])}
                    ),
                    "positions": _positions(values["positions"]),
                    "returning": tuple(values["returning"]),
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError, InvalidField) as e:
            raise InputError("not a plan", repr(e), _AGAIN) from e
        if plan.hash != written:
            raise InputError("the plan was edited", "its hash is not that of its content", "Make a new plan instead.")
        return plan

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan file.

        :raises InputError: the file is missing or not a plan.
        """
        return cls.from_json(read_text(Path(path), f"plan {str(path)!r}", "Run PlanMirrorOperator first."))

    def _content(self) -> dict[str, Any]:
        if self.rule is not None:
            return self.rule._content()
        content = {**asdict(self), "mirror": self.mirror.to_dict()}
        del content["amendments"], content["rule"]
        if not self.superseded:
            del content["superseded"]
        return _as_loaded(_without_unset(content))


def _without_unset(content: dict[str, Any]) -> dict[str, Any]:
    for topic in content["topics"]:
        if topic["key_partitions"] is None:  # so that a plan of before keeps its hash
            del topic["key_partitions"]
    return content


def _as_loaded(content: Mapping[str, Any]) -> dict[str, Any]:
    # Through JSON once, so that partition numbers are the same strings in a fresh value and in a loaded one.
    loaded: dict[str, Any] = json.loads(json.dumps(content))
    return loaded


def _hash(content: Mapping[str, Any]) -> str:
    hashed = {k: v for k, v in content.items() if k != "created_at"}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _positions(values: Mapping[str, Any]) -> dict[str, dict[str, dict[int, int]]]:
    return {
        group: {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in topics.items()}
        for group, topics in values.items()
    }
