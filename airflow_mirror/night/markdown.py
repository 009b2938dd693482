"""A plan for the night as Markdown: what has to be looked at, what moves with what, what stays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_mirror.night.race import HORIZON_S
from airflow_mirror.page import MOST_ROWS
from airflow_mirror.plan.markdown import FINDING_HEAD, finding_row, table
from airflow_mirror.plan.wording import count, duration, some

if TYPE_CHECKING:
    from airflow_mirror.night.model import NightPlan
    from airflow_mirror.night.producers import Producer
    from airflow_mirror.night.race import Race
    from airflow_mirror.night.waves import Wave

WAVES = (
    "Each wave is a cutover of its own, and a Mirror of its own: its `topics` and `groups` are in the JSON, as a Mirror "
    "takes them. Waves may be joined, and none may be split: the groups named here read more than one of its topics."
)

RACE = (
    "When the source deletes the first record that is not copied yet, if nothing is copied meanwhile; of each topic the "
    "partition where that is first. The JSON has all. Rates are those of a few seconds."
)


def render(night: NightPlan) -> str:
    """Return the whole document."""
    parts = [
        f"# The night of mirror {night.mirror}",
        f"Looked at {night.at}, with plan `{night.plan[:12]}`.",
        *([table(FINDING_HEAD, map(finding_row, night.findings))] if night.findings else []),
        "## Waves",
        WAVES,
        table(("wave", "topics", "groups", "kept together by"), (_wave(n, w) for n, w in enumerate(night.waves, 1))),
        "## Retention",
        RACE,
        table(("topic", "first lost, if nothing is copied", "behind", "written", "copied", ""), map(_race, worst(night))),
        "## Producers",
        *_producers(night),
        "## Left behind",
        _list("topics that the mirror does not select", night.left_topics),
        _list("groups with positions in these topics that the mirror does not select", night.left_groups),
        "## Not seen",
        *(f"- {line}" for line in night.unseen),
    ]
    return "\n\n".join(parts) + "\n"


def _wave(number: int, wave: Wave) -> tuple[str, ...]:
    ties = "; ".join(f"{group} ({some(its, 3)})" for group, its in wave.ties.items())
    return str(number), _names(wave.topics, "topic"), _names(wave.groups, "group"), ties


def worst(night: NightPlan) -> list[Race]:
    """Return the partition of each topic that is lost first."""
    found: dict[str, Race] = {}
    for one in sorted(night.races, key=lambda one: (-one.lost, HORIZON_S if one.left_s is None else one.left_s)):
        found.setdefault(one.topic, one)
    return list(found.values())


def _race(one: Race) -> tuple[str, ...]:
    left = "not within 30 days" if one.left_s is None else f"in {duration(one.left_s)}" if one.left_s else "now"
    copied = "" if one.copied_per_s is None else f"{one.copied_per_s:,.1f}/s"
    return f"{one.topic}-{one.partition}", left, f"{one.behind:,}", f"{one.produced_per_s:,.1f}/s", copied, one.verdict


def _producers(night: NightPlan) -> list[str]:
    if not night.producers:
        return ["None is known."]
    head = ("transactional id", "producer id", "epoch", "last wrote", "partitions", "waves", "")
    rows = [table(head, map(_producer, night.producers[:MOST_ROWS]))]
    more = len(night.producers) - MOST_ROWS
    return [*rows, f"and {more:,} more: the JSON has all of them"] if more > 0 else rows


def _producer(one: Producer) -> tuple[str, ...]:
    note = "a mirror" if one.is_mirror else "in a transaction" if one.in_transaction else ""
    ids = one.transactional_id, str(one.producer_id), str(one.epoch)
    return *ids, _time(one.last_ms), some(one.partitions, 3), ", ".join(map(str, one.waves)), note


def _time(ms: int) -> str:
    return "no record" if ms < 0 else datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")


def _names(names: tuple[str, ...], noun: str) -> str:
    return f"{count(len(names), noun)}: {some(names)}" if names else "none"


def _list(what: str, names: object) -> str:
    found = list(names)  # type: ignore[call-overload]
    return f"{what}: {', '.join(found) or 'none'}"
