"""What all operators of a mirror share: the Mirror, its plan, and how errors end a task."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_mirror.errors import InputError, InvalidField
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.hooks.remembered import plan_by_hash
from airflow_mirror.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context
    from jinja2 import Environment

    from airflow_mirror.plan import Plan

__all__ = ["MirrorOperator", "PlannedOperator"]

# Fields of a Mirror that hold a name, or a list of names.
_NAMES = (
    "name", "source", "target", "source_alias", "separator", "source_registry", "target_registry", "topics",
    "exclude_topics", "groups", "exclude_groups",
)  # fmt: skip

_MARKS = ("{{", "{%", "{#")  # by which Jinja knows a template


def mirror_from(value: Mirror | Mapping[str, Any] | str) -> Mirror:
    """Return the Mirror of a rendered argument.

    :raises InputError: names the field, its value and the remedy.
    """
    if isinstance(value, (Mirror, str)):
        return Mirror.coerce(value)
    return Mirror.from_dict({**value, **{key: name_of(key, value[key]) for key in _NAMES if key in value}})


def name_of(field: str, value: Any) -> Any:
    """Return a rendered name, or a list of names, as text: native rendering makes a number of one that looks like it.

    :raises InvalidField: of a number with a point nobody knows what was written: 1.1 is made of 1.10, too.
    """
    if isinstance(value, (list, tuple)):
        return [name_of(field, one) for one in value]
    if isinstance(value, float):
        raise InvalidField(
            field, value, "a number: Airflow makes it of a text that looks like one, such as 1.10",
            "Let the template keep the text's quotes: \"{{ '%r' | format(params.name) }}\".",
        )  # fmt: skip
    return str(value) if isinstance(value, int) else value


def plan_hash(task: BaseOperator, given: str | Mapping[str, Any] | None, mirror: Mirror, context: Context) -> str:
    """Return the hash of the plan that a task executes.

    :param given: the task's argument: the hash, or what PlanMirrorOperator returned. None: the plan that the upstream
        PlanMirrorOperator of this mirror returned in this DAG run.
    :raises InputError: there is no plan, or more than one.
    """
    if given:
        return str(given["hash"] if isinstance(given, dict) else given)
    hashes = {str(r["hash"]) for r in upstream_results(task, "makes_plan", mirror, context)}
    if len(hashes) == 1:
        return hashes.pop()
    remedy = "Pass plan=, its hash." if hashes else "Run PlanMirrorOperator first, upstream of this task, or pass plan=."
    found = f"{len(hashes)} plans" if hashes else "no plan"
    raise InputError(f"task {task.task_id!r}", f"{found} of mirror {mirror.name!r} upstream in this DAG run", remedy)


def upstream_results(task: BaseOperator, kind: str, mirror: Mirror, context: Context) -> list[dict[str, Any]]:
    """Return what the upstream tasks of a kind have returned for a mirror in this DAG run.

    :param kind: the attribute by which they are known.
    """
    return [r for r in pulled_from(task, kind, context) if r.get("mirror") == mirror.name]


def pulled_from(task: BaseOperator, kind: str, context: Context) -> list[dict[str, Any]]:
    """Return what the upstream tasks of a kind have returned in this DAG run.

    :param kind: the attribute by which they are known.
    """
    asked = [t.task_id for t in task.get_flat_relatives(upstream=True) if getattr(t, kind, False)]
    returned: list[Any] = []
    for task_id in sorted(asked):
        pulled = context["ti"].xcom_pull(task_ids=task_id)
        returned += pulled if isinstance(pulled, list) else [pulled]  # a list comes from a mapped task
    return [r for r in returned if isinstance(r, dict)]


def states_of(ti: Any) -> dict[str, str]:
    """Return how each task of a task's run has ended, or stands, by its id."""
    return dict(ti.get_task_states(dag_id=ti.dag_id, run_ids=[ti.run_id]).get(ti.run_id, {}))


def is_retry(task: BaseOperator, context: Context) -> bool:
    """Return whether Airflow tries a task again by itself, and nobody has cleared it since its last try.

    One that is cleared while it runs counts as tried again: Airflow leaves ``max_tries`` as it is then.
    """
    ti: Any = context["ti"]
    return bool(ti.try_number > ti.max_tries - task.retries + 1)


def load_plan(plan_hash: str, mirror: Mirror) -> Plan:
    """Return the plan that a task of ``mirror`` executes, whichever worker made it.

    :raises InputError: it is not stored, is of another mirror, or must not be executed.
    """
    from airflow_mirror.plan import require_plan_of

    plan = plan_by_hash(plan_hash, mirror)
    require_plan_of(plan, _with_planned_connections(mirror, plan))
    return plan


