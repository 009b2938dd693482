"""What a form can't do: refuse a parameter that it does not have. Airflow takes any, and drops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.common.nearest import nearest

if TYPE_CHECKING:
    from airflow.sdk import Context


def known_params_only(context: Context) -> None:
    """Fail a run that was triggered with a parameter that its DAG does not have. For the first task, before its work.

    ``{"topcis": ["orders"]}`` would otherwise plan every topic.

    :raises AirflowFailException: names each, and the nearest one that the DAG has.
    """
    known = list(context["dag"].params)
    unknown = sorted({*(context["dag_run"].conf or {})} - {*known})
    if unknown:
        named = " ".join(f"{name!r}: no parameter of this DAG.{nearest(name, known)}" for name in unknown)
        raise AirflowFailException(f"{named} Correct or remove it; nothing was done.")
