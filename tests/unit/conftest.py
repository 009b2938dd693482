"""Properties take as long as they take: hypothesis fails an example that is slow, as any may be on a busy machine.

And coverage is noted where it says something. To note each line and branch takes as long as the tests themselves, also
in all that is not ours: so nothing is noted while tests are collected, which imports Airflow, nor of tests with the mark
``repeats``. What these go through hundreds of times counts only where others do, too.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import airflow_mirror
from tests.coverage import PACKAGES

if TYPE_CHECKING:
    from coverage import Coverage

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    if _noted() and not session.config.pluginmanager.hasplugin("dsession"):  # whose workers collect
        for package in PACKAGES:  # to import a module is to go through it
            path = f"{airflow_mirror.__path__[0]}/{package}"
            for module in pkgutil.walk_packages([path], f"airflow_mirror.{package}."):
                importlib.import_module(module.name)
    with unnoted():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("repeats") is None:
        return (yield)
    with unnoted():
        return (yield)


@contextmanager
def unnoted() -> Iterator[None]:
    """Note nothing for a while."""
    stopped: list[Coverage] = []
    while one := _noted():  # in a worker there are two: the first goes on when the second stops
        one.stop()
        stopped.append(one)
    try:
        yield
    finally:
        for one in reversed(stopped):
            one.start()


def _noted() -> Coverage | None:
    """Return what notes lines and branches in this process, if anything does: it need not even be installed."""
    if "coverage" not in sys.modules:
        return None
    from coverage import Coverage

    return Coverage.current()
