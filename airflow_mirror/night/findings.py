"""What has to be done before the night, as findings: ``block`` where no cutover should begin, ``warn`` otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from airflow_mirror.checks import Finding, worst_first
from airflow_mirror.kafka.model import CONNECT
from airflow_mirror.night.elsewhere import REGISTRY
from airflow_mirror.night.groups import SHARE, TO_DO
from airflow_mirror.night.look import Seen
from airflow_mirror.night.model import NightPlan
from airflow_mirror.night.race import Race, urgent
from airflow_mirror.wording import count, some

_RAISE = "Raise the topic's retention.ms and retention.bytes on the source, or let the copy be faster"


def findings(night: NightPlan, seen: Seen) -> list[Finding]:
    """Return what was found, blocks first.

    :param night: all the rest of it.
    """
    found = [f for check in _CHECKS for f in check(night, seen)]
    return worst_first(found)


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
}


def _lost(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    """Yield a finding for each topic and verdict: the worst partition, and how many there are."""
    by_verdict: dict[tuple[str, str], list[Race]] = {}
    for one in night.races:
        by_verdict.setdefault((one.topic, one.verdict), []).append(one)
    for (topic, verdict), found in by_verdict.items():
        if verdict in _RACES:
            what, remedy = _RACES[verdict]
            worst = urgent(found)[0]
            evidence = f"{what}: {count(len(found), 'partition')}, {worst}"
            yield Finding(worst.level, "retention_race", f"topic {topic!r}", evidence, remedy)


def _unsized(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    unsized = [topic for topic, limit in seen.limits.items() if limit.retention_bytes is not None and not seen.sizes]
    if unsized:
        yield Finding(
            "warn", "retention_race", count(len(unsized), "topic"),
            f"retention.bytes deletes records, and sizes of logs are not known: {some(unsized)}",
            "Grant DESCRIBE on the cluster, or compare by hand what is written with what is kept.",
        )  # fmt: skip


def _readers(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    silent = [one.group_id for one in seen.groups if one.has_members and seen.positions.get(one.group_id) == {}]
    if silent:
        yield Finding(
            "warn", "waves", count(len(silent), "group"),
            f"they have members and have committed nothing, so nobody knows what they read: {some(silent)}",
            "Ask their owners, and move them with the wave of their topics.",
        )  # fmt: skip


def _writers(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    if mirrors := [one for one in night.producers if one.is_mirror]:
        yield Finding(
            "warn", "producers", count(len(mirrors), "producer"),
            f"a mirror copies to the source: {some({tp for one in mirrors for tp in one.partitions})}",
            "End that mirror first ('airflow-mirror retire'), or what it copies later stays behind.",
        )  # fmt: skip
    if several := [one for one in night.producers if len(one.waves) > 1]:
        shown = some(f"{one.name} (waves {', '.join(map(str, one.waves))})" for one in several)
        yield Finding(
            "warn", "producers", count(len(several), "producer"), f"they write to topics of several waves: {shown}",
            "Between these waves each writes to both clusters. Where it can't, join the waves.",
        )  # fmt: skip


def _nameless(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    written = [str(tp) for tp, log in seen.logs.items() if log.produced_per_s and seen.producers.get(tp) == []]
    if written:
        yield Finding(
            "warn", "producers", count(len(written), "partition"),
            f"they got records while watched, from producers that no broker lists: {some(written)}",
            "Find out who writes there: they don't number their batches (enable.idempotence=false).",
        )  # fmt: skip


def _shared(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    if shared := [one.name for one in night.groups if one.kind == SHARE]:
        yield Finding("warn", "groups", count(len(shared), SHARE), f"they don't move: {some(shared)}", TO_DO[SHARE])


def _parted(night: NightPlan, seen: Seen) -> Iterator[Finding]:
    selected = {one.name for one in night.groups if one.wave}
    for one in night.elsewhere:
        parted = 0 < len(one.missing) < len(one.topics) and one.kind in (CONNECT, REGISTRY)
        if parted or (one.missing and one.owner in selected):
            yield Finding(
                "warn", "elsewhere", f"{one.kind} {one.owner}".strip(),
                f"the mirror does not select all of its topics: {some(one.missing)}", one.to_do,
            )  # fmt: skip


_CHECKS: tuple[Callable[[NightPlan, Seen], Iterator[Finding]], ...] = (
    _lost, _unsized, _readers, _writers, _nameless, _shared, _parted,
)  # fmt: skip
