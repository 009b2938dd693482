"""A drill measures, or says why it can't: what was not seen must never count as lost, or as well."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, ClusterUnreachable, DrillMissed, InputError
from airflow_mirror.extras.drill import disaster, failover, reading
from airflow_mirror.extras.drill.canaries import Canaries
from airflow_mirror.extras.drill.report import failures, measure, over
from airflow_mirror.extras.drill.store import Drill
from airflow_mirror.kafka.admin import ClusterAdmin

TARGET = ClientConfig({"bootstrap.servers": "127.0.0.1:1"}, "target")


class Refused:
    def code(self) -> int:
        return 29

    def name(self) -> str:
        return "TOPIC_AUTHORIZATION_FAILED"


@pytest.mark.parametrize(("queued", "error"), [(1, ClusterUnreachable), (0, BrokerError), (0, None)])
def test_a_record_that_was_refused_is_not_the_first_write(
    monkeypatch: pytest.MonkeyPatch, queued: int, error: Any
) -> None:
    """It leaves the producer's queue as a delivered one does."""

    class Producer:
        def __init__(self, _settings: dict[str, Any]) -> None:
            self.answer: Any = None

        def produce(self, *_: object, on_delivery: Any, **__: object) -> None:
            self.answer = on_delivery

        def flush(self, _timeout_s: float) -> int:
            if not queued:
                self.answer(Refused() if error else None, None)
            return queued

    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    if error is None:
        reading.write_one(TARGET, "drill", 1.0)
    else:
        with pytest.raises(error, match="'drill'"):
            reading.write_one(TARGET, "drill", 1.0)


class Consumer:
    """Gives out the keys 0, 1 and 2 of one partition, and nothing more."""

    def __init__(self, _settings: dict[str, Any]) -> None:
        self._next = 0

    def assign(self, _partitions: object) -> None:
        pass

    def assignment(self) -> list[object]:
        return []

    def poll(self, _timeout_s: float) -> Any:
        if self._next == 3:
            return None
        at, self._next = self._next, self._next + 1
        return SimpleNamespace(
            error=lambda: None, partition=lambda: 0, offset=lambda: at, key=lambda: f"{at}".encode()
        )  # fmt: skip

    def position(self, _partitions: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(partition=0, offset=self._next)]

    def close(self) -> None:
        pass


def test_unread_records_do_not_count_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading that does not reach the ends in time is an error."""
    monkeypatch.setattr("confluent_kafka.Consumer", Consumer)
    assert reading.everything(TARGET, "drill", {0: 3, 1: 0}, 1.0) == {(0, 0, "0"), (0, 1, "1"), (0, 2, "2")}
    with pytest.raises(ClusterUnreachable, match=r"partitions \[0\] of 'drill' were not read to their ends"):
        reading.everything(TARGET, "drill", {0: 4}, 0.05)


def test_a_target_without_the_drills_topic_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterAdmin, "topics", lambda *_: {})
    with pytest.raises(DrillMissed, match="the target cluster has no topic 'drill'"):
        disaster.warm_up(TARGET, TARGET, "drill")
    with pytest.raises(DrillMissed, match="the target cluster has no topic 'drill'"):
        failover.fail_over(TARGET, Canaries(topic="drill", group="drill"))


class Source:
    """A cluster whose producers are acknowledged at once, unless it ``stops`` taking records.

    :param delayed: acknowledgements that come one record later.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, delayed: bool = False) -> None:
        self.stops = False
        outer = self

        class Producer:
            def __init__(self, _settings: dict[str, Any]) -> None:
                self._sent: list[tuple[bytes, Any]] = []

            def produce(self, _topic: str, *, key: bytes, value: bytes, on_delivery: Any) -> None:
                self._sent.append((key, on_delivery))

            def poll(self, timeout_s: float) -> None:
                threading.Event().wait(min(timeout_s, 0.001))
                while not outer.stops and len(self._sent) > delayed:
                    self._answer(*self._sent.pop(0))

            def _answer(self, key: bytes, answer: Any) -> None:
                answer(None, SimpleNamespace(partition=lambda: 0, offset=lambda: int(key), key=lambda: key))

            def purge(self) -> None:
                pass

        monkeypatch.setattr("confluent_kafka.Producer", Producer)
        monkeypatch.setattr(disaster, "POLL_S", 0.001)
        monkeypatch.setattr(disaster, "_read_and_commit", lambda *_: {0: 1})


