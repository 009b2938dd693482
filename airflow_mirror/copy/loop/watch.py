"""Check during a copy for changes that no response shows. A thread checks every few seconds.

A re-created source topic where a fetch names topics by name, as of brokers before 3.1: it shows only while the new log
is shorter than our position. Once it is longer, its records look like the old topic's, and the new leader's epoch may be
the same.

A re-created target topic, which is nobody's, or another mirror's: while there is nothing to write nothing shows it, and
then what goes by the topic's name would be written to it.

A leader of the source that is cut off from its cluster and not from here: it answers as before, and has nothing new. The
others have elected another one, of which their metadata tell.

A target broker that crashed and forgot that the fillers of priming were deleted: its partitions may be complete, or
have nothing to write, so nothing else would open them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.loop.crew import Crew
from airflow_mirror.copy.loop.failures import Judge
from airflow_mirror.copy.loop.mailbox import Mailbox
from airflow_mirror.copy.loop.opener import learn
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.copy.opening import recheck
from airflow_mirror.copy.opening.answers import ask_log_starts, ask_topic_id, target_gone
from airflow_mirror.copy.writer import priming
from airflow_mirror.errors import LeaseLost, MirrorError, TryAgain
from airflow_mirror.wire.cluster import Leader, WireCluster
from airflow_mirror.wire.errors import UnknownTopic

log = logging.getLogger(__name__)

# This much may be copied of a topic that was created again before it is noticed; `same_topic` names those offsets.
_EVERY_S = 5.0
_UNSURE_S = 180.0  # by then a broker has persisted the effect of DeleteRecords (once a minute by default)


class _Primed(NamedTuple):
    """Where a target partition's log must start, and how far it was written."""

    start: int
    position: int


_Watched = tuple[PartitionCopy, int, int]  # with its generation and position before the check


