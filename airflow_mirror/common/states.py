"""A table of states: what happens leads from one to the next. It is walked, tested, and drawn for the docs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class IllegalTransition(RuntimeError):
    """An event that must not happen in this state: who walks the table no longer knows what is in flight."""


class Table(Generic[S, E]):
    """The transitions of one kind of thing.

    :param what: the thing, for errors: ``a partition's copy``.
    :param rows: by state and event, the next state. :param start: the first. :param ended: the last ones.
    """

    def __init__(self, what: str, rows: Mapping[S, Mapping[E, S]], start: S, ended: Collection[S]) -> None:
        self._what, self.rows, self.start, self.ended = what, rows, start, ended

    def after(self, state: S, event: E) -> S:
        """Return the next state.

        :raises IllegalTransition: the table has none for this event.
        """
        try:
            return self.rows[state][event]
        except KeyError:
            raise IllegalTransition(f"{self._what} can't {event.value} while it is {state.value}") from None

    def drawing(self) -> str:
        """Return the table as a Mermaid diagram, as shown in `docs/design.md`."""
        lines = ["stateDiagram-v2", "    direction LR", f"    [*] --> {self.start.value}"]
        lines += [f"    {a.value} --> {b.value}: {e.value}" for a, row in self.rows.items() for e, b in row.items()]
        return "\n".join([*lines, *(f"    {state.value} --> [*]" for state in type(self.start) if state in self.ended)])
