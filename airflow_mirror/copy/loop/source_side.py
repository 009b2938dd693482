"""The source side of the loop: fetches for many partitions at once.

Each leader has up to three requests in flight: one for partitions that are *behind* (answered at once), one long poll for
those that *follow* the log end, and one for those of them that *rest*, so that none waits for the other. The next fetch
of a backlog is sent as soon as a response has arrived, before its batches are written: the broker reads while we write.
The next long poll is sent after the records of the last one were sent to the target, because every tenth of a millisecond
adds latency there.

Partitions that rest cost nothing: nobody looks at them until something comes. The broker keeps them in a session
(`wire.session`), whose next request names what has changed. Which is nothing as a rule: a partition to which something
comes follows again, so that its next record finds a request that names few. A partition that goes from one lane to the
other is named by both until the other one's request is sent; the second response to the same fetch is thrown away.
"""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.delays import wall_ms
from airflow_mirror.copy.loop.crew import Dialler
from airflow_mirror.copy.loop.failures import CORRUPT_AGAIN, Judge, retry_all
from airflow_mirror.copy.loop.fetch_lane import FetchLane, Key, Kind, Named
from airflow_mirror.copy.loop.lane import Lines
from airflow_mirror.copy.loop.limits import Buffer, Memory, Portions, Throttle
from airflow_mirror.copy.loop.partition import PartitionCopy
from airflow_mirror.errors import CorruptBatch, MirrorError, TryAgain
from airflow_mirror.wire import fetch
from airflow_mirror.wire.error_codes import ErrorCode, error_name
from airflow_mirror.wire.fetch import FetchedPartition, FetchSpec
from airflow_mirror.wire.session import OVER

__all__ = ["FetchLane", "SourceSide"]

log = logging.getLogger(__name__)

# As long as Kafka's own consumers wait (fetch.max.wait.ms); 50 ms are for a partition that was just opened, which may
# have no backlog: others that have one wait meanwhile. What rests is waited for longer: a broker reads each of its logs
# for each request.
_WAIT_MS = {Kind.BACKLOG: 50, Kind.TAIL: 500, Kind.REST: 2000}
# A batch has at most 1 MB by default, and one that is larger comes whole in any case (KIP-74).
_PARTITION_FETCH_BYTES = 2 << 20
# Three such responses are all that a task may hold (`loop._MEMORY_BYTES`).
_FETCH_BYTES = 16 << 20
_LEAST_FETCH_BYTES = 1 << 20
# Of a broker that holds answers back: a quota of 2 KB a second lets so much through before its silence is a failure. A
# batch that is larger comes whole in any case, and later.
_LEAST_PORTION_BYTES = 64 << 10
_DRY_S = 30.0  # how long nothing may come of a log that has something; shorter than `retries.FORGIVEN_S`
# A session takes one of a broker's 1,000 places (max.incremental.fetch.session.cache.slots): not for a few partitions.
_MANY = 100
_REST_AFTER_S = 10.0
# What a broker says of a place in a log, for as long as that is damaged or its store fails: what was fetched before it is
# whole. Other errors tell of another leader or another log, and only an opening finds out what to write.
_OF_AN_OFFSET = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR})


