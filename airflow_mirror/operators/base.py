"""What every operator of a mirror has in common: the Mirror, its plan, and what becomes of its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_mirror.hooks.home import plan_path
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_mirror.plan import Plan

# Fields of a Mirror that are text. Native rendering turns a text that looks like a number into one.
_TEXT_FIELDS = ("name", "source", "target", "source_alias")


def mirror_from(value: Mirror | Mapping[str, Any] | str) -> Mirror:
    """Return the Mirror of a rendered argument.

    :raises InputError: naming the field, its value and the remedy.
    """
    if isinstance(value, (Mirror, str)):
        return Mirror.coerce(value)
    numbers = {k: str(value[k]) for k in _TEXT_FIELDS if isinstance(value.get(k), (int, float))}
    return Mirror.from_dict({**value, **numbers})


class MirrorOperator(BaseOperator):
    """Base of the operators. Subclasses implement :meth:`run`; its errors become task outcomes here.

    Templates are rendered to native values, so that ``"{{ params.topics }}"`` is a list where a list is meant.

    :param mirror: a Mirror, a dict of its fields, or the path of a YAML or JSON file (templated).
    """

    template_fields: Sequence[str] = ("mirror",)
    template_fields_renderers = {"mirror": "json"}

    def __init__(self, *, mirror: Mirror | Mapping[str, Any] | str, **kwargs: Any) -> None:
        kwargs.setdefault("render_template_as_native_obj", True)
        super().__init__(**kwargs)
        # As a dict: Airflow stores and shows rendered fields, and of a Mirror it would store the repr.
        self.mirror = mirror.to_dict() if isinstance(mirror, Mirror) else mirror

    def execute(self, context: Context) -> Any:
        """Run the task; wrong input and damaged data fail it without a retry."""
        with task_outcome():
            return self.run(mirror_from(self.mirror), context)

    def run(self, mirror: Mirror, context: Context) -> Any:
        """Do the work and return a summary below 50 KB."""
        raise NotImplementedError

    def stored_plan(self, mirror: Mirror) -> Plan:
        """Return the mirror's plan, as PlanMirrorOperator left it.

        :raises InputError: when there is none, or it was edited.
        """
        from airflow_mirror.plan import Plan

        return Plan.load(plan_path(mirror))
