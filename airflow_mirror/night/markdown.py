"""A plan for the night as Markdown: what has to be looked at, what moves with what, what stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_mirror.plan.markdown import FINDING_HEAD, finding_row, table
from airflow_mirror.plan.wording import count, some

if TYPE_CHECKING:
    from airflow_mirror.night.model import NightPlan
    from airflow_mirror.night.waves import Wave

WAVES = (
    "Each wave is a cutover of its own, and a Mirror of its own: its `topics` and `groups` are in the JSON, as a Mirror "
    "takes them. Waves may be joined, and none may be split: the groups named here read more than one of its topics."
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
        "## Left behind",
        _list("topics that the mirror does not select", night.left_topics),
        _list("groups with positions in these topics that the mirror does not select", night.left_groups),
        "## Not seen",
        *(f"- {line}" for line in night.unseen or ["everything was told"]),
    ]
    return "\n\n".join(parts) + "\n"


def _wave(number: int, wave: Wave) -> tuple[str, ...]:
    ties = "; ".join(f"{group} ({some(its, 3)})" for group, its in wave.ties.items())
    return str(number), _names(wave.topics, "topic"), _names(wave.groups, "group"), ties


def _names(names: tuple[str, ...], noun: str) -> str:
    return f"{count(len(names), noun)}: {some(names)}" if names else "none"


def _list(what: str, names: object) -> str:
    found = list(names)  # type: ignore[call-overload]
    return f"{what}: {', '.join(found) or 'none'}"
