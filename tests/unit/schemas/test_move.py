"""Schemas moved to another registry with their ids: registries that answer as documented, with modes and contexts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_mirror.errors import BrokerError
from airflow_mirror.sync.schemas.move import MoveReport, move
from airflow_mirror.sync.schemas.registry import Registry
from tests.unit.schemas.moving import (
    INT,
    LONG,
    ORDER,
    STRING,
    fill,
    moved,
)
from tests.unit.schemas.registries import NONE, DrivenRegistry, driven


@pytest.fixture
def both() -> Iterator[tuple[DrivenRegistry, DrivenRegistry]]:
    with driven() as here, driven() as there:
        fill(here)
        yield here, there


def test_everything_moves_with_its_ids_and_a_second_move_does_nothing(both: Any) -> None:
    here, there = both
    planned = moved(here, there, dry_run=True, complete=True)
    assert there.wrote == [] and not here.wrote and planned.versions == 7
    assert {
        "register z user/value version 5 as id 12",
        "set NONE of a-value",
        "delete gone-value version 1, softly",
    } <= set(planned.done)
    done = moved(here, there, complete=True)
    assert sorted(done.done) == sorted(planned.done) and (done.conflicts, planned.conflicts) == ([], [])
    assert len([line for line in done.done if line.startswith("register ")]) == 7
    assert there.holds() == here.holds() and there.modes[""] == "READWRITE"
    assert there.wrote[0] == "PUT compatibilityLevel  FULL" and here.wrote == []
    there.wrote.clear()
    again = moved(here, there)
    assert (again.done, again.conflicts, there.wrote) == ([], [], [])


def test_subject_of_the_same_name_in_another_context_is_another_one(both: Any) -> None:
    """A registry answers with that one's version where the default context has none: it passed for the one asked for."""
    here, there = both
    there.register(30, LONG, ":.dev:a-value", 1)  # another schema under the same id
    there.register(40, LONG, ":.dev:proto-value", 1)
    here.register(51, INT, ":.dev:gone-value", 1)  # lives, and the one of the default context is deleted
    moved(here, there)
    assert there.subjects["a-value", 1] == 30 and there.schemas[30] == here.schemas[30]
    assert there.subjects["proto-value", 1] == 40 and there.deleted == here.deleted


def test_lists_that_end_at_a_limit_are_read_to_their_end(both: Any) -> None:
    """What stood behind it was not moved, and nobody heard of it; of a target it passed for what it lacks."""
    here, there = both
    here.limit = 3
    found = moved(here, there, complete=True)
    assert found.versions == 7 and there.holds() == here.holds()
    there.limit, there.wrote = 2, []
    assert moved(here, there).done == [] and there.wrote == []


class Killed(BaseException):
    pass


class Dying(Registry):
    """A registry in this thread, whose caller is killed before one of its writes, and knows nothing of the one before."""

    def __init__(self, driven_one: DrivenRegistry, writes: int = 1000) -> None:
        super().__init__("target", {"url": f"http://{id(driven_one)}"})
        self._driven, self._writes = driven_one, writes

    def send(self, method: str, url: str, data: Any = None, headers: Any = None, most_bytes: int = 0) -> Any:
        if method != "GET":
            if self._writes == 0:
                raise Killed
            self._writes -= 1
        asked = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
        status, told = self._driven.answer(method, asked.path, query, json.loads(data or "{}"))
        return SimpleNamespace(status_code=status, content=b"some", reason="", json=lambda: told)


