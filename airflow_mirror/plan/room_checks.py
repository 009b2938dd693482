"""Preflight checks: room on the target's disks, what takes more of it, and quotas that slow the mirror down."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_mirror.plan import growing
from airflow_mirror.plan.configs import is_held_by_lag
from airflow_mirror.plan.findings import Checks, Finding, block, several, warn
from airflow_mirror.plan.inventory import TopicState
from airflow_mirror.plan.situation import Situation
from airflow_mirror.wording import count, duration, size, some

CHECKS = Checks[Situation]()
_CROWDED = 0.8  # of the free disk: more records arrive while a mirror writes, and retention is off


@CHECKS.check("disk", "the copy fits on the target's disks", about="target brokers", of="mirror")
def _disk(s: Situation) -> Iterator[Finding]:
    by_broker = s.target.usable_bytes
    silent = [f"broker {broker}" for broker, usable in sorted(by_broker.items()) if usable is None]
    unknown = [f"of {some(silent)} (they don't tell; from Kafka 3.3 on they do)"] if silent else []
    unknown += [] if by_broker else ["of the target (no DESCRIBE on the cluster)"]
    left = _left(s)
    if unknown or left is None:
        sizes = ["sizes of the source's topics (no DESCRIBE on the cluster, or not told)"] if left is None else []
        yield warn(
            f"it is not known whether the copy fits: {'; '.join([*(f'free disk {one}' for one in unknown), *sizes])}",
            "Compare the source's disk, times the replicas, with what is free on the target. Retention is off meanwhile.",
        )
        return
    needed = sum(replicas * bytes_ for replicas, bytes_ in left)
    free = {broker: usable for broker, usable in by_broker.items() if usable is not None}
    total = sum(free.values())
    local = s.source.local_sizes
    takes = f"{'at least ' if local else ''}{size(needed)}"
    evidence = f"the copy takes {takes} with all replicas; the target's brokers have {size(total)} free"
    if needed > total:
        yield block(evidence, "Free disk there, or mirror fewer topics.")
    elif needed > _CROWDED * total or any(needed / len(free) > usable for usable in free.values()):
        least = min(free, key=lambda broker: free[broker])
        yield warn(
            f"{evidence}, broker {least} {size(free[least])} of it",
            "More records arrive while the mirror writes, and replicas are not spread evenly. Free disk before that.",
        )
    elif local:
        yield warn(
            f"{evidence}; how much lies in tiered storage is not known of {some(local)}",
            "No sample of them could be read. Plan again, or compare what the remote store holds with what is free.",
        )


@CHECKS.check("quotas", "no client quota slows the mirror down", of="mirror")
def _quotas(s: Situation) -> Iterator[Finding]:
    moved = sum(bytes_ for _, bytes_ in _left(s) or ())
    for side, inventory, rate in (("source", s.source, "consumer_byte_rate"), ("target", s.target, "producer_byte_rate")):
        if inventory.quotas is None:
            yield warn(
                "client quotas can't be read (no DESCRIBE_CONFIGS on the cluster, or brokers before 2.6)",
                "Make sure that none slows the mirror's user down.", f"{side} cluster",
            )  # fmt: skip
            continue
        limits = {
            f"{key}={value:.0f} for {one}": (key, value)
            for one, values in sorted(inventory.quotas.items(), key=str)
            for key, value in values.items()
            if key in (rate, "request_percentage") or (key == "controller_mutation_rate" and side == "target")
        }
        if not limits:
            continue
        slowest = min((value for key, value in limits.values() if key == rate), default=None)
        takes = ""
        if moved and slowest:
            takes = f": at least {duration(moved / (slowest * max(1, inventory.brokers)))} for what is there now"
        yield warn(
            f"quotas apply to the mirror, on each broker: {some(limits)}{takes}",
            "Raise them for the mirror's user, or limit the mirror yourself with max_bytes_per_second.",
            f"{side} cluster",
        )


@CHECKS.check("compacted", "no compacted topic")
def _compacted(s: Situation) -> Iterator[Finding]:
    by_lag, compacted = s.mirror.compacted_hold == "lag", [t for t in s.topics if t.compacted]
    meanwhile = (
        "cleanup.policy is 'delete' while the backlog arrives, with mapped offsets until the mirror has ended; until"
    )
    if by_lag:
        meanwhile = "A record without a key is refused, and nothing is compacted until the mirror has ended; until"
    yield from s.of_topics(
        [t.source_topic for t in compacted], "compaction leaves holes in {}", f"{meanwhile} then all records take disk."
    )
    policy = {t.source_topic: t.held_configs.get("cleanup.policy", "") for t in compacted}  # "": the target has none
    unheld = [t.source_topic for t in compacted if "compact" in policy[t.source_topic] and not is_held_by_lag(t)]
    above = [t.source_topic for t in compacted if t.prime and policy[t.source_topic] == "compact"]
    stuck = [t.source_topic for t in compacted if not t.target_exists and not by_lag and s.capabilities.keeps_policy]
    yield from several(
        block, unheld, "topic", "the target knows no min.compaction.lag.ms, and would compact while history arrives",
        "Hold compacted topics as 'delete' (compacted_hold), or leave them out (exclude_topics).",
    )  # fmt: skip
    yield from several(
        block, above, "topic",
        "its log starts above 0, which takes DeleteRecords, and brokers refuse that where cleanup.policy is 'compact'",
        "Give it a mirror of its own with offsets='mapped', or leave it out (exclude_topics).",
    )  # fmt: skip
    yield from several(
        block, [f"{name} ({count(number, 'record')} of a sample)" for name, number in sorted(s.keyless.items())], "topic",
        "it holds records without a key, which the target refuses (INVALID_RECORD) while cleanup.policy has 'compact'",
        "Hold compacted topics as 'delete' (compacted_hold), or leave it out (exclude_topics).",
    )  # fmt: skip
    yield from several(
        block, stuck, "topic",
        f"the target lets no topic's cleanup.policy change ({s.capabilities.keeps_policy}), and what is on hold as "
        "'delete' would never be compacted",
        "Hold compacted topics by their compaction lag (compacted_hold='lag'), or leave them out (exclude_topics).",
    )  # fmt: skip


@CHECKS.check("growing", "the target stays as small as the source while a tail runs")
def _growing(s: Situation) -> Iterator[Finding]:
    ends = s.mirror.hold_retention_ms is not None  # then the target's brokers delete what gets as old
    causes: dict[str, list[str]] = {}
    for t in s.topics:
        followed = ends or not s.mirror.sync_log_starts or t.compacted
        for cause in ("" if followed else growing.not_followed(s.mirror, t), growing.not_compacted(t)):
            causes.setdefault(cause, []).append(t.source_topic)
    for cause, topics in causes.items():
        if cause:
            yield from s.of_topics(
                topics, f"the target keeps more than the source until the mirror has ended, as {cause}: {{}}",
                "Have room there for all that arrives until then.",
            )  # fmt: skip


def _left(s: Situation) -> list[tuple[int, int]] | None:
    """Return replicas on the target and bytes still to copy, for each topic; None if sizes are not known."""
    if s.source.sizes is None:
        return None
    left = []
    for pair, topic in zip(s.pairs, s.topics, strict=True):
        replicas = topic.replication_factor if pair.target is None else pair.target.info.replication_factor
        held = (s.target.sizes or {}).get(pair.target_topic, 0) if pair.ours else 0
        there = s.source.sizes.get(pair.source.info.name, 0)
        # Of what the target holds a part may be from before the mirror's start, by an older tool.
        left.append((replicas, max(0, min(_to_copy(pair.source, there), there - held))))
    return left


def _to_copy(topic: TopicState, bytes_: int) -> int:
    """Return how much of a source topic lies behind the mirror's start, as its offsets have it.

    Of one in tiered storage the size is that of a sample of just these, or of what lies on brokers, which is the newest.

    :param bytes_: the topic's size.
    """
    there = sum(end - topic.starts[p] for p, end in topic.ends.items())
    ahead = sum(end - min(topic.begins[p], end) for p, end in topic.ends.items())
    if topic.tiered:
        return bytes_ if ahead else 0
    return bytes_ * ahead // there if there else bytes_
