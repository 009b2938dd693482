from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.offsets.map import OffsetMap, Translated, Where
from airflow_mirror.errors import BrokerError, GroupActive, InputError, NotKept, OffsetOutOfRange
from airflow_mirror.kafka.model import GroupCommit, GroupInfo, GroupPosition, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.decide import Pair, plan_topic
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.sync import groups as sync
from airflow_mirror.sync.group_translation import Translation, translate_positions
from airflow_mirror.sync.groups import GroupPlace, commit_groups, groups_left_behind, read_positions
from tests.builders import CommitsMany, plan_of
from tests.unit.plan.builders import a_mirror, a_topic, positions

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def topic_plan(target: str = "orders", **fields: Any) -> TopicPlan:
    return plan_topic(
        a_mirror(**fields),
        Pair(source=a_topic(spans=((10, 100), (0, 7))), target_topic=target, target=None, ours=False),
        3,
    )


def moved(
    by_name: Any,
    plan: TopicPlan | None = None,
    starts: tuple[int, int] = (10, 0),
    ends: tuple[int, int] = (100, 7),
    source_starts: tuple[int, int] = (10, 0),
    **options: Any,
) -> Translation:
    plan = plan or topic_plan()
    there = [TopicPartition(plan.target_topic, p) for p in (0, 1)]
    return translate_positions(
        {group: positions(p) for group, p in by_name.items()},
        [plan],
        dict(zip([P0, P1], source_starts, strict=True)),
        dict(zip(there, starts, strict=True)),
        dict(zip(there, ends, strict=True)),
        **options,
    )


class FakeTarget(CommitsMany):
    """A target's groups in memory; ``deaf`` partitions accept a commit and forget it."""

    role = "target"

    def __init__(self, offsets: Any = None, states: dict[str, str] | None = None, deaf: Any = ()) -> None:
        self.offsets = {g: positions(p) for g, p in (offsets or {}).items()}
        self.states, self.deaf, self.commits = states or {}, deaf, list[Any]()

    def groups(self) -> list[GroupInfo]:
        return [GroupInfo(g, "Empty", "consumer") for g in sorted(self.offsets)]

    def group_states(self, ids: list[str]) -> dict[str, str]:
        return {g: self.states.get(g, "Empty" if g in self.offsets else "Dead") for g in ids}

    def group_offsets(self, group: str) -> dict[TopicPartition, GroupPosition]:
        return dict(self.offsets.get(group, {}))

    def groups_offsets(self, ids: list[str], _only: object = None) -> Any:
        return {group: self.group_offsets(group) for group in sorted(ids)}

    def commit_group_offsets(self, group: str, wanted: dict[TopicPartition, GroupPosition], permit: Permit) -> None:
        self.commits.append((group, dict(wanted)))
        self.offsets.setdefault(group, {}).update({tp: p for tp, p in wanted.items() if tp not in self.deaf})


@pytest.mark.parametrize("offset", [10, 11, 55, 99, 100])
def test_identical_offsets_stay_what_they_are_from_start_to_end(offset: int) -> None:
    (move,) = moved({"g": {"orders-0": offset}}).moves
    assert (move.target, move.source_offset, move.target_offset, move.note) == (P0, offset, offset, "")
    assert move.found == "identical"


def test_position_zero_is_a_position() -> None:
    assert moved({"g": {"orders-1": 0}}).moves[0].target_offset == 0


def test_expired_position_continues_at_the_start_and_is_told() -> None:
    (move,) = moved({"g": {"orders-0": 3}}).moves
    assert move.target_offset == 10 and move.note.startswith("expired") and move.found == "expired"


def test_position_expired_only_on_the_source_stays_good() -> None:
    (move,) = moved({"g": {"orders-0": 20}}, source_starts=(50, 0)).moves
    assert (move.target_offset, move.note) == (20, "")


def test_position_lost_only_on_the_target_is_refused() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"'g' at orders-0 offset 20: the target holds \[50, 100\]"):
        moved({"g": {"orders-0": 20}}, starts=(50, 0))


