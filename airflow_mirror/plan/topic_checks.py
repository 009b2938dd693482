"""Preflight checks of single topics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_mirror.plan.config_diff import own_values
from airflow_mirror.plan.configs import MIN_INSYNC, Rules
from airflow_mirror.plan.decide import Pair
from airflow_mirror.plan.findings import BLOCK, WARN, Checks, Finding, block, several, warn
from airflow_mirror.plan.finite_hold import TO_BEGIN
from airflow_mirror.plan.inventory import Refusal
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.recreated_topics import sentence
from airflow_mirror.plan.refusals import BROKEN
from airflow_mirror.plan.situation import Situation, each_topic
from airflow_mirror.wire import produce
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wording import count, some

CHECKS = Checks[Situation]()

_REQUEST_BYTES = "socket.request.max.bytes"
# Kafka's keys, and the values that apply if neither side sets them.
_RETENTION = {"retention.ms": "the target's default", "retention.bytes": "-1"}


@CHECKS.check("target_data", "no foreign data on the target")
def _target_data(s: Situation) -> Iterator[Finding]:
    for name, target_topic in s.source.again.items():
        evidence, remedy = sentence(target_topic)
        level = WARN if s.topics else BLOCK  # a plan of nothing would be of no use
        yield Finding(level, "", f"topic {name!r}", f"{evidence}; it is left out", remedy)
    yield from _written(s)


@each_topic
def _written(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    ahead = {p: end for p, end in pair.written.items() if end > pair.source.ends.get(p, end)}
    if pair.target is None or not pair.written:
        return
    shown = some(f"partition {p} ends at {end:,}" for p, end in pair.written.items())
    foreign = f"it holds data that this mirror did not write ({shown})"
    if not pair.ours and topic.mode == "mapped":
        yield warn(
            foreign, "These data stay: records are appended after them, and the offset map knows which are the mirror's."
        )
    elif not pair.ours:
        other = "another prefix (source_alias)" if s.mirror.policy == "prefix" else "policy='prefix'"
        yield block(
            foreign,
            f"Exclude the topic, or choose {other}. If a ledger was lost that knows whose they are, restore it "
            "('airflow-mirror ledger restore').",
        )
    elif ahead and topic.mode != "mapped":
        shown = some(f"partition {p}: {end:,} there, {pair.source.ends[p]:,} here" for p, end in ahead.items())
        yield block(
            f"its log is longer than the source's ({shown})",
            "Either producers already write to the target (the cutover is over: nothing is left to plan), or the source "
            "topic was truncated or re-created.",
        )


@CHECKS.check("partitions", "partition counts are equal, or the topic is created")
@each_topic
def _partitions(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    here, there = pair.source.info.partitions, pair.target.info.partitions if pair.target else None
    if topic.key_partitions is not None:  # that takes any count
        yield from _key_places(topic.key_partitions, there)
        return
    if there in (None, here):
        return
    counts = f"{count(here, 'partition')} on the source, {there} on the target"
    if there is not None and there > here:
        yield warn(
            counts,
            "The surplus stays empty until producers write there; the same key will then go to another partition than "
            "before.",
        )
    elif pair.ours:
        yield warn(counts, f"CreateTargetTopics grows it to {here}.")
    else:
        yield block(
            counts,
            f"Grow or re-create the target topic with {count(here, 'partition')}; records would have nowhere to go. "
            "Or let keys choose the partition: partitioning='by_key' (--partitioning by_key; of an older tool's command "
            "line --preserve.partitions=false), without offsets and groups.",
        )


def _key_places(begun: int, there: int | None) -> Iterator[Finding]:
    """Yield what there is to say of key partitioning if the target topic has another count than when its copy began."""
    counts = f"its copy began with {count(begun, 'partition')}, and it has {there} by now"
    if there is not None and there > begun:
        yield warn(
            counts,
            f"Keys keep their places: they are still dealt out among the first {begun}, where an application's producer "
            "would choose among all. To deal them out anew, delete the target topic or mirror under another name.",
        )
    elif there is not None and there < begun:
        yield block(counts, "It was created again, and places of keys are missing. Delete it: its copy begins anew.")


@CHECKS.check("message_size", "the target takes the largest batch")
@each_topic
def _message_size(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    key = "max.message.bytes"
    here, gets = int(pair.source.config(key) or 0), int(topic.held_configs.get(key) or 0)
    if pair.target is None:
        there = gets or int((s.target.own_configs or {}).get(key) or here)
    else:
        there = int(pair.target.config(key) or 0)
    if there >= here:
        return
    evidence = f"{key} is {there:,}; batches of up to {here:,} bytes may come from the source"
    stays = s.mirror.excludes_config(key) or s.mirror.keeps_config(key)
    if pair.target is not None and not pair.ours and not stays:
        yield block(evidence, f"Set it to {here} or more on the target topic.")
    elif gets >= here:
        yield warn(evidence, f"SyncTopicConfigs raises it to {here:,}.")
    else:
        yield warn(
            evidence,
            "It stays, by exclude_configs or keep_configs: a larger batch is split, and a record that is larger stops "
            "its partition. Take it out of them if there may be one.",
        )


@CHECKS.check("request_size", "the target's brokers take the largest request", of="mirror")
def _request_size(s: Situation) -> Iterator[Finding]:
    yield from _larger_than_a_request(s)
    if unread := s.target.unread(_REQUEST_BYTES):
        yield warn(
            unread,
            f"Make sure that it is above {produce.REQUEST_BYTES:,} and the largest batch of the source on every broker "
            "of the target; Kafka's default is 104857600.",
            "target brokers",
        )


@each_topic
def _larger_than_a_request(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    largest = int(pair.source.config("max.message.bytes") or 0)
    sent = produce.REQUEST_BYTES + largest  # of many partitions at once: a broker hangs up on what is larger
    refusing, where = s.target.of_brokers(_REQUEST_BYTES, lambda limit: sent >= int(limit))
    if refusing:
        yield block(
            f"requests of up to {produce.REQUEST_BYTES:,} bytes and a batch of up to {largest:,} (max.message.bytes) are "
            f"sent, but the target's brokers refuse requests above {min(map(int, refusing.values())):,} bytes "
            f"({_REQUEST_BYTES}{where})",
            f"Raise {_REQUEST_BYTES} on the target above {sent:,}; Kafka's default is 104857600.",
            f"topic {topic.source_topic!r}",
        )


@CHECKS.check("min_insync", "every topic has the replicas that acks=all asks for")
@each_topic
def _min_insync(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    wanted, side = _in_sync(s, pair, topic)
    replicas = pair.target.info.replication_factor if pair.target else topic.replication_factor
    if wanted > replicas:
        yield block(
            f"{MIN_INSYNC} is {wanted} on the {side}, and the topic has {count(replicas, 'replica')} on the target: "
            "writes with acks=all would be refused",
            f"Give it {wanted} replicas (replication_factor, more brokers), or lower {MIN_INSYNC} on the {side} "
            f"{'topic ' if side == 'source' or pair.target else ''}to {replicas}.",
        )


def _in_sync(s: Situation, pair: Pair, topic: TopicPlan) -> tuple[int, str]:
    """Return the ``min.insync.replicas`` that a target topic will have, and whose it is: the source's or the target's."""
    rules, here, own = Rules.of(s.mirror), pair.source.config(MIN_INSYNC), s.target.own_configs
    its = {} if pair.target is None else pair.target.configs
    left = rules.excludes(MIN_INSYNC) or (pair.target is not None and rules.keeps(MIN_INSYNC))
    if left and MIN_INSYNC in its:
        value = its[MIN_INSYNC].value
    else:
        value = topic.configs.get(MIN_INSYNC, {**(own or {}), **own_values(its, own)}.get(MIN_INSYNC))
    return int(value or 1), "source" if value == here and not left else "target"


_ANY_OTHER = (
    "Create the target topic yourself, in a form that the target takes, or have changed there what its words name."
)
_REFUSED: dict[int, str] = {
    ErrorCode.INVALID_REPLICATION_FACTOR: "Give a number of replicas that the target takes (replication_factor).",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "Create the target topic yourself, with an assignment that the target takes.",
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


@CHECKS.check("refused_configs", "the target takes every topic, and its settings on hold and afterwards")
def _refused_configs(s: Situation) -> Iterator[Finding]:
    yield from _refused(s)
    silent = [f"{topic}: {one.words}" for topic, one in sorted(s.target.refused.items()) if one.code is None]
    yield from s.of_topics(silent, "not known: {}", "Plan again once the target answers; else the copy finds out.")


@each_topic
def _refused(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    code, words, hold, on_hold = s.target.refused.get(pair.target_topic, Refusal(None, ""))
    if code is None:
        return
    named = [key for key in topic.configs if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w]|\.\w)", words)]
    keys = f"={named}" if named else ""
    if hold:
        cause = f"the target refuses the hold, which keeps old records while they are copied ({words})"
        remedy = (
            "Have the topic exempted from that rule until the cutover, which gives it the source's settings: those are "
            f"not refused. The hold is {', '.join(f'{key}={value}' for key, value in sorted(hold.items()))}."
        )
        if "retention.ms" in hold:
            remedy += " Or give a longest time that it takes, if no record is as old (hold_retention_ms)."
    elif pair.target is None:
        cause, remedy = f"the target would not create it ({words})", _REFUSED.get(code, _ANY_OTHER).format(keys=keys)
    else:
        cause = f"the target would not give it the source's settings after the cutover ({words})"
        remedy = (
            "Have the topic exempted from that rule, change the setting on the source topic to one that the target "
            f"accepts, or let the target topic keep its own (keep_configs{keys})."
        )
    if code == BROKEN:
        yield warn(
            f"the target failed when it was asked whether it takes the topic ({words})",
            "Look into the log of its controller: a policy of its own may have failed, and would when the topic is made.",
        )
    elif not hold and pair.target is not None and pair.ours and not on_hold:
        # A mirror that has begun goes on: the source was changed since, and that matters after the cutover.
        yield warn(cause, remedy)
    else:
        yield block(cause, f"{remedy} Or leave the topic out (exclude_topics).")


@CHECKS.check("timestamp_type", "record times are kept")
@each_topic
def _timestamp_type(s: Situation, pair: Pair, _: TopicPlan) -> Iterator[Finding]:
    if pair.target is not None and pair.target.config("message.timestamp.type") == "LogAppendTime":
        evidence = "message.timestamp.type is LogAppendTime: every record's time would become the time of the copy"
        if pair.ours:
            yield warn(evidence, "SyncTopicConfigs sets CreateTime while copying.")
        else:
            remedy = "Set message.timestamp.type=CreateTime on the target topic, at least while the mirror runs."
            yield block(evidence, remedy)


@CHECKS.check("compression", "batches are kept as they are")
@each_topic
def _compression(s: Situation, pair: Pair, _: TopicPlan) -> Iterator[Finding]:
    codec = pair.target.config("compression.type") if pair.target else None
    if codec not in (None, "producer"):
        yield warn(
            f"compression.type is {codec}: the broker would rebuild every batch",
            "Set to 'producer' while copying; the source's setting follows afterwards.",
        )


UNREAD = "it is not known whether a schema registry keeps its schemas there"


@CHECKS.check("registry_topics", "none is the store of a schema registry")
def _registry_topics(s: Situation) -> Iterator[Finding]:
    yield from _stores(s)
    unread = [f"{name} ({why})" for name, why in sorted(s.source.unread_stores.items())]
    yield from s.of_topics(
        unread, f"{UNREAD}: {{}}",
        "Plan again once they can be read. If one is, start no registry on the target before a cutover has opened it.",
    )  # fmt: skip


@each_topic
def _stores(s: Situation, pair: Pair, topic: TopicPlan) -> Iterator[Finding]:
    if topic.source_topic in s.source.registries:
        yield warn(
            "a schema registry keeps its schemas there: they move as the same log, so their ids stay",
            "A registry writes to it at its start, and would end this copy: start one on the target only once a cutover "
            "has opened the topic. Best in a mirror of its own, cut over before those whose records carry the ids: these "
            "can then be proven before their own fence (source_registry, target_registry). Set the source's registry to "
            "READONLY before that; the mode comes along.",
        )


@CHECKS.check("retention", "no arriving record would be deleted")
def _retention(s: Situation) -> Iterator[Finding]:
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
    yield from s.of_topics(
        short, "retention counts from the records' own times and would delete older ones as they arrive: {}",
        f"Off during the copy (retention.ms={Rules.of(s.mirror).retention_ms}): the target needs the disk space. "
        "SyncTopicConfigs(hold=False) restores it in aftercare.",
    )  # fmt: skip


@CHECKS.check("finite_hold", "the hold keeps every record")
def _finite_hold(s: Situation) -> Iterator[Finding]:
    yield from several(
        block, [f"{pair.source.info.name}-{p}" for pair in s.pairs for p in pair.source.too_old], "partition",
        f"the first record is older than {TO_BEGIN:.0%} of hold_retention_ms={s.mirror.hold_retention_ms}, when the "
        "target's brokers delete",
        "Give a longer hold_retention_ms, or none; or begin later (start), or wait until the source's retention has "
        "deleted these records, or leave the topics out (exclude_topics).",
    )  # fmt: skip
