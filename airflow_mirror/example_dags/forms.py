"""What the forms of DAGs share: their fields, and a look at parameters that no field has: Airflow takes and drops them.

A field without a section is open when the form is; a star is at each that must not be empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, TaskGroup
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.common.nearest import nearest

if TYPE_CHECKING:
    from airflow.sdk import Context


# Of the field for it, in every form that has one.
SPARK_FIELD: dict[str, Any] = {
    "title": "Spark",
    "type": ["null", "string"],
    "description_md": "Connection (type `spark`) of a Spark cluster; empty runs Spark on the worker.",
}

# OpenLineage's provider puts it into the conf of each run that a DAG triggers (TriggerDagRunOperator).
_LINEAGE = "openlineage"
_AIRFLOWS_OWN = "airflow"  # and a slash begin what Airflow itself takes from it: airflow/task_span_detail_level


def connection(side: str, text: str) -> Param:
    """Return a field for the connection of a cluster. :param side: ``source`` or ``target``."""
    return Param(f"kafka_{side}", title=side.capitalize(), type="string", description_md=text)


def patterns(default: list[str], title: str, text: str, section: str | None = None) -> Param:
    """Return a field for a list of names, or regular expressions, which may be empty."""
    fields: dict[str, Any] = {"section": section} if section else {}
    return Param(
        default, title=title, type=["null", "array"], items={"type": "string"}, description_md=text, **fields
    )  # fmt: skip


def ask_brokers(title: str, text: str, section: str | None = None) -> Param:
    """Return a field for what the brokers know, unless they hide it; :func:`answer` reads it."""
    shown = {"ask": "Ask the brokers", "yes": "Yes", "no": "No"}
    fields: dict[str, Any] = {"section": section} if section else {}
    return Param("ask", title=title, enum=list(shown), values_display=shown, description_md=text, **fields)


def answer(name: str) -> str:
    """Return the template of such a field's value: True, False, or None for the brokers' own answer."""
    return f"{{{{ {{'yes': True, 'no': False}}.get(params.{name}) }}}}"


def text(name: str) -> str:
    """Return the template of a field's text, to the letter; None where it is empty.

    Native rendering makes a number of text that looks like one, 202611 of 2026_11; it takes the quotes off this one.
    """
    return f"{{{{ '%r' | format(params.{name}) }}}}"


def stage(name: str, tooltip: str) -> TaskGroup:
    """Return a group of tasks in the graph, whose ids stay as they are."""
    return TaskGroup(name, prefix_group_id=False, tooltip=tooltip)


def known_params_only(context: Context) -> None:
    """Fail a run that was triggered with a parameter that its DAG does not have. For the first task, before its work.

    ``{"topcis": ["orders"]}`` would otherwise plan every topic.

    :raises AirflowFailException: names each, and the nearest one that the DAG has.
    """
    known = list(context["dag"].params)
    given = {name for name in context["dag_run"].conf or {} if name.partition("/")[0] != _AIRFLOWS_OWN}
    unknown = sorted(given - {*known, _LINEAGE})
    if unknown:
        named = " ".join(f"{name!r}: no parameter of this DAG.{nearest(name, known)}" for name in unknown)
        raise AirflowFailException(f"{named} Correct or remove it; nothing was done.")
