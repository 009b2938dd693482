"""Preflight checks of single topics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_mirror.plan.again import sentence
from airflow_mirror.plan.configs import Rules
from airflow_mirror.plan.finite_hold import TO_BEGIN
from airflow_mirror.plan.model import Found, block, warn
from airflow_mirror.plan.situation import Situation
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wording import count, some

# Kafka's keys, and the values that apply if neither side sets them.
_RETENTION = {"retention.ms": "the target's default", "retention.bytes": "-1"}


def target_data(s: Situation) -> Iterator[Found]:
    """The target topic holds data that are not ours, or more records than the source, or those of an older topic."""
    for name, there in s.source.again.items():
        evidence, remedy = sentence(there)
        level = "warn" if s.topics else "block"  # a plan of nothing would be of no use
        yield Found(level, f"topic {name!r}", f"{evidence}; it is left out", remedy)
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        if pair.target is None or not pair.written:
            continue
        shown = some(f"partition {p} ends at {end:,}" for p, end in pair.written.items())
        if not pair.ours and topic.mode == "mapped":
            yield warn(
                f"target topic {pair.target_topic!r}",
                f"it holds data that this mirror did not write ({shown})",
                "These data stay: records are appended after them, and the offset map knows which are the mirror's.",
            )
            continue
        if not pair.ours:
            yield block(
                f"target topic {pair.target_topic!r}",
                f"it holds data that this mirror did not write ({shown})",
                "Exclude the topic, or choose policy='prefix'. If a ledger was lost that knows whose they are, restore "
                "it ('airflow-mirror ledger restore'). Empty the topic only if nobody needs them.",
            )
            continue
        ahead = {p: end for p, end in pair.written.items() if end > pair.source.ends.get(p, end)}
        if ahead and topic.mode != "mapped":
            shown = some(f"partition {p}: {end:,} there, {pair.source.ends[p]:,} here" for p, end in ahead.items())
            yield block(
                f"target topic {pair.target_topic!r}",
                f"its log is longer than the source's ({shown})",
                "Either producers already write to the target (the cutover is over: nothing is left to plan), or the "
                "source topic was truncated or re-created.",
            )


def names(s: Situation) -> Iterator[Found]:
    """Two source topics would become one target topic."""
    sources: dict[str, list[str]] = {}
    for pair in s.pairs:
        sources.setdefault(pair.target_topic, []).append(pair.source.info.name)
    for target, several in sources.items():
        if len(several) > 1:
            yield block(
                f"target topic {target!r}",
                f"policy {s.mirror.policy!r} gives this name to {some(several)}",
                "A policy must give each topic a name of its own. Correct it, or exclude all but one of them.",
            )


def partitions(s: Situation) -> Iterator[Found]:
    """Partition counts differ."""
    if s.mirror.partitioning == "by_key":
        return  # any count is fine
    for pair in s.pairs:
        here, there = pair.source.info.partitions, pair.target.info.partitions if pair.target else None
        if there is None or there == here:
            continue
        counts = f"{count(here, 'partition')} on the source, {there} on the target"
        about = f"target topic {pair.target_topic!r}"
        if there > here:
            yield warn(
                about,
                counts,
                "The surplus stays empty until producers write there; the same key will then go to another partition "
                "than before.",
            )
        elif pair.ours:
            yield warn(about, counts, f"CreateTargetTopics grows it to {here}.")
        else:
            yield block(
                about,
                counts,
                f"Grow or re-create the target topic with {count(here, 'partition')}; records would have nowhere to go. "
                "Or let keys choose the partition: partitioning='by_key' (--partitioning by_key; of an older tool's "
                "command line --preserve.partitions=false), without offsets and groups.",
            )


def message_size(s: Situation) -> Iterator[Found]:
    """The target topic takes only smaller batches than the source's."""
    for pair in s.pairs:
        if pair.target is None:
            continue  # created with the source's limit
        here, there = (int(t.config("max.message.bytes") or 0) for t in (pair.source, pair.target))
        if there >= here:
            continue
        yield Found(
            "warn" if pair.ours else "block",
            f"target topic {pair.target_topic!r}",
            f"max.message.bytes is {there:,}; batches of up to {here:,} bytes may come from the source",
            f"SyncTopicConfigs raises it to {here:,}." if pair.ours else f"Set it to {here} or more on the target topic.",
        )