class SourceSide:
    """Fetches for partitions and feeds them.

    :param memory: memory for responses; nothing is requested that would not fit.
    :param isolation: of every fetch (0 read_uncommitted, 1 read_committed).
    :ivar starves: a backlog could not be fetched because fetched data takes all the memory.
    """

    starves = False

    def __init__(
        self, dialler: Dialler, selector: selectors.BaseSelector, memory: Memory, isolation: int, judge: Judge,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._lines, self._memory = Lines(dialler, selector), memory
        self._isolation, self._judge, self._clock = isolation, judge, clock
        self.throttle = Throttle(clock)
        self._portions = Portions(_FETCH_BYTES, _LEAST_PORTION_BYTES)
        self._lanes: dict[Key, FetchLane] = {}
        # By lane, in order: the partitions that wanted a response at their last event.
        self._waiting: dict[Key, dict[PartitionCopy, None]] = {}
        self._names: dict[bytes, str] = {}  # of topics, by their ids
        self._sessions: dict[PartitionCopy, FetchLane] = {}  # the lane whose session has a partition

    def send(self, touched: Iterable[PartitionCopy]) -> None:
        """Fetch for the partitions that can use a response: a backlog now, the others at :meth:`poll`.

        :param touched: partitions with an event since the last call; the wishes of the others are unchanged.
        """
        self.starves = False
        for p in touched:
            self._enlist(p)
        for key in [key for key in self._waiting if key[1] is Kind.BACKLOG]:
            self._ask_if_idle(key)

    def poll(self) -> None:
        """Send the long polls."""
        for node_id in {node_id for node_id, kind in (*self._waiting, *self._lanes) if kind is not Kind.BACKLOG}:
            if (node_id, Kind.REST) in self._lanes or (node_id, Kind.REST) in self._waiting:
                self._ask_if_idle((node_id, Kind.REST))
            self._ask_if_idle((node_id, Kind.TAIL))

    def _enlist(self, p: PartitionCopy) -> None:
        key, lane = _key_of(p), self._sessions.get(p)
        if lane is not None:
            if p.takes_more and lane.holds(p) and key[1] is not Kind.BACKLOG:
                if key == lane.key:
                    return
            else:
                self._let_go(p)
        if p.wants_fetch:
            self._waiting.setdefault(key, {})[p] = None

    def _let_go(self, p: PartitionCopy) -> None:
        if (lane := self._sessions.pop(p, None)) is not None:
            lane.let_go(p)

    def _ask_if_idle(self, key: Key) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = FetchLane(key)
        if not lane.busy and not lane.comes_up and lane.not_before <= self._clock():
            self._ask(lane, self._wanting(lane))

    def _wanting(self, lane: FetchLane) -> list[PartitionCopy]:
        """Return the partitions to fetch for; drop those that want no fetch any more or have another leader."""
        key = lane.key
        waiting = {p: None for p in self._waiting.pop(key, ()) if _key_of(p) == key and self._may_ask(lane, p)}
        if waiting:
            self._waiting[key] = waiting
        # A request may name a partition only once; other copies of it (by key) follow in the next request.
        several: dict[TopicPartition, PartitionCopy] = {}
        for p in (*waiting, *self._waiting_elsewhere(lane)):
            several.setdefault(p.range.source, p)
        return list(several.values())

    def _may_ask(self, lane: FetchLane, p: PartitionCopy) -> bool:
        # The tail's request may name it meanwhile.
        return p.takes_more if lane.kind is Kind.REST else p.wants_fetch

    def _waiting_elsewhere(self, lane: FetchLane) -> list[PartitionCopy]:
        """Return the partitions that go over to the other lane, whose request has not come back yet."""
        if lane.kind is Kind.BACKLOG:
            return []
        key = lane.node_id, Kind.TAIL if lane.kind is Kind.REST else Kind.REST
        other = self._lanes.get(key)
        if other is None or not (other.busy or other.comes_up):
            return []
        return [p for p in self._waiting.get(key, ()) if p.wants_fetch and _key_of(p) == key and p not in self._sessions]

    def _ask(self, lane: FetchLane, partitions: Sequence[PartitionCopy]) -> None:
        if not partitions and not lane.session:
            return
        # Promised, though nothing of it is there yet: each broker may send all that it was asked for.
        expected = sum(other.expected for other in self._lanes.values() if other.busy)
        size = min(_FETCH_BYTES, self._memory.free - expected)
        # A long poll returns little, and must not wait for memory that a backlog occupies.
        if size < _LEAST_FETCH_BYTES and lane.kind is Kind.BACKLOG and (expected or self._memory.used):
            self.starves = True
            return
        # What exceeds the limit by this much, or by a batch that is larger, is accepted of a long poll, and of a backlog
        # when nothing else is held: it would never be fetched otherwise. What rests promises no more: its request is in
        # flight nearly all the time.
        size = _LEAST_FETCH_BYTES if lane.kind is Kind.REST else max(size, _LEAST_FETCH_BYTES)
        size = min(size, self._portions.of(lane.node_id))
        if partitions:
            lane.connect = partitions[0].source_leader.connect
        assert lane.connect is not None
        try:
            if not self._lines.is_up(lane, lane.connect):
                return
            self._send(lane, partitions, size)
        except MirrorError as e:
            self._not_sent(lane, partitions, e)
            return
        lane.heard_at = self._clock()
        lane.expected = size
        lane.busy = True

    def _not_sent(self, lane: FetchLane, partitions: Sequence[PartitionCopy], error: MirrorError) -> None:
        held = [p for p, generation in lane.asked() if p.generation == generation]
        self._drop(lane)
        if lane.kind is Kind.REST:
            # Not their failure: the tail's connection may be fine, and says so itself if it is not.
            log.info("%d partitions don't rest: %s", len(held) + len(partitions), error)
            for p in (*held, *partitions):
                p.rests, p.fed_at = False, self._clock()
                self._enlist(p)
            return
        for p in partitions:
            self._judge.failed(p, error)

    def _send(self, lane: FetchLane, partitions: Sequence[PartitionCopy], size: int) -> None:
        """Send a request, and note which partitions it names."""
        assert lane.connection is not None
        share = min(size, _PARTITION_FETCH_BYTES)
        # The epoch is the one that the opening found: as soon as there is a newer leader the broker refuses this
        # fetch, and the next opening asks what that leader has lost (`epochs`).
        # The topic's id is the plan's: of a topic that was created again since, a broker has nothing to tell. By name it
        # would give the new one's records for ours, until somebody looks (`watch`).
        specs = [
            FetchSpec(p.range.source, p.fetch_offset, share, p.source_leader.epoch, p.range.source_id) for p in partitions
        ]
        if lane.kind is Kind.REST:
            lane.settle_session()
            for spec in specs:
                lane.session.put(spec)
            specs, place = lane.session.request()
        else:
            by_id = fetch.takes_ids(lane.connection) and all(spec.topic_id for spec in specs)
            place = fetch.NO_SESSION._replace(by_id=by_id)
        lane.by_id = place.by_id
        # A fetch changes nothing on either side: one that is lost is asked again, behind the opening that follows.
        sent = fetch.ask(
            lane.connection, specs, _wait_ms(lane, partitions), 1, size, self._isolation, wait=False, place=place
        )  # fmt: skip
        self._lines.sent(lane, sent)
        waiting = self._waiting.get(lane.key, {})
        for p in partitions:
            # With generation and offset: an answer that arrives after the partition has failed is for an offset that
            # may be wrong by now.
            lane.name(p)
            self._names[p.range.source_id] = p.range.source_topic
            waiting.pop(p, None)
            if lane.kind is Kind.REST:
                self._sessions[p] = lane
            else:
                p.fetching = True
                self._let_go(p)

    def receive(self, lane: FetchLane) -> None:
        """Receive from a connection that is ready to read or write."""
        if not lane.busy:
            self._leave_idle(lane)
            return
        try:
            assert lane.connection is not None
            body = self._lines.take(lane)
            if body is None:
                lane.heard_at = self._clock()
                return
            spoken = fetch.BY_ID if lane.by_id else fetch.version(lane.connection)
            throttle_ms, error, answers = fetch.decode(body, spoken, self._names)
        except TryAgain as e:
            self._lose(lane, e)
            return
        named = self._answered(lane)
        over_at = self.throttle.told(throttle_ms)
        if not fetch.holds_back(lane.connection):
            lane.not_before = over_at
        else:  # it has waited for us
            self._portions.answered(lane.node_id, len(body), throttle_ms)
        if lane.kind is Kind.REST:
            self._keep_session(lane, error, fetch.session_of(body, spoken), len(answers))
            if error in OVER:
                return  # the next poll begins another one
        # It counts as soon as a partition takes something of it: an answer to partitions that have all failed meanwhile
        # holds no memory.
        buffer = Buffer(self._memory, len(body), wall_ms())
        if error:
            retry_all(self._judge, [(one.p, one.generation) for one in named.values()], error_name(error))
            return
        dry = not throttle_ms and not any(answer.records for answer in answers)
        now = self._clock()
        served: dict[TopicPartition, PartitionCopy] = {}
        for answer in answers:
            one = named.get(answer.tp)
            # By the offset, too: what another lane has brought meanwhile must not come twice.
            if one is not None and one.counts:
                self._take_fetched(lane, one.p, answer, buffer, dry)
                if answer.records:
                    one.p.fed_at, one.p.rests = now, False
                    served[answer.tp] = one.p
        if lane.kind is Kind.REST:
            return
        self._lay_to_rest(lane, named, now)
        self._enlist_in_turn(lane, named, served)

    def _enlist_in_turn(
        self, lane: FetchLane, named: Mapping[TopicPartition, Named], served: Mapping[TopicPartition, PartitionCopy]
    ) -> None:
        """Enlist what a request named: before those that wait what got no records, behind them what got some.

        Most got none, and are touched by nothing else.
        """
        # A broker fills a response in the request's order, up to its limit. Backlogs that are always asked for first
        # would take all of it, and the records of those behind them might fall to retention meanwhile. In a session the
        # broker itself moves what it has served to the end (KIP-227), and here it leaves the session.
        waiting = self._waiting.pop(lane.key, {})
        # Copies of one partition (by key) take turns, though: a request names it once, and what one of them has read
        # before is no news for it, but may be for the next.
        unanswered = [one.p for tp, one in named.items() if tp not in served]
        by_key = [p for p in unanswered if p.range.key_partitions is not None]
        for p in unanswered:
            if p.range.key_partitions is None:
                self._enlist(p)
        if waiting:
            self._waiting.setdefault(lane.key, {}).update(waiting)
        for p in (*by_key, *served.values()):
            self._enlist(p)

    def _answered(self, lane: FetchLane) -> Mapping[TopicPartition, Named]:
        """Return what the request in flight was for, and allow fetching for it again."""
        lane.busy = False
        if lane.kind is Kind.REST:
            return lane.named
        named, lane.named = lane.named, {}
        for p, generation, _ in named.values():
            if p.generation == generation:
                p.fetching = False
        return named

    def _keep_session(self, lane: FetchLane, error: int, session_id: int, answers: int) -> None:
        was_kept = lane.session.is_kept
        lane.session.answered(error, session_id)
        if error in OVER:
            log.info(
                "broker %d has no such fetch session any more (%s): a new one begins", lane.node_id, error_name(error)
            )
        # The broker keeps what it answers a full request with. Anything else would never be asked for again.
        elif not was_kept and answers < len(lane.session):
            lane.session.begin_anew()

    def _lay_to_rest(self, lane: FetchLane, named: Mapping[TopicPartition, Named], now: float) -> None:
        """Let partitions rest to which nothing has come for a while, where a session is worth it."""
        assert lane.connection is not None
        rest = self._lanes.get((lane.node_id, Kind.REST))
        many = len(named) > _MANY or (rest is not None and bool(rest.session))
        if lane.kind is not Kind.TAIL or not many or not fetch.has_sessions(lane.connection):
            return
        for one in named.values():
            # Copies by key share a partition, which a session names once.
            if now - one.p.fed_at > _REST_AFTER_S and one.p.range.key_partitions is None:
                one.p.rests = True

    def _take_fetched(
        self, lane: FetchLane, p: PartitionCopy, answer: FetchedPartition, buffer: Buffer, dry: bool
    ) -> None:
        if answer.error in _OF_AN_OFFSET and p.is_unsettled:
            # A reopening would throw away what comes before it, and find the same, again and again.
            p.refuse_fetch()
        elif answer.error == ErrorCode.CORRUPT_MESSAGE and p.failures >= CORRUPT_AGAIN:
            self._judge.stop(p, _unreadable(p, p.fetch_offset + 1, "its broker can't read them (CORRUPT_MESSAGE)"))
        elif answer.error:
            # Includes offset out of range: reopening tells truncation from lost retention, with the offsets.
            self._judge.retry_later(p, lane.cause(f"fetch from {answer.tp}", answer.error, "Read", answer.tp.topic))
        else:
            p.feed(answer, buffer)
            if answer.records:
                p.dry = 0
            # A response that was filled with other partitions' batches, or is empty because of a quota, proves nothing.
            elif dry and p.is_behind:
                self._took_nothing(p)

    def _took_nothing(self, p: PartitionCopy) -> None:
        now = self._clock()
        if not p.dry:
            p.dry_since = now
        p.dry += 1
        if now - p.dry_since > _DRY_S:
            # A store that fails and a damaged log can't be told apart by empty answers, and the former passes. The
            # opening that follows takes the leader of its moment, which may have the batch whole.
            missing = f"nothing arrives at offset {p.fetch_offset} although the log ends at {p.available_end}"
            self._judge.retry_later(p, f"{missing}; its remote store is slow or fails, or a batch has a wrong length")

    def drop_silent(self, since: float, silence_s: float) -> None:
        """Give up connections with a request in flight on which nothing has moved since ``since``, ``silence_s`` ago.

        Their broker is frozen or cut off; a silent socket never wakes the selector.
        """
        for lane in list(self._lanes.values()):
            if not lane.busy or lane.heard_at >= since:
                continue
            # On a slow link it is the network that is slow: what was received so far would be fetched again, and again in
            # vain.
            if self._lines.has_more(lane):
                self.receive(lane)
            else:
                self._lose(lane, f"no answer for {silence_s:.0f} s{self._held_back(lane)}")

    def _held_back(self, lane: FetchLane) -> str:
        """Ask for less from now on if the answer may be held back, and return what to say of that."""
        if lane.connection is None or not fetch.holds_back(lane.connection):
            return ""
        self._portions.given_up(lane.node_id, lane.expected)
        return f" (before Kafka 2.0 a quota may hold it back: {self._portions.of(lane.node_id)} bytes are asked for next)"

    def pauses(self) -> Iterator[float]:
        """Yield for each connection the seconds that its broker still throttles us; below 0: none."""
        now = self._clock()
        return (lane.not_before - now for lane in self._lanes.values())

    def close(self) -> None:
        """Close all connections."""
        for lane in list(self._lanes.values()):
            self._drop(lane)

    def _lose(self, lane: FetchLane, cause: Exception | str) -> None:
        """Give up a connection with a request in flight. Its partitions are opened again; a session ends with it."""
        asked = [*lane.asked()]
        self._answered(lane)
        self._drop(lane)
        retry_all(self._judge, asked, cause)

    def _leave_idle(self, lane: FetchLane) -> None:
        """Give up a connection that is readable without a request: the broker has closed it."""
        partitions = [p for p, _ in lane.asked()]
        self._drop(lane)
        for p in partitions:  # that rest: nothing else would enlist them
            self._enlist(p)

    def _drop(self, lane: FetchLane) -> None:
        self._lines.abandon(lane)
        # The next fetch has a lane of its own, and a session. A connection that this one has asked for is closed when it
        # comes (`Lines.abandon`).
        self._lanes.pop(lane.key, None)
        for named in lane.named.values():
            if self._sessions.get(named.p) is lane:
                del self._sessions[named.p]


def _wait_ms(lane: FetchLane, partitions: Iterable[PartitionCopy]) -> int:
    if lane.kind is not Kind.BACKLOG:
        return _WAIT_MS[lane.kind]
    return max((fetch.patient_ms(p.dry) for p in partitions if p.available_end >= 0), default=_WAIT_MS[lane.kind])


def _key_of(p: PartitionCopy) -> Key:
    return p.source_leader.node_id, Kind.BACKLOG if p.is_behind else Kind.REST if p.rests else Kind.TAIL


def _unreadable(p: PartitionCopy, end: int, cause: str) -> CorruptBatch:
    return CorruptBatch(
        p.range.source_topic, p.range.partition, p.fetch_offset, end, f"the source's records can't be read: {cause}",
        "Everything before them was copied. Restore this partition of the source from another replica.",
    )  # fmt: skip
