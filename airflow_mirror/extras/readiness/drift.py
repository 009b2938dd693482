"""What changed since an earlier plan for the night: structure blocks, progress does not.

Topics, their partitions, and which groups hold them together are structure: somebody has planned a night around them.
Offsets, rates, members and producers are not looked at. No cluster is asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_mirror.errors import InputError
from airflow_mirror.extras.readiness.model import VERSION, NightPlan
from airflow_mirror.plan.findings import BLOCK, Finding
from airflow_mirror.wording import some

_MAKE_AGAIN = "Make it again: airflow-mirror readiness --json."
_REMEDY = "Look whether the night still goes as it was planned; this plan is the one to go by then."


def drift(before: str, night: NightPlan) -> list[Finding]:
    """Return a finding that blocks for each structural change.

    :param before: the JSON of the earlier plan.
    :raises InputError: it is none of this mirror, or of another version.
    """
    try:
        values = json.loads(before)
        if (values["v"], values["mirror"]) != (VERSION, night.mirror):
            raise InputError(
                f"the earlier plan for the night is of mirror {values['mirror']!r}, version {values['v']}",
                f"this one is of mirror {night.mirror!r}, version {VERSION}",
                _MAKE_AGAIN,
            )
        lines = [*_topics(values["topics"], night), *_waves(values["waves"], night)]
    except (KeyError, TypeError, ValueError) as e:
        raise InputError("not a plan for the night", repr(e), _MAKE_AGAIN) from e
    return [Finding(BLOCK, "drift", about, evidence, _REMEDY) for about, evidence in lines]


def _topics(before: Mapping[str, Any], night: NightPlan) -> Iterator[tuple[str, str]]:
    for name in sorted(before.keys() | night.topics.keys()):
        then, now = before.get(name), night.topics.get(name)
        if then is None or now is None:
            yield f"topic {name!r}", "it is new" if then is None else "it is gone"
        elif "" not in (then["topic_id"], now.topic_id) and then["topic_id"] != now.topic_id:
            yield f"topic {name!r}", "it was created again"
        elif then["partitions"] != now.partitions:
            yield f"topic {name!r}", f"it had {then['partitions']} partitions, and has {now.partitions}"


def _waves(before: list[Any], night: NightPlan) -> Iterator[tuple[str, str]]:
    for number, wave in enumerate(night.waves, 1):
        were = [one for one in before if set(one["topics"]).intersection(wave.topics) and one["groups"]]
        then = {group for one in were for group in one["groups"]}
        if len(were) > 1:
            yield f"wave {number}", f"{len(were)} waves hang together now, by {some(wave.ties)}"
        if added := set(wave.groups) - then:
            yield f"wave {number}", f"groups are new: {some(sorted(added))}"
    everywhere = {group for wave in night.waves for group in wave.groups}
    if gone := sorted({group for one in before for group in one["groups"]} - everywhere):
        yield "groups", f"they are gone, or read nothing of the mirror any more: {some(gone)}"