def test_a_position_beyond_the_targets_end_is_refused_never_clamped() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"offset 101: the target holds \[10, 100\]"):
        moved({"g": {"orders-0": 101}})


def test_every_further_problem_is_in_the_notes_of_the_first() -> None:
    with pytest.raises(OffsetOutOfRange) as e:
        moved({"a": {"orders-0": 101}, "b": {"orders-1": 8}})
    assert len(e.value.__notes__) == 1 and "'b'" in e.value.__notes__[0]


def test_dry_run_returns_good_and_bad_positions() -> None:
    made = moved({"a": {"orders-0": 101, "orders-1": 7}}, strict=False)
    assert [m.target_offset for m in made.moves] == [7] and [p.offset for p in made.problems] == [101]


def test_a_renamed_topic_takes_its_groups_along() -> None:
    (move,) = moved({"g": {"orders-0": 20}}, topic_plan("dc1.orders")).moves
    assert move.source == P0 and move.target == TopicPartition("dc1.orders", 0)


def test_group_without_positions_here_is_reported_not_invented() -> None:
    made = moved({"g": {"orders-0": 20}, "other": {"clicks-0": 4}, "idle": {}})
    assert {m.group for m in made.moves} == {"g"} and made.without_positions == ("idle", "other")


def mapped(by_name: dict[str, dict[str, int]], **options: Any) -> Translation:
    """Source 20-49 at target 3-32 and 60-89 at 35-64, read up to 100; each log starts where the map does."""
    one = OffsetMap(20, 3)
    one.add(20, 3, 30)
    one.add(60, 35, 30)
    one.advance(100, target_log_end=66)
    how = {
        "starts": (3, 0),
        "ends": (66, 0),
        "source_starts": (20, 0),
        "translate_offset": lambda tp, o: one.to_target(o),
    }
    return moved(by_name, topic_plan(offsets="mapped"), **(how | options))


@pytest.mark.parametrize(
    ("offset", "target", "found"),
    [(20, 3, "exact"), (49, 32, "exact"), (50, 35, "hole"), (59, 35, "hole"), (60, 35, "exact"), (89, 64, "exact"),
     (90, 65, "hole"), (99, 65, "hole"), (100, 65, "end")],
)  # fmt: skip
def test_mapped_positions_say_how_they_were_found(offset: int, target: int, found: str) -> None:
    (move,) = mapped({"g": {"orders-0": offset}}).moves
    assert (move.target_offset, move.found, move.note) == (target, found, "")


def test_expired_mapped_position_continues_at_the_first_mirrored_record() -> None:
    (move,) = mapped({"g": {"orders-0": 7}}).moves
    assert (move.target_offset, move.found) == (3, "expired") and "continues at 3" in move.note


def test_mapped_position_before_records_not_mirrored_is_refused() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"'g' at orders-0 offset 7: the mirror copied only records behind it"):
        mapped({"g": {"orders-0": 7}}, source_starts=(19, 0))


def test_mapped_position_beyond_the_copy_is_refused_not_clamped() -> None:
    with pytest.raises(OffsetOutOfRange, match="offset 101: the offset map does not reach it"):
        mapped({"g": {"orders-0": 101}})


def test_mapped_position_expired_everywhere_continues_at_target_start() -> None:
    """Where the source still has a record that the target lost, it is refused."""
    (move,) = mapped({"g": {"orders-0": 22}}, starts=(35, 0), source_starts=(55, 0)).moves
    assert (move.target_offset, move.found) == (35, "expired")
    with pytest.raises(OffsetOutOfRange, match=r"offset 5: the target holds \[35, 66\]"):
        mapped({"g": {"orders-0": 22}}, starts=(35, 0), source_starts=(45, 0))


def test_mapped_offsets_without_a_map_are_refused_instead_of_guessed() -> None:
    with pytest.raises(InputError, match="translate_offset"):
        mapped({"g": {"orders-0": 60}}, translate_offset=None)


