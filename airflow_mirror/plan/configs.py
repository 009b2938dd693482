"""Which topic settings are carried over to the target, and which are on hold during the copy.

Pure rules. A setting that decides which records a topic keeps and accepts is carried over with its effective value,
wherever the source gets it from: a broker's file, a cluster-wide setting, Kafka's own default. The target's default is
another cluster's choice, and could delete history or reject records that the source held. For all other settings the
rule is MirrorMaker 2's (MirrorSourceConnector.targetConfig and DefaultConfigPropertyFilter). The rule for the hold is
ours: records that are years old must survive on the target, byte for byte, until the mirror has finished.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan, TopicPlan

LONG_MAX = "9223372036854775807"

# Applied to every target topic while a mirror writes to it.
HELD_OPEN: Mapping[str, str] = {
    "cleanup.policy": "delete",  # compaction would race with the copy, and DeleteRecords after priming needs "delete"
    "compression.type": "producer",  # any other codec makes the broker rebuild each batch
    "message.timestamp.after.max.ms": LONG_MAX,  # one hour by default: a record from a wrong clock would be rejected
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.type": "CreateTime",  # LogAppendTime would replace every record's timestamp
    "retention.bytes": "-1",
    "retention.ms": "-1",  # counts from record timestamps: history would be deleted minutes after it arrived
}

# Of a compacted topic that keeps its own cleanup.policy (``compacted_hold="lag"``): no record is ever old enough for the
# cleaner. The second is raised with the first, or a broker refuses them.
BY_LAG: Mapping[str, str] = {"min.compaction.lag.ms": LONG_MAX, "max.compaction.lag.ms": LONG_MAX}

# Of a compacted topic, in place of "delete", once its backlog has arrived (`airflow_mirror.sync.log_starts.compacting`).
HELD_COMPACTED = "compact,delete"

BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
DIFFERENCE = "message.timestamp.difference.max.ms"  # before Kafka 3.6, one limit for both

MIN_INSYNC = "min.insync.replicas"

# Settings that decide which records a topic keeps, and which it accepts from producers.
SURVIVES = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        AFTER,
        BEFORE,
        "message.timestamp.type",
        "min.compaction.lag.ms",
        MIN_INSYNC,
        "retention.bytes",
        "retention.ms",
        "segment.bytes",  # a batch larger than a segment is rejected; retention and compaction work by segment
        "segment.ms",
    }
)

# MirrorMaker 2's list, without the settings above.
EXCLUDED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        DIFFERENCE,  # carried over as the two limits that replaced it
        "unclean.leader.election.enable",
        # Tiered storage is a property of a cluster; a target without it rejects these.
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


# A batch above one of these is rejected. While a mirror writes they are only raised: what it has not copied yet may have
# been written to the source when that accepted more.
LIMITS = ("max.message.bytes", "segment.bytes")


def _nothing(key: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a Mirror says about topic settings.

    :param excludes: whether a setting is not carried over.
    :param keeps: whether an existing target topic keeps its own.
    :param defaults_from: see ``use_defaults_from`` of :class:`airflow_mirror.mirror.Mirror`.
    :param retention_ms: of the hold. :param by_lag: compacted topics are held by :data:`BY_LAG`.
    """

    excludes: Callable[[str], bool] = _nothing
    keeps: Callable[[str], bool] = _nothing
    defaults_from: str = "auto"
    retention_ms: str = HELD_OPEN["retention.ms"]
    by_lag: bool = False

    @classmethod
    def of(cls, mirror: Mirror) -> Rules:
        """Return those of a Mirror."""
        hold_ms = mirror.hold_retention_ms
        ms = HELD_OPEN["retention.ms"] if hold_ms is None else str(hold_ms)
        by_lag = mirror.compacted_hold == "lag"
        return cls(
            excludes=mirror.excludes_config, keeps=mirror.keeps_config, defaults_from=mirror.use_defaults_from,
            retention_ms=ms, by_lag=by_lag,
        )  # fmt: skip

    @property
    def held_keys(self) -> Collection[str]:
        """The settings that a target topic may have on hold while the mirror writes."""
        return {**HELD_OPEN, **(BY_LAG if self.by_lag else {})}

    def held_open(self, policy: str | None) -> dict[str, str]:
        """Return the settings that a target topic has while the mirror writes.

        :param policy: the ``cleanup.policy`` that it gets in the end; None: the target's default.
        """
        held = {**HELD_OPEN, "retention.ms": self.retention_ms}
        if self.by_lag and policy is not None and "compact" in policy:
            held |= {"cleanup.policy": policy, **BY_LAG}
        return held

    def is_on_hold(self, key: str, value: str | None) -> bool:
        """Return whether a value is one of those that a setting has while a mirror writes."""
        held = [HELD_OPEN.get(key), BY_LAG.get(key) if self.by_lag else None]
        held += [self.retention_ms] if key == "retention.ms" else [HELD_COMPACTED] if key == "cleanup.policy" else []
        return any(one is not None and same_value(value, one) for one in held)

    def default_survives(self, key: str) -> bool:
        """Return whether the source's default is the target's value, too."""
        return self.defaults_from == "source" or (self.defaults_from == "auto" and key in SURVIVES)

    def carries(self, key: str, entry: ConfigEntry) -> bool:
        """Return whether the source's entry decides the target's.

        The settings in ``SURVIVES`` are carried over wherever the source has them from, unless its defaults don't count.
        Of the rest MirrorMaker 2 keeps those that are not read-only, not sensitive, not from a broker's static file and
        not excluded.
        """
        if entry.is_read_only or entry.is_sensitive or entry.value is None or self.excludes(key):
            return False
        survives = key in SURVIVES and self.default_survives(key)
        return survives or (key not in EXCLUDED and entry.source != "STATIC_BROKER_CONFIG")