@pytest.mark.parametrize("normalizes", [(), ("", "a-value", ":.other:")])
def test_move_that_is_killed_before_any_write_is_ended_by_the_next(normalizes: tuple[str, ...]) -> None:
    here, whole = DrivenRegistry(normalizes={*normalizes}), DrivenRegistry()
    fill(here)
    move(Dying(here), Dying(whole), dry_run=False, complete=True)
    assert len(whole.wrote) > 20
    for at in range(len(whole.wrote)):
        there = DrivenRegistry()
        with pytest.raises(Killed):
            move(Dying(here), Dying(there, writes=at), dry_run=False, complete=True)
        assert list(there.modes.values()).count("IMPORT") <= 1, f"killed before write {at}"
        found = move(Dying(here), Dying(there), dry_run=False, complete=True)
        assert there.holds() == here.holds() and found.conflicts == [], f"killed before write {at}"
        registered = [one for one in there.wrote if one.startswith("register")]
        assert len(registered) == len(set(registered)) == 7, "none was registered twice"


def test_what_differs_is_named_and_stays(both: Any) -> None:
    here, there = both
    there.register(12, LONG, "theirs-value", 1)  # the id of z user/value version 5
    there.register(7, STRING, "z user/value", 2)
    there.register(31, STRING, "again-value", 1)
    there.settings |= {"a-value": "FULL", "": "NONE"}
    there.modes |= {"a-value": "READWRITE"}
    before = json.loads(json.dumps([[*k, v] for k, v in there.subjects.items()])), dict(there.settings)
    found = moved(here, there)
    assert sorted(found.conflicts) == [
        "a-value version 1 is not registered: it needs z user/value version 5",
        "again-value version 1 is id 7 on the source, and id 31 on the target",
        "mode of :.other:: READWRITE on the source, none on the target",
        "mode of a-value: READONLY on the source, READWRITE on the target",
        "settings of a-value differ: NONE on the source, FULL on the target",
        "settings of all subjects differ: FULL on the source, NONE on the target",
        "theirs-value version 1 is on the target alone",
        "z user/value version 2 is deleted on the source, and not on the target",
        "z user/value version 5 is id 12, which is theirs-value version 1 on the target, another schema",
    ]
    assert [v for v in before[0] if there.subjects[v[0], v[1]] != v[2]] == []
    assert {name: there.settings[name] for name in before[1]} == before[1]
    assert not {("a-value", 1), ("z user/value", 5)} & there.subjects.keys()
    assert there.modes["a-value"] == "READWRITE" and "IMPORT" not in there.modes.values()


# --- who else may have acted since -------------------------------------------------------------------------------------


