"""What follows the data beside a tail: it looks at both clusters in intervals, and writes what differs.

A follower is a :class:`Pass`, a row of :data:`airflow_mirror.jobs.driver.followers.FOLLOWERS`, and nothing else: its
:class:`PassReport` is what the job's status, the log, health and failover know of it.

A pass may die at any line, and the next one may be made by another process. So a follower remembers nothing that it needs
but what the clusters and its ``state`` say. It confirms the lease before it looks, and holds it for each write
(:class:`.write_permit.WritePermit`). It skips nothing silently: what does not follow stands in the report, with its
cause.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import MirrorError
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import same_topic
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.ledger.state import State
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.owned import active_topics, not_active
from airflow_mirror.sync.maps import OffsetMaps
from airflow_mirror.sync.write_permit import WritePermit
from airflow_mirror.wire import requests
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wording import count, some

SAID = "{count} {what}, as {line}"
_SHOWN = 10  # of each list
_LONGEST = 300  # characters of a line


class _Listed(NamedTuple):
    what: str
    said: str
    most: int


def _say(form: str, found: list[str], of: _Listed, line: str) -> str:
    one = form == SAID and len(found) == 1
    return f"{of.what}: {line}" if one else form.format(count=len(found), what=of.what, line=line)


class _Number(int):
    """With its noun: ``{topics:topic}`` is ``1 topic``, or ``2,000 topics``."""

    def __format__(self, noun: str) -> str:
        return count(int(self), noun) if noun else f"{int(self):,}"


class _Figures:
    """What the names in a report's line stand for: its attributes."""

    def __init__(self, report: PassReport) -> None:
        self._report = report

    def __getitem__(self, name: str) -> Any:
        value = getattr(self._report, name)
        return _Number(value) if isinstance(value, int) else value


def listed(what: str = "", said: str = "", most: int = 1) -> Any:
    """Return a field of a report that holds lines.

    :param what: what they are, in the report's own line; empty: they don't stand there.
    :param said: what a person should know of them, of ``{count}``, ``{what}`` and a ``{line}``; of ``most`` lines.
    """
    return field(default_factory=list, metadata={"listed": _Listed(what, said, most)})


@dataclass(kw_only=True)
class PassReport:
    """What a pass found and did. A subclass declares what it counts (figures) and what it lists.

    :cvar head: how its line begins, with figures as ``{topics:topic}``.
    :cvar level: the figure that is 0 where nothing follows: then what failed is an error; empty: it never is.
    :param left_out: what does not follow, and why.
    :param failed: what could not be read or written, and why; the next pass tries again.
    :param took_s: seconds.
    """

    head: ClassVar[str]
    level: ClassVar[str] = ""
    left_out: list[str] = listed("left out")
    failed: list[str] = listed("failed", SAID)
    took_s: float = 0.0

    def __str__(self) -> str:
        """One line that stays the same while nothing happens: of each list its length, what it lists, and an example."""
        others = [_say(SAID, found, of, min(found)) for found, of in self._lists if of.what]
        return "; ".join([self.head.format_map(_Figures(self)), *others])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, a few kilobytes; ``said`` are lines that a person should know.

        Of each list: how long it is, and its first lines. ``error`` as of a pass that was cut off, if it did no more.
        """
        said = [
            _say(of.said, found, of, line)[:_LONGEST]
            for found, of in self._lists
            for line in sorted(found)[: of.most if of.said else 0]
        ]
        brief = {
            name: {"count": len(value), "first": [line[:_LONGEST] for line in sorted(value)[:_SHOWN]]}
            if isinstance(value, list)
            else value
            for name, value in vars(self).items()
        }
        nothing = self.failed and self.level and not getattr(self, self.level)
        error = {"error": some((line[:_LONGEST] for line in sorted(self.failed)), 1)} if nothing else {}
        return {"said": said, **brief, **error}

    @property
    def _lists(self) -> list[tuple[list[str], _Listed]]:
        """The lists that are not empty, those of all reports last."""
        every = [(getattr(self, f.name), f.metadata["listed"]) for f in fields(self) if f.metadata]
        return [(found, of) for found, of in (*every[2:], *every[:2]) if found]


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Both sides of a mirror, as a follower is given them. For one thread.

    :param plan: returns the plan that is carried out; its topics may become more.
    :param mirror: the job's own: what no plan depends on may have changed since it was planned.
    :param source: connections that the caller closes; ``target`` and ``maps`` likewise.
    :param ledger: the target's; says which topics are in production.
    :param state: what the follower keeps on the target.
    :param maps: of the plan's topics, as they were when it was connected.
    :param take_in: has the copy carry out an amended plan.
    :param gone: returns what the copy says of source topics that it gave up.
    :param moved: called for each group that was moved: when its positions were read on the source, and when the target
        had answered; in ms since 1970.
    """

    plan: Callable[[], Plan]
    mirror: Mirror
    source: ClusterAdmin
    target: ClusterAdmin
    ledger: Decisions
    state: State
    right: WritePermit
    maps: OffsetMaps
    take_in: Callable[[Plan], None]
    gone: Callable[[], Mapping[str, str]]
    moved: Callable[[int, int], None]


