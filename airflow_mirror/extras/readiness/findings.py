"""What has to be done before the night, as findings: ``block`` where no cutover should begin, ``warn`` otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_mirror.extras.readiness.external_state import REGISTRY
from airflow_mirror.extras.readiness.groups import SHARE, TO_DO
from airflow_mirror.extras.readiness.look import (
    COMMITTED,
    CONFIGS,
    COPY,
    EXPIRES,
    GROUPS,
    PRODUCERS,
    STARTS,
    ReadinessFacts,
)
from airflow_mirror.extras.readiness.model import NightPlan
from airflow_mirror.extras.readiness.race import Race, urgent
from airflow_mirror.kafka.model import CONNECT
from airflow_mirror.plan.findings import WARN, Checks, Finding, several, warn, worst_first
from airflow_mirror.wording import count, duration, some

CHECKS = Checks[NightPlan, ReadinessFacts]("the night", away=WARN, hidden=WARN)
_RAISE = "Raise the topic's retention.ms and retention.bytes on the source, or let the copy be faster"


def findings(night: NightPlan, seen: ReadinessFacts) -> list[Finding]:
    """Return what was found, blocks first.

    :param night: all the rest of it.
    """
    return worst_first(CHECKS.run(seen.unknown, night, seen))


_RACES = {
    "lost": (
        "the source has deleted records that were never copied",
        "They are gone. Find out who needs them, then delete the target topic and copy it again.",
    ),
    "loses": ("the source will delete records before they are copied", f"{_RAISE}, before anything else."),
    "may lose": ("at half its rate the copy would lose records to the source's retention", f"{_RAISE}."),
    "near": (
        "nothing of it was copied while watched, and the source deletes records within a day",
        f"{_RAISE}.",
    ),
    "late": (
        "nothing of it was copied while watched, and the topic is estimated to take longer than the source keeps records",
        f"{_RAISE}.",
    ),
}


@CHECKS.check("retention_race", needs=[COPY, CONFIGS, STARTS, EXPIRES])
def _retention_race(night: NightPlan, seen: ReadinessFacts) -> Iterator[Finding]:
    """Of each topic and verdict the worst partition, and how many there are."""
    takes = {one.topic: one.seconds for one in night.estimates}
    by_verdict: dict[tuple[str, str], list[Race]] = {}
    for race in night.races:
        by_verdict.setdefault((race.topic, race.verdict), []).append(race)
    for (topic, verdict), races in by_verdict.items():
        if verdict in _RACES:
            what, remedy = _RACES[verdict]
            worst = urgent(races)[0]
            evidence = f"{what}: {count(len(races), 'partition')}, {worst}"
            if verdict == "late":
                evidence += f"; level in {duration(takes[topic] or 0.0)}"
            yield Finding(worst.level, "", f"topic {topic!r}", evidence, remedy)
    known = {tp.topic for tp in seen.sizes}
    yield from several(
        warn, [t for t, limit in seen.limits.items() if limit.retention_bytes is not None and t not in known], "topic",
        "retention.bytes deletes records, and sizes of logs are not known",
        "Grant DESCRIBE on the cluster, and READ on topics in tiered storage, of which samples tell; or compare by hand "
        "what is written with what is kept.",
    )  # fmt: skip


@CHECKS.check("waves", needs=[GROUPS, COMMITTED])
def _waves(_: NightPlan, seen: ReadinessFacts) -> Iterator[Finding]:
    silent = [group.group_id for group in seen.groups if group.has_members and seen.positions.get(group.group_id) == {}]
    yield from several(
        warn, silent, "group", "they have members and have committed nothing, so nobody knows what they read",
        "Ask their owners, and move them with the wave of their topics.",
    )  # fmt: skip


@CHECKS.check("producers", needs=[PRODUCERS])
def _producers(night: NightPlan, seen: ReadinessFacts) -> Iterator[Finding]:
    if mirrors := [producer for producer in night.producers if producer.is_mirror]:
        yield warn(
            f"a mirror copies to the source: {some({tp for producer in mirrors for tp in producer.partitions})}",
            "End that mirror first ('airflow-mirror retire'), or what it copies later stays behind.",
            count(len(mirrors), "producer"),
        )
    wide = [producer for producer in night.producers if len(producer.waves) > 1]
    yield from several(
        warn, [f"{producer.name} (waves {', '.join(map(str, producer.waves))})" for producer in wide], "producer",
        "they write to topics of several waves",
        "Between these waves each writes to both clusters. Where it can't, join the waves.",
    )  # fmt: skip
    yield from several(
        warn, [tp for tp, log in seen.logs.items() if log.produced_per_s and seen.producers.get(tp) == []], "partition",
        "they got records while watched, from producers that no broker lists",
        "Find out who writes there: they don't number their batches (enable.idempotence=false).",
    )  # fmt: skip


@CHECKS.check("groups")
def _shared(night: NightPlan, _: ReadinessFacts) -> Iterator[Finding]:
    yield from several(
        warn, [group.name for group in night.groups if group.kind == SHARE], SHARE, "they don't move", TO_DO[SHARE]
    )


@CHECKS.check("elsewhere")
def _parted(night: NightPlan, _: ReadinessFacts) -> Iterator[Finding]:
    selected = {group.name for group in night.groups if group.wave}
    for kept in night.elsewhere:
        parted = 0 < len(kept.missing) < len(kept.topics) and kept.kind in (CONNECT, REGISTRY)
        if parted or (kept.missing and kept.owner in selected):
            evidence = f"the mirror does not select all of its topics: {some(kept.missing)}"
            yield warn(evidence, kept.to_do, f"{kept.kind} {kept.owner}".strip())