def request_size(s: Situation) -> Iterator[Found]:
    """The target's brokers reject requests that are large enough for the source's largest batch."""
    entry = (s.target.broker_configs or {}).get("socket.request.max.bytes")
    if entry is None or entry.value is None:
        return
    for pair in s.pairs:
        largest = int(pair.source.config("max.message.bytes") or 0)
        if largest >= int(entry.value):
            yield block(
                f"topic {pair.source.info.name!r}",
                f"batches of up to {largest:,} bytes (max.message.bytes), but the target's brokers refuse requests above "
                f"{int(entry.value):,} bytes (socket.request.max.bytes)",
                f"Raise socket.request.max.bytes on the target above {largest:,}, or lower max.message.bytes on the "
                "source to the largest batch that its producers send.",
            )


def min_insync(s: Situation) -> Iterator[Found]:
    """The target has fewer replicas than writes with acks=all need: each of them would be rejected."""
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        wanted = int(pair.source.config("min.insync.replicas") or 1)
        replicas = pair.target.info.replication_factor if pair.target else topic.replication_factor
        if wanted > replicas:
            yield block(
                f"target topic {pair.target_topic!r}",
                f"min.insync.replicas is {wanted} on the source, and the topic has {count(replicas, 'replica')} on the "
                "target: writes with acks=all would be refused",
                f"Give it {wanted} replicas (replication_factor, more brokers), or lower min.insync.replicas on the "
                f"source topic to {replicas}.",
            )


_REFUSED: dict[int, str] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "Give it another name there (naming), or delete the topic that is in its way.",
    ErrorCode.INVALID_PARTITIONS: "Create the target topic yourself, or have the target's limit raised.",
    ErrorCode.INVALID_CONFIG: (
        "Change the setting on the source topic to one that the target accepts, leave it out (exclude_configs{keys}), or "
        "create the target topic yourself."
    ),
    ErrorCode.POLICY_VIOLATION: (
        "Have the topic exempted from the target's policy, or change on the source topic what the policy names; a "
        "setting can be left out (exclude_configs{keys})."
    ),
}


def ledger_topics(s: Situation) -> Iterator[Found]:
    """The target would not create what the mirror keeps there."""
    for topic, words in s.target.refused_ledger.items():
        yield block(
            f"ledger topic {topic!r}",
            f"the target would not create it ({words})",
            "Have topics airflow-mirror.* exempted from that rule: what was decided is kept for ever, and nothing is "
            "copied without it.",
        )


def refused(s: Situation) -> Iterator[Found]:
    """The target would not create the topic, or would not change its settings."""
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        if pair.target_topic not in s.refused:
            continue
        code, words, hold, on_hold = s.refused[pair.target_topic]
        named = [key for key in topic.configs if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w]|\.\w)", words)]
        keys = f"={named}" if named else ""
        level = "block"
        if hold:
            cause = f"the target refuses the hold, which keeps old records while they are copied ({words})"
            remedy = (
                "Have the topic exempted from that rule until the cutover, which gives it the source's settings: those "
                f"are not refused. The hold is {', '.join(f'{key}={value}' for key, value in sorted(hold.items()))}."
            )
            if "retention.ms" in hold:
                remedy += " Or give a longest time that it takes, if no record is as old (hold_retention_ms)."
        elif pair.target is None:
            cause, remedy = f"the target would not create it ({words})", _REFUSED[code].format(keys=keys)
        else:
            # A mirror that has begun goes on: the source was changed since, and that matters after the cutover.
            level = "warn" if pair.ours and not on_hold else "block"
            cause = f"the target would not give it the source's settings after the cutover ({words})"
            remedy = (
                "Have the topic exempted from that rule, change the setting on the source topic to one that the target "
                f"accepts, or let the target topic keep its own (keep_configs{keys})."
            )
        remedy += " Or leave the topic out (exclude_topics)." if level == "block" else ""
        yield Found(level, f"target topic {pair.target_topic!r}", cause, remedy)