_USUAL = Rules()


def goal(
    source: Mapping[str, ConfigEntry],
    hold: bool,
    own: Mapping[str, str | None] | None = None,
    rules: Rules = _USUAL,
) -> dict[str, str | None]:
    """Return the overrides that the target topic must have, by key; None means no override.

    :param source: effective configs of the source topic.
    :param hold: True while the mirror writes; False for the final settings.
    :param own: the keys that the target knows, with the values that apply there without an override (None: not seen);
        other keys are omitted. None: the target was not queried.
    """
    known = own or {}
    wanted = {key: _wanted(key, e, known.get(key), rules) for key, e in source.items() if rules.carries(key, e)}
    one_limit = source.get(DIFFERENCE)
    if BEFORE not in source and one_limit is not None:
        wanted |= {key: one_limit.value for key in (BEFORE, AFTER) if not rules.excludes(key)}
    # A setting on hold returns to the target's default if the source has no such key at all.
    wanted = {**dict.fromkeys(rules.held_keys), **wanted}
    if hold:
        limit = source.get("max.message.bytes")
        if limit is not None and limit.value is not None and not rules.excludes("max.message.bytes"):
            wanted["max.message.bytes"] = limit.value  # a copy must not depend on the target's default
        wanted |= rules.held_open(wanted["cleanup.policy"])
    if own is None:
        return wanted
    if BEFORE not in known and DIFFERENCE in known:
        limits = [int(value) for key in (BEFORE, AFTER) if (value := wanted.get(key)) is not None]
        wanted[DIFFERENCE] = str(max(limits)) if limits else None
    return {key: value for key, value in wanted.items() if key in known}


def _wanted(key: str, entry: ConfigEntry, own: str | None, rules: Rules) -> str | None:
    """Return the override for one key. A default value needs none if the target's default is the same."""
    needless = same_value(entry.value, own) if rules.default_survives(key) else True
    return None if entry.is_default and needless else entry.value


