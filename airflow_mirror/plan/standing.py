"""What is asked before each effect of a task or a person that holds no lease.

A task of a finished migration may be cleared at any time. Behind an opening, groups and rules of the target are its
applications' own: what the source says is no longer what they shall have, and only a person may mean it all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_mirror.errors import InputError, MirrorCutOver
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.permit import Permit, recently, since_boot_s
from airflow_mirror.ledger.decisions import Decisions
from airflow_mirror.plan.direction import Direction, direction
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.requirements import require_active

Required = Callable[[Decisions, Plan, ClusterAdmin], None]
Clock = Callable[[], float]


def still_ours(
    ledger: Decisions, plan: Plan, target: ClusterAdmin, required: Required = require_active, clock: Clock = since_boot_s
) -> Permit:  # fmt: skip
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

    return since_decided(ledger, check, clock)


def since_decided(ledger: Decisions, check: Permit, clock: Clock = since_boot_s) -> Permit:
    """Return a permit that asks again once anything was decided since, and every two seconds all the same.

    Who opens a target waits for nobody who was permitted something a moment before that.
    """
    lately, seen = recently(check, clock), dict[str, Any]()

    def permit() -> None:
        nonlocal seen
        if (now := dict(ledger.values())) == seen:
            lately()  # ids of topics, and who holds a lease, are no decisions
        else:
            check()
            seen = now  # of before the check: what came since is asked about again

    return permit
