"""One world for the tests of the follower of groups."""

from __future__ import annotations

import pytest

from tests.unit.sync.following.world import World


@pytest.fixture
def world() -> World:
    return World()