class Watch:
    """Checks the topics of both sides and the log start offsets of target partitions.

    :param check: called before every step that has an effect; raises if the step must no longer be taken.
    :param clock: monotonic, in seconds.
    """

    def __init__(
        self, mirror: str, crew: Crew, mailbox: Mailbox, check: Callable[[], None], judge: Judge,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._mirror, self._crew, self._mailbox, self._check = mirror, crew, mailbox, check
        self._judge, self._clock = judge, clock
        self._looked_at = self._opened_at = clock()

    def opened(self) -> None:
        """Record that a partition was opened: for some time a broker may forget what was deleted."""
        self._opened_at = self._clock()

    def look(self, partitions: Iterable[PartitionCopy], *, now: bool = False) -> None:
        """Check if the last check was more than a few seconds ago; ``now``: in any case."""
        since = self._clock() - self._looked_at
        if not now and (since < _EVERY_S or self._crew.busy):
            return
        self._looked_at = self._clock()
        # Positions before the check: records copied after it are not known to be the same topic's.
        watched = [(p, p.generation, p.position) for p in partitions if p.is_open or p.done]
        primed: dict[TopicPartition, _Primed] = {}
        if now or self._looked_at - self._opened_at < _UNSURE_S:
            primed = {p.range.target: _Primed(p.target_start, p.position) for p, _, _ in watched if p.target_start > 0}
        # By generation: an answer about a partition that has failed, or been opened again since, counts no more.
        if watched:
            self._crew.submit(partial(self._job, watched, primed))

    def _job(
        self, watched: list[_Watched], primed: Mapping[TopicPartition, _Primed], source: WireCluster, target: WireCluster
    ) -> None:
        try:
            ids = _ids(source, {p.range.source_topic for p, _, _ in watched})
            self._mailbox.post(partial(self._compare, watched, ids))
            leaders = _leaders(source, {p.range.source for p, _, _ in watched}, ids)
            self._mailbox.post(partial(self._follow, watched, leaders))
        except MirrorError as e:
            log.warning("source topics were not checked: %s", e)
        try:
            ids = _ids(target, {p.range.target_topic for p, _, _ in watched})
            gone = {p: error for p, _, _ in watched if (error := target_gone(ids[p.range.target_topic], p.range))}
            self._mailbox.post(partial(self._stop, watched, gone))
            new = {p.range.target for p in gone}  # their records are nobody's to delete
            self._restore_starts(target, {tp: one for tp, one in primed.items() if tp not in new})
        # Out of the thread, and into the loop, which ends: nothing may be written any more.
        except LeaseLost:
            raise
        except MirrorError as e:
            log.warning("topics and log starts of the target were not checked: %s", e)

    def _stop(self, watched: Iterable[_Watched], gone: Mapping[PartitionCopy, MirrorError]) -> None:
        for p, generation, _ in watched:
            if p in gone and p.generation == generation:
                self._judge.failed(p, gone[p])

    def _compare(self, watched: Iterable[_Watched], found: Mapping[str, str | MirrorError]) -> None:
        for p, generation, position in watched:
            now = found[p.range.source_topic]
            if p.generation != generation:
                continue  # opening checks it too, and the next look one that is complete since
            # No answer is no finding, nor one with an error that passes, which has no id. `watched` stays where it is, so
            # that the next look covers this time as well.
            if (isinstance(now, MirrorError) and not isinstance(now, UnknownTopic)) or now == "":
                continue  # unknown
            try:
                recheck.same_topic(now, p.range, p.watched, p.position)
                # The position of before the question, not the present one: what was copied since may be of another
                # topic.
                p.watched = position
            except MirrorError as e:
                self._judge.failed(p, e)

    def _follow(self, watched: Iterable[_Watched], leaders: Mapping[TopicPartition, Leader]) -> None:
        """Open partitions again for which another leader was elected than the one that is asked."""
        # As a rule the old one has refused a fetch by then. Of an older epoch tells who has not heard of an election: the
        # leader that is cut off says so of itself, and the next look asks another broker, by chance. Without an epoch, as
        # before 2.1, old news can't be told from new ones.
        for p, generation, _ in watched:
            leader = leaders.get(p.range.source)
            if leader is None or p.generation != generation or not p.is_open:
                continue
            if leader.epoch > p.source_leader.epoch >= 0:
                p.heard_epoch = leader.epoch
                self._judge.open_again(p, f"broker {leader.node_id} was elected its leader at the source")

    def _restore_starts(self, target: WireCluster, primed: Mapping[TopicPartition, _Primed]) -> None:
        if not primed:
            return
        for tp, start in ask_log_starts(target, primed).items():
            # The deletion is asked of the lease right before its bytes (`_check`). A process that dies before it leaves
            # the fillers to the next opening, which does the same (`identical.open_partition`).
            if start < primed[tp].start:
                # Up to the position of the look: what was copied since stands behind it, and is no filler anyway.
                log.warning("%s: its log start fell from %d to %d: a broker died", tp, primed[tp].start, start)
                priming.restore_start(target, self._mirror, tp, start, primed[tp].position, self._check)


def _leaders(
    cluster: WireCluster, tps: Iterable[TopicPartition], ids: Mapping[str, str | MirrorError]
) -> dict[TopicPartition, Leader]:
    """Return the leaders of those partitions that have one, by the metadata that were read for the ids."""
    leaders: dict[TopicPartition, Leader] = {}
    for tp in tps:
        # Of a topic or partition that is not in them the broker would be asked once more.
        if isinstance(ids[tp.topic], str) and tp.partition < cluster.partitions(tp.topic):
            with suppress(TryAgain):  # there is none now: the old one is as good as any
                leaders[tp] = cluster.leader(tp)
    return leaders


def _ids(cluster: WireCluster, topics: set[str]) -> dict[str, str | MirrorError]:
    learn(cluster, topics)
    return {name: ask_topic_id(cluster, name) for name in topics}
