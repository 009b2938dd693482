"""The streaming tail on Spark: each micro-batch is a turn of some seconds in which tasks copy by long polling.

A micro-batch costs about 0.3 s of Spark's own time. Within the turn nothing waits for Spark, so a record takes
milliseconds from source to target. A turn lasts as long as the driver has no reason for another one, where its tasks
hear it (:func:`.task.copy_ranges`). What to copy, and how, is read again for each micro-batch; its tasks are told of
partitions that join in the middle of it (`copy.instructions`). Spark's offsets only count turns; the position of each
partition is its target's log end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from airflow_mirror.config import Handover
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.spark.attempt import carry_out
from airflow_mirror.copy.task import work_from_json

SOURCE_NAME = "kafka_mirror_tail"
_RESULT_SCHEMA = "result string"


@dataclass
class TurnPartition(InputPartition):  # type: ignore[misc]
    """What one task copies during one turn, and how.

    :ivar ranges: JSON of a list of :class:`CopyRange`. :ivar options: JSON of :class:`CopyOptions`.
    :ivar report_to: see :class:`.task.CopyWork`; ``deal`` likewise.
    """

    ranges: str
    options: str
    report_to: str | None
    deal: int


class TailReader(DataSourceStreamReader):  # type: ignore[misc]
    """Offers one turn after another.

    Options: ``work`` (JSON of CopyWork), ``turn_file`` (:func:`.task.turn_of`, rewritten by the driver whenever it has
    changed), ``turn_s``, ``hand_over`` ("true": tasks get the clusters' settings from
    here).

    Created in the driver. What is read here reaches the tasks in the pickled reader, and is in no option.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._work = work_from_json(options["work"])
        self._turn_file = options["turn_file"]
        self._turn_s = float(options["turn_s"])
        self._handed = Handover()
        if options.get("hand_over") == "true":
            self._handed = Handover.of(self._work.source, self._work.target)
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
        options = json.dumps(turn["options"])
        return [
            TurnPartition(json.dumps(ranges), options, turn["report_to"], turn["number"]) for ranges in turn["ranges"]
        ]

    def read(self, partition: TurnPartition) -> Iterator[tuple[str]]:
        """Copy for the length of the turn; yield each partition's result."""
        self._handed.accept()
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
