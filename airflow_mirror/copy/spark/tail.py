"""The streaming tail on Spark: each micro-batch is a turn of some seconds in which tasks copy by long polling.

A micro-batch costs about 0.3 s of Spark's own time. Within the turn nothing waits for Spark, so a record takes
milliseconds from source to target. A turn lasts as long as the driver has no reason for another one, where its tasks
hear it (:func:`.task.copy_ranges`). What to copy, and how, is read again for each micro-batch; its tasks are told of
partitions that join in the middle of it (`copy.instructions`). Spark's offsets only count turns; the position of each
partition is its target's log end.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from airflow_mirror.config import Handover
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.spark.attempt import carry_out
from airflow_mirror.copy.task import work_from_json
from airflow_mirror.errors import InputError

log = logging.getLogger(__name__)

SOURCE_NAME = "kafka_mirror_tail"
_RESULT_SCHEMA = "result string"


@dataclass
class TurnPartition(InputPartition):  # type: ignore[misc]
    """What one task copies during one turn, and how.

    :ivar ranges: JSON of a list of :class:`CopyRange`. :ivar options: JSON of :class:`CopyOptions`.
    :ivar report_to: see :class:`.task.CopyWork`; ``deal`` likewise.
    :ivar handed: the clusters' settings; empty if tasks read them themselves.
    """

    ranges: str
    options: str
    report_to: str | None
    deal: int
    handed: Handover = field(repr=False)


class TailReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offers one turn after another.

    Options: ``work`` (JSON of CopyWork), ``turn_file`` (:func:`.task.turn_of`, rewritten by the driver whenever it has
    changed), ``turn_s``, ``hand_over`` ("true": tasks get the clusters' settings from
    here).

    Spark makes one on the driver's host that deals out all turns of a stream, and another one that it pickles for all of
    their tasks. So what a turn is to know by its beginning comes in its partitions. These go from memory to memory: what
    is in them is in no option, no plan and no checkpoint.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._work = work_from_json(options["work"])
        self._turn_file = options["turn_file"]
        self._turn_s = float(options["turn_s"])
        self._hands_over = options.get("hand_over") == "true"
        self._handed: Handover | None = None  # with the turn before
        self._offered = 0

    def initialOffset(self) -> dict[str, int]:
        """Turns are counted from 0."""
        return {"turn": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Offer one turn more than was started."""
        self._offered = max(self._offered, (start or {"turn": self._offered})["turn"]) + 1
        # Counts up and promises nothing: a turn that Spark repeats, or forgets with its checkpoint, begins at the
        # target's end like any other.
        return {"turn": self._offered}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[TurnPartition]:
        """Return the tasks of the next turn."""
        # Read when the turn is dealt out, once for all of its tasks: a file that is replaced now counts from the next
        # turn on. It is whole in any case, since the driver puts a new one in its place.
        with open(self._turn_file, encoding="utf-8") as file:
            turn = json.load(file)
        options, handed = json.dumps(turn["options"]), self._settings()
        return [
            TurnPartition(json.dumps(ranges), options, turn["report_to"], turn["number"], handed)
            for ranges in turn["ranges"]
        ]

    def _settings(self) -> Handover:
        """Return what the tasks of the next turn log in with: a password may have been changed since the last one.

        :raises InputError: or OSError, before the first turn: the settings, or a file that they name, can't be read.
        """
        if not self._hands_over:
            return Handover()
        try:
            self._handed = Handover.of(self._work.source, self._work.target)
        except (InputError, OSError) as e:
            if self._handed is None:
                raise
            log.warning("the clusters' settings can't be read, tasks get those of the turn before: %s", e)
        return self._handed

    def read(self, partition: TurnPartition) -> Iterator[tuple[str]]:
        """Copy for the length of the turn; yield each partition's result."""
        partition.handed.accept()
        ranges = [CopyRange(**values) for values in json.loads(partition.ranges)]
        options = CopyOptions(**json.loads(partition.options))
        work = replace(self._work, options=options, report_to=partition.report_to, deal=partition.deal)
        # The results of a turn that Spark gives up are lost, and with them counts only: the next turn goes on from the
        # log's end.
        for result in carry_out(work, ranges, self._turn_s):
            yield (result,)


class TailSource(DataSource):  # type: ignore[misc]
    """Python data source ``kafka_mirror_tail``."""

    @classmethod
    def name(cls) -> str:
        """Name for ``readStream.format``."""
        return SOURCE_NAME

    def schema(self) -> str:
        """One JSON string per partition."""
        return _RESULT_SCHEMA

    def streamReader(self, schema: Any) -> TailReader:
        """Return the reader of a stream."""
        return TailReader(self.options)