def meanwhile(one: DrivenRegistry, at: Callable[[str, str], bool], do: Callable[[], object]) -> None:
    """Do something once, right before a registry answers a request."""
    answer, left = one.answer, [do]

    def answers(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if left and at(method, path) and (path.endswith("/versions") <= ("deleted" not in query)):
            left.pop()()
        return answer(method, path, query, body)

    one.answer = answers  # type: ignore[method-assign]


def test_version_that_is_registered_while_the_source_is_read_is_not_taken_for_deleted(both: Any) -> None:
    """It was registered on the target, and deleted there for good."""
    here, there = both
    meanwhile(here, lambda _, path: path == "/subjects/a-value/versions", lambda: here.register(60, INT, "a-value", 2))
    for _ in range(2):
        moved(here, there)
    assert there.subjects["a-value", 2] == 60 and there.deleted == here.deleted


def test_source_that_lags_behind_deletes_nothing(both: Any) -> None:
    """One of several nodes answers by what it has read so far."""
    here, there = both
    moved(here, there)
    here.register(60, INT, "a-value", 2)
    answer, lags = here.answer, [1, 1]

    def behind(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if lags and path == "/subjects/a-value/versions" and "deleted" not in query:
            lags.pop()
            return NONE
        return answer(method, path, query, body)

    here.answer = behind  # type: ignore[method-assign]
    for _ in range(3):
        moved(here, there)
    assert there.subjects["a-value", 2] == 60 and there.deleted == here.deleted


def test_what_is_deleted_frozen_or_set_on_the_source_reaches_no_subject_that_the_target_has(both: Any) -> None:
    """A wave is cut over, and its old side is cleaned up, while another wave's tail goes on."""
    here, there = both
    here.modes = {"": "READWRITE"}
    moved(here, there)
    before = there.holds()
    here.deleted.add(("again-value", 1))
    here.modes |= {"a-value": "READONLY", "proto-value": "IMPORT"}
    here.settings["proto-value"] = "NONE"
    there.wrote.clear()
    found = moved(here, there)
    assert there.holds() == before and there.wrote == [] and found.done == []
    assert found.conflicts == [
        "again-value version 1 is deleted on the source, and not on the target",
        "settings of proto-value differ: NONE on the source, none on the target",
        "mode of a-value: READONLY on the source, none on the target",
    ]
    assert moved(here, there, complete=True).conflicts == []
    assert there.holds() == {**here.holds(), "modes": {"a-value": "READONLY"}}, "by a person's word; a move is no mode"


def test_what_applications_registered_on_the_target_meanwhile_stays(both: Any) -> None:
    """In mode IMPORT the registry writes over a version that is there."""
    here, there = both
    here.register(60, INT, "a-value", 2)
    here.register(61, LONG, "late-value", 1, references=[{"name": "A", "subject": "a-value", "version": 2}])
    opens = ("PUT", "/mode/a-value")
    meanwhile(there, lambda *asked: asked == opens, lambda: there.register(77, LONG, "a-value", 2))
    found = moved(here, there)
    assert there.subjects["a-value", 2] == 77 and there.subjects["a-value", 1] == 30
    assert found.conflicts[-2:] == [
        "a-value version 2 is id 60 on the source, and id 77 on the target, registered meanwhile",
        "late-value version 1 is not registered: it needs what was not registered, either",
    ]


def test_version_that_others_registered_on_the_target_meanwhile_is_not_deleted_there(both: Any) -> None:
    """It is deleted on the source, and who has registered it on the target may use it there."""
    here, there = both
    comes = lambda: there.register(50, LONG, "gone-value", 1)  # noqa: E731
    meanwhile(there, lambda *asked: asked == ("PUT", "/mode/gone-value"), comes)
    found = moved(here, there)
    assert there.deleted == {("z user/value", 2)} and there.subjects["gone-value", 1] == 50
    assert "gone-value version 1 is deleted on the source, and was registered on the target meanwhile" in found.conflicts
    moved(here, there, complete=True)
    assert there.deleted == here.deleted, "by a person's word"


def test_moves_in_both_directions_leave_no_mode_behind() -> None:
    """A wave's tail and the way back of another one share two registries: each took the other's IMPORT for a setting."""
    with driven() as old, driven() as new:
        old.register(1, INT, "x-value", 1)
        moved(old, new)
        old.register(2, LONG, "x-value", 2)
        reverse = list[MoveReport]()
        meanwhile(
            new, lambda method, path: method == "POST" and "x-value" in path, lambda: reverse.append(moved(new, old))
        )
        moved(old, new)
        for _ in range(2):
            moved(old, new)
            moved(new, old)
        assert old.modes == new.modes == {"": "READWRITE"} and len(reverse) == 1
        assert new.subjects == old.subjects


def test_subject_that_the_target_has_frozen_gets_no_version_and_keeps_its_mode(both: Any) -> None:
    here, there = both
    there.modes["a-value"] = "READONLY"
    here.register(60, INT, "a-value", 2)
    found = moved(here, there)
    assert "a-value version 1 is not registered: it has mode READONLY of its own on the target" in found.conflicts
    assert there.modes["a-value"] == "READONLY" and not [one for one in there.subjects if one[0] == "a-value"]


def test_what_is_set_on_the_target_meanwhile_stays(both: Any) -> None:
    """A pass over many subjects takes minutes."""
    here, there = both
    here.settings["again-value"] = "NONE"
    shut = lambda: there.modes.update({"proto-value": "READONLY"})  # noqa: E731
    meanwhile(there, lambda *asked: asked == ("POST", "/subjects/a-value/versions"), shut)
    own = lambda: there.settings.update({"again-value": "FULL"})  # noqa: E731
    meanwhile(there, lambda *asked: asked == ("PUT", "/mode/again-value"), own)
    found = moved(here, there)
    assert there.modes["proto-value"] == "READONLY" and ("proto-value", 1) not in there.subjects
    assert there.settings["again-value"] == "FULL" and ("again-value", 1) in there.subjects
    assert {
        "proto-value version 1 is not registered: it has mode READONLY of its own on the target",
        "settings of again-value were set on the target meanwhile",
    } <= set(found.conflicts)


def test_subject_that_anybody_may_write_to_is_filled_and_left_so() -> None:
    with driven() as here, driven() as there:
        here.register(1, INT, "x-value", 1)
        here.modes["x-value"] = "READWRITE"
        moved(here, there, complete=True)
        here.register(2, LONG, "x-value", 2)
        assert moved(here, there).conflicts == [] and there.subjects["x-value", 2] == 2
        assert there.modes["x-value"] == "READWRITE"


def test_mode_of_the_whole_source_is_not_taken_for_its_subjects_own() -> None:
    """Karapace tells it of each: all of them differed for ever, and --complete opened each in a target that is held."""
    with driven() as here, driven() as there:
        here.one_mode = True
        for number, name in enumerate(("x-value", "y-value"), 1):
            here.register(number, INT, name, 1)
        for complete in (False, True):
            found = moved(here, there, keep_out=True, complete=complete)
            assert (found.conflicts, found.left_out, there.modes) == ([], [], {"": "READONLY"})
        assert there.subjects == here.subjects
        here.one_mode, here.modes["x-value"] = False, "READWRITE"  # Confluent's tells what somebody has set
        assert moved(here, there).conflicts == ["mode of x-value: READWRITE on the source, none on the target"]


def test_deletion_comes_with_its_subject_and_waits_for_no_other(both: Any) -> None:
    """A schema that was refused once left what the source had withdrawn live for ever."""
    here, there = both
    there.refuses = '"fails"'
    here.register(90, '"fails"', "zz-value", 1)
    moved(here, there)
    assert there.deleted == here.deleted


def test_subject_keeps_its_settings_where_its_first_versions_are_deleted_ones(both: Any) -> None:
    """Others refer to them, so they come before the rest; their deletion took the subject's settings away."""
    here, there = both
    refers = {"references": [{"name": "T", "subject": "t-value", "version": 1}]}
    here.register(60, ORDER, "m-value", 1, **refers)
    here.register(61, INT, "n-value", 1)
    here.register(62, STRING, "t-value", 1)
    here.register(63, LONG, "t-value", 2)
    here.deleted.add(("t-value", 1))
    here.settings["t-value"] = "NONE"
    there.register(60, LONG, "theirs-value", 1)  # so what refers to it does not come
    moved(here, there)
    order = [one for one in there.wrote if one.startswith(("register t", "register n", "delete t"))]
    assert order == ["register t-value 1 62", "register n-value 1 61", "register t-value 2 63", "delete t-value 1"]
    assert there.settings["t-value"] == "NONE" and ("m-value", 1) not in there.subjects


UNSORTED = 'syntax = "proto3";\nimport "b.proto";\nimport "a.proto";'


@pytest.mark.parametrize("name", ["p-value", ":.eu:", ""])
def test_schemas_come_as_they_are_where_the_source_has_begun_to_normalize_later(both: Any, name: str) -> None:
    """The setting came before them, so the registry rewrote their texts under their ids."""
    here, there = both
    here.register(60, UNSORTED, f"{name.removesuffix('p-value')}p-value", 1, kind="PROTOBUF")
    here.settings.setdefault(name, "NONE")
    here.normalizes = {name}
    planned = moved(here, there, dry_run=True, complete=True)
    found = moved(here, there, complete=True)
    assert sorted(found.done) == sorted(planned.done) and found.conflicts == [] and there.holds() == here.holds()
    assert f"set normalize of {name or 'all subjects'}" in found.done
    there.wrote.clear()
    assert moved(here, there).conflicts == [] and there.wrote == []


def test_target_that_normalizes_by_itself_is_told_with_the_first_move(both: Any) -> None:
    """Only the next move knew of it, as a difference that nobody could explain."""
    here, there = both
    here.register(60, UNSORTED, "p-value", 1, kind="PROTOBUF")
    refers = {"references": [{"name": "p", "subject": "p-value", "version": 1}]}
    here.register(61, 'syntax = "proto3";\nimport "p";', "q-value", 1, kind="PROTOBUF", **refers)
    there.normalizes = {""}
    there.register(99, INT, "theirs-value", 1)  # so its settings are somebody's
    found = moved(here, there)
    assert {
        "p-value version 1 is id 60 on the source, and another schema (id 60) on the target, which has rewritten it: "
        "look for normalize in its settings",
        "settings of all subjects differ: FULL on the source, BACKWARD, normalize on the target",
    } <= set(found.conflicts)
    assert there.subjects["q-value", 1] == 61, "it may mean the same, and nothing waits for it"


def test_setting_that_somebody_changes_while_versions_come_stays(both: Any) -> None:
    here, there = both
    here.normalizes = {"a-value"}
    own = lambda: there.settings.update({"a-value": "FULL"})  # noqa: E731
    meanwhile(there, lambda *asked: asked == ("POST", "/subjects/a-value/versions"), own)
    assert "settings of a-value were set on the target meanwhile" in moved(here, there).conflicts
    assert there.settings["a-value"] == "FULL" and there.normalizes == set()
    assert "settings of a-value differ: NONE, normalize on the source, FULL on the target" in moved(here, there).conflicts


def test_setting_that_the_target_refuses_keeps_nothing_else_from_coming(both: Any) -> None:
    """It ended the whole move, at each try."""
    here, there = both
    answer, refused = there.answer, [("PUT", "/config/a-value"), ("PUT", "/config/proto-value"), ("PUT", "/mode/a-value")]
    here.settings["proto-value"] = "NONE"

    def answers(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        if (method, path) in refused and body.get("mode") != "IMPORT":
            return 422, {"error_code": 42203, "message": "Invalid level"}
        return answer(method, path, query, body)

    there.answer = answers  # type: ignore[method-assign]
    found = moved(here, there, complete=True)
    assert [one.partition(": ask")[0] for one in found.conflicts] == [
        "not done: set NONE of a-value", "not done: set NONE of proto-value", "not done: set mode READONLY of a-value",
    ]  # fmt: skip
    assert "Invalid level" in found.conflicts[0]
    assert there.subjects == here.subjects and there.deleted == here.deleted
    assert there.settings == {"": "FULL", ":.other:": "FORWARD"}


def test_some_subjects_come_with_what_they_refer_to_and_nothing_else_is_read_or_set(both: Any) -> None:
    here, there = both
    source, target = (Registry(role, {"url": one.url}) for role, one in (("source", here), ("target", there)))
    found = move(source, target, dry_run=False, only={"a-value"})
    assert {subject for subject, _ in there.subjects} == {"a-value", "z user/value"} and found.versions == 3
    assert there.settings == {"": "BACKWARD", "a-value": "NONE"}
    assert not [path for path, _ in here.asked if "proto-value" in path or path.startswith("/subjects?")]


def test_mode_that_can_not_be_taken_back_is_one_alone(both: Any) -> None:
    here, there = both
    answer = there.answer

    def answers(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        refused = (method, path) == ("DELETE", "/mode/again-value")
        return (500, {"error_code": 50001, "message": "store"}) if refused else answer(method, path, query, body)

    there.answer = answers  # type: ignore[method-assign]
    with pytest.raises(BrokerError, match="store"):
        moved(here, there)
    assert [name for name, mode in there.modes.items() if mode == "IMPORT"] == ["again-value"]
    there.answer = answer  # type: ignore[method-assign]
    moved(here, there)
    assert "IMPORT" not in there.modes.values()
