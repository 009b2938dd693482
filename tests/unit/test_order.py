"""Tests run in random order, and what is a story is told as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from tests.conftest import stories_in_order


@dataclass(frozen=True)
class Item:
    """A collected test."""

    nodeid: str
    story: bool = False

    @property
    def path(self) -> Path:
        return Path(self.nodeid.partition("::")[0])

    def get_closest_marker(self, name: str) -> str | None:
        return name if self.story else None


def test_only_a_story_keeps_its_order() -> None:
    a, b, c = (Item(f"story.py::{name}", story=True) for name in "abc")
    x, y, z = (Item(f"other.py::{name}") for name in "xyz")
    deselected = Item("story.py::deselected", story=True)
    written, shuffled = cast("Any", [a, deselected, b, c, x, y, z]), cast("Any", [z, x, c, a, b, y])
    told: list[Any] = stories_in_order(written, shuffled)
    assert told == [z, x, a, b, c, y]


def test_order_is_random_by_default(request: pytest.FixtureRequest) -> None:
    if not request.config.pluginmanager.hasplugin("randomly"):
        pytest.skip("an environment without the tools of development")
    assert isinstance(request.config.getoption("randomly_seed"), int)
