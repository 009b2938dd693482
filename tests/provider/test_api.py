"""What is public is said in the docs and in the modules, and is the same."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from airflow_mirror.get_provider_info import get_provider_info

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
PUBLIC = {
    module: re.findall(r"`(\w+)`", names)
    for module, names in re.findall(r"^\| `([\w.]+)` \| (.+) \|$", PAGE, re.MULTILINE)
}
# The packages of Airflow's nouns: whoever builds a DAG looks here.
PACKAGES = ("operators", "sensors", "triggers", "hooks", "example_dags")


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_of_a_module_are_those_in_the_docs(module: str) -> None:
    loaded = importlib.import_module(module)
    assert sorted(loaded.__all__) == sorted(PUBLIC[module])
    assert all(hasattr(loaded, name) for name in PUBLIC[module])


@pytest.mark.parametrize("package", PACKAGES)
def test_public_modules_are_exactly_those_in_the_docs(package: str) -> None:
    path = importlib.import_module(f"airflow_mirror.{package}").__path__
    modules = [f"airflow_mirror.{package}.{found.name}" for found in pkgutil.iter_modules(path)]
    says = {name for name in modules if hasattr(importlib.import_module(name), "__all__")}
    assert says == {name for name in PUBLIC if name.startswith(f"airflow_mirror.{package}.")}


def test_what_airflow_is_told_of_is_public() -> None:
    info = get_provider_info()
    told = [m for kind in PACKAGES[:4] for entry in info[kind] for m in entry["python-modules"]]
    assert told and set(told) <= PUBLIC.keys()


def test_operators_that_are_documented_are_public() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b(\w+(?:Operator|Sensor))\b", page)) - {"BaseOperator"}
    public = {name for names in PUBLIC.values() for name in names}
    assert named == {name for name in public if name.endswith(("Operator", "Sensor"))}
