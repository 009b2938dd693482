"""The table of the kinds of records: what is stored does not change by chance, and nothing is stored that has no row."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

import airflow_mirror
from airflow_mirror.common.policy import DECISIONS, STATE
from airflow_mirror.cutover.report import CutoverReport
from airflow_mirror.errors import LedgerNewer
from airflow_mirror.extras import split
from airflow_mirror.jobs.runner.active import Sign
from airflow_mirror.ledger import records
from airflow_mirror.ledger.kinds import Kind, Newer, Retire, Split, known
from airflow_mirror.ledger.records import KINDS, MAP, SHARED_TOPIC, TOPIC, kind_of
from airflow_mirror.plan.owned import Owned
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.ledger.written import GOLDEN, written

PACKAGE = Path(airflow_mirror.__file__).parent
RECORDS = json.loads(GOLDEN.read_text())


def row_of(key: str, value: Any = None) -> Kind | None:
    """Return the row of a record in the golden file."""
    if (
        isinstance(value, dict)
        and kind_of(key)
        and value.get("v") == SHARED_TOPIC.version
        and key.startswith(TOPIC.below())
    ):
        return SHARED_TOPIC
    found = kind_of(key)
    return found[0] if found else MAP if MAP.match(key) else None


def test_keys_and_bytes_of_every_kind_are_as_they_were() -> None:
    """A ledger outlives the package that wrote it: what differs here is another format, and needs another version."""
    assert written() == RECORDS


def test_every_kind_is_written_by_somebody() -> None:
    found = {row_of(one["key"], one.get("value")) for its in RECORDS.values() for one in its}
    assert found == set(KINDS)


def test_decisions_have_decisions_rows_and_the_state_the_others() -> None:
    for where, its in RECORDS.items():
        rows = {one["key"]: row_of(one["key"]) for one in its}
        assert all(row and (row.topic == DECISIONS) == (where == "decisions") for row in rows.values()), rows


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.pattern)
def test_a_key_says_what_it_was_made_of(kind: Kind) -> None:
    names = [f"{name}-1.x" for name in kind.names]
    key = kind.key(*names) + "/0/1" * kind.in_pieces
    assert [*(kind.match(key) or {}).values()] == names
    assert (
        kind in (MAP, SHARED_TOPIC)
        or (found := kind_of(key))
        and found == (kind, dict(zip(kind.names, names, strict=True)))
    )
    for given in range(len(names) + 1):
        assert key.startswith(kind.below(*names[:given]))


def test_a_group_may_have_any_name() -> None:
    assert kind_of("groups/m/a/b\n/c") == (records.GROUP, {"mirror": "m", "group": "a/b\n/c"})


@pytest.mark.parametrize("key", ["", "future/m/x", "job/m", "job/m/j/ballot", "plan/m/hash", "groups/m/", "topic/a/b"])
def test_what_nobody_writes_has_no_row(key: str) -> None:
    assert kind_of(key) is None


def test_a_record_of_no_kind_is_not_written_in_tests() -> None:
    """The state and the decisions of all tests refuse it: so whoever adds a record adds its row."""
    with pytest.raises(AssertionError, match="no row for 'new/m/x'"):
        MemoryState().write({"new/m/x": b"{}"})
    with pytest.raises(AssertionError, match="no row for 'new/m'"):
        MemoryLedger().decide(lambda _: {"new/m": {"v": 1}})


def test_a_row_without_its_answers_is_none() -> None:
    some = cast("Any", Kind)
    with pytest.raises(TypeError, match="'split' and 'retire'"):
        some("new/{mirror}/{x}", "it", "somebody", topic=STATE)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.pattern)
def test_a_rows_answers_can_be_carried_out(kind: Kind) -> None:
    if kind.split is Split.PASSES:
        assert "topic" in kind.names and kind.names[0] == "mirror" and not kind.in_pieces
    assert kind.split is not Split.COPIED or kind.names == ["mirror"]
    assert (kind.split is Split.IN_PART) == (kind in split.PARTS)
    if kind.retire in (Retire.REMOVED, Retire.FENCED):
        assert kind.names[0] == "mirror", "or nobody finds it"
    assert kind.newer is not Newer.LEFT or kind.topic != DECISIONS, "who has to decide has to know"


def beginnings(path: Path) -> Iterator[str]:
    """Yield what texts begin with that look like keys: no other text in the package does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            whole = isinstance(node, ast.Constant)
            if found := (re.fullmatch if whole else re.match)(r"[a-z]+/", text.value):
                yield found[0]


