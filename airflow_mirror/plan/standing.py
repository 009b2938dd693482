"""What is asked before each effect of a task or a person that holds no lease.

A task of a finished migration may be cleared at any time. Behind an opening, groups and rules of the target are its
applications' own: what the source says is no longer what they shall have, and only a person may mean it all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_mirror.errors import InputError, MirrorCutOver
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, recently
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import require_active

Required = Callable[[Decisions, Plan, ClusterAdmin], None]


def still_ours(ledger: Decisions, plan: Plan, target: ClusterAdmin, required: Required = require_active) -> Permit:
    """Return a permit of what a mirror changes for its groups and for access to its topics. It reads when it is asked.

    It raises what ``required`` raises, and InputError if topics are in production and must not be, or if another
    direction was decided since it was asked first.

    :param ledger: of the target. :param required: what must be so of the plan's target topics at each effect.
    """
    name, begun = plan.mirror.name, list[Direction | None]()

    def check() -> None:
        try:
            required(ledger, plan, target)
        except MirrorCutOver as e:
            raise InputError(
                f"mirror {name!r} was cut over ({e.at})",
                f"{e.which} are in production: their groups, and who may use them, are for applications to change. "
                "Nothing more was touched",
                "Where a person means it all the same: allow_production=True, or --allow-production.",
            ) from None
        turned = direction(ledger.values(), name)
        if turned != (begun or [turned])[0]:
            raise InputError(
                f"mirror {name!r}: another direction was decided meanwhile",
                "applications write to another cluster than at the beginning. Nothing more was touched",
                "See 'airflow-mirror status'. If it is still wanted, start it again.",
            )
        begun[:] = [turned]

    return recently(check)
