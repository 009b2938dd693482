"""What tests of schedules share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def silent() -> Iterator[None]:
    """Not by an attribute of the manager: loggers would remember that they were disabled."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
