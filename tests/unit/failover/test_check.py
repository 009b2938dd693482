"""What a failover would find: on real logs, with their markers, and in words."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.decision import CLOSED, OPENED, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.cutover.failover import check
from airflow_mirror.cutover.failover.check import copied_to, lost
from airflow_mirror.cutover.failover.tail_seen import TailSeen
from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.kafka.model import GroupPosition, TopicInfo
from airflow_mirror.sync.ends import notes
from airflow_mirror.sync.ends.notes import End, SourceEnds
from airflow_mirror.wire.cluster import WireCluster
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.unit.cutover.builders import GivenSide
from tests.unit.failover.world import A0, B0, World
from tests.unit.failover.world import PLAN as FAILED_OVER
from tests.unit.ledger.kinds import MORE, changed, every
from tests.unit.ledger.memory import MemoryState
from tests.unit.plan.builders import a_mirror

PLAIN, MOVED, EMPTY = (TopicPartition(name, 0) for name in ("plain", "moved", "empty"))
PLAN = plan_of(
    a_mirror(name="m"),
    *(
        topic_plan(name, {0: 0}, target_topic=f"there.{name}", source_topic_id=name)
        for name in ("plain", "moved", "empty", "gone")
    ),
)
PLANNED_MS = int(datetime.fromisoformat(PLAN.created_at).timestamp() * 1000)


class Admin:
    def __init__(self, cluster: DrivenCluster) -> None:
        self.cluster, self.wire = cluster, WireCluster(cluster.config)

    def topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, "x", 1, 1) for name in names if name in self.cluster.topics}


def given(admin: Any, state: Any) -> GivenSide:
    side = GivenSide(admin, None, state)
    side.log = admin.wire
    return side


def test_only_logs_without_markers_make_a_loss_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker takes an offset of its own: of ten offsets that are missing, five may be markers."""
    state = MemoryState()
    ends, at_ms = {PLAIN: (130, 130), MOVED: (130, 140), EMPTY: (7, 7)}, PLANNED_MS + 10_000
    state.write(dict(SourceEnds(at_ms=0).after(ends, [*ends], at_ms).dump("m")))
    with DrivenCluster("target") as target:
        for name in ("there.plain", "there.moved", "there.empty"):
            target.create(name)
        Writer(target.topics["there.plain"].logs[0]).plain(120)
        moved = Writer(target.topics["there.moved"].logs[0])
        moved.plain(110)
        moved.in_transaction(9, 8)
        moved.end(9, commit=True)
        admin: Any = Admin(target)
        with closing(admin.wire):
            assert copied_to(admin, PLAN) == {PLAIN: 120, MOVED: 119, EMPTY: 0}
            found = lost(given(admin, state), PLAN, at_ms + 2_000)
    assert (found.at_least, found.dense) == (10, frozenset({PLAIN}))
    assert found.at_most == 10 + 21 + 7 and found.unknown == (TopicPartition("gone", 0),)


@pytest.mark.parametrize(
    ("status", "unseen_s", "age_s", "says"),
    [
        ("RUNNING", 3.0, 200.0, "its tail runs on host 'far', and has seen the source 3 s ago"),
        ("RUNNING", None, None, "its tail runs on host 'far', and may see the source"),
        ("RUNNING", 70.0, 9.0, "its tail runs on host 'far', and has not seen the source for 70 s, but by the notes"),
        (
            "LOST",
            3.0,
            12.0,
            "its tail on host 'far' is LOST, but by the notes and this host's clock the source was seen 12 s",
        ),
        ("", None, 12.0, "no tail is decided to be its, but by the notes"),
        ("RUNNING", 70.0, 30.0, None),
        ("LOST", 3.0, 30.0, None),
        ("LOST", None, None, None),
    ],
)
def test_a_refusal_says_who_saw_the_source(
    status: str, unseen_s: float | None, age_s: float | None, says: str | None
) -> None:
    """One that is lost does not run, and one that has not seen it has not."""
    saw = TailSeen(status=status, host="far" if status else "", unseen_s=unseen_s).saw(age_s)
    assert saw.startswith(says) if says is not None else saw == ""


