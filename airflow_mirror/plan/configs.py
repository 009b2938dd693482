"""Which topic configs go over to the target, and which are held open while history arrives.

Pure rules. The rule for what goes over is MirrorMaker 2's (MirrorSourceConnector.targetConfig and
DefaultConfigPropertyFilter). The rule for what is held open is ours: records that are years old must survive on the
target until the mirror is done with them, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_mirror.kafka.model import ConfigEntry

LONG_MAX = "9223372036854775807"

# In force on every target topic while a mirror writes to it.
HELD_OPEN: Mapping[str, str] = {
    "cleanup.policy": "delete",  # compaction would race with the copy, and DeleteRecords after priming needs it
    "compression.type": "producer",  # any other codec makes the broker rebuild each batch
    "message.timestamp.after.max.ms": LONG_MAX,  # one hour by default: a record from a wrong clock would be refused
    "message.timestamp.before.max.ms": LONG_MAX,
    "message.timestamp.type": "CreateTime",  # LogAppendTime would replace every record's time
    "retention.bytes": "-1",
    "retention.ms": "-1",  # by record time: history would be deleted minutes after it arrived
}

# MirrorMaker 2's list, without the timestamp keys: those are held open first and carried over at the end.
EXCLUDED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        # Tiered storage is a property of a cluster; a target without it refuses these.
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)


def is_carried(key: str, entry: ConfigEntry) -> bool:
    """Say whether the source's entry decides the target's.

    Rule: MirrorMaker 2 keeps what is not read-only, not sensitive, not from a broker's static file, not excluded.
    """
    fixed = entry.is_read_only or entry.is_sensitive or entry.source == "STATIC_BROKER_CONFIG"
    return key not in EXCLUDED and not fixed and entry.value is not None


def goal(source: Mapping[str, ConfigEntry], hold: bool) -> dict[str, str | None]:
    """Return what the target topic's overrides must be, by key; None means no override there.

    :param source: effective configs of the source topic.
    :param hold: True while the mirror writes; False for the settings that stay.
    """
    wanted = {key: None if e.is_default else e.value for key, e in source.items() if is_carried(key, e)}
    if not hold:
        # What was held open goes back to the target's default where the source has nothing to say.
        return {**dict.fromkeys((*HELD_OPEN, "max.message.bytes")), **wanted}
    limit = source.get("max.message.bytes")
    if limit is not None and limit.value is not None:
        wanted["max.message.bytes"] = limit.value  # also when it is the source's default: the target's may be smaller
    return {**wanted, **HELD_OPEN}


def overrides(source: Mapping[str, ConfigEntry], hold: bool) -> dict[str, str]:
    """Return the overrides to create a target topic with; see ``goal``."""
    return {key: value for key, value in sorted(goal(source, hold).items()) if value is not None}


def not_held(planned: Mapping[str, str], target: Mapping[str, ConfigEntry]) -> list[str]:
    """Return which settings of a target topic would delete, change or refuse records while the mirror writes.

    :param planned: the topic's overrides while the mirror writes, as planned.
    :param target: the topic's settings as they are.
    """
    lines = []
    for key in (*HELD_OPEN, "max.message.bytes"):
        there = target[key].value if key in target else None
        enough = key == "max.message.bytes" and int(there or 0) >= int(planned.get(key) or 0)
        if key in planned and not enough and not same_value(there, planned[key]):
            lines.append(f"{key} is {there}, must be {planned[key]}")
    return lines


def is_held(target: Mapping[str, ConfigEntry]) -> bool:
    """Say whether nothing is deleted from a target topic by its own settings."""
    keys = ("cleanup.policy", "retention.bytes", "retention.ms")
    return all(key in target and same_value(target[key].value, HELD_OPEN[key]) for key in keys)


def left_out(source: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return the non-default settings of a source topic that don't go over: excluded, or from a broker's static file."""
    return {
        key: e.value
        for key, e in sorted(source.items())
        if not is_carried(key, e)
        and e.value
        and not e.is_sensitive
        and e.source in ("DYNAMIC_TOPIC_CONFIG", "STATIC_BROKER_CONFIG")
    }


def same_value(a: str | None, b: str | None) -> bool:
    """Compare config values; the spacing and order of lists don't matter."""
    return _items(a) == _items(b)


def _items(value: str | None) -> Collection[str] | None:
    return None if value is None else sorted(part.strip() for part in value.split(","))
