"""Which topics a split takes, and which groups move with them."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console import split
from airflow_mirror.errors import InputError
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror

STATE = "app-totals-changelog"
WHOLE = plan_of(
    a_mirror(name="all"), *(topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in ("orders", STATE, "users"))
)


def parts(topics: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what passes, of a source with a Streams application that reads orders, and a group that stays."""
    monkeypatch.setattr(split, "_last", lambda name, *_: WHOLE if name == "all" else None)
    offsets = {"app": {TopicPartition("orders", 0): GroupPosition(7)}}
    source: Any = SimpleNamespace(
        groups=lambda: [GroupInfo(name, "Stable", "consumer") for name in ("app", "connect-sink")],
        groups_offsets=lambda names: {name: offsets[name] for name in names},
        topic_names=lambda: [t.source_topic for t in WHOLE.topics],
    )
    nothing: Any = None
    return split._parts(Namespace(mirror="all", to="wave", topics=topics), source, nothing, nothing)


def test_streams_application_is_not_parted_from_its_changelogs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody commits positions there, so it was: its state would have been in another cutover than its input."""
    for one in ("orders", "app-.*"):
        with pytest.raises(InputError, match=f"group 'app' also reads .*{STATE}, orders"):
            parts(one, monkeypatch)
    part, rest, _, groups = parts("orders,app-.*", monkeypatch)
    assert [t.source_topic for t in part.topics] == [STATE, "orders"] and groups == ["app"]
    assert [t.source_topic for t in rest.topics] == ["users"]
    assert parts("users", monkeypatch)[3] == []
