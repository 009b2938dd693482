"""Is MirrorMaker 2 stopped? Nothing on a cluster says so; but what it does while it lives can be seen.

- Its workers are members of a group on the target: the driver's too, which is a Connect cluster of its own. A worker that
  was killed is one until its session ends (10 s).
- A worker that can't reach its group's coordinator may copy for some time. So the logs are watched: the topics that it
  fills, its own topics on both clusters, and its heartbeats, one a second unless they are switched off.
- With exactly-once delivery it leaves a transaction open if it is killed. The records in it are not decided.

What it *says* about itself proves nothing: a task that was killed is RUNNING in its status topic for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InputError
from airflow_mirror.extras.adopt import mirrormaker
from airflow_mirror.extras.adopt.mirrormaker import HEARTBEATS, Flow
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import GroupInfo
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.records import Record

_CONNECT = "connect"  # protocol type of the groups of workers
_NAMED = 3
Ends = Mapping[TopicPartition, int]
Again = Callable[[bool], "list[Seen]"]


class Seen(NamedTuple):
    """Something that was looked at. :param alive: it says that MirrorMaker 2 may still copy."""

    what: str
    alive: bool = False

    def __str__(self) -> str:
        return f"{'ALIVE' if self.alive else 'at rest'}  {self.what}"


def look(
    flow: Flow, source: ClusterAdmin, target: ClusterAdmin, pairs: Mapping[TopicPartition, TopicPartition],
    watch_s: float, ignored_groups: Collection[str] = (),
) -> tuple[list[Seen], Again]:  # fmt: skip
    """Look at everything that tells whether MirrorMaker 2 lives; takes ``watch_s``.

    :param pairs: source partition -> target partition that it fills.
    :param ignored_groups: groups of Connect workers that run something else.
    :return: what was seen; and what looks again, at once, at what has happened since this watch began. That takes whether
        the target topics are the mirror's by now, so that its own jobs may write to them.
    :raises InputError: nothing of this flow is on the target, so that nothing could be seen.
    """
    own = [name for name in flow.on_target if name in target.topics(flow.on_target)]
    groups = target.groups(every=True)
    if not own and all(group.group_id != flow.workers for group in groups):
        raise InputError(
            f"the target has neither topic {flow.offsets!r} nor group {flow.workers!r}",
            f"by one of them MirrorMaker 2 would be known whose source is called {flow.source!r}. Nothing was changed",
            "Give the alias of its file (--source-alias), and where it runs on a Connect cluster of your own, that one's "
            "offset.storage.topic and group.id.",
        )
    watched = _Watched.of(flow, source, target, own, pairs)
    time.sleep(watch_s)

    def again(are_ours: bool = False) -> list[Seen]:
        found = [*_workers(target.groups(every=True), target, flow, ignored_groups), *watched.moved(are_ours)]
        return found if are_ours else [*found, *_open(target, pairs.values())]

    found = again()
    if flow.status in own:
        states = mirrormaker.states(records_of(target, flow.status))
        shown = ", ".join(f"{name} {state}" for name, state in sorted(states.items())[:_NAMED])
        found.append(Seen(f"{flow.status} (proves nothing): {shown or 'nothing'}"))
    return found, again


def records_of(cluster: ClusterAdmin, topic: str, since: Ends | None = None) -> Iterator[Record]:
    """Yield the records of a small topic, partition by partition; :param since: from these offsets on."""
    info = cluster.topics([topic]).get(topic)  # None: it was deleted while the copies were matched, which takes hours
    for number in range(info.partitions if info is not None else 0):
        log = TopicLog(cluster.wire, topic, number)
        start = log.start() if since is None else since.get(TopicPartition(topic, number), 0)
        yield from log.read(start)


class _Watched:
    """Logs that MirrorMaker 2 writes to while it lives, and where they ended when the watch began."""

    def __init__(
        self, flow: Flow, clusters: tuple[ClusterAdmin, ClusterAdmin], own: list[str], beats: Ends,
        logs: Mapping[str, Ends],
    ) -> None:  # fmt: skip
        self._flow, self._clusters, self._own, self._beats, self._logs = flow, clusters, own, beats, logs
        self._began = time.monotonic()

    @classmethod
    def of(
        cls, flow: Flow, source: ClusterAdmin, target: ClusterAdmin, own: list[str],
        pairs: Mapping[TopicPartition, TopicPartition],
    ) -> _Watched:  # fmt: skip
        """Begin to watch."""
        logs = {
            "target topics": target.wire.log_ends(pairs.values()),
            "its topics on the target": target.wire.log_ends(_partitions(target, own)),
            "its topics on the source": source.wire.log_ends(_partitions(source, flow.on_source)),
            "source topics": source.wire.log_ends(pairs),
        }
        beats = target.wire.log_ends(_partitions(target, [HEARTBEATS]))
        return cls(flow, (source, target), own, beats, logs)

    def moved(self, are_ours: bool) -> Iterator[Seen]:
        """Yield what became of each kind of log meanwhile; not of the target topics if they are the mirror's by now."""
        source, target = self._clusters
        taken, watch_s = 0, round(time.monotonic() - self._began, 1)
        for what, before in self._logs.items():
            if are_ours and what == "target topics":
                continue
            cluster = target if "target" in what else source
            grown = _grown(before, cluster.wire.log_ends(before))
            if what == "source topics":
                taken = sum(grown.values())
            elif grown:
                named = ", ".join(f"{tp} by {count:,}" for tp, count in list(grown.items())[:_NAMED])
                yield Seen(f"{what} grew within {watch_s:g} s: {named}", alive=True)
            elif before:
                yield Seen(f"{what}: none of {len(before)} partitions grew within {watch_s:g} s")
        if taken and not are_ours:
            yield Seen(f"source topics took {taken:,} offsets meanwhile, and none came to the target")
        if self._beats:
            beats = mirrormaker.beats_of(records_of(target, HEARTBEATS, self._beats), self._flow.source)
            yield Seen(f"{HEARTBEATS}: {beats or 'none'} of {self._flow.source!r} within {watch_s:g} s", alive=beats > 0)