def timestamp_type(s: Situation) -> Iterator[Found]:
    """The target topic would replace record timestamps."""
    for pair in s.pairs:
        if pair.target is not None and pair.target.config("message.timestamp.type") == "LogAppendTime":
            yield Found(
                "warn" if pair.ours else "block",
                f"target topic {pair.target_topic!r}",
                "message.timestamp.type is LogAppendTime: every record's time would become the time of the copy",
                "SyncTopicConfigs sets CreateTime while copying."
                if pair.ours
                else "Set message.timestamp.type=CreateTime on the target topic, at least while the mirror runs.",
            )


def compression(s: Situation) -> Iterator[Found]:
    """The target topic would recompress."""
    for pair in s.pairs:
        codec = pair.target.config("compression.type") if pair.target else None
        if codec not in (None, "producer"):
            yield warn(
                f"target topic {pair.target_topic!r}",
                f"compression.type is {codec}: the broker would rebuild every batch",
                "Set to 'producer' while copying; the source's setting follows afterwards.",
            )


def retention(s: Situation) -> Iterator[Found]:
    """Retention would delete history as it arrives."""
    short = []
    for topic in s.topics:
        existing = s.target.topics.get(topic.target_topic)
        if existing is None:
            policy = topic.configs.get("cleanup.policy", "delete")
            limits = {key: topic.configs.get(key, default) for key, default in _RETENTION.items()}
        else:
            policy = existing.config("cleanup.policy") or "delete"
            limits = {key: existing.config(key) or default for key, default in _RETENTION.items()}
        finite = ", ".join(f"{key}={value}" for key, value in limits.items() if value != "-1")
        if finite and "delete" in policy:
            short.append(f"{topic.target_topic} ({finite})")
    if short:
        yield warn(
            f"{len(short)} of {count(len(s.topics), 'topic')}",
            f"retention counts from the records' own times and would delete older ones as they arrive: {some(short)}",
            f"Off during the copy (retention.ms={Rules.of(s.mirror).retention_ms}): the target needs the disk space. "
            "SyncTopicConfigs(hold=False) restores it in aftercare.",
        )


def finite_hold(s: Situation) -> Iterator[Found]:
    """The hold ends, and the target would delete what the source still has."""
    old = [f"{pair.source.info.name}-{p}" for pair in s.pairs for p in pair.source.too_old]
    if old:
        yield block(
            count(len(old), "partition"),
            f"the first record is older than {TO_BEGIN:.0%} of hold_retention_ms={s.mirror.hold_retention_ms}, when the "
            f"target's brokers delete: {some(old)}",
            "Give a longer hold_retention_ms, or none; or begin later (start), or wait until the source's retention has "
            "deleted these records, or leave the topics out (exclude_topics).",
        )


def compacted(s: Situation) -> Iterator[Found]:
    """Compaction continues during the copy, and has left holes."""
    compacted = [t.source_topic for t in s.topics if t.compacted]
    if compacted:
        yield warn(
            f"{len(compacted)} of {count(len(s.topics), 'topic')}",
            f"compaction leaves holes in {some(compacted)}",
            "cleanup.policy is 'delete' while the backlog arrives, with mapped offsets until the mirror has ended; until "
            "then all records take disk.",
        )


def replication(s: Situation) -> Iterator[Found]:
    """Fewer brokers than replicas."""
    capped = []
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        wanted = s.mirror.replication_factor or pair.source.info.replication_factor
        if wanted > topic.replication_factor and pair.target is None:
            capped.append(f"{pair.target_topic} ({wanted} -> {topic.replication_factor})")
    if capped:
        yield warn(
            f"{len(capped)} of {count(len(s.topics), 'topic')}",
            f"more replicas wanted than the target has brokers ({s.target.brokers}): {some(capped)}",
            "Created with as many as there are brokers. Add brokers first if that is not enough.",
        )


def left_out(s: Situation) -> Iterator[Found]:
    """Settings that are not carried over."""
    lost = [f"{t.source_topic} ({', '.join(f'{k}={v}' for k, v in t.left_out.items())})" for t in s.topics if t.left_out]
    if lost:
        yield warn(
            f"{len(lost)} of {count(len(s.topics), 'topic')}",
            f"these settings of the source are not carried over: {some(lost)}",
            "They belong to a cluster, not to data (MirrorMaker 2's rule), or the target does not know them. Set what "
            "you need on the target yourself.",
        )
