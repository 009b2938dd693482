"""PaceMirrorOperator: pause a mirror, resume it, or set its rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_mirror.errors import InvalidField
from airflow_mirror.operators.base import MirrorOperator, is_retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_mirror.mirror import Mirror

__all__ = ["PaceMirrorOperator"]

_WISHED = "wished"  # in the task's store: an earlier try has, and how often the run had been cleared by then


class PaceMirrorOperator(MirrorOperator):
    """Pauses a mirror, resumes it, or sets its rate, whatever host its jobs run on, and whoever started them.

    It is wished in the name of who triggered the run.

    :param mirror: only its ``name`` and ``target`` are used.
    :param action: ``pause``, ``resume`` or ``rate`` (templated).
    :param rate: bytes per second of all its tasks together; ``none`` for no limit; ``default``: as the Mirror says
        (templated).
    """

    template_fields: Sequence[str] = ("mirror", "action", "rate")

    def __init__(self, *, action: str, rate: int | str | None = "default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.action, self.rate = action, rate

    def run(self, mirror: Mirror, context: Context) -> dict[str, Any]:
        """Wish it, and wait for the jobs that run: of a pause, until they rest.

        :raises InvalidField: ``action`` or ``rate`` is none. :raises InputError: the target knows no such mirror.
        :raises TryAgain: a job does not rest yet. The pause stands.
        """
        from airflow_mirror.hooks.kafka import MirrorKafkaHook
        from airflow_mirror.jobs.runner.pacing import VERBS, pace

        if self.action not in VERBS:
            raise InvalidField("action", self.action, "not known", f"Use one of {', '.join(VERBS)}.")
        rate = "none" if self.rate is None else str(self.rate)  # what a template renders as None
        run = context["dag_run"]
        by = f"{run.triggering_user_name or 'somebody'} by {run.dag_id}"
        store: Any = context.get("task_state_store")
        # Who clears the task means it once more. Of one that is cleared while it runs only the run's count tells.
        clears = run.clear_number or 0
        is_wished = store is not None and store.get(_WISHED) == clears and is_retry(self, context)

        def note() -> None:
            if store is not None:
                store.set(_WISHED, clears)

        with MirrorKafkaHook(mirror.target, "target").admin() as target:
            done = pace(target, mirror.name, self.action, rate, by, is_wished=is_wished, wished=note)
        if is_wished:
            self.log.info("an earlier try has wished it: what somebody has wished since stays")
        for line in done.lines():
            self.log.info("%s", line)
        return done.to_dict()
