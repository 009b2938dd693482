"""A registry that is held while its schemas move, and released."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from airflow_mirror.console import move_schemas
from airflow_mirror.console.main import main
from airflow_mirror.cutover.request import Additions
from airflow_mirror.errors import AnswerTooLarge, BrokerError, InputError, NeedsHuman, RegistryStillHeld
from airflow_mirror.extras.schemas.release import release_after, with_release
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.schemas import apicurio
from airflow_mirror.sync.schemas.held import path_of
from airflow_mirror.sync.schemas.hold import HELD, hold
from airflow_mirror.sync.schemas.move import MoveReport
from airflow_mirror.sync.schemas.registry import Registry
from tests.unit.schemas.moving import (
    INT,
    LONG,
    ORDER,
    fill,
    moved,
)
from tests.unit.schemas.registries import DrivenRegistry, driven


@pytest.fixture
def both() -> Iterator[tuple[DrivenRegistry, DrivenRegistry]]:
    with driven() as here, driven() as there:
        fill(here)
        yield here, there


# --- a registry that is held -------------------------------------------------------------------------------------------


def test_held_registry_takes_schemas_from_the_move_alone_until_it_is_released(both: Any) -> None:
    here, there = both
    here.modes.pop(":.other:")
    planned = moved(here, there, dry_run=True, keep_out=True, complete=True)
    assert planned.done[0] == "set mode READONLY of the whole registry" and not there.wrote and not planned.left_out
    assert sorted(moved(here, there, keep_out=True, complete=True).done) == sorted(planned.done)
    assert there.wrote.index("PUT mode  READONLY") < there.wrote.index("register z user/value 2 7")
    assert there.modes == {"": "READONLY", "a-value": "READONLY"}
    target = Registry("target", {"url": there.url})
    for subject in ("new-value", "z user/value", ":.other:s"):
        with pytest.raises(BrokerError, match="read-only"):
            target.ask("POST", f"/subjects{path_of(subject)}/versions", {"schema": LONG})

    here.register(60, ORDER, "new-value")
    here.deleted.add(("proto-value", 1))
    here.settings |= {"new-value": "FULL", "again-value": "NONE", ":.other:s": "NONE"}
    again = moved(here, there, keep_out=True, complete=True)
    assert len(again.done) == 5 and not again.conflicts and HELD not in again.done
    assert there.holds() == here.holds() and there.modes[""] == "READONLY"
    assert moved(here, there).done == [], "it stays held, also where nobody says so again"

    assert release_after(target) == "the target's schema registry takes schemas again"
    target.ask("POST", "/subjects/mine/versions", {"schema": LONG})
    assert release_after(target) == "the target's schema registry was not held"


def test_who_may_register_in_a_held_registry_is_named(both: Any) -> None:
    here, there = both
    found = moved(here, there, keep_out=True, complete=True)
    assert found.left_out == [":.other: is not held: it has mode READWRITE of its own"]


def test_setting_of_a_subject_that_is_frozen_in_a_held_registry_is_named(both: Any) -> None:
    """The registry refuses it, and that ended the move."""
    here, there = both
    moved(here, there, keep_out=True, complete=True)
    here.settings["again-value"], there.modes["again-value"] = "NONE", "READONLY"
    found = moved(here, there, keep_out=True, complete=True)
    assert "settings of again-value are not set: it has mode READONLY of its own on the target" in found.conflicts
    assert "again-value" not in there.settings and there.modes["again-value"] == "READONLY"


def test_registry_that_can_not_be_held_is_refused_before_anything_is_moved(both: Any) -> None:
    here, there = both
    there.modes[""] = "FORWARD"
    with pytest.raises(NeedsHuman, match="it is in mode FORWARD, and is not held"):
        moved(here, there, keep_out=True)
    assert not there.subjects
    there.has_modes = False
    with pytest.raises(InputError, match="it has no modes, so it can't be held"):
        moved(here, there, keep_out=True)
    with pytest.raises(RegistryStillHeld, match="the target is open.*no modes"):
        release_after(Registry("target", {"url": there.url}))


def test_cutover_releases_the_registry_of_its_target_behind_all_else(both: Any) -> None:
    _, there = both
    order, said = list[str](), list[object]()
    mirror = Mirror(name="m", source="s", target="t", source_registry="http://a", target_registry=there.url)

    def registry(role: str, name: str) -> Registry:
        return Registry.of(role, name)

    def afterwards() -> None:
        order.append(there.modes[""])

    plain = Additions(require=lambda: order.append("required"), afterwards=afterwards)
    found = with_release(plain, mirror, registry, said.append)
    hold(Registry.of("target", there.url))
    found.require()
    assert there.modes[""] == "READONLY", "nothing is open yet"
    found.afterwards()
    assert order == ["required", "READONLY"] and there.modes[""] == "READWRITE"
    found.afterwards()
    assert said == ["the target's schema registry " + what for what in ("takes schemas again", "was not held")]
    there.status = 403
    with pytest.raises(BrokerError):
        found.require()
    with pytest.raises(InputError, match="names no registry"):
        with_release(plain, Mirror(name="m", source="s", target="t"), registry, said.append)


def test_command_holds_and_releases(both: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = both
    here.modes = {"": "READWRITE"}
    words = ["move-schemas", "--source-registry", here.url, "--target-registry", there.url]
    assert main([*words, "--hold"]) == 0 and there.modes[""] == "READWRITE"
    assert "to do: set mode READONLY of the whole registry" in capsys.readouterr().out
    assert main([*words, "--hold", "--yes"]) == 0 and there.modes[""] == "READONLY"
    wrote = len(there.wrote)
    assert main([*words, "--release"]) == 0 and there.modes[""] == "READONLY"
    assert "it is in mode READONLY; --yes sets READWRITE" in capsys.readouterr().out
    assert main([*words, "--release", "--yes"]) == 0 and there.modes[""] == "READWRITE"
    assert "takes schemas again" in capsys.readouterr().out and len(there.wrote) == wrote + 1
    assert main([*words, "--release", "--yes"]) == 0 and len(there.wrote) == wrote + 1


def test_subject_whose_schema_is_refused_does_not_stay_open(both: Any) -> None:
    here, there = both
    there.refuses = ORDER
    found = moved(here, there)
    (refused,) = (line for line in found.conflicts if line.startswith("a-value version 1"))
    assert "is not registered: ask the target's schema registry for POST /subjects/a-value/versions" in refused
    assert (
        len([line for line in found.done if line.startswith("register ")]) == 6 and "IMPORT" not in there.modes.values()
    ), "others do not wait for it"
    there.refuses = ""
    moved(here, there, complete=True)
    assert there.holds() == here.holds()


def test_modes_of_what_the_source_has_not_are_somebody_elses(both: Any) -> None:
    here, there = both
    there.register(99, INT, "theirs", 1)
    there.register(7, INT, ":.theirs:s", 1)
    theirs = {"theirs": "IMPORT", ":.theirs:": "IMPORT", ":.other:": "IMPORT"}
    there.modes |= theirs
    found = moved(here, there)
    assert {name: there.modes[name] for name in theirs} == theirs
    assert "mode of :.other:: READWRITE on the source, IMPORT on the target" in found.conflicts
    assert not any("theirs" in line for line in found.done)


def test_registry_without_subjects_is_none_and_not_an_empty_one(both: Any) -> None:
    here, there = both
    here.status, here.page = 404, {"message": "no Route matched with those values"}
    with pytest.raises(BrokerError, match="source's schema registry for /subjects.*404"):
        moved(here, there)


def test_what_refers_to_something_that_differs_is_not_registered(both: Any) -> None:
    here, there = both
    there.register(7, INT, "z user/value", 2)
    found = moved(here, there)
    assert "z user/value version 2 is id 7 on the source, and another schema (id 7) on the target" in found.conflicts
    assert "z user/value version 5 is not registered: it needs z user/value version 2" in found.conflicts
    assert "a-value version 1 is not registered: it needs z user/value version 5" in found.conflicts
    assert ("a-value", 1) not in there.subjects and (":.other:s", 1) in there.subjects


def test_target_that_keeps_no_ids_is_refused(both: Any) -> None:
    here, there = both
    there.has_modes = False
    with pytest.raises(InputError, match="it has no modes, and is no Apicurio"):
        moved(here, there)
    assert there.wrote == []
    there.has_modes, there.ignores_ids = True, True
    with pytest.raises(NeedsHuman, match="registered under id 1 instead of"):
        moved(here, there)
    assert len([one for one in there.wrote if one.startswith("register")]) == 1, "it stops at the first one"
    assert "IMPORT" not in there.modes.values(), "no subject stays open"
    with pytest.raises(InputError, match="both are http"):
        moved(here, here)
    there.status = 403
    with pytest.raises(BrokerError, match="target's schema registry for .*403"):
        moved(here, there)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (None, None, "no archive"),
        ("1.Content.json", {"contentId": 1, "contentHash": "x"}, "1.Content.data"),
        ("1.Content.json", {"contentId": 1}, "KeyError: 'contentHash'"),
        ("a.ArtifactVersion.json", [], "TypeError|AttributeError"),
        ("a.Artifact.json", "{", "JSONDecodeError"),
    ],
)
def test_export_of_another_form_is_refused_by_name(name: str | None, content: Any, said: str) -> None:
    packed = io.BytesIO()
    if name is not None:
        with ZipFile(packed, "w") as archive:
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    answer = SimpleNamespace(content=packed.getvalue())
    registry: Any = SimpleNamespace(
        role="source", native="http://r", send=lambda *_, **__: answer, require=lambda *_: None
    )
    with pytest.raises(BrokerError, match=f"source's schema registry for its export.*({said})"):
        apicurio.export(registry)


def test_export_that_unpacks_to_more_than_its_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("1.Content.data", b"0" * 100_000)
    asked = list[int]()

    def send(*_: Any, most_bytes: int, **__: Any) -> Any:
        asked.append(most_bytes)
        return SimpleNamespace(content=packed.getvalue())

    registry: Any = SimpleNamespace(role="source", native="http://r", send=send, require=lambda *_: None)
    monkeypatch.setattr(apicurio, "MOST_BYTES", 99_999)
    assert len(packed.getvalue()) < 1_000
    with pytest.raises(AnswerTooLarge, match="its export.*99,999 bytes"):
        apicurio.export(registry)
    assert asked == [99_999]


def test_command_says_what_it_would_do_and_does_it_with_yes(both: Any, capsys: pytest.CaptureFixture[str]) -> None:
    here, there = both
    words = ["move-schemas", "--source-registry", here.url, "--target-registry", there.url]
    assert main(words) == 1
    assert "differs: mode of a-value: READONLY on the source, none on the target" in capsys.readouterr().out
    words.append("--complete")
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "to do: register proto-value version 1 as id 40" in said and there.wrote == []
    assert "7 versions on the source, 14 changes to make, 0 differences\nnothing was changed; --yes does it" in said
    assert main([*words, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions"] == 7 and there.holds() == here.holds()
    there.register(99, INT, "theirs", 1)
    assert main(words) == 1
    assert "differs: theirs version 1 is on the target alone" in capsys.readouterr().out


def test_command_does_not_end_well_where_something_could_not_be_moved(
    both: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = both
    report = MoveReport(done=(), conflicts=(), left_out=["1 artifact without a subject: team/orders"], versions=7)
    monkeypatch.setattr(move_schemas, "move", lambda *_, **__: report)
    assert main(["move-schemas", "--source-registry", here.url, "--target-registry", there.url]) == 1
    assert "left out: 1 artifact without a subject: team/orders" in capsys.readouterr().out
