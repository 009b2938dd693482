"""Source == target, told by a plain consumer: from where the last check ended, and once more in full at the end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_mirror.common.partition import TopicPartition
from sandbox import Cluster
from tests.integration.copying import Seen, ends, read
from tests.soak.topics import TOPICS, Topic

if TYPE_CHECKING:
    from tests.soak.victims import Flow


class Unequal(Exception):
    """The target is not the source's copy, or a copier stopped where it should not have; ``evidence`` says where."""

    def __init__(self, what: str, evidence: dict[str, Any]) -> None:
        super().__init__(what)
        self.evidence = evidence


class Referee:
    """Compares two clusters.

    :ivar checks: how often all topics were found equal.
    :ivar records: records found equal, each counted once.
    """

    def __init__(self, source: Cluster, target: Cluster) -> None:
        self._source, self._target = source, target
        self._checked: dict[TopicPartition, int] = {}
        self.checks = self.records = 0

    def check(self, full: bool = False) -> None:
        """Compare every partition.

        :param full: from the log's start, not only what came since the last check.
        :raises Unequal: with the first difference.
        """
        new = 0
        for topic in TOPICS:
            here, there = (ends(c, topic.name, topic.partitions) for c in (self._source, self._target))
            if here != there:
                what = f"{topic.name}: (log start, last stable offset, log end) differ"
                raise Unequal(what, {"topic": topic.name, "source": here, "target": there})
            for tp in topic.all_partitions():
                new += self._compare(topic, tp, None if full else self._checked.get(tp))
                self._checked[tp] = here[tp.partition][2]
        self.checks += 1
        self.records = new if full else self.records + new

    def check_mapped(self, flow: Flow) -> None:
        """Compare record by record where the offset map says; and the map for every offset, in both directions.

        :raises Unequal: with the first difference.
        """
        from tests.integration.test_copy_mapped import assert_mapped, others
        from tests.soak.victims import ranges

        for one in ranges(self._source, flow):
            try:
                known = assert_mapped(self._source, self._target, one, flow.mirror)
                surplus = others(self._target, one.target_topic, one.partition, known)
                assert surplus == 0, f"{surplus} records more on the target than on the source"
            except AssertionError as e:
                raise Unequal(f"{one.source}: {e}", {"topic": one.source_topic, "map": flow.options}) from e
            self.records += sum(segment.count for segment in known.segments())

    def _compare(self, topic: Topic, tp: TopicPartition, start: int | None) -> int:
        here, there = (read(c, tp.topic, tp.partition, 30, start) for c in (self._source, self._target))
        if topic.stamped:
            here, there = _times_only(here), _times_only(there)
        if here == there:
            return len(here)
        first = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
        a, b = here[first : first + 3], there[first : first + 3]
        missing = sorted({r[0] for r in here} - {r[0] for r in there})
        surplus = sorted({r[0] for r in there} - {r[0] for r in here})
        raise Unequal(
            f"{tp}: differs at record {first}, source offset {a[0][0] if a else 'none'}, "
            f"target offset {b[0][0] if b else 'none'}",
            {
                "topic": tp.topic, "partition": tp.partition, "from": start, "source": repr(a), "target": repr(b),
                "records": [len(here), len(there)], "missing_offsets": missing[:50], "surplus_offsets": surplus[:50],
            },
        )  # fmt: skip


def _times_only(rows: list[Seen]) -> list[Seen]:
    return [(o, (0, t[1]), k, v, h) for o, t, k, v, h in rows]


def keep(evidence: dict[str, Any], target: Cluster, directory: Path) -> None:
    """Write ``evidence`` and copy the target's files of the partition that it is about."""
    (directory / "evidence.json").write_text(json.dumps(evidence, indent=1, default=repr), encoding="utf-8")
    name = evidence.get("topic")
    for found in target.directory.glob(f"node-*/data/{name}-*") if name else ():
        shutil.copytree(
            found, directory / found.parts[-3] / found.name, dirs_exist_ok=True, ignore_dangling_symlinks=True
        )
