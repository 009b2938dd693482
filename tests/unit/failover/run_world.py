"""What tests of whole failovers share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_mirror.plan.direction import direction, turn


def anew(values: Any) -> Any:
    """Turn the direction, as a way back does."""
    decided = direction(values, "m")
    assert decided is not None
    return turn("m", replace(decided, generation=decided.generation + 1, by="cutover"))
