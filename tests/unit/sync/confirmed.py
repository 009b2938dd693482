"""A right to write that a test can take away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_mirror.errors import LeaseLost
from airflow_mirror.kafka.permit import Permit, unfenced


class Confirmed:
    """Stands for :class:`airflow_mirror.sync.write_permit.Right`; ``left`` requests are confirmed."""

    def __init__(self) -> None:
        self.left = 1000

    def confirm(self, target: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise LeaseLost("airflow-mirror.m", 3, "epoch 5")

    @contextmanager
    def granted(self, target: Any) -> Iterator[Permit]:
        self.confirm(target)
        yield unfenced
