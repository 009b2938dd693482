"""What a plan for the night says, as values, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_mirror.extras.readiness.estimate import Estimate, Trial
from airflow_mirror.extras.readiness.external_state import Kept
from airflow_mirror.extras.readiness.groups import Group
from airflow_mirror.extras.readiness.producers import Producer
from airflow_mirror.extras.readiness.race import Race
from airflow_mirror.extras.readiness.waves import Wave
from airflow_mirror.plan.findings import Finding, Judged

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What makes a topic this topic: its id, "" where brokers have none, and its partitions."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, kw_only=True)
class NightPlan(Judged):
    """The plan for the night.

    :param plan: hash of the plan that it goes with. :param at: when both clusters were looked at, ISO 8601.
    :param topics: the source's topics that the mirror moves. :param waves: the cutovers that it takes.
    :param races: against the source's retention, by partition.
    :param estimates: of the topics that are not level. :param trial: what a trial copy has shown; None: none was made.
    :param whole_s: how long all of them take together by it, with so many ``tasks``; None: nobody knows.
    :param producers: who writes to these topics, whoever wrote last first.
    :param groups: of all kinds. :param elsewhere: what applications keep in topics of their own.
    :param left_topics: topics of the source that the mirror does not select, without internal ones.
    :param left_groups: groups with positions in the mirror's topics that it does not select.
    :param unseen: what could not be read, or can't be told, each with its reason.
    :param findings: blocks first.
    """

    mirror: str
    plan: str
    at: str
    topics: Mapping[str, Shape]
    waves: Sequence[Wave]
    races: Sequence[Race]
    estimates: Sequence[Estimate]
    producers: Sequence[Producer]
    groups: Sequence[Group]
    elsewhere: Sequence[Kept]
    left_topics: Sequence[str]
    left_groups: Sequence[str]
    unseen: Sequence[str]
    findings: Sequence[Finding]
    trial: Trial | None = None
    tasks: int = 1
    whole_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; each wave has the fields of a Mirror that selects it (``mirror``)."""
        waves = [{**asdict(wave), "mirror": wave.selection()} for wave in self.waves]
        return {"v": VERSION, **asdict(self), "waves": waves}

    def to_json(self) -> str:
        """Return JSON."""
        return json.dumps(self.to_dict(), indent=1) + "\n"