def overrides(
    source: Mapping[str, ConfigEntry],
    hold: bool,
    own: Mapping[str, str | None] | None = None,
    rules: Rules = _USUAL,
) -> dict[str, str]:
    """Return the overrides to create a target topic with; see ``goal``."""
    return {key: value for key, value in sorted(goal(source, hold, own, rules).items()) if value is not None}


def kept(
    wanted: Mapping[str, str], target: Mapping[str, ConfigEntry], rules: Rules, earlier: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the overrides of an existing target topic: those wanted, but what it keeps as it is.

    :param target: the topic's settings now.
    :param earlier: what the mirror's last plan returned here: it knows what a setting was that is on hold now.
    """
    own = {key: _before_hold(key, entry, rules, earlier) for key, entry in target.items() if rules.keeps(key)}
    its = {key: value for key, value in wanted.items() if not rules.keeps(key)}
    return dict(sorted({**its, **{key: value for key, value in own.items() if value is not None}}.items()))


def _before_hold(key: str, entry: ConfigEntry, rules: Rules, earlier: Mapping[str, str] | None) -> str | None:
    if not entry.is_override:
        return None
    on_hold = earlier is not None and rules.is_on_hold(key, entry.value)
    return earlier.get(key) if earlier is not None and on_hold else entry.value


def may_compact(t: TopicPlan) -> bool:
    """Return whether a target topic may be compacted while the mirror writes. Maps are completed by counting records."""
    return t.compacted and t.mode == "identical" and not is_held_by_lag(t)


def is_held_by_lag(t: TopicPlan) -> bool:
    """Return whether a target topic keeps its own ``cleanup.policy`` while the mirror writes."""
    key = "min.compaction.lag.ms"
    return t.compacted and t.held_configs.get(key) == BY_LAG[key]


def held_values(t: TopicPlan) -> dict[str, tuple[str, ...]]:
    """Return the settings of a target topic that are on hold while the mirror writes, each with the values that do.

    The first value is set where there is another one.
    """
    keys = {**HELD_OPEN, **(BY_LAG if is_held_by_lag(t) else {})}
    held = {key: (value,) for key, value in t.held_configs.items() if key in keys}
    return held | ({"cleanup.policy": (HELD_OPEN["cleanup.policy"], HELD_COMPACTED)} if may_compact(t) else {})


def not_held(t: TopicPlan, target: Mapping[str, ConfigEntry]) -> list[str]:
    """Return which settings of a target topic would delete, change or refuse records while the mirror writes.

    :param target: the topic's settings as they are.
    """
    planned, held = t.held_configs, held_values(t)
    lines = []
    for key in dict.fromkeys((*HELD_OPEN, *held, "max.message.bytes")):
        there = target[key].value if key in target else None
        enough = key == "max.message.bytes" and int(there or 0) >= int(planned.get(key) or 0)
        fits = any(same_value(there, value) for value in held.get(key, (planned.get(key),)))
        if key in planned and not enough and not fits:
            lines.append(f"{key} is {there}, must be {planned[key]}")
    return lines


def stays_compacted(source: Mapping[str, ConfigEntry], target: Mapping[str, ConfigEntry], rules: Rules) -> bool:
    """Return whether a target topic is on hold with compaction, which came back when its backlog had arrived.

    Somebody's own ``compact,delete`` looks the same, but for the other settings: those are on hold only by a mirror.
    """
    policy = "cleanup.policy"
    held = all(rules.is_on_hold(key, target[key].value) for key in HELD_OPEN.keys() & target.keys())
    here, there = (side[policy].value if policy in side else None for side in (source, target))
    return held and same_value(there, HELD_COMPACTED) and "compact" in (here or "")


def is_held(target: Mapping[str, ConfigEntry], rules: Rules = _USUAL) -> bool:
    """Return whether the settings of a target topic keep every record, or all that matter to a compacted topic.

    Also by a finite retention, if it is the hold's: nothing that is on the source may be that old.
    """

    def on_hold(key: str) -> bool:
        return key in target and rules.is_on_hold(key, target[key].value)

    compacts_later = rules.by_lag and on_hold("min.compaction.lag.ms")
    return (compacts_later or on_hold("cleanup.policy")) and on_hold("retention.bytes") and on_hold("retention.ms")


def held_topics(plan: Plan, target: Mapping[str, Mapping[str, ConfigEntry]]) -> set[str]:
    """Return the target topics of which no broker takes a record that matters; see :func:`is_held`.

    :param target: their settings as they are.
    """
    rules = Rules.of(plan.mirror)
    return {name for name, entries in target.items() if is_held(entries, rules)}


def cleaned_sides(plan: Plan, target: Mapping[str, Mapping[str, ConfigEntry]]) -> dict[str, tuple[str, ...]]:
    """Return on which sides a log cleaner may have taken records, by target topic; topics without any are left out.

    Until its backlog has arrived, a target topic is not compacted: what it lacks then is lost. So is what somebody's
    ``cleanup.policy`` took of a topic that is to be compacted on neither side.

    :param target: their settings as they are.
    """
    cleaned: dict[str, tuple[str, ...]] = {t.target_topic: ("source",) for t in plan.topics if t.compacted}
    cleans = [t for t in plan.topics if t.target_topic in target and _may_clean(t, target[t.target_topic])]
    return cleaned | {t.target_topic: ("source", "target") for t in cleans}


def cleaned_unplanned(plan: Plan, target: Mapping[str, Mapping[str, ConfigEntry]]) -> set[str]:
    """Return the source topics of which the target's log cleaner takes records although the plan asks for none.

    :param target: the target topics' settings as they are.
    """
    cleaned = cleaned_sides(plan, target)
    return {
        t.source_topic
        for t in plan.topics
        if _is_cleaned(target.get(t.target_topic, {})) and "target" not in cleaned.get(t.target_topic, ())
    }


def _is_cleaned(there: Mapping[str, ConfigEntry]) -> bool:
    """Return whether a log cleaner works on a topic, by its settings as they are."""
    policy, lag = there.get("cleanup.policy"), there.get("min.compaction.lag.ms")
    return policy is not None and "compact" in (policy.value or "") and not (lag is not None and lag.value == LONG_MAX)


def _may_clean(t: TopicPlan, there: Mapping[str, ConfigEntry]) -> bool:
    """Return whether the target's log cleaner may take records of a topic as it is planned.

    :param there: its settings as they are.
    """
    policy = there.get("cleanup.policy")
    if policy is None:  # a target that shows no policies: nobody knows whether its backlog has arrived
        return t.compacted
    if not _is_cleaned(there):
        return False
    # Without a planned override it ends with the target's default, which is seen only where nothing overrides it.
    planned = t.configs.get("cleanup.policy", "" if policy.is_override else policy.value)
    return t.compacted or "compact" in (planned or "")


def left_out(
    source: Mapping[str, ConfigEntry], known: Collection[str] | None = None, rules: Rules = _USUAL
) -> dict[str, str]:
    """Return the non-default settings of a source topic that are not carried over.

    They are excluded, from a broker's static file, or unknown to the target: a vendor's, or removed in a later version.
    """
    return {
        key: e.value
        for key, e in sorted(source.items())
        if not (rules.carries(key, e) and (known is None or key in known))
        and key != DIFFERENCE
        and e.value
        and not e.is_sensitive
        and e.source in ("DYNAMIC_TOPIC_CONFIG", "STATIC_BROKER_CONFIG")
    }


def same_value(a: str | None, b: str | None) -> bool:
    """Compare config values; spacing and order of lists are ignored."""
    return _items(a) == _items(b)


def _items(value: str | None) -> Collection[str] | None:
    return None if value is None else sorted(part.strip() for part in value.split(","))
