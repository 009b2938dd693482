"""Forms of the example DAGs: what they ask, how they look, and what reaches a task of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    ParamValidationError,
)
from jinja2.nativetypes import NativeEnvironment

from airflow_mirror.example_dags.forms import answer, text
from airflow_mirror.mirror import DEFAULT_EXCLUDED_GROUPS
from tests.provider.test_dags import IDS


def test_form_leaves_out_the_groups_that_a_mirror_leaves_out(bag: Any) -> None:
    assert list(bag.dags["kafka_migration"].params["exclude_groups"]) == list(DEFAULT_EXCLUDED_GROUPS)


# Of these fields the same name asks for other things in other forms.
ASKS_FOR_ANOTHER = {"approval", "open_by_default", "max_lag_records"}


def schemas_of(dag: Any) -> dict[str, dict[str, Any]]:
    return {name: dag.params.get_param(name).schema for name in dag.params}


@pytest.mark.parametrize("dag_id", sorted(IDS))
def test_every_field_of_a_form_has_a_title_and_a_text(bag: Any, dag_id: str) -> None:
    """Without a title Airflow shows the name of the parameter."""
    schemas = schemas_of(bag.dags[dag_id])
    assert [name for name, said in schemas.items() if not (said.get("title") and said.get("description_md"))] == []
    assert [name for name, said in schemas.items() if said.get("type") == ["null", "boolean"]] == [], "that is an enum"


@pytest.mark.parametrize("dag_id", sorted(IDS))
def test_a_star_is_at_no_field_that_may_be_empty(bag: Any, dag_id: str) -> None:
    """Airflow stars each whose type has no null. Of `warn_only` everything may be taken away."""
    dag = bag.dags[dag_id]
    starred = {name for name, said in schemas_of(dag).items() if "type" in said and "null" not in said["type"]}
    empty = {name for name in starred if dag.params.get_param(name).value in ([], {})} | (starred & {"warn_only"})
    # A DAG with a schedule has to have a default, and these topics have to be named all the same.
    assert empty == ({"topics"} if dag_id == "kafka_window_backfill" else set())


def test_the_same_field_has_the_same_title_in_every_form(bag: Any) -> None:
    titles: dict[str, set[str]] = {}
    for dag_id in IDS:
        for name, said in schemas_of(bag.dags[dag_id]).items():
            titles.setdefault(name, set()).add(said.get("title", name))
    assert {name: said for name, said in titles.items() if len(said) > 1 and name not in ASKS_FOR_ANOTHER} == {}


@pytest.mark.parametrize("dag_id", sorted(IDS))
def test_at_most_ten_fields_of_a_form_are_open(bag: Any, dag_id: str) -> None:
    assert len([name for name, said in schemas_of(bag.dags[dag_id]).items() if "section" not in said]) <= 10


def test_the_form_of_the_migration_opens_with_what_everybody_answers(bag: Any) -> None:
    params = bag.dags["kafka_migration"].params
    assert [name for name in params if "section" not in params.get_param(name).schema] == [
        "name", "source", "target", "topics", "exclude_topics", "groups", "mode", "spark_conn_id", "max_bytes_per_second",
        "approval",
    ]  # fmt: skip
    with pytest.raises(ParamValidationError):
        params.get_param("topics").resolve()
    assert params["approval"] is True and params["fail_on_reject"] is False
    assert {"policy", "source_alias", "separator"} <= params.keys(), "how target topics are named"


@pytest.mark.parametrize("field", ["name", "action"])
def test_form_of_a_pace_that_is_sent_off_untouched_pauses_nothing(bag: Any, field: str) -> None:
    with pytest.raises(ParamValidationError):
        bag.dags["kafka_pace"].params.get_param(field).resolve()


@pytest.mark.parametrize(("said", "meant"), [("ask", None), ("yes", True), ("no", False)])
def test_what_brokers_hide_a_person_answers(said: str, meant: bool | None) -> None:
    found: object = NativeEnvironment().from_string(answer("x")).render(params={"x": said})
    assert found is meant


WRITTEN = ["2026_11", "1.10", "1e5", "0x1f", "None", "[a]", 'it\'s "so"', "\u00fc\\n", ""]


TEXTS = {
    "name", "source", "target", "spark_conn_id", "export_to", "prefix", "groups_of", "source_registry", "target_registry",
    "source_alias", "separator", "start",
}  # fmt: skip


@pytest.mark.parametrize("written", WRITTEN)
def test_text_of_a_form_reaches_a_task_to_the_letter(bag: Any, written: str) -> None:
    """Native rendering makes numbers of it: a mirror named 1.10 was looked for as 1.1."""
    plan = bag.dags["kafka_migration"].get_task("plan")
    assert plan.render_template_as_native_obj
    for env in (plan.get_template_env(), NativeEnvironment()):
        shown = [plan.render_template(text("x"), {"params": {"x": one}}, env) for one in (written, None)]
        assert shown == [written, None]


def test_every_text_of_a_form_is_given_so(bag: Any) -> None:
    bare = {f"{{{{ params.{name} }}}}" for name in TEXTS}
    for dag in bag.dags.values():
        for task in dag.tasks:
            of_it = getattr(task, "partial_kwargs", None) or {one: getattr(task, one) for one in task.template_fields}
            native = of_it.get("render_template_as_native_obj", getattr(task, "render_template_as_native_obj", False))
            assert not (native and bare & set(leaves(of_it))), task


def leaves(value: Any) -> Iterator[str]:
    """Yield the texts within a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for one in inner:
        yield from leaves(one)
    if isinstance(value, str):
        yield value