def _workers(groups: list[GroupInfo], target: ClusterAdmin, flow: Flow, ignored: Collection[str]) -> Iterator[Seen]:
    # Asked again: those that were alive when the watch began may be gone by now.
    names = {group.group_id for group in groups if group.protocol_type == _CONNECT} | {flow.workers}
    states = target.group_states(names - set(ignored))
    for name, state in sorted(states.items()):
        alive = state not in ("Empty", "Dead")
        hint = "" if name == flow.workers or not alive else ": Connect workers, which may run MirrorMaker 2's connectors"
        if alive or name == flow.workers:
            yield Seen(f"group {name!r} {'has members' if alive else 'has no member'} ({state}){hint}", alive=alive)


def _open(target: ClusterAdmin, tps: Collection[TopicPartition]) -> Iterator[Seen]:
    ends, stable = target.wire.high_watermarks(tps), target.wire.last_stable(tps)  # what comes between is not held
    held = [tp for tp in tps if stable[tp] < ends[tp]]
    if held:
        named = ", ".join(f"{tp} from offset {stable[tp]}" for tp in held[:_NAMED])
        yield Seen(f"a transaction is open on the target: {named}; a broker aborts it after its timeout", alive=True)
    else:
        yield Seen(f"no transaction is open in {len(tps)} target partitions")


def _partitions(cluster: ClusterAdmin, topics: Collection[str]) -> list[TopicPartition]:
    found = cluster.topics(list(topics)) if topics else {}
    return [TopicPartition(info.name, p) for info in found.values() for p in range(info.partitions)]


def _grown(before: Ends, after: Ends) -> dict[TopicPartition, int]:
    return {tp: after[tp] - end for tp, end in before.items() if after[tp] != end}
