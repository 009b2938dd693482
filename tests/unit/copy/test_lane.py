"""Which connection a lane uses: the one that it has, another one, or none yet."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.copy.loop.lane import Lane, Lines


class Line:
    """A connection whose session and whose end the test decides."""

    unsent = ends_soon = is_over = gone = closed = False

    def __init__(self) -> None:
        self._ends = socket.socketpair()

    def fileno(self) -> int:
        return self._ends[0].fileno()

    def close(self) -> None:
        self.closed = True
        for end in self._ends:
            end.close()


class World:
    """A lane with a connection, and connections that are asked for."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.asked: list[Callable[[Any], None]] = []
        dialler: Any = SimpleNamespace(dial=lambda connect, then: self.asked.append(then))
        self._lines, self._selector, self.lane = Lines(dialler, selector), selector, Lane(1)
        assert not self.is_up()
        self.first = self.connect()

    def connect(self) -> Line:
        """Deliver the connection that was asked for."""
        line = Line()
        self.asked.pop()(line)
        return line

    def is_up(self) -> bool:
        return self._lines.is_up(self.lane, lambda: None)  # type: ignore[arg-type, return-value]

    def succeeded(self) -> Line:
        """Return the successor of a session that ends soon, which waits to be used."""
        self.first.ends_soon = True
        assert self.is_up() and self.uses(self.first)
        return self.connect()

    def uses(self, line: Line) -> bool:
        used: object = self.lane.connection
        return [key.fileobj for key in self._selector.get_map().values()] == [line] and used is line

    def close(self) -> None:
        self._lines.abandon(self.lane)


@pytest.fixture
def world() -> Iterator[World]:
    with selectors.DefaultSelector() as selector:
        world = World(selector)
        yield world
        world.close()


def test_successor_is_used_from_the_next_request_on(world: World) -> None:
    successor = world.succeeded()
    assert world.uses(world.first)
    assert world.is_up() and world.uses(successor) and world.first.closed and not world.asked


def test_session_that_is_over_is_not_used(world: World) -> None:
    world.first.ends_soon = world.first.is_over = True
    assert not world.is_up() and world.first.closed and world.lane.comes_up
    assert not world.is_up() and len(world.asked) == 1
    second = world.connect()
    assert world.is_up() and world.uses(second) and not world.asked


def test_session_that_ends_while_another_one_is_asked_for_waits_for_that(world: World) -> None:
    world.first.ends_soon = True
    assert world.is_up()
    world.first.is_over = True
    assert not world.is_up() and len(world.asked) == 1
    second = world.connect()
    assert world.is_up() and world.uses(second)


@pytest.mark.parametrize("over", [False, True])
def test_successor_that_its_broker_closed_meanwhile_is_not_used(world: World, over: bool) -> None:
    successor = world.succeeded()
    successor.gone, world.first.is_over = True, over
    assert world.is_up() is not over and successor.closed
    assert world.first.closed is over and (over or world.uses(world.first))
    assert len(world.asked) == 1, "another one is asked for"
    third = world.connect()
    assert world.is_up() and world.uses(third)


def test_successor_whose_session_is_over_is_not_used(world: World) -> None:
    successor = world.succeeded()
    successor.is_over = True
    assert not world.is_up() and successor.closed and world.first.closed and len(world.asked) == 1
    third = world.connect()
    assert world.is_up() and world.uses(third)
