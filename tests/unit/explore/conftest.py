"""The explorer's actors are greenlets, between which a tracer loses its place: what ran later would not be counted."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _untraced() -> Iterator[None]:
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)
