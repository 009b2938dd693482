"""What is closed when the ``with`` block ends that it is used in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A base for classes that hold connections."""

    @abstractmethod
    def close(self) -> None:
        """Close what is held; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