R = TypeVar("R", bound=PassReport)


class Pass(ABC, Generic[R]):
    """Makes one pass after the other; see the module. For one thread.

    :cvar report: the class of its reports.
    :cvar asks_first: the lease is confirmed before anything is looked at. False: what it sees is told without it, too.
    """

    report: type[R]
    asks_first: ClassVar[bool] = True

    def __init__(self, sides: Sides) -> None:
        self._sides, self._mirror = sides, sides.mirror
        self._source, self._target = sides.source, sides.target
        self._ledger, self._state, self._right = sides.ledger, sides.state, sides.right

    def follow(self, now_ms: int) -> R:
        """Make one pass.

        :param now_ms: wall-clock time.
        :raises MirrorError: what concerns everything; what concerns one topic or group is in the report.
        """
        begun, report = time.monotonic(), self.report()
        if self.asks_first:
            self._right.confirm(self._target.wire)
        self.make(replace(self._sides.plan(), mirror=self._mirror), now_ms, report)
        report.took_s = round(time.monotonic() - begun, 3)
        return report

    def _granted(self) -> AbstractContextManager[Permit]:
        return self._right.granted(self._target.wire)

    @abstractmethod
    def make(self, plan: Plan, now_ms: int, report: R) -> None:
        """Look, write what differs, and tell it to the report. Errors as :meth:`follow`.

        :param plan: as it is carried out now, with the job's own Mirror.
        """


def ours(sides: Sides, plan: Plan, report: PassReport) -> list[TopicPlan]:
    """Return the topics that are this mirror's and not in production; the others are left out."""
    active = active_topics(sides.ledger, plan, sides.target)
    report.left_out += [f"{t.source_topic}: {not_active(t)}" for t in plan.topics if t.target_topic not in active]
    return [t for t in plan.topics if t.target_topic in active]


def same(topics: Iterable[TopicPlan], ids: Mapping[str, str], report: PassReport) -> list[TopicPlan]:
    """Return the topics whose source topic is the one of the plan; the others are left out.

    :param ids: of source topics as they are now, by name, without those that are gone. Ask for them after what is said of
        them: what another topic says means nothing.
    """
    found = []
    for t in topics:
        if t.source_topic not in ids:
            report.left_out.append(f"{t.source_topic}: the source has no such topic any more")
        elif not same_topic(t.source_topic_id, ids[t.source_topic]):
            report.left_out.append(f"{t.source_topic}: the source's topic was created again")
        else:
            found.append(t)
    return found


def log_offsets(
    wire: WireCluster, what: str, tps: Iterable[TopicPartition], timestamp: int = requests.LATEST, *,
    committed: bool = False,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, MirrorError]]:  # fmt: skip
    """Return offsets of those partitions whose leaders answer: one without a leader must not hold up the others.

    :param what: names them in errors. :param committed: of the end, the last stable offset.
    """
    isolation = requests.READ_COMMITTED if committed else requests.READ_UNCOMMITTED
    return wire.ask_each(what, tps, lambda c, led: requests.list_offsets(c, led, timestamp, isolation), "Describe")
