"""What a follower is given, of which a test names what matters to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.passes import Sides


def sides(plan: Plan | Callable[[], Plan], source: Any, target: Any, right: Any, **given: Any) -> Sides:
    """Return it; the Mirror is the plan's of now unless one is given."""
    now: Callable[[], Plan] = (lambda: plan) if isinstance(plan, Plan) else plan
    unused: dict[str, Any] = {"mirror": now().mirror} | dict.fromkeys(("ledger", "state", "maps", "take_in"))
    nothing: dict[str, Any] = {"gone": dict, "moved": lambda *_: None}
    return Sides(plan=now, source=source, target=target, right=right, **{**unused, **nothing, **given})
