"""What drills found, on the target: one value a run, which the run's tasks complete one after the other.

So a drill whose host is lost leaves what it has measured, and the trend has those that ended half-way too. The files in
the run's directory are for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_mirror.errors import LedgerNewer
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.reading import known, readable
from airflow_mirror.ledger.state import State, names_below, state_of

KEEP = 100  # drills of a mirror: two years of weekly ones
_VERSION = 1
DRILLS = "drill/"


@dataclass(kw_only=True)
class Drill:
    """One run of a drill, as far as it got. All values are JSON-ready.

    :param at_ms: when it began, epoch ms; 0: it can't be read.
    :param topics: which it has created, or was about to; empty: it has none, or none any more.
    :param source_id: cluster id of the source that has them.
    :param figures: see :meth:`.report.DrillReport.to_dict`; empty: nothing was measured.
    :param wanted: the objectives, by the names of the figures that must not be above them.
    :param groups: see :meth:`.groups.Outlook.to_dict`; empty: nobody looked.
    :param failback: see :meth:`.failback.FailbackReport.to_dict`; empty: there was none (yet).
    :param rehearsal: see :func:`.rehearsal.rehearse`; empty: no fault was to be injected.
    :param missed: what failed the drill, one line each; None: it was never judged, so something ended it before.
    """

    run: str
    at_ms: int
    topics: list[str] = field(default_factory=list)
    source_id: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    wanted: dict[str, float] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    failback: dict[str, Any] = field(default_factory=dict)
    rehearsal: list[dict[str, Any]] = field(default_factory=list)
    missed: list[str] | None = None

    @property
    def outcome(self) -> str:
        """What became of it, for people."""
        said = "not judged" if self.missed is None else "; ".join(self.missed) or "met its objectives"
        return said + "".join(f"; its topic {topic} may still be there" for topic in self.topics)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, the figures among them by their own names."""
        values = asdict(self)
        figures = values.pop("figures")
        return {**values, **figures}


class Drills:
    """The drills of one mirror. Each run has one writer at a time: its tasks come one after the other.

    :param state: of the keys that begin with :func:`prefix` of the mirror.
    """

    def __init__(self, state: State, mirror: str) -> None:
        self._state, self._prefix = state, prefix(mirror)

    def of(self, run: str) -> Drill | None:
        """Return what is kept of a run; None if nothing is. :raises LedgerNewer: this version can't read it."""
        value = self._state.read().get(f"{self._prefix}{run}")
        return None if value is None else _decode(run, value)

    def all(self) -> list[Drill]:
        """Return all that are kept, oldest first. One that this version can't read says so in ``missed``."""
        found, values = [], self._state.read()
        for run in names_below(values, self._prefix):
            try:
                found.append(_decode(run, values[f"{self._prefix}{run}"]))
            except LedgerNewer as e:
                found.append(Drill(run=run, at_ms=0, missed=[str(e)]))
        return sorted(found, key=lambda one: one.at_ms)

    def save(self, drill: Drill) -> None:
        """Write what is known of a run; of older ones the last :data:`KEEP` stay, and those that left a topic behind.

        :raises TryAgain: nobody knows whether it is there.
        """
        values = asdict(drill)
        text = json.dumps({"v": _VERSION, **{key: value for key, value in values.items() if key != "run"}})
        older = [one for one in self.all() if one.run != drill.run and one.at_ms]
        too_old = [one.run for one in older[: 1 - KEEP] if not one.topics]
        self._state.write(
            {f"{self._prefix}{drill.run}": text.encode(), **{f"{self._prefix}{run}": None for run in too_old}}
        )


def _decode(run: str, value: bytes) -> Drill:
    about = f"drill {run!r}"
    return known(Drill, {**readable(value, _VERSION, about), "run": run}, about)


def prefix(mirror: str) -> str:
    """Return what the keys of a mirror's drills begin with; the run's name follows."""
    return f"{DRILLS}{mirror}/"


def drills_of(target: ClusterAdmin, mirror: str) -> Drills:
    """Return the drills of a mirror that its target knows."""
    return Drills(state_of(target, prefix(mirror)), mirror)


def is_over(values: Mapping[str, bytes], mirror: str) -> bool:
    """Return whether the mirror is a drill's, and the last one was judged: its tail is dead because it was killed.

    :param values: the state's, with the keys that begin with :data:`DRILLS`.
    """
    runs = names_below(values, prefix(mirror))
    drills = [_decode(run, values[f"{prefix(mirror)}{run}"]) for run in runs]
    return bool(drills) and max(drills, key=lambda one: one.at_ms).missed is not None


def mirrors_in(target: ClusterAdmin) -> list[str]:
    """Return the mirrors of which there are drills."""
    return names_below(state_of(target, DRILLS, keys_only=True).read(), DRILLS)
