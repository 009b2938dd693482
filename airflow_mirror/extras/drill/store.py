"""What drills found, on the target: one value a run, which the run's tasks complete one after the other.

So a drill whose host is lost leaves what it has measured, and the trend has those that ended half-way too. The files in
the run's directory are for people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_mirror.errors import LedgerNewer
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.ledger.kinds import known
from airflow_mirror.ledger.records import DRILL
from airflow_mirror.ledger.state import State, state_of

KEEP = 100  # drills of a mirror: two years of weekly ones


@dataclass(kw_only=True)
class Drill:
    """One run of a drill, as far as it got. All values are JSON-ready.

    :param at_ms: when it began, epoch ms; 0: it can't be read.
    :param topics: which it has created, or was about to; empty: it has none, or none any more.
    :param ids: of those topics on the source, by name, as they were noted behind the creation; where one is missing a
        death came between, or brokers have none.
    :param others: topics of these names that somebody else has created, which stay; one line each.
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
    ids: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    source_id: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    wanted: dict[str, float] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    failback: dict[str, Any] = field(default_factory=dict)
    rehearsal: list[dict[str, Any]] = field(default_factory=list)
    missed: list[str] | None = None

    def begin_again(self, at_ms: int) -> None:
        """Forget what a judged try of the run has found: it says nothing about this one, which has looked at groups."""
        self.at_ms, self.missed = at_ms, None
        self.figures, self.failback, self.rehearsal, self.others = {}, {}, [], []

    def note_id(self, topic: str, topic_id: str) -> None:
        """Note the id of one of its topics on the source. :param topic_id: "": it is not known any more, or not yet."""
        self.ids.pop(topic, None)
        if topic_id:
            self.ids[topic] = topic_id

    def owns(self, topic: str, topic_id: str) -> bool:
        """Return whether that is the topic which it has created on the source. :param topic_id: "": brokers have none.

        Where a death came before the note of the id nobody can say so; the clean-up alone takes what is there then.
        """
        return topic in self.topics and self.ids.get(topic, "") == topic_id

    @property
    def outcome(self) -> str:
        """What became of it, for people."""
        said = "not judged" if self.missed is None else "; ".join(self.missed) or "met its objectives"
        said += "".join(f"; its topic {topic} may still be there" for topic in self.topics)
        return said + "".join(f"; {line}" for line in self.others)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, the figures among them by their own names."""
        values = asdict(self)
        figures = values.pop("figures")
        return {**values, **figures}


class Drills:
    """The drills of one mirror. Each run has one writer at a time: its tasks come one after the other.

    :param state: of the keys of its drills. :ivar mirror: its name.
    """

    def __init__(self, state: State, mirror: str) -> None:
        self._state, self.mirror = state, mirror

    def of(self, run: str) -> Drill | None:
        """Return what is kept of a run; None if nothing is. :raises LedgerNewer: this version can't read it."""
        return DRILL.load(_of_run(run), self._state.read(), self.mirror, run)

    def all(self) -> list[Drill]:
        """Return all that are kept, oldest first. One that this version can't read says so in ``missed``."""
        found = []
        for run in DRILL.under(self._state.read(), self.mirror):
            try:
                found += [one for one in (self.of(run),) if one is not None]
            except LedgerNewer as e:
                found.append(Drill(run=run, at_ms=0, missed=[str(e)]))
        return sorted(found, key=lambda one: one.at_ms)

    def save(self, drill: Drill) -> None:
        """Write what is known of a run; of older ones the last :data:`KEEP` stay, and those that left a topic behind.

        :raises TryAgain: nobody knows whether it is there.
        """
        content = {key: value for key, value in asdict(drill).items() if key != "run"}
        content = {key: value for key, value in content.items() if value or key not in ("ids", "others")}
        older = [one for one in self.all() if one.run != drill.run and one.at_ms]
        too_old = [one.run for one in older[: 1 - KEEP] if not one.topics]
        old = {DRILL.key(self.mirror, run): None for run in too_old}
        self._state.write({**DRILL.put(content, self.mirror, drill.run), **old})


def _of_run(run: str) -> Callable[[Mapping[str, Any]], Drill]:
    return lambda found: known(Drill)({**found, "run": run})


def drills_of(target: ClusterAdmin, mirror: str) -> Drills:
    """Return the drills of a mirror that its target knows."""
    return Drills(state_of(target, DRILL.below(mirror)), mirror)


def is_over(values: Mapping[str, bytes], mirror: str) -> bool:
    """Return whether the mirror is a drill's, and the last one was judged: its tail is dead because it was killed.

    :param values: the state's, with the keys of drills.
    """
    found = (DRILL.load(_of_run(run), values, mirror, run) for run in DRILL.under(values, mirror))
    drills = [one for one in found if one is not None]
    return bool(drills) and max(drills, key=lambda one: one.at_ms).missed is not None