@pytest.mark.parametrize(
    ("times", "misses"),
    [
        ({}, True),
        ({"every_s": 1.0, "took_s": 0.3}, True),
        ({"every_s": 1.0, "took_s": 40.0}, False),
        ({"every_s": 40.0, "took_s": 0.4}, False),
        ({"every_s": "40", "took_s": float("inf")}, True),
    ],
)
def test_a_source_that_is_looked_at_slowly_is_not_missed_between_two_looks(times: dict[str, Any], misses: bool) -> None:
    """Half of its brokers are away, and each costs a timeout; or the partitions are many."""
    source = {"seen": 1000.0, "at": 1000.0, **times}
    seen = TailSeen.of("RUNNING", "far", Sign(number=1, state="RUNNING", at=1045.0, follows={"source": source}))
    assert seen.misses is misses and bool(seen.saw(None)) is not misses
    assert bool(seen.saw(None, 60.0)), "nor by a longer time"


def test_few_of_many_partitions_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that lack most."""
    monkeypatch.setattr(check, "_LOOKED_INTO", 1)
    noted = SourceEnds(at_ms=0).after({PLAIN: (9, 9), MOVED: (8, 8)}, [PLAIN, MOVED], PLANNED_MS)
    monkeypatch.setattr(notes, "load", lambda *_: noted)
    monkeypatch.setattr(check, "copied_to", lambda *_: {PLAIN: 1, MOVED: 1})
    monkeypatch.setattr(check, "_dense", lambda _target, _plan, short: short)
    assert lost(GivenSide(SimpleNamespace()), PLAN, PLANNED_MS).at_least == 8


@pytest.mark.parametrize(
    ("at_s", "missed_s", "lasted_s", "least"),
    [(-60, -59, None, 0), (-60, None, None, 0), (-1, 1, 2.0, 8), (5, 6, 1.0, 8), (5, None, None, 8)],
)
def test_what_was_noted_before_the_plan_was_made_is_no_loss_of_its_source(
    monkeypatch: pytest.MonkeyPatch, at_s: int, missed_s: int | None, lasted_s: float | None, least: int
) -> None:
    """Of the disaster before this one: the plan has read the source since."""
    at_ms, missed_ms = PLANNED_MS + 1000 * at_s, missed_s and PLANNED_MS + 1000 * missed_s
    seen = replace(SourceEnds(at_ms=0).after({PLAIN: (9, 9)}, [PLAIN], at_ms), missed_ms=missed_ms)
    state = MemoryState()
    state.write(dict(seen.dump("m")))
    monkeypatch.setattr(check, "copied_to", lambda *_: {PLAIN: 1})
    monkeypatch.setattr(check, "_dense", lambda _target, _plan, short: short)
    found = lost(given(SimpleNamespace(wire=None), state), PLAN, PLANNED_MS + 90_000)
    assert (found.missed_s, found.at_least) == (lasted_s, least)
    assert (found.seen_ms, found.at_most is None) == ((at_ms, False) if least else (None, True))


def test_a_check_says_it_all_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.target.at = {"g": {A0: GroupPosition(55)}, "h": {B0: GroupPosition(31)}}
    world.target.members = {"h"}
    del world.target.ids["b"]
    world.sign(unseen_s=3.0)
    world.effects.log.clear()
    found = check.check(world.on(), "m")
    lines = found.lines()
    at = datetime.fromtimestamp(found.to_dict()["at"], UTC).isoformat(timespec="seconds")
    assert lines[0] == f"mirror 'm', 2 topics of cluster s, seen at {at}"
    assert lines[1].startswith("a failover would be refused without force: mirror 'm': its tail runs on host 'far'")
    assert lines[2] == "lost: not known. No tail has noted where the source's logs end"
    place = lines.index("  h at b-0: 31 goes back to 30, and has members: nobody can set it")
    assert lines[place + 1] == "  g at a-0: 55 goes back to 50"
    assert lines[-1] == "missing on the target: b"
    assert found.to_dict()["groups"]["beyond"]["count"] == 2 and world.effects.log == []
    world.target.ids["b"] = "id-b"
    world.fail_over(force=True)
    after = check.check(world.on(), "m").lines()
    assert "another failover completes that one" in after[0] and "refused" not in after[1]
    assert "no tail is decided to be the mirror's" in after


def test_no_list_of_an_approvers_text_hides_what_comes_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many partitions are behind, and many groups beyond: what is missing there, or not allowed, stands all the same."""
    world = World(monkeypatch)
    many = [TopicPartition("a", n) for n in range(60)]
    world.seen = SourceEnds(at_ms=0, partitions={tp: End(60, 70, 0) for tp in many})
    world.copied |= dict.fromkeys(many, 50)
    world.target.stable |= dict.fromkeys(many, 50)
    world.target.at = {"g": dict.fromkeys(many, GroupPosition(55))}
    world.target.denied = [("a", "ALTER_CONFIGS")]
    del world.target.ids["b"]
    found = check.check(world.on(), "m")
    text = found.to_dict()["text"]
    for part in ("its tail on host", "groups: 60", "not allowed: ", "missing on the target: b", "lost in a-0: "):
        assert [line for line in text if line.startswith(part)], part
    assert text.count("and 45 more") == 3 and len(text) < 100 and text[-2:] == [
        "cut in a-14, perhaps: a transaction that was open from offset 60", "and 45 more",
    ]  # fmt: skip
    assert found.lines().count("and 10 more") == 3


