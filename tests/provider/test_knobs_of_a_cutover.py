"""What a person may ask of a cutover is declared once: operators and the form say the same, or one of these fails."""

from __future__ import annotations

import inspect
from dataclasses import Field
from typing import Any

import pytest

from airflow_mirror.common.knobs import knobs_of
from airflow_mirror.cutover.limits import GIVEN, Limits
from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.errors import InvalidField
from airflow_mirror.example_dags import kafka_failback, kafka_migration
from airflow_mirror.operators.cutover import CutoverOperator, PreviewCutoverOperator, _OfACutover

KNOBS = [one for kind in (Limits, CutoverRequest) for one, _ in knobs_of(kind)]
ELSEWHERE = {"level": "verify_level"}  # in a form, which has one for each comparison


@pytest.mark.parametrize("one", KNOBS, ids=lambda one: one.name)
def test_an_operator_takes_each_as_it_is_declared(one: Field[Any]) -> None:
    parameter = inspect.signature(_OfACutover.__init__).parameters[one.name]
    assert parameter.default == one.default
    assert one.name in CutoverOperator.template_fields and one.name in PreviewCutoverOperator.template_fields
    assert f":param {one.name}:" in str(CutoverOperator.__doc__)


@pytest.mark.parametrize("dag", [kafka_migration, kafka_failback], ids=lambda dag: dag.__name__.rpartition(".")[2])
def test_a_form_that_asks_for_one_begins_with_its_default(dag: Any) -> None:
    asked = {one.name: dag.PARAMS[name] for one in KNOBS if (name := ELSEWHERE.get(one.name, one.name)) in dag.PARAMS}
    assert "max_fence_s" in asked
    for one in KNOBS:
        if one.name in asked:
            default = list(one.default) if isinstance(one.default, tuple) else one.default
            assert asked[one.name].value == default, one.name


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "60", True, None])
@pytest.mark.parametrize("name", GIVEN)
def test_a_limit_is_a_finite_number_from_0_on(name: str, value: object) -> None:
    with pytest.raises(InvalidField, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["accept_still_groups", "leave_out_groups", "accept_ledger_writers"])
def test_names_are_a_list_of_them(name: str) -> None:
    """Of one text every part would count: ``order`` is in ``orders``."""
    with pytest.raises(InvalidField, match=name):
        CutoverRequest(plan=None, **{name: "orders"})  # type: ignore[arg-type]
