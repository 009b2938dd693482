"""Who the mirror itself is: demanded, where rights follow, before anything is touched."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_mirror.errors import InvalidField
from airflow_mirror.jobs.driver import following
from airflow_mirror.jobs.request import TailRequest
from airflow_mirror.jobs.runner.status import StatusFile
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.build import build
from tests.builders import request

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLLOWS = Mirror(name="m", source="a", target="b", sync_acls=True, own_principals={"source": "User:CN=m"})
# Neither has any other method: whatever else was asked of a cluster would fail.
SOURCE: Any = SimpleNamespace(role="source", principal=None)
TARGET: Any = SimpleNamespace(role="target", principal=None)
DEMANDED = 'own_principals.*target\'s connection.*{"target": "User:'


def test_a_plan_demands_who_the_mirror_is() -> None:
    with pytest.raises(InvalidField, match=DEMANDED):
        build(FOLLOWS, SOURCE, TARGET)


def test_a_tail_demands_who_the_mirror_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a plan that was made when rights did not follow."""

    @contextmanager
    def admin(role: str) -> Iterator[Any]:
        yield {"source": SOURCE, "target": TARGET}[role]

    monkeypatch.setattr(following, "load", lambda _, role: role)
    monkeypatch.setattr(following, "ClusterAdmin", admin)
    nobody: Any = None
    with pytest.raises(InvalidField, match=DEMANDED):
        following.follow(
            request(TailRequest, FOLLOWS), StatusFile(None), nobody, nobody,
            stopping=threading.Event(),
        )  # fmt: skip