def write(lose: Any) -> Canaries:
    return disaster.write_canaries(TARGET, "drill", "g", seconds=0.01, per_s=1000, disaster=lose)


def test_canaries_are_written_before_during_and_after_the_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was on its way when the tail was killed does not prove that writing went on."""
    Source(monkeypatch, delayed=True)
    canaries = write(lambda: None)
    assert canaries.acked and canaries.written_on_ms >= canaries.disaster_ms
    assert all(at_ms <= canaries.disaster_ms for *_, at_ms in canaries.acked)


@pytest.mark.parametrize("when", ["before", "after"])
def test_drill_that_stops_writing_first_is_noticed(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A target that had all the time it needs to catch up shows no loss; that is not what a disaster costs."""
    source, killed = Source(monkeypatch), []

    def stop(*_: object) -> dict[int, int]:
        source.stops = True
        monkeypatch.setattr(disaster, "_NEXT_ACK_S", 0.0)
        return {0: 1}

    def kill() -> None:
        killed.append(True)
        stop()

    if when == "before":
        monkeypatch.setattr(disaster, "_read_and_commit", stop)
    with pytest.raises(DrillMissed, match=f"no canary was acknowledged for 0 s {when} the tail was killed"):
        write(kill)
    assert killed == ([] if when == "before" else [True])


def test_canaries_travel_between_tasks_and_missing_ones_are_named(tmp_path: Path) -> None:
    kept = Canaries(
        topic="drill", group="g", acked=[(0, 3, "7", 1_700_000_000_001)], positions={0: 2, 11: 5},
        disaster_ms=1_700_000_000_500, written_on_ms=1_700_000_000_501,
    )  # fmt: skip
    kept.save(tmp_path / "run" / "canaries.json")
    assert Canaries.load(tmp_path / "run" / "canaries.json") == kept
    with pytest.raises(InputError, match="LoseSourceOperator first"):
        Canaries.load(tmp_path / "another run" / "canaries.json")


def test_canary_at_another_offset_is_lost_and_rereads_are_told() -> None:
    acked = [(0, 3, "a", 9_000), (0, 4, "b", 9_500), (1, 8, "c", 9_900)]
    held = {(0, 3, "a"), (0, 4, "x"), (1, 8, "c")}
    got = [(0, 3, "a"), (1, 8, "c")]
    canaries = Canaries(topic="drill", group="g", acked=acked, disaster_ms=10_000)
    report = measure(canaries, held, {0: 4, 1: 8}, got, {"read": 12.0, "write": 11.0})
    assert (report.lost, report.rpo_s, report.rto_s, report.skipped, report.reread) == (1, 0.5, 2.0, 1, 1)
    found = report.to_dict()
    assert failures(a_drill(found, {"rpo_s": 0.4, "rto_s": 1.0})) == [
        "RPO 0.50 s (1 records lost), wanted at most 0.4 s", "RTO 2.00 s, wanted at most 1 s",
        "the group skipped 1 and re-read 1 records",
    ]  # fmt: skip
    assert over(a_drill(found, {"rpo_s": 0.5, "rto_s": 1.0})) == {"rto_s": (2.0, 1.0)}
    assert len(failures(a_drill(found, {"rpo_s": 0.5, "rto_s": 2.0}))) == 1
    nothing = a_drill({}, {"rpo_s": 0.5})
    assert over(nothing) == {} and "nothing was measured" in failures(nothing)[0]


def a_drill(figures: dict[str, Any], wanted: dict[str, float], **more: Any) -> Drill:
    return Drill(run="monday", at_ms=7, figures=figures, wanted=wanted, **{"failback": {"left_out": True}, **more})


def test_way_back_that_is_not_exact_fails_the_drill() -> None:
    well = {"rpo_s": 0.0, "rto_s": 1.0, "lost": 0, "skipped": 0, "reread": 0}
    back = {"differing": ["t-0: end"], "nowhere": 2, "skipped": 1, "reread": 3}
    assert failures(a_drill(well, {}, failback=back)) == [
        "failback: t-0: end", "failback: 2 acknowledged records are on neither side",
        "failback: the group skipped 1 and re-read 3 records",
    ]  # fmt: skip
    assert failures(a_drill(well, {}, failback={})) == ["there was no failback: its task failed, or the run was ended"]
    exact = {"differing": [], "nowhere": 0, "skipped": 0, "reread": 0}
    assert failures(a_drill(well, {}, failback=exact)) == []
