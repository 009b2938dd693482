"""What Airflow is told about this provider is complete, valid, and costs nothing to ask."""

from __future__ import annotations

import importlib
import importlib.resources
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from airflow_mirror.get_provider_info import get_provider_info


def schema(name: Any) -> Any:
    return json.loads(importlib.resources.files("airflow").joinpath(name).read_text())


def test_it_is_valid_by_the_runtime_schema() -> None:
    jsonschema.validate(get_provider_info(), schema("provider_info.schema.json"))


@pytest.mark.parametrize("part", [
    "config", "operators", "sensors", "hooks", "triggers", "integrations", "extra-links", "connection-types",
])  # fmt: skip
def test_each_part_is_valid_by_the_stricter_build_schema(part: str) -> None:
    strict = schema("provider.yaml.schema.json")
    one = {"definitions": strict.get("definitions", {}), "$defs": strict.get("$defs", {}), **strict["properties"][part]}
    jsonschema.validate(get_provider_info()[part], one)


def test_it_names_every_module_there_is() -> None:
    info, root = get_provider_info(), Path(importlib.import_module("airflow_mirror").__file__).parent
    named = {m for kind in ("operators", "sensors", "triggers") for e in info[kind] for m in e["python-modules"]}
    helpers = {
        "base",
        "drill_base",
        "drill_turn",
        "fencing_once",
        "links",
        "refusals",
        "spark_job",
        "summaries",
        "tail",
        "__init__",
    }
    there = {
        f"airflow_mirror.{kind}.{p.stem}"
        for kind in ("operators", "sensors", "triggers")
        for p in (root / kind).glob("*.py")
        if p.stem not in helpers
    }
    assert named == there
    for module in named:
        importlib.import_module(module)


def test_asking_for_it_imports_nothing() -> None:
    code = (
        "import sys; from airflow_mirror.get_provider_info import get_provider_info as f; before = set(sys.modules); f();"
        "assert set(sys.modules) == before; assert not {'airflow', 'confluent_kafka', 'pyspark'} & before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_airflow_finds_it_by_its_entry_point() -> None:
    (found,) = [e for e in entry_points(group="apache_airflow_provider") if e.value.startswith("airflow_mirror.")]
    assert found.load()()["package-name"] == "airflow-mirror"


def test_options_have_defaults_without_a_configuration_file() -> None:
    from airflow.sdk import conf

    assert conf.get("mirror", "poll_interval") == "5"
    assert conf.get("mirror", "home") == ""