def _with_planned_connections(mirror: Mirror, plan: Plan) -> Mirror:
    """Return a Mirror with the plan's connections where its own, of other names, lead to the plan's clusters.

    Each Airflow has names of its own for the same two clusters. With policies that name topics after the source's
    connection another name is another mirror.
    """
    from airflow_mirror.hooks.kafka import admins_of
    from airflow_mirror.plan.store import differing_fields

    planned = replace(mirror, source=plan.mirror.source, target=plan.mirror.target)
    if planned == mirror or mirror.policy != "identity" or differing_fields(plan.mirror, planned):
        return mirror
    with admins_of(mirror) as (source, target):
        found = source.cluster_id(), target.cluster_id()
    return planned if found == (plan.source_cluster_id, plan.target_cluster_id) else mirror


def flag(name: str, value: object) -> bool:
    """Return a rendered boolean. Without native rendering a template yields text, and the text "False" is true.

    :raises InvalidField: the value is neither true nor false.
    """
    known = {"true": True, "false": False}.get(str(value).lower())
    if known is None:
        raise InvalidField(name, value, "neither true nor false", "Use one of the two.")
    return known


def number(name: str, value: object, least: float = 0.0) -> float:
    """Return a rendered number. Called before a task's first effect, because a template may yield anything.

    :raises InvalidField: it is not a number, not finite, or below ``least``.
    """
    try:
        found = float(str(value))
    except ValueError:
        found = math.nan
    if not least <= found < math.inf:
        raise InvalidField(name, value, "not a number that makes sense here", f"Use one from {least:g} on.")
    return found


def names(value: Sequence[object] | str | float | None) -> list[str]:
    """Return a rendered list of names; one alone may be given as text. None, as of a form's empty list, is no name.

    Errors as :func:`name_of`.
    """
    given = [value] if isinstance(value, (str, int, float)) else value or ()
    return [str(name_of("names", name)) for name in given]


class NativeOperator(BaseOperator):
    """Renders templates to native values, so ``"{{ params.topics }}"`` is a list, and keeps text without any."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("render_template_as_native_obj", True)
        super().__init__(**kwargs)

    def render_template(
        self, content: Any, context: Context, jinja_env: Environment | None = None, seen_oids: set[int] | None = None
    ) -> Any:  # fmt: skip
        """See BaseOperator. Jinja would evaluate also what has no template: a mirror named 2026_11 became 202611."""
        if isinstance(content, str) and not any(mark in content for mark in _MARKS):
            return content
        return super().render_template(content, context, jinja_env, seen_oids)


class MirrorOperator(NativeOperator):
    """Base of the operators. Subclasses implement :meth:`run`; its errors become task outcomes here.

    :param mirror: a Mirror, a dict of its fields, or the path of a YAML or JSON file (templated).
    """

    template_fields: Sequence[str] = ("mirror",)
    template_fields_renderers = {"mirror": "json"}

    def __init__(self, *, mirror: Mirror | Mapping[str, Any] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # As a dict, because Airflow stores and shows rendered fields, and would store a Mirror's repr.
        self.mirror = mirror.to_dict() if isinstance(mirror, Mirror) else mirror
        self._context: Context | None = None
        self.shown_links: dict[str, str] = {}  # of this try, by their XComs' keys

    def execute(self, context: Context) -> Any:
        """Run the task; wrong input and corrupt data fail it without a retry."""
        self._context = context
        with task_outcome():
            return self.run(mirror_from(self.mirror), context)

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Do the work and return a summary below 50 KB."""
        raise NotImplementedError


class PlannedOperator(MirrorOperator):
    """Base of the operators that execute a plan: always one plan, by its hash, whatever was planned since.

    :param plan: the plan's hash, or what PlanMirrorOperator returned (templated). Default: the plan that the upstream
        PlanMirrorOperator of this mirror made in this DAG run.
    """

    template_fields: Sequence[str] = ("mirror", "plan")

    def __init__(self, *, plan: str | Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self._read: tuple[str, Mirror, Plan] | None = None

    def stored_plan(self, mirror: Mirror) -> Plan:
        """Return the plan that this task executes. It is read once: a plan's hash is its content.

        :raises InputError: there is none, it is of another mirror, or it must not be executed.
        """
        assert self._context is not None
        wanted = plan_hash(self, self.plan, mirror, self._context)
        if self._read is None or self._read[:2] != (wanted, mirror):
            self._read = wanted, mirror, load_plan(wanted, mirror)
        return self._read[2]