def test_positions_of_selected_groups_in_the_wanted_topics_only() -> None:
    source = FakeTarget({"app": {"orders-0": 5, "clicks-0": 6}, "connect-x": {"orders-0": 1}, "idle": {"clicks-0": 1}})
    assert read_positions(source, a_mirror(), ["orders"]) == {"app": positions({"orders-0": 5}), "idle": {}}


def test_groups_of_mirrors_neither_move_nor_are_left_behind_whatever_is_excluded() -> None:
    """Their positions are none of a reader: where another mirror into this cluster began, and how far it came."""
    its = {"orders-0": 5}
    source = FakeTarget({"app": its, "private": its, "airflow-mirror:x:starts": its, "airflow-mirror.fence.x": its})
    mirror = a_mirror(exclude_groups=["private"])
    assert list(read_positions(source, mirror, ["orders"])) == ["app"]
    assert groups_left_behind(source, mirror, ["orders"]) == ["private"]
    assert groups_left_behind(source, a_mirror(groups=["app"]), ["orders"]) == ["private"]


def test_new_group_is_committed_once_and_read_back() -> None:
    target, translated = FakeTarget(), moved({"g": {"orders-0": 20, "orders-1": 7}})
    first, second = commit_groups(target, translated, unfenced), commit_groups(target, translated, unfenced)
    assert [m.action for m in first.moves] == ["commit", "commit"] and first.committed
    assert [m.action for m in second.moves] == ["same", "same"]
    assert len(target.commits) == 1
    json.dumps(first.to_dict())


def test_metadata_goes_along_and_alone_is_reason_enough_to_commit() -> None:
    target = FakeTarget({"g": {"orders-0": 20}})
    translated = translate_positions(
        {"g": {P0: GroupPosition(20, "état=1")}}, [topic_plan()], {P0: 10}, {P0: 10}, {P0: 100}
    )
    assert commit_groups(target, translated, unfenced).moves[0].action == "commit"
    assert target.offsets["g"][P0] == GroupPosition(20, "état=1")


def test_group_further_on_the_target_is_not_rewound() -> None:
    target = FakeTarget({"g": {"orders-0": 30, "orders-1": 2}})
    report = commit_groups(target, moved({"g": {"orders-0": 20, "orders-1": 7}}), unfenced)
    assert [(m.before, m.action) for m in report.moves] == [(30, "kept"), (2, "commit")]
    assert target.offsets["g"] == positions({"orders-0": 30, "orders-1": 7})


def test_a_group_is_rewound_when_asked() -> None:
    target = FakeTarget({"g": {"orders-0": 30}})
    report = commit_groups(target, moved({"g": {"orders-0": 20}}), unfenced, allow_rewind=True)
    assert report.moves[0].action == "rewind" and target.offsets["g"] == positions({"orders-0": 20})


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Unknown"])
def test_one_active_group_stops_all_before_any_is_touched(state: str) -> None:
    target = FakeTarget({"b": {}}, states={"b": state})
    with pytest.raises(GroupActive, match=f"'b' is {state} on the target"):
        commit_groups(target, moved({"a": {"orders-0": 20}, "b": {"orders-0": 20}}), unfenced)
    assert target.commits == []


def test_dry_run_tells_what_stands_in_the_way() -> None:
    """Who is active, and what is out of range; it writes nothing."""
    target = FakeTarget({"b": {}}, states={"b": "Stable"})
    translated = moved({"a": {"orders-0": 20}, "b": {"orders-0": 101, "orders-1": 1}}, strict=False)
    report = commit_groups(target, translated, unfenced, dry_run=True)
    assert (report.committed, report.active, len(report.problems)) == (False, ("b",), 1)
    assert target.commits == []


def test_positions_with_problems_are_never_committed_in_part() -> None:
    target = FakeTarget()
    with pytest.raises(OffsetOutOfRange):
        commit_groups(target, moved({"a": {"orders-0": 20, "orders-1": 8}}, strict=False), unfenced)
    assert target.commits == []


