"""How the parts of the tests are run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests import parts
from tests.conftest import passed_file

if TYPE_CHECKING:
    import pytest


def test_a_part_keeps_what_is_compiled_whatever_its_caller_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each of several workers, and each program that a test starts, would compile everything again."""
    given: dict[str, str] = {}

    def run(_: object, *, env: dict[str, str], **__: Any) -> SimpleNamespace:
        given.update(env)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(parts, "RESULTS", tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("AS_IT_IS", "kept")
    monkeypatch.delenv(parts.EXAMPLES, raising=False)
    assert parts.run(parts.Part("some", (), "", 1, "nothing")).ok
    assert "PYTHONDONTWRITEBYTECODE" not in given and given["AS_IT_IS"] == "kept" and parts.EXAMPLES not in given
    assert parts.run(parts.Part("some", (), "", 1, "nothing", examples=700)).ok
    assert given[parts.EXAMPLES] == "700"


def test_properties_are_in_the_unit_part_as_well() -> None:
    """With few examples there, and with many in a part of their own."""
    known = {part.name: part for part in parts.PARTS}
    assert "hypothesis" not in " ".join(parts.command(known["unit"])[3:])
    assert parts.command(known["properties"])[4:6] == ["-m", "hypothesis"]


def test_what_passed_with_few_examples_is_not_left_out_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--resume` goes by the tests' names, which are the same in both parts."""
    found = []
    for examples in ("", "25", "1000"):
        monkeypatch.setenv(parts.EXAMPLES, examples)
        found.append(passed_file())
    assert len({*found}) == 3 or found == [None] * 3


def test_parts_run_in_the_order_named_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (part.name for part in parts.PARTS if part.name != "unit" and part.name in parts.CI[:3])
    ran: list[str] = []
    monkeypatch.setattr(parts, "run", lambda part, *_, **__: ran.append(part.name) or SimpleNamespace(ok=True))
    monkeypatch.setattr(parts, "show", lambda _: None)
    assert parts.main([second, first, second]) == 0 and ran == [second, first]


def test_coverage_is_noted_and_judged_for_who_asks_and_never_of_a_part_of_the_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, bool] = {}
    judged: list[bool] = []

    def run(part: parts.Part, *more: str, **_: Any) -> SimpleNamespace:
        given[part.name] = "--cov" in more
        return SimpleNamespace(ok=True)

    monkeypatch.setattr(parts, "run", run)
    monkeypatch.setattr(parts, "show", lambda _: None)
    monkeypatch.setattr(parts, "_far_enough", lambda: judged.append(True) or False)
    assert parts.main(["unit"]) == 0 and not given["unit"] and judged == []
    assert parts.main(["unit", "--coverage", "--resume"]) == 0 and not given["unit"] and judged == []
    assert parts.main(["provider", "--coverage"]) == 0 and not given["provider"] and judged == []
    assert parts.main(["unit", "--coverage"]) == 1 and given["unit"] and judged == [True]
    assert parts.main(["--all"]) == 1 and given["unit"] and [name for name, noted in given.items() if noted] == ["unit"]


def test_another_python_runs_what_belongs_to_no_version_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: dict[str, str] = {}

    def run(part: parts.Part, *_: str, python: str) -> SimpleNamespace:
        ran[part.name] = parts.command(part, python=python)[0]
        return SimpleNamespace(ok=True)

    monkeypatch.setattr(parts, "run", run)
    monkeypatch.setattr(parts, "show", lambda _: None)
    assert parts.main([*parts.CI, "--on", "python3.x"]) == 0
    assert ran == {"unit": "python3.x", "provider": "python3.x", "core": sys.executable, "e2e": sys.executable}
