"""Preflight checks: pure functions from the inventories to findings. Each finding names values and what to do.

A check yields its findings; a check that yields nothing has passed. All checks run, so that the operator sees every
problem at once. To add one: write the function, add a line to ``CHECKS``, write a test in which it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from airflow_mirror.kafka.held import Held
from airflow_mirror.partition import TopicPartition
from airflow_mirror.plan import brokers, hole_checks, room_checks, selection, topic_checks
from airflow_mirror.plan.model import Finding, Found, block, warn, well, worst_first
from airflow_mirror.plan.situation import Situation
from airflow_mirror.wording import count, some


def run_checks(situation: Situation) -> list[Finding]:
    """Run every check; blocks come first, passes last."""
    if same := list(_same_cluster(situation)):
        return [one.by("same_cluster") for one in same]  # every other check would compare the cluster with itself
    findings: list[Finding] = []
    for name, passed, check in CHECKS:
        found = list(check(situation)) or [well(count(len(situation.topics), "topic"), passed)]
        findings += [one.by(name) for one in found]
    return worst_first(findings)


def _same_cluster(s: Situation) -> Iterator[Found]:
    if s.source.cluster_id == s.target.cluster_id:
        yield block(
            f"connections {s.mirror.source!r} and {s.mirror.target!r}",
            f"both are cluster {s.source.cluster_id}",
            "Correct one of them: a mirror onto its own source would overwrite or multiply its records.",
        )


def _loops(s: Situation) -> Iterator[Found]:
    if s.source.upstream.unreadable:
        yield block(
            "source cluster",
            f"its ledger can't be read: {s.source.upstream.unreadable}",
            "It says which topics come from other clusters, perhaps from this target. Make it readable for the source's "
            "principal.",
        )
    names = (topic.source_topic for topic in s.topics)
    for topic, owner in s.source.upstream.returning(names, s.target.cluster_id).items():
        yield block(
            f"topic {topic!r}",
            f"its records come from the target, cluster {s.target.cluster_id}: on the source it belongs to {owner}",
            "They would return there. Exclude it from one of the mirrors (exclude_topics), or let them write under a "
            "prefix (policy='prefix'). If that mirror is over, give up its topics on the source: 'airflow-mirror ledger "
            "release'.",
        )
    if s.source.returning:
        yield warn(
            count(len(s.source.returning), "topic"),
            f"they come from the target, cluster {s.target.cluster_id}, and are left out: {some(s.source.returning)}",
            "Nothing to do. To be rid of this warning, add them to exclude_topics.",
        )


def _traces(s: Situation) -> Iterator[Found]:
    for topic, cause in sorted(s.target.unfit_traces.items()):
        yield block(
            f"target topic {topic!r}",
            f"it can't hold traces for Java clients: {cause}",
            "A trace's topic has one partition and cleanup.policy=compact, and the mirror may write and read it. Correct "
            "that, delete the topic, or leave the trace out of the Mirror's traces.",
        )
    for topic in s.source.displaced:
        yield warn(
            f"topic {topic!r}",
            "it is not copied: with traces='heartbeats' the mirror writes its own heartbeats in its place",
            "If it is MirrorMaker 2's, there is nothing to do. If it is an application's, leave heartbeats out of the "
            "Mirror's traces.",
        )
    if s.source.traces:
        yield well(
            count(len(s.source.traces), "topic"),
            f"they hold traces of mirrors into the source, and are left out: {some(s.source.traces)}",
        )


def _ledger_writers(s: Situation) -> Iterator[Found]:
    if s.target.ledger_writers:
        commands = "; ".join(dict.fromkeys(one.command for one in s.target.ledger_writers))
        yield warn(
            "target cluster",
            f"others may write to the ledger's topics: {some(map(str, s.target.ledger_writers))}",
            "Mirrors go by what stands there. A cutover wants that right taken away, or these principals named in "
            f"accept_ledger_writers. To take it away: {commands}.",
        )


def _partitioning(s: Situation) -> Iterator[Found]:
    if s.mirror.partitioning == "by_key":
        yield warn(
            f"mirror {s.mirror.name!r}",
            "partitioning='by_key': an offset of the source has no counterpart on the target",
            "Consumer groups don't move, nothing is compared, and there is no cutover: start consumers of the target at "
            "the earliest offset or by time. Order holds for each key of a source partition.",
        )


def _ownership(s: Situation) -> Iterator[Found]:
    if s.mirror.shares:
        yield warn(
            f"mirror {s.mirror.name!r}",
            "ownership='shared': other mirrors may write to the same target topics",
            "Order holds within a partition for each source, not between sources. Groups and ACLs don't follow, and "
            "there is no cutover: start consumers at the earliest offset or by time. A topic has the settings that were "
            "set last: hold=False only once every mirror of it is done.",
        )


def _offsets(s: Situation) -> Iterator[Found]:
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        if pair.begun and pair.begun != topic.mode:
            yield block(
                f"target topic {pair.target_topic!r}",
                f"its copy began with {pair.begun} offsets; offsets={s.mirror.offsets!r} asks for {topic.mode} ones",
                f"Ask for offsets={pair.begun!r}, or delete the target topic and begin again.",
            )
        elif topic.mode == "mapped" and s.mirror.partitioning == "preserve":
            yield warn(
                f"topic {topic.source_topic!r}",
                f"its offsets are mapped ({topic.reason})",
                "Groups are translated exactly, by the offset map. Offsets outside Kafka (databases, "
                "checkpoints) must be translated by their owners: python -m airflow_mirror.jobs.translate.",
            )


def _auto_create(s: Situation) -> Iterator[Found]:
    if s.target.broker_configs is None:
        yield warn(
            "target cluster",
            "broker settings can't be read (no DESCRIBE_CONFIGS on the cluster)",
            "Make sure that auto.create.topics.enable is false.",
        )
        return
    entry = s.target.broker_configs.get("auto.create.topics.enable")
    if entry is not None and entry.value == "true":
        yield warn(
            "target cluster",
            "auto.create.topics.enable is true",
            "A client that starts early creates topics with the wrong partition count. Set it to false.",
        )


def _open_transactions(s: Situation) -> Iterator[Found]:
    for pair in s.pairs:
        state = pair.source
        ends = {TopicPartition(state.info.name, p): (state.stable_ends[p], end) for p, end in state.ends.items()}
        waits = (Held(source=tp, since=since, end=end) for tp, (since, end) in ends.items() if since < end)
        held = [str(replace(one, by=s.source.holders.get(one.source, ""))) for one in waits]
        if held and s.mirror.isolation == "read_committed":
            yield warn(
                f"topic {state.info.name!r}",
                some(held),
                "They are copied once it ends. If the number doesn't shrink, find the producer that hangs: until then "
                "the mirror can't reach the end.",
            )


def _groups(s: Situation) -> Iterator[Found]:
    if not s.source.groups and s.mirror.groups and s.mirror.partitioning == "preserve" and not s.mirror.shares:
        yield warn(
            "source cluster",
            "none of the selected groups was found",
            "Nothing moves then. If there are any, grant DESCRIBE on groups: without it Kafka lists none, and no error.",
        )
    for group, positions in sorted(s.source.groups.items()):
        read = {tp.topic for tp in positions}
        outside = sorted(read - set(s.source.topics))
        if not read & set(s.source.topics):
            where = f"has positions only in {some(outside)}" if outside else "has no position"
            yield warn(f"group {group!r}", where, "It has nothing to move with this mirror.")
        elif outside:
            yield warn(
                f"group {group!r}",
                f"also reads topics that this mirror leaves behind: {some(outside)}",
                "Move them together, or its consumers need both clusters.",
            )


def _other_topics(s: Situation) -> Iterator[Found]:
    if s.source.other_topics:
        yield well(
            count(len(s.source.other_topics), "topic"),
            f"the source has them, and the Mirror does not select them: {some(s.source.other_topics)}",
        )


def _other_groups(s: Situation) -> Iterator[Found]:
    if s.source.other_groups:
        yield warn(
            count(len(s.source.other_groups), "group"),
            f"they have positions in these topics and are not selected: {some(s.source.other_groups)}",
            "They don't move: their consumers begin on the target by auto.offset.reset. Change groups or exclude_groups "
            "to move them.",
        )


Check = tuple[str, str, "Callable[[Situation], Iterable[Found]]"]
CHECKS: tuple[Check, ...] = (
    ("same_cluster", "source and target are two clusters", _same_cluster),
    ("names", "every topic has a name of its own", topic_checks.names),
    ("loops", "no topic comes from the target", _loops),
    ("traces", "topics of traces are as they must be", _traces),
    ("brokers", "the source's brokers tell all that a mirror asks", brokers.old_source),
    ("lease", "the target's brokers take the writer lease", brokers.lease),
    ("ledger_topics", "the target takes the ledger's topics", topic_checks.ledger_topics),
    ("ledger_writers", "nobody else may write to the ledger's topics", _ledger_writers),
    ("partitioning", "records keep their partition", _partitioning),
    ("ownership", "each target topic has one mirror", _ownership),
    ("offsets", "topics continue in the mode in which their copy began", _offsets),
    ("target_data", "no foreign data on the target", topic_checks.target_data),
    ("partitions", "partition counts are equal, or the topic is created", topic_checks.partitions),
    ("message_size", "the target takes the largest batch", topic_checks.message_size),
    ("request_size", "the target's brokers take the largest batch", topic_checks.request_size),
    ("min_insync", "every topic has the replicas that acks=all asks for", topic_checks.min_insync),
    ("refused_configs", "the target takes every topic, and its settings on hold and afterwards", topic_checks.refused),
    ("timestamp_type", "record times are kept", topic_checks.timestamp_type),
    ("compression", "batches are kept as they are", topic_checks.compression),
    ("retention", "no arriving record would be deleted", topic_checks.retention),
    ("finite_hold", "the hold keeps every record", topic_checks.finite_hold),
    ("disk", "the copy fits on the target's disks", room_checks.disk),
    ("quotas", "no client quota slows the mirror down", room_checks.quotas),
    ("compacted", "no compacted topic", topic_checks.compacted),
    ("priming", "every log starts at 0, or is already on the target", hole_checks.priming),
    ("holes", "no hole was found", hole_checks.holes),
    ("capabilities", "the target lets the principal create, write, pad in bulk, prime, read", hole_checks.capabilities),
    ("replication", "the target has brokers for every replica", topic_checks.replication),
    ("auto_create", "the target creates no topics by itself", _auto_create),
    ("open_transactions", "no open transaction holds records back", _open_transactions),
    ("internal_topics", "no topic is left out for its name alone", selection.internal),
    ("unmatched", "all that the Mirror names is there", selection.unmatched),
    ("other_topics", "no topic of the source is left out", _other_topics),
    ("groups", "every selected group moves as a whole", _groups),
    ("other_groups", "no group is left behind", _other_groups),
    ("left_out_configs", "every setting is carried over", topic_checks.left_out),
)