def test_fence_that_keeps_applications_out_of_an_old_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its DENY rules are by name: whatever is granted there, nobody writes until it is lifted. Groups don't follow."""
    world = World(monkeypatch, plan_of(a_mirror(name="m", sync_groups=False), *FAILED_OVER.topics))
    world.state.write({key: None for key in world.state.read() if key.startswith("acls/")})
    spared = {"spared": "User:mirror", "denied": {"User:app": "0"}, "copied_by": "m"}
    copy = FenceState(
        run="monday", attempt=1, id="x", plan="p", revision="p", owner="x", max_fence_s=60.0, phase=OPENED, intent=spared
    )
    note_copy(world.ledger(), "first", copy)
    note_copy(world.ledger(), "over", replace(copy, phase=CLOSED))
    note_copy(world.ledger(), "others", replace(copy, intent={**spared, "copied_by": "another"}))
    command = "airflow-mirror lift-fence --target CLUSTER --source CLUSTER --mirror first --include-retained"
    found = check.check(world.on(), "m")
    assert [line for line in found.lines() if "lift-fence" in line] == [check.fence_line("first")]
    assert check.fence_line("first").endswith(command) and found.to_dict()["fenced_by"] == ["first"]
    assert any("left it" in line for line in found.lines() if line.startswith("groups: "))
    report = world.fail_over()
    assert report.lines()[1] == check.fence_line("first") and report.to_dict()["fenced_by"] == ["first"]
    assert not any("by hand" in line for line in report.lines())
    assert any("left it" in line for line in report.lines() if line.startswith("groups: "))
    world.ledger().decide(lambda _: {"fence/first": {"v": 1, **asdict(replace(copy, phase=CLOSED))}})
    assert "lift-fence" not in " ".join(world.fail_over().lines())


def test_failover_is_checked_beside_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """More fields in all that is known of the mirror; other versions in what is of others."""
    world = World(monkeypatch)

    def found() -> dict[str, Any]:
        on = world.on()
        on.clock = SimpleNamespace(time=lambda: 9_000.0, monotonic=lambda: 0.0, sleep=lambda _: None)  # type: ignore[assignment]
        return check.check(on, "m").to_dict()

    before, expected = world.ledger().values(), found()
    theirs, said = every("others", v=99)
    world.ledger().decide(lambda _: {**theirs, **{key: changed(value, **MORE) for key, value in before.items()}})
    of_mirror = {key: value for key, value in world.state.read().items() if not key.startswith("plan/")}
    world.state.write({**said, **{key: changed(value, **MORE) for key, value in of_mirror.items()}})
    assert found() == expected
    assert world.fail_over(force=True).to_dict()["mirror"] == "m"
