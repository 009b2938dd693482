"""What was read of one partition of the maps topic: the keys of wanted maps, and where their records lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from airflow_mirror.common.policy import MAPS
from airflow_mirror.copy.offsets import pieces
from airflow_mirror.ledger.topic import ReadOn, TopicLog
from airflow_mirror.wire.cluster import WireCluster
from airflow_mirror.wire.records import Record

_FETCH_BYTES = 1 << 20  # its batches are decompressed beside what a task copies


class MapIndex:
    """Reads a partition once, and then what was appended since. May be used by several threads.

    :param wanted: returns whether a map, by its name, will be asked for.
    :ivar closed_until: time on a monotonic clock until which nothing is written to it.
    """

    def __init__(self, partition: int, wanted: Callable[[str], bool]) -> None:
        self.partition, self._wanted = partition, wanted
        self.closed_until = 0.0
        self._lock = Lock()
        self._read = ReadOn()
        self._maps: dict[str, dict[str, int]] = {}

    @property
    def was_read(self) -> bool:
        """False before the first :meth:`read_on`, and after :meth:`forget`."""
        return self._read.topic_id is not None

    def keys(self, name: str) -> Mapping[str, int]:
        """Return the keys of a map, each with its record's offset, as they were last read."""
        with self._lock:
            return dict(self._maps.get(name, ()))

    def names(self) -> list[str]:
        """Return the names of all maps of which records are there."""
        with self._lock:
            return [name for name, keys in self._maps.items() if keys]

    def forget(self) -> None:
        """Read everything at the next call: what was read is not what is there."""
        with self._lock:
            # The next look reads from the log's start: slower, and right whatever was removed or lost meanwhile.
            self._read.topic_id = None

    def read_on(self, target: WireCluster) -> None:
        """Read to the high watermark; all of it if the topic was created again.

        :raises UnknownTopic: it is not there. :raises MissingRight: no READ on it.
        """
        with self._lock:
            # One thread reads, under the lock, and the others wait for it: what it has applied they need not read.
            # To the high watermark: what lies above may be lost in an election. A part of ours that is not in it yet
            # was answered, and comes; who reads too early goes on from an older end, and derives the rest.
            log = TopicLog(target, MAPS, self.partition)
            for record in self._read.records(log, self._maps.clear, _FETCH_BYTES):
                self._apply(record)

    def _apply(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        name = pieces.name_of(key)
        if name is None or not self._wanted(name):
            return
        # In log order: a tombstone is behind what it removes. A piece that is written again behind it stands again,
        # which does no harm: its key says all of it, and whether it counts is for `pieces` to say.
        if record.value is None:
            self._maps.get(name, {}).pop(key, None)
        else:
            self._maps.setdefault(name, {})[key] = record.offset
