"""Tasks that find a tail of the mirror running: whether it is theirs, makes way, or is left alone."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import PlanNotKept
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.local import LocalRunner
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators import tail as tail_module
from airflow_mirror.operators.base import load_plan
from airflow_mirror.operators.mirror import StartMirrorOperator, StopMirrorOperator
from airflow_mirror.plan import Plan, PlanDirectory
from airflow_mirror.plan.amendment import next_amendment
from airflow_mirror.plan.ledger_store import amend, keep
from airflow_mirror.sync.lag import PartitionLag
from tests.builders import topic_plan
from tests.provider.conftest import PLAN, Pauses, Started, store_plan, submitted
from tests.provider.tasks import planned_again
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.waiting import wait_until

# --- the run after a rejected cutover: its tail is still there --------------------------------------------------------


def test_plan_that_another_worker_made_is_fetched(
    plan: Plan, mirror: dict[str, Any], home: Path, connections: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
    ledger: MemoryLedger, state: MemoryState,
) -> None:  # fmt: skip
    """This one's disk is empty. The file is for the job that it starts, and for people."""
    keep(plan, state, ledger)
    monkeypatch.setenv("AIRFLOW__MIRROR__HOME", str(home / "another"))
    assert load_plan(PLAN, plan.mirror) == plan
    assert PlanDirectory(home / "another" / "m" / "plans").load(PLAN) == plan
    state.write(dict.fromkeys(state.read()))
    assert load_plan(PLAN, plan.mirror) == plan, "it is here now"
    with pytest.raises(PlanNotKept, match="neither this host nor the target's ledger holds plan 0000"):
        load_plan("0" * 64, plan.mirror)


def test_bulk_copy_waits_for_the_running_tail_instead(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tail copies the same topics, and no second job is started."""
    ends, positions = [100, 100, 300], iter([0, 40, 100])

    def measure(*_: Any) -> Any:
        position = next(positions)
        return [PartitionLag(TopicPartition("t", 0), position, ends.pop(0))]

    told: list[Any] = []
    monkeypatch.setattr("airflow_mirror.sync.lag.measure", measure)
    looked = Mock()
    monkeypatch.setattr("airflow_mirror.sync.lag.require_planned_topics", looked)
    monkeypatch.setattr(
        "airflow_mirror.operators.mirror.tell_lag", lambda name, found: told.append((name, found["lag_records"]))
    )
    result = StartMirrorOperator(plan=planned_again(plan, home), task_id="b", mirror=mirror).execute(context)
    assert (result["job"], result["job_dir"]) == ("tail", tail["dir"])
    assert told == [("m", 60)] and looked.call_count == 1
    assert len(fake_spark[0]) == 1 and process.members(Path(tail["dir"])), "no second job; the tail lives"


def test_partition_that_the_tail_has_given_up_is_not_waited_for(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], fake_spark: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The tail lives, and copies the others: the bulk copy waited for ever. What came since may stand still."""
    moving, now = itertools.count(), itertools.count(step=100)

    def measure(*_: Any) -> Any:
        copied = next(moving)
        return [
            PartitionLag(TopicPartition("t", 0), 100, 100 + copied, 100 + copied),
            PartitionLag(TopicPartition("t", 1), copied, 10**6, 10**6),
            PartitionLag(TopicPartition("t", 2), 40, 100, 100),
        ]

    monkeypatch.setattr("airflow_mirror.sync.lag.measure", measure)
    monkeypatch.setattr("airflow_mirror.sync.lag.require_whole", lambda *_: None)
    clock = SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
    monkeypatch.setattr("airflow_mirror.operators.mirror.time", clock)
    looks = iter(range(20))  # one that waits for ever uses them up
    monkeypatch.setattr("airflow_mirror.operators.mirror.tell_lag", lambda *_: next(looks))
    with pytest.raises(AirflowFailException, match=r"1 partition\(s\) did not move for 300 s(?s:.*)t-2: at 40 of 100"):
        StartMirrorOperator(plan=PLAN, task_id="b", mirror=mirror).execute(context)


def test_tail_that_dies_fails_the_waiting_bulk_copy(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any) -> Any:
        process.end([tail["pid"]], signal.SIGKILL)
        wait_until(lambda: not process.is_alive(tail["pid"], tail["started"]))
        return [PartitionLag(TopicPartition("t", 0), 0, 100)]

    monkeypatch.setattr("airflow_mirror.sync.lag.measure", measure)
    with pytest.raises(AirflowException, match="JobFailed: .*LOST"):
        StartMirrorOperator(plan=PLAN, task_id="b", mirror=mirror).execute(context)


def test_new_plan_of_the_same_topics_keeps_the_tail(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    other = {**mirror, "principals": {"User:a": "User:b"}}  # no tail has to do with them
    again = StartMirrorOperator(plan=planned_again(plan, home), task_id="t", mirror=other, mode="tail").execute(context)
    assert again["job_dir"] == tail["dir"] and len(fake_spark[0]) == 1


def test_tail_whose_rights_follow_has_the_map_of_principals(
    context: dict[str, Any], plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
) -> None:  # fmt: skip
    """Without it the source's names would get the rights, whoever they are on the target."""
    fake_spark[1]["is"] = "copying"
    follows = {**mirror, "sync_acls": True, "principals": {"User:a": "User:b"}}
    for kind, wanted in (("tail", {"User:a": "User:b"}), ("bulk", None)):
        task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=follows, mode=kind)
        assert task.spec(Mirror.coerce(follows), plan).mirror.get("principals") == wanted
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=follows, mode="tail").execute(context)
    other = {**follows, "principals": {"User:a": "User:c"}}
    with pytest.raises(AirflowFailException, match="principals: .*User:b.* there, .*User:c.* asked for"):
        StartMirrorOperator(plan=PLAN, task_id="t", mirror=other, mode="tail").execute(context)


