"""A knob of a Mirror is declared once: its check, its option and its help come from there."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any

import pytest

from airflow_mirror.common.knobs import Knob, knob, knobs_of, options_given, seconds, switch
from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver.arguments import add_flow, mirror_of
from airflow_mirror.mirror import Mirror

OPTIONS = [(one, its) for one, its in knobs_of(Mirror) if its.option]


def given(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flow(parser)
    return parser.parse_args([*words])


def test_every_field_but_the_names_is_a_knob() -> None:
    known = {one.name for one, _ in knobs_of(Mirror)}
    assert {one.name for one in fields(Mirror)} - known == {"name", "source", "target"}


def word_of(its: Knob, default: Any) -> list[str]:
    """Return an argument with another value than the default."""
    how = its.values.option
    if how.get("action") == "store_true":
        return []
    if "choices" in how:
        return [next(one for one in how["choices"] if one != default)]
    return ["0.25" if how.get("type") is float else "3600001" if how.get("type") is int else "latest"]


@pytest.mark.parametrize(("one", "its"), OPTIONS, ids=[one.name for one, _ in OPTIONS])
def test_each_option_sets_its_field_and_no_other(one: Any, its: Knob) -> None:
    words = [its.option, *word_of(its, one.default)]
    if one.name == "policy":
        words = ["--policy", "prefix"]
    if one.name == "ownership":
        words += ["--delivery", "transactional"]
    other = {"source_registry": "target_registry", "target_registry": "source_registry"}.get(one.name)
    if other:
        words += [f"--{other.replace('_', '-')}", "other"]
    made, usual = mirror_of(given(*words)).to_dict(), mirror_of(given()).to_dict()
    changed = {name for name in made if made[name] != usual[name]}
    with_it = {"ownership": {"delivery", "sync_groups", "sync_configs"}}.get(one.name, {other} - {None})
    assert changed == {one.name} | with_it


def test_a_file_is_changed_by_nothing_that_was_not_given() -> None:
    base = Mirror(name="m", source="a", target="b", internal_topics=True, hole_budget=0.1)
    arguments = given("--max-bytes-per-second", "5")
    assert mirror_of(arguments, base).to_dict() == {**base.to_dict(), "max_bytes_per_second": 5}


def test_a_knob_needs_no_second_place() -> None:
    @dataclass(kw_only=True)
    class Two:
        pause_s: float = knob(2.0, seconds(1, 9), "between two of them, 50 % of the time", "--pause-s", "S")
        loud: bool = knob(False, switch(), "say so")

    parser = argparse.ArgumentParser()
    for one, its in knobs_of(Two):
        if its.option:
            its.add(parser, one.default)
        with pytest.raises(InvalidField, match=one.name):
            its.values.checked(one.name, "x")
    assert "between two of them, 50 % of the time (default: 2)" in parser.format_help()
    assert options_given(Two, parser.parse_args(["--pause-s", "3"])) == {"pause_s": 3.0}
    assert options_given(Two, parser.parse_args([])) == {}