def test_only_the_table_knows_keys_by_heart() -> None:
    assert {str(path): found for path in PACKAGE.rglob("*.py") if (found := [*beginnings(path)])} == {}


def table() -> list[str]:
    """Return the table as the documentation has it."""
    rows = [
        "| keys | who may write one | written by another version | split | retire |",
        "| --- | --- | --- | --- | --- |",
    ]
    for topic in dict.fromkeys(kind.topic for kind in KINDS):
        rows.append(f"| **{topic}** | | | | |")
        for kind in KINDS:
            if kind.topic == topic:
                key = kind.pattern.replace(":path", "") + "/{n}/{of}" * kind.in_pieces
                v = f", `v: {kind.version}`" if kind.version > 1 else ""
                answers = f"{kind.newer.value} | {kind.split.value} | {kind.retire.value}"
                rows.append(f"| `{key}`{v} | {kind.writer} | {answers} |")
    return rows


def test_documentation_has_the_table() -> None:
    lines = (Path(__file__).parents[3] / "docs" / "design.md").read_text(encoding="utf-8").splitlines()
    start = lines.index(table()[0])
    assert lines[start : lines.index("", start)] == table()


@dataclass(frozen=True)
class Holding:
    names: list[str] = field(default_factory=list)
    most: Mapping[str, float] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    of: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    upstream: tuple[str, ...] | None = None


@pytest.mark.parametrize("fields", [
    {"names": ["a", 1]}, {"names": "ab"}, {"names": {"a": 1}}, {"most": {"a": "1"}}, {"most": {"a": True}}, {"most": []},
    {"rows": [[]]}, {"of": {"a": 1}}, {"upstream": [None]}, {"upstream": "ab"},
])  # fmt: skip
def test_list_or_object_that_holds_something_else_is_nothing_that_this_version_knows(fields: dict[str, Any]) -> None:
    """It was taken, and failed where it was used, as an error without a name."""
    with pytest.raises(TypeError):
        known(Holding)(fields)
    sound = {"names": ["a"], "most": {"a": 1, "b": 0.5}, "rows": [{"x": 1}], "of": {"a": {"b": 1}}, "upstream": ["a"]}
    assert known(Holding)(sound) == Holding(**{**sound, "upstream": ("a",)}), "a list where there is a tuple"
    assert known(Holding)({"upstream": None}) == Holding() and known(Holding)({"upstream": []}).upstream == ()


def test_text_in_place_of_a_list_is_no_list_of_letters() -> None:
    """It was one: of clusters that a topic's records come from, and of a tail's notes."""
    owned = Owned(topic_id="x", mirror="m", source_id="A", upstream=("A", "B")).value()
    assert Owned.of("t", json.loads(json.dumps(owned))).upstream == ("A", "B")
    with pytest.raises(LedgerNewer):
        Owned.of("t", {**owned, "upstream": "AB"})
    sign = json.loads(Sign(number=7, state="SUCCEEDED", notes=("late",)).encode())
    assert Sign.decode(json.dumps(sign).encode()) == Sign(number=7, state="SUCCEEDED", notes=("late",))
    found = Sign.decode(json.dumps({**sign, "notes": "late"}).encode())
    assert found is not None and found.state == "SUCCEEDED" and "late" not in found.notes and len(found.notes) == 1


def test_report_whose_list_holds_something_else_is_an_error_with_a_name() -> None:
    text = CutoverReport(mirror="m", plan_hash="p", left_behind=["g"]).to_json()
    assert CutoverReport.from_json(text, "r").left_behind == ["g"]
    with pytest.raises(LedgerNewer):
        CutoverReport.from_json(text.replace('"g"', "7"), "r")
