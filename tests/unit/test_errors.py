"""Errors: what they say, word for word, and that the list of them is whole."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from airflow_mirror.errors import (
    InputError,
    InvalidSetting,
    LedgerLost,
    MirrorError,
    NothingMatches,
    TryAgain,
)
from airflow_mirror.plan.model import blocked
from airflow_mirror.wire.errors import ConnectionLost
from tests.unit.error_samples import samples

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "errors.json"

BRANCHES = {"InputError", "TryAgain", "NeedsHuman"}
RELAYED = "the words of a task's own error, which has its parts"
IN_ONE = {
    "copy/loop/crew.py: Crew.check_wanted": "ends the threads of a copy that has ended, and nobody reads it",
    "jobs/driver/following.py: _copy_on": RELAYED,
    "jobs/driver/turns.py: Tail._take": RELAYED,
}


def _said() -> dict[str, list[str]]:
    made = sorted(samples(), key=lambda error: type(error).__name__)
    return {name: [str(error) for error in its] for name, its in groupby(made, lambda error: type(error).__name__)}


def _classes() -> set[str]:
    """Return the names of all classes of errors in the package, whether or not their modules can be imported here."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "airflow_mirror").rglob("*.py"))
    bases = dict(re.findall(r"^class (\w+)\((?:\w+\.)?(\w+)\)", code, re.MULTILINE))
    found = {MirrorError.__name__}
    while more := {name for name, base in bases.items() if base in found} - found:
        found |= more
    return found


def test_errors_say_what_they_always_said() -> None:
    """Re-made by UPDATE_GOLDEN=1; review the difference."""
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(_said(), indent=1) + "\n", encoding="utf-8")
    assert _said() == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_errors_pass_from_process_to_process() -> None:
    for error in samples():
        error.add_note("another one")
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__notes__) == (type(error), str(error), ["another one"])
        assert vars(again).keys() == vars(error).keys() >= {"what", "cause", "remedy"}, "what programs read"


def test_the_parts_of_an_error_make_its_text() -> None:
    lost = LedgerLost("record 7 is missing.")
    assert str(lost) == f"the ledger on the target is lost: record 7 is missing. {lost.remedy}"
    assert str(InputError("a", "b", "C.")) == "a: b. C." and str(InputError("a.", "B", "C.")) == "a. B. C."
    assert str(InputError("a", remedy="C.")) == "a. C." and str(InputError("a", "b")) == "a: b"
    its = blocked(["x", "y"])
    assert (its.what, its.cause) == ("2 check(s) block this mirror; nothing was written", "\n  - x\n  - y\n")
    assert str(its).endswith("nothing was written:\n  - x\n  - y")


def test_what_stands_in_braces_in_a_value_is_no_template() -> None:
    assert str(LedgerLost("{cause} {0}")).startswith("the ledger on the target is lost: {cause} {0}. Nobody")


def test_each_class_of_error_has_a_sample() -> None:
    assert {type(error).__name__ for error in samples()} == _classes()


def test_a_list_reads_the_same_whatever_it_was_given_as() -> None:
    """A Mirror keeps tuples; people write lists."""
    assert str(NothingMatches(("no.such.topic",), (), ["orders"])).startswith(
        "topics=['no.such.topic'] with exclude_topics=[] "
    )


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (InputError("topic 'x' is gone", "it was deleted", "Plan again."),
         ["topic 'x' is gone", "  why: it was deleted", "  do:  Plan again."]),
        (InputError("2 topics are gone", ["x", "y"], "Plan again."),
         ["2 topics are gone", "  - x", "  - y", "  do:  Plan again."]),
        (TryAgain("the target is away"), ["the target is away"]),
        (InvalidSetting("f:1", "acks", "is not a number", "Give one"),
         ["f:1", "  why: acks is not a number", "  do:  Give one."]),
        (ConnectionLost("source", "b:1", "fetch", "refused"),
         ["source cluster, broker b:1", "  why: refused (asked: fetch)"]),
    ],
)  # fmt: skip
def test_it_is_shown_in_three_lines(error: MirrorError, lines: list[str]) -> None:
    assert error.lines.split("\n") == lines
    error.add_note("the fence is up")
    assert error.lines.split("\n") == [*lines, "  also: the fence is up"]
    assert pickle.loads(pickle.dumps(error)).lines.split("\n")[: len(lines)] == lines, "between processes, too"


def _in_one(node: ast.AST, where: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield where an error of a branch is made of a single text."""
    for each in ast.iter_child_nodes(node):
        inside = (*where, each.name) if isinstance(each, (ast.FunctionDef, ast.ClassDef)) else where
        yield from _in_one(each, inside)
        if isinstance(each, ast.Call) and len(each.args) + len(each.keywords) < 2:
            name = each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", "")
            if name in BRANCHES:
                yield ".".join(where)


def test_an_error_of_one_place_says_more_than_what() -> None:
    """Why, or what to do. In one text both stand where consoles, Airflow's log and pages show what happened."""
    code = ROOT / "airflow_mirror"
    found = {
        f"{path.relative_to(code).as_posix()}: {where}"
        for path in code.rglob("*.py")
        for where in _in_one(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - IN_ONE.keys() == set(), "give it what, cause and remedy"
    assert IN_ONE.keys() - found == set(), "has its parts: take it from the list"
