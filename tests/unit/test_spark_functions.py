"""What Spark is given to run: small whatever the number of partitions, since a large one is written to a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_mirror.config import Handover, load
from airflow_mirror.copy.options import CopyOptions
from airflow_mirror.copy.ranges import CopyRange
from airflow_mirror.copy.spark import attempt, tail
from airflow_mirror.copy.spark.bulk import run_bulk
from airflow_mirror.copy.task import CopyWork, turn_of, work_to_json
from airflow_mirror.errors import InputError
from airflow_mirror.verify import spark
from airflow_mirror.verify.result import PartitionPair
from tests.unit.jobs.sharing import LEASE

_MOST = 1 << 20  # bytes of a function's pickle: SparkContext's limit (pyspark.core.rdd._prepare_for_python_RDD)
_MANY = 30_000


class Context:
    """A SparkContext that runs its function in this process. ``pickled``: bytes of that."""

    pickled = 0

    def parallelize(self, given: list[str], count: int) -> Context:
        assert len(given) == count
        self._given = given
        return self

    def mapPartitions(self, do: Callable[[Iterator[str]], Iterator[str]]) -> Context:  # noqa: N802 - Spark's name
        from pyspark.serializers import CloudPickleSerializer

        self.pickled, self._do = len(CloudPickleSerializer().dumps(do)), do
        return self

    def collect(self) -> list[str]:
        return [line for one in self._given for line in self._do(iter([one]))]


@pytest.fixture
def context() -> Context:
    return Context()


def test_a_comparison_of_very_many_partitions_is_data(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[PartitionPair] = []
    monkeypatch.setattr(spark, "load", lambda *_: None)
    monkeypatch.setattr(spark, "compare_partitions", lambda pairs, *_, **__: compared.extend(pairs) or [])
    pairs = [
        PartitionPair(
            source_topic=f"topic-{n}", target_topic=f"dc1.topic-{n}", partition=0, start_offset=n, end_offset=9 * n,
            cleaned_on=("source",),
        )
        for n in range(_MANY)
    ]  # fmt: skip
    assert spark.run_verify(cast("Any", context), [pairs[::2], [], pairs[1::2]], "a", "b", handover=Handover()) == []
    assert compared == pairs[::2] + pairs[1::2], "as they were given"
    assert context.pickled < _MOST


def test_a_copy_of_very_many_partitions_is_data(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[CopyRange] = []
    monkeypatch.setattr(attempt, "carry_out", lambda _, ranges: copied.extend(ranges) or iter(()))
    ids = [f"{n:022}" for n in range(_MANY)]
    ranges = [
        CopyRange(source_topic=one, target_topic=f"dc1.{one}", partition=0, start_offset=7, source_topic_id=one)
        for one in ids
    ]  # fmt: skip
    work = CopyWork(source="a", target="b", options=CopyOptions(mirror="m"), lease=LEASE)
    assert run_bulk(cast("Any", context), [ranges], work, Handover()) == []
    assert copied == ranges and context.pickled < _MOST


class Turns:
    """A tail's turns as Spark asks for them: one reader deals them on the driver's host, each task has a copy of another.

    :param hand_over: whether tasks get the clusters' settings from the driver.
    """

    def __init__(self, directory: Path, hand_over: bool = True) -> None:
        self.source, self.target = (directory / f"{role}.properties" for role in ("source", "target"))
        self.change_passwords("old")
        options = CopyOptions(mirror="m")
        work = CopyWork(source=str(self.source), target=str(self.target), options=options, lease=LEASE)
        ranges = [CopyRange(source_topic="t", target_topic="t", partition=p, start_offset=0) for p in range(2)]
        turn = directory / "turn.json"
        turn.write_text(json.dumps(turn_of(options, [ranges[:1], ranges[1:]]) | {"number": 1}))
        self.options = {
            "work": work_to_json(work), "turn_file": str(turn), "turn_s": "600", "hand_over": str(hand_over).lower(),
        }  # fmt: skip
        self._deals, self._reads = tail.TailReader(self.options), tail.TailReader(self.options)

    def change_passwords(self, password: str) -> None:
        for file in (self.source, self.target):
            file.write_text(f"bootstrap.servers=h:1\nsasl.password={password}-{file.stem}\n")

    def deal(self) -> list[tail.TurnPartition]:
        return self._deals.partitions({"turn": 1}, {"turn": 2})

    def run(self) -> list[tuple[str]]:
        """Return what the tasks of the next turn yield."""
        dealt = pickle.dumps(self.deal())
        reader: tail.TailReader = pickle.loads(pickle.dumps(self._reads))
        return [result for partition in pickle.loads(dealt) for result in reader.read(partition)]


@pytest.fixture
def logging_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that does nothing but tell by which passwords it would log in, in a process of its own."""
    handed: dict[str, Any] = {}

    def passwords(work: CopyWork, *_: object) -> list[str]:
        found = [load(one).properties["sasl.password"] for one in (work.source, work.target)]
        handed.clear()
        return found

    monkeypatch.setattr("airflow_mirror.config._handed", handed)
    monkeypatch.setattr(tail, "carry_out", passwords)


@pytest.mark.usefixtures("logging_in")
def test_tasks_of_a_tails_next_turn_log_in_as_the_files_say_by_then(tmp_path: Path) -> None:
    """Its stream, and with it the reader, lasts for months."""
    turns = Turns(tmp_path)
    assert turns.run() == [("old-source",), ("old-target",)] * 2
    turns.change_passwords("new")
    assert turns.run() == [("new-source",), ("new-target",)] * 2


@pytest.mark.usefixtures("logging_in")
def test_settings_that_can_not_be_read_in_that_moment_are_those_of_the_turn_before(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.run()
    turns.change_passwords("new")
    turns.target.unlink()
    assert turns.run() == [("old-source",), ("old-target",)] * 2


def test_a_tails_first_turn_needs_its_settings(tmp_path: Path) -> None:
    turns = Turns(tmp_path)
    turns.target.unlink()
    with pytest.raises(InputError, match=r"target\.properties' can't be read"):
        turns.deal()


@pytest.mark.parametrize("hand_over", [True, False])
def test_settings_that_a_turn_hands_over_are_in_nothing_that_is_shown(tmp_path: Path, hand_over: bool) -> None:
    turns = Turns(tmp_path, hand_over)
    dealt = turns.deal()
    assert ("old-source" in str(pickle.dumps(dealt))) is hand_over
    for shown in (repr(dealt), str(dealt[0]), str(turns.options)):
        assert "old-" not in shown
