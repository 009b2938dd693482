"""Each operator, sensor and DAG is documented, with its parameters; the example in the README is a DAG."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import BaseOperator

import airflow_mirror.operators
import airflow_mirror.sensors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
BASES = {"DrillBase", "NativeOperator", "MirrorOperator", "PlannedOperator", "SparkJobOperator"}


def section(heading: Any) -> Any:
    """The text below a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#{{1,3}} |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return found[2] if found else ""


def operators() -> dict[str, Any]:
    found = {}
    for package in (airflow_mirror.operators, airflow_mirror.sensors):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(cls, BaseOperator) and cls.__module__ == module.name and not name.startswith("_"):
                    found[name] = cls
    return found


def own_parameters(cls: Any) -> Any:
    """Parameters that our classes declare, but for `mirror`, which stands at the top of the page."""
    ours = [c for c in cls.__mro__ if c.__module__.startswith("airflow_mirror.") and "__init__" in vars(c)]
    named = {
        p.name
        for c in ours
        for p in inspect.signature(vars(c)["__init__"]).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }
    return named - {"mirror"}


@pytest.mark.parametrize("name", sorted(operators().keys() - BASES))
def test_every_operator_and_sensor_is_documented_with_its_parameters(name: Any) -> None:
    documented = section(name)
    assert documented, f"docs/operators.md has no section {name}"
    cls = operators()[name]
    assert {p for p in own_parameters(cls) if f"`{p}`" not in documented} == set()
    templated = set(cls.template_fields) - {"mirror"}
    assert set(re.findall(r"`(\w+)` †", documented)) == templated


@pytest.mark.parametrize("name", sorted(operators().keys() - BASES))
def test_no_parameter_is_documented_that_does_not_exist(name: Any) -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", section(name), re.MULTILINE)
    documented = {p for row in rows for p in re.findall(r"`(\w+)`", row)}
    cls = operators()[name]
    accepted = {p for c in cls.__mro__ if "__init__" in vars(c) for p in inspect.signature(c.__init__).parameters}
    assert documented - accepted == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda p: p.name)
def test_every_import_in_a_code_block_works(page: Any) -> None:
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom | ast.Import):
                exec(compile(ast.Module([node], []), page.name, "exec"), {})


def test_every_module_of_an_operator_is_named_rightly() -> None:
    named = re.findall(r"^#+ (\w+)\n\n`(airflow_mirror\.[\w.]+)`", PAGE, re.MULTILINE)
    assert len(named) > 8
    assert [pair for pair in named if not hasattr(importlib.import_module(pair[1]), pair[0])] == []


def test_base_classes_are_mentioned() -> None:
    assert operators().keys() >= BASES
    assert all(f"`{name}`" in section("Base classes") for name in BASES - {"NativeOperator"})  # is below all of them


def test_every_dag_is_documented_with_every_field_of_its_form() -> None:
    dags = DagBag(str(ROOT / "dags")).dags
    assert dags
    for dag_id, dag in dags.items():
        documented = section(f"DAG {dag_id}")
        assert {name for name in dag.params if f"`{name}`" not in documented} == set(), dag_id


def test_the_example_of_the_readme_is_a_dag() -> None:
    bag = DagBag(str(ROOT / "docs" / "examples"))
    assert bag.import_errors == {}
    tasks = bag.dags["first_mirror"].topological_sort()
    assert [task.task_id for task in tasks] == ["plan", "create_topics", "copy", "verify", "restore_configs"]
    assert tasks[-1].hold is False  # nothing is left held open for ever
    assert all(task.mirror["topics"] == ["orders.*"] for task in tasks)
