"""What tests of armed ways back share."""

from __future__ import annotations

from airflow_mirror.plan.direction import Direction


def raise_(error: Exception) -> None:
    raise error


def one(generation: int, primary: str, attempt: str = "tuesday") -> Direction:
    return Direction(generation=generation, primary=primary, by="rollback", attempt=attempt, plan="p", at="noon")
