"""Store offset maps in the compacted topic ``airflow-mirror.maps`` of the target, piece by piece.

The map is derived from the two logs; a stored map only saves walking them. So the store need not be complete: loading
stops at a gap, and the rest is derived again. What does load must be *right*, though: `pieces` says which records belong
to the present copy, and which of two writers counts.

- The origin (the start offsets on both sides and a token) is written before the copy's first record.
- A piece is written once, under a key that nothing else ever has. An answer that was lost costs a second, equal record.
  So do an older request that arrives late, and a frozen writer that thaws.
- A partition's writer joins its small pieces into larger ones: it writes the joined one first, and removes the pieces
  by tombstones only once that is on the target. A crash in between leaves pieces that count no more; the next writer to
  join removes them.
- The mirror, the target topic and the flow alone decide in which partition of the maps topic a map lies, so that what
  an earlier copy of the topic left is found there, and removed when the next one begins.

What is stored is read by :mod:`.reader`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from airflow_mirror.common.policy import MAPS
from airflow_mirror.copy.offsets import encoding, pieces
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.offsets.pieces import Origin, Piece, Stored
from airflow_mirror.copy.offsets.reader import MapReader, Removed, id_of_topic
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.errors import TryAgain
from airflow_mirror.ledger.records import MAP
from airflow_mirror.ledger.state import fitting
from airflow_mirror.ledger.topic import TopicLog
from airflow_mirror.wire.cluster import WireCluster

log = logging.getLogger(__name__)

MANY = 32  # pieces of a map that are joined
_PATIENCE_S = 10.0  # for one write
_CLOSED_S = 5.0  # how long a partition that took nothing is left alone: hundreds of maps may be waiting to be stored
_ORIGIN_VALUE = MAP.encode({})  # the key says it all; a record without a value would be a tombstone

Check = Callable[[], None]


@dataclass(kw_only=True)
class _Writer:
    """The writer of one map, since its partition was opened.

    :ivar open: the newest pieces, small enough to be joined. :ivar leftover: keys to be removed with the next ones.
    """

    topic_id: str
    token: str
    version: int
    open: list[Piece]
    leftover: list[str]


class MapStore(MapReader):
    """The offset maps of one mirror, for who writes them.

    A map has one writer at a time: whoever holds the writer lease.

    :param mirror: :param flows: as for :class:`.reader.MapReader`. :param many: join pieces once there are so many.
    """

    def __init__(self, mirror: str, flows: Iterable[str] | None = None, *, many: int = MANY) -> None:
        super().__init__(mirror, flows)
        self._many = many
        self._writers: dict[str, _Writer] = {}

    def resume(self, target: WireCluster, copy_range: CopyRange) -> OffsetMap | None:
        """Become the writer of a map. Return its end, which is all that a copy needs: its ends and the last of its runs.

        The map may exceed a task's memory, so only one piece of it is held at a time.

        :return: None without an origin; :meth:`begin` must follow then.
        :raises UnknownTopic: there is no maps topic. :raises MissingRight: no READ on it.
        """
        name = self._name(copy_range.map_key)

        def look() -> OffsetMap | None:
            self._shelf(name).read_on(target)
            stored = self._stored(target, copy_range)
            end = self._end(target, copy_range, stored)
            if stored is None:
                self._writers.pop(name, None)
                return None
            # Of what was read. Two who read at once take the same one, but only one holds the lease, and only that one
            # writes.
            version = pieces.highest_version(self._shelf(name).keys(name)) + 1
            self._writers[name] = _Writer(
                topic_id=id_of_topic(target, copy_range.target_topic), token=stored.origin.token, version=version,
                open=pieces.joinable(stored.pieces), leftover=list(stored.leftover),
            )  # fmt: skip
            return end

        return self._consistent(look)

    def _end(self, target: WireCluster, copy_range: CopyRange, found: Stored | None) -> OffsetMap | None:
        if found is None:
            return None
        name = self._name(copy_range.map_key)
        empty = OffsetMap(found.origin.source_start, found.origin.target_start)
        if not found.pieces:
            return empty
        try:
            last = value = self._value(target, name, found.pieces[-1])
            for piece in found.pieces[-2::-1]:
                if len(value):
                    break
                if piece.runs:
                    value = self._value(target, name, piece)
        except ValueError as e:
            log.warning("the end of the offset map of %s is not used: %s", name, e)
            whole = self._whole(target, copy_range, found)
            return None if whole is None else whole.end()
        end = value.end() if len(value) else empty
        end.advance(last.source_end, last.target_log_end)
        return end

    def begin(
        self, target: WireCluster, copy_range: CopyRange, source_start: int, target_start: int, check: Check
    ) -> None:
        """Begin a new map, which replaces what is stored. Call this before the first record is written.

        :param check: raises if this process must not write now.
        :raises TryAgain, MissingRight, UnknownTopic: it could not be stored; nothing may be written to the target then.
        """
        name = self._name(copy_range.map_key)
        shelf = self._shelf(name)
        if not shelf.was_read:
            shelf.read_on(target)
        before, topic_id = shelf.keys(name), id_of_topic(target, copy_range.target_topic)
        origin = Origin(source_start, target_start, uuid.uuid4().hex[:16], pieces.highest_version(before) + 1)
        # Who dies behind this line leaves an origin and no record: the next opening goes on from it. A record before it
        # would be one of which nobody knows where its map begins.
        self._write(target, name, {origin.key(name, topic_id): _ORIGIN_VALUE}, check)
        self._writers[name] = _Writer(topic_id=topic_id, token=origin.token, version=origin.version, open=[], leftover=[])
        # Cleanup only: none of it counts any more.
        self._remove(target, name, self._writers[name], before, check)

    def adopt(self, target: WireCluster, copy_range: CopyRange, whole: OffsetMap, check: Check) -> None:
        """Store the map of what another tool has copied, which replaces what is stored.

        It begins to count as a whole: until its origin is written, which comes last, readers find what was there before.

        :param whole: up to the target's log end; all that lies below is the other tool's.
        :param check: raises if this process must not write now. :raises: as :meth:`begin`; it may be tried again.
        """
        name = self._name(copy_range.map_key)
        shelf = self._shelf(name)
        shelf.read_on(target)
        before, topic_id = shelf.keys(name), id_of_topic(target, copy_range.target_topic)
        version = pieces.highest_version(before) + 1
        origin = Origin(whole.source_start, whole.target_start, uuid.uuid4().hex[:16], version)
        writer = _Writer(topic_id=topic_id, token=origin.token, version=version, open=[], leftover=[])
        self._write_pieces(target, name, writer, encoding.split(whole), check)
        # Pieces without their origin count for nobody, so a death before the last write changes nothing; behind it all of
        # them count at once, and what was there before is leftover.
        adopted = pieces.adopted_key(name, topic_id, origin, whole.target_log_end)
        self._write(target, name, {adopted: _ORIGIN_VALUE}, check)
        self._write(target, name, {origin.key(name, topic_id): _ORIGIN_VALUE}, check)
        self._remove(target, name, writer, before, check)

    def append(self, target: WireCluster, copy_range: CopyRange, part: OffsetMap, check: Check) -> None:
        """Store a part of the map, and join small pieces. Stores nothing unless :meth:`resume` or :meth:`begin` did.

        :param check: see :meth:`begin`.
        :raises TryAgain, MissingRight, UnknownTopic: it could not be stored. It may be tried again.
        """
        name = self._name(copy_range.map_key)
        writer = self._writers.get(name)
        if writer is None:
            log.warning("offset map of %s: no origin is stored, so that it has to be derived when it is needed", name)
            return
        # The piece counts from here on. Joining only spares readers: what of it fails, or dies half-way, is left for
        # the next.
        written = self._write_pieces(target, name, writer, encoding.split(part), check)
        writer.open = pieces.joinable([*writer.open, *written])
        if len(writer.open) < self._many:
            return
        try:
            self._join(target, copy_range, writer, check)
        except TryAgain as e:
            check()
            log.warning("pieces of the offset map of %s are joined later: %s", name, e)

    def remove_all(self, target: WireCluster, check: Check) -> None:
        """Remove all of these maps. Nobody may be copying with them. See :meth:`begin` for ``check``, and its errors."""
        # Who dies amid it leaves the rest to the next call, which looks at what is there. No copy reads these maps.
        for name in self.names(target):
            self._write(target, name, dict.fromkeys(self._shelf(name).keys(name)), check)

    def _join(self, target: WireCluster, copy_range: CopyRange, writer: _Writer, check: Check) -> None:
        """Join the newest pieces, until the next older one is larger than all of them together.

        So each run is written again a logarithmic number of times. A crash at any moment loses nothing.
        """
        name = self._name(copy_range.map_key)
        used = pieces.to_join(writer.open)
        rest = writer.open[: len(writer.open) - len(used)]
        try:
            joined = self._value(target, name, used[0])
            for piece in used[1:]:
                joined.extend(self._value(target, name, piece))
        except (Removed, ValueError) as e:  # another writer has joined them, or said otherwise: it counts, not we
            log.warning("pieces of the offset map of %s are left as they are: %s", name, e)
            writer.open = []
            return
        # The joined piece first: who dies behind it leaves its parts as well, which say the same. The other way round
        # there would be a gap, and all that lies behind it would be derived again.
        written = self._write_pieces(target, name, writer, [joined], check)
        writer.open = pieces.joinable([*rest, *written])
        self._remove(
            target, name, writer, [copy_range.key for copy_range in used if copy_range.key != written[0].key], check
        )

    # --- records ------------------------------------------------------------------------------------------------------

    def _write_pieces(
        self, target: WireCluster, name: str, writer: _Writer, parts: Iterable[OffsetMap], check: Check
    ) -> list[Piece]:
        written: list[Piece] = []
        for part in parts:  # one at a time, because they may be many
            start, end, runs = part.source_start, part.source_end, len(part)
            key = pieces.piece_key(name, writer.topic_id, writer.token, writer.version, (start, end, runs))
            offset = self._write(target, name, {key: encoding.encode(part)}, check)
            written.append(
                Piece(start=start, end=end, until=end, runs=runs, version=writer.version, key=key, offset=offset)
            )
        return written

    def _remove(self, target: WireCluster, name: str, writer: _Writer, keys: Iterable[str], check: Check) -> None:
        """Remove records, and what is left over. What could not be removed is tried again with the next."""
        # Until a broker has taken the tombstones. Who dies before that leaves them to the next one that joins, or begins.
        writer.leftover += keys
        if not writer.leftover:
            return
        try:
            self._write(target, name, dict.fromkeys(writer.leftover), check)
        except TryAgain as e:
            check()
            log.warning("pieces of the offset map of %s that count no more are still there: %s", name, e)
            return
        writer.leftover = []

    def _write(self, target: WireCluster, name: str, values: Mapping[str, bytes | None], check: Check) -> int:
        """Append records until a broker says that it has them; return the offset of the last one's batch."""
        shelf = self._shelf(name)
        if time.monotonic() < shelf.closed_until:
            raise TryAgain(f"{MAPS}-{shelf.partition} is not written to for a while", "the last try failed")
        topic, left, offset = TopicLog(target, MAPS, shelf.partition), dict(values), -1
        try:
            while left:
                now = {key: left.pop(key) for key in list(fitting(left))}
                # Of the try that was answered. An equal record of another one may come behind it, and the cleaner take
                # this one: `_value` finds that.
                offset = topic.put(now, _PATIENCE_S, check)
        except TryAgain:
            # The record may be there all the same, or come later: it says what its key says, so that does no harm.
            shelf.closed_until = time.monotonic() + _CLOSED_S
            raise
        return offset