def test_new_plan_with_topics_that_joined_the_old_one_keeps_the_tail(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    ledger: MemoryLedger, state: MemoryState, pauses: Pauses, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And tasks of the old one see them, whatever file their host has. The tail has some time to take them in."""
    waited: list[float] = []
    pauses.meanwhile = waited.append
    monkeypatch.setattr(tail_module, "_JOIN_MARGIN_S", -1000.0)
    joined = topic_plan("t2", {0: 0}, source_topic_id="id-2")
    wider = store_plan(home, replace(plan, topics=(*plan.topics, joined)))
    with pytest.raises(AirflowFailException, match="topic 't2': not in the tail's plan"):
        StartMirrorOperator(plan=wider.hash, task_id="t", mirror=mirror, mode="tail").execute(context)
    assert not waited
    monkeypatch.setattr(tail_module, "_JOIN_MARGIN_S", 1000.0)
    amendment = next_amendment(plan, [joined], [], "2026-02-01T00:00:00+00:00")
    pauses.meanwhile = lambda s: (waited.append(s), amend(amendment, "m", state, ledger))
    StartMirrorOperator(plan=wider.hash, task_id="t", mirror=mirror, mode="tail").execute(context)
    assert len(waited) == 1
    assert load_plan(PLAN, plan.mirror).topics == wider.topics
    for one in (wider.hash, PLAN):
        again = StartMirrorOperator(plan=one, task_id="t", mirror=mirror, mode="tail").execute(context)
        assert again["job_dir"] == tail["dir"] and len(fake_spark[0]) == 1


def test_topic_that_the_source_has_no_more_keeps_the_tail(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], fake_spark: Started, home: Path,
    ledger: MemoryLedger, state: MemoryState,
) -> None:  # fmt: skip
    """The tail gave it up. The plan of another rule may not have it for another reason."""
    gone, stays = (topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in ("gone", "stays"))
    amend(next_amendment(plan, [gone, stays], [], "2026-02-01T00:00:00+00:00"), "m", state, ledger)
    later = store_plan(home, replace(plan, topics=(stays, *plan.topics)))
    again = StartMirrorOperator(plan=later.hash, task_id="t", mirror=mirror, mode="tail").execute(context)
    assert again["job_dir"] == tail["dir"] and len(fake_spark[0]) == 1
    narrower = store_plan(home, replace(later, mirror=replace(plan.mirror, exclude_topics=("gone",))))
    task = StartMirrorOperator(plan=narrower.hash, task_id="t", mirror=narrower.mirror, mode="tail")
    with pytest.raises(AirflowFailException, match="topic 'gone': copied by the tail, not in this plan"):
        task.execute(context)


@pytest.mark.parametrize("mode", ["bulk", "tail"])
def test_a_tail_of_another_plan_is_not_stopped_unasked(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    mode: str,
) -> None:
    added = replace(plan.topics[0], source_topic="u", target_topic="u")
    changed = replace(plan.mirror, topics=("t", "u"), merge_below=0)
    other = store_plan(home, replace(plan, mirror=changed, topics=(*plan.topics, added)))
    task = StartMirrorOperator(plan=other.hash, task_id="b", mirror=changed, mode=mode)
    with pytest.raises(AirflowFailException, match="InputError: the mirror's tail is running") as caught:
        task.execute(context)
    for said in (tail["dir"], PLAN[:12], "topic 'u': not in the tail's plan", "topics: ['t'] there, ['t', 'u'] asked for",
                 "merge_below: ", "StopMirrorOperator", "replace=True"):  # fmt: skip
        assert said in str(caught.value)
    assert process.members(Path(tail["dir"])) and len(fake_spark[0]) == 1


def test_tail_of_another_plan_is_described_even_without_it(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], home: Path
) -> None:
    """With that plan the error names the difference, without it the plan's hash."""
    other = planned_again(plan, home, topic_id="id-2")
    task = StartMirrorOperator(plan=other, task_id="b", mirror=mirror, mode="tail")
    with pytest.raises(AirflowFailException, match="topic 't': created again on the source"):
        task.execute(context)
    PlanDirectory(home / "m" / "plans").path(PLAN).unlink()
    with pytest.raises(AirflowFailException, match=f"(?s){PLAN[:12]}.*other topics"):
        task.execute(context)


def test_tail_is_not_stopped_for_an_unstartable_one(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SRC")
    task = StartMirrorOperator(
        plan=planned_again(plan, home, topic_id="id-2"), task_id="b", mirror=mirror, mode="tail", replace=True
    )
    with pytest.raises(AirflowFailException, match="UnknownConnection: connection 'src'"):
        task.execute(context)
    assert process.members(Path(tail["dir"]))


@pytest.mark.parametrize("ends", [True, False])
def test_a_tail_whose_writing_a_cutover_has_ended_is_not_taken_for_one_that_copies(
    context: dict[str, Any], tail: Any, mirror: dict[str, Any], fake_spark: Started, ends: bool,
    pauses: Pauses,
) -> None:  # fmt: skip
    """It still says that it copies, for as long as it takes to end: then nobody would."""
    fake_spark[1]["is"] = "ended"

    def it_ends(_: float) -> None:
        if ends and fake_spark[1]["is"] == "ended":
            process.end([tail["pid"]], signal.SIGKILL)
            wait_until(lambda: not process.is_alive(tail["pid"], tail["started"]))
            fake_spark[1]["is"] = "copying"

    pauses.meanwhile = it_ends
    task = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail", start_timeout_s=300 if ends else 0)
    if ends:
        assert task.execute(context)["job_dir"] != tail["dir"] and len(fake_spark[0]) == 2
    else:
        with pytest.raises(AirflowException, match="its writing was ended, by a cutover, and it does not end"):
            task.execute(context)
        assert process.members(Path(tail["dir"])) and len(fake_spark[0]) == 1


@pytest.mark.parametrize("mode", ["bulk", "tail"])
def test_a_tail_of_another_plan_makes_way_when_asked_to(
    context: dict[str, Any],
    tail: Any,
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
    mode: str,
) -> None:
    fake_spark[1]["is"] = "quick" if mode == "bulk" else "copying"
    other = planned_again(plan, home, topic_id="id-2")
    task = StartMirrorOperator(plan=other, task_id="b", mirror=mirror, mode=mode, replace="True")
    result = task.execute(context)
    assert result["job_dir"] != tail["dir"]
    assert process.members(Path(tail["dir"])) == []
    assert fake_spark[0][-1]["plan"] == str(PlanDirectory(home / "m" / "plans").path(other))


def test_tail_between_other_clusters_is_left_alone(
    context: dict[str, Any], tail: Any, plan: Plan, mirror: dict[str, Any], connections: Callable[..., None], home: Path
) -> None:
    connections("elsewhere", **{"bootstrap.servers": "127.0.0.1:3"})
    other = store_plan(home, replace(plan, mirror=replace(plan.mirror, target="elsewhere")))
    task = StartMirrorOperator(plan=other.hash, task_id="b", mirror={**mirror, "target": "elsewhere"}, replace=True)
    with pytest.raises(
        AirflowFailException, match=r"(?s)InputError: the name 'm' is taken\n  why: its tail.*on host .* goes from"
    ):
        task.execute(context)
    assert process.members(Path(tail["dir"]))


def test_a_window_is_not_copied_beside_a_tail(context: dict[str, Any], tail: Any, mirror: dict[str, Any]) -> None:
    window = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-01T01:00:00+00:00"}
    with pytest.raises(AirflowFailException, match="WriterRuns: job 'tail' is already running"):
        StartMirrorOperator(plan=PLAN, task_id="b", mirror=mirror, **window).execute(context)


def test_copies_of_two_windows_wait_for_each_other(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    started, behaviour = fake_spark
    behaviour["is"] = "sleep"
    first = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    handle = submitted(first, plan, context)
    behaviour["is"] = "quick"
    second = StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror)
    another_run = {**context, "ti": type("AnotherTI", (type(context["ti"]),), {"run_id": "manual__2"})()}
    results = []
    waiting = threading.Thread(target=lambda: results.append(second.execute(another_run)))
    waiting.start()
    wait_until(lambda: second._runner is not None)
    assert waiting.is_alive() and len(started) == 1
    LocalRunner(home / "m").cancel(handle, grace_s=0.2)
    waiting.join(timeout=240)
    assert results[0]["records"] == 7 and len(started) == 2


def test_kill_9_of_a_tail_leaves_no_worker_after_stop(
    context: dict[str, Any],
    plan: Plan,
    mirror: dict[str, Any],
    fake_spark: Started,
    home: Path,
) -> None:
    fake_spark[1]["is"] = "copying_with_worker"
    StartMirrorOperator(plan=PLAN, task_id="t", mirror=mirror, mode="tail").execute(context)
    tail = LocalRunner(home / "m").find("tail")
    assert tail is not None
    os.kill(tail["pid"], signal.SIGKILL)
    # Whoever looks before the kernel has ended it gives its worker the time that Spark takes to end.
    wait_until(lambda: process.started_at(tail["pid"]) is None)
    assert StopMirrorOperator(task_id="s", mirror=mirror).execute(context)["tail"] == "LOST"
    assert process.members(Path(tail["dir"])) == []