def test_a_commit_that_does_not_stick_is_noticed() -> None:
    with pytest.raises(NotKept, match="g at orders-0: committed 20, reads back nothing"):
        commit_groups(FakeTarget(deaf=[P0]), moved({"g": {"orders-0": 20, "orders-1": 7}}), unfenced)


def test_a_commit_that_leaves_the_old_position_is_noticed() -> None:
    target = FakeTarget({"g": {"orders-0": 11}}, deaf=[P0])
    with pytest.raises(NotKept, match="g at orders-0: committed 20, reads back 11"):
        commit_groups(target, moved({"g": {"orders-0": 20}}), unfenced)


# --- where one group stands, for people --------------------------------------------------------------------------------


class Side:
    """A cluster with one group; its logs hold [10, 100]."""

    def __init__(self, by_name: dict[str, int]) -> None:
        self._positions = positions(by_name)

    def groups_offsets(self, groups: list[str]) -> dict[str, dict[TopicPartition, GroupPosition]]:
        return dict.fromkeys(groups, self._positions)

    def topics(self, names: list[str]) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, f"id-of-{name}", 2, 1) for name in names}

    def offsets(self, tps: list[TopicPartition], spec: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 10 if spec == "earliest" else 100)


def places(here: dict[str, int], there: dict[str, int], to_target: Any = None, **mirror: Any) -> list[GroupPlace]:
    plan = plan_of(a_mirror(), topic_plan("dc1.orders", **mirror))
    return sync._places("g", plan, Side(here), Side(there), to_target)


def test_place_of_a_group_has_both_sides_and_the_way_between() -> None:
    ours = {"orders-0": 50, "elsewhere-0": 3}
    assert places(ours, {"dc1.orders-0": 40, "dc1.orders-1": 60, "elsewhere-1": 3}) == [
        GroupPlace(
            topic="orders", partition=0, target_topic="dc1.orders", source_offset=50, target_offset=40, translated=50,
            found="identical",
        ),
        GroupPlace(topic="orders", partition=1, target_topic="dc1.orders", source_offset=None, target_offset=60),
    ]  # fmt: skip


def test_position_without_a_place_says_why_and_hides_no_other() -> None:
    first, second = places({"orders-0": 500, "orders-1": 70}, {})
    assert first.translated is None and "the target holds [10, 100]" in first.note
    assert (second.translated, second.target_offset, second.note) == (70, None, "")


def test_place_of_a_topic_that_was_created_again_is_none() -> None:
    here = Side({"orders-0": 50})
    plan = replace(topic_plan("dc1.orders"), source_topic_id="another")
    (one,) = sync._places("g", plan_of(a_mirror(), plan), here, Side({}), None)
    assert one.translated is None and "the source's topic was created again" in one.note


def test_place_in_a_mapped_topic_comes_from_its_map() -> None:
    def to_target(tp: TopicPartition, offset: int) -> Translated:
        return Translated(offset + 5, Where.HOLE) if tp.partition == 0 else Translated(90, Where.BEYOND)

    first, second = places({"orders-0": 50, "orders-1": 70}, {}, to_target, offsets="mapped")
    assert (first.translated, first.found) == (55, "hole")
    assert second.translated is None and "it has no counterpart yet" in second.note


def test_group_that_nobody_knows_stands_nowhere() -> None:
    assert places({}, {}) == []


def test_group_whose_coordinator_moves_is_committed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commits of many groups are sent once; the error of one is no reason to give up."""
    target = FakeTarget()
    once = target.commit_groups

    def moving(wanted: Any, check: Any) -> Any:
        moved = BrokerError("set offset", 16, "NOT_COORDINATOR")
        return once({"b": wanted["b"]}, check) | {"a": GroupCommit(error=moved)}

    monkeypatch.setattr(target, "commit_groups", moving)
    commit_groups(target, moved({"a": {"orders-0": 20}, "b": {"orders-0": 30}}), unfenced)  # type: ignore[arg-type]
    assert {group: at[P0].offset for group, at in target.offsets.items()} == {"a": 20, "b": 30}
