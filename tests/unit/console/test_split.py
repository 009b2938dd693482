"""Which topics a split takes, and which groups move with them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console import split
from airflow_mirror.errors import InputError, MissingRight
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.plan import Plan
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror

STATE = "app-totals-changelog"
WHOLE = plan_of(
    a_mirror(name="all"), *(topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in ("orders", STATE, "users"))
)


def parts(
    topics: str, monkeypatch: pytest.MonkeyPatch, whole: Plan = WHOLE, hidden: tuple[str, ...] = (),
    listed: tuple[str, ...] = ("app", "connect-sink"),
) -> Any:  # fmt: skip
    """Return what passes, of a source with a Streams application that reads orders, and a group that stays.

    :param hidden: groups for which the principal lacks DESCRIBE, as for ``*`` then.
    """
    monkeypatch.setattr(split, "_last", lambda name, *_: whole if name == "all" else None)
    monkeypatch.setattr(split, "hides_groups", lambda _: bool(hidden))
    offsets = {"app": {TopicPartition("orders", 0): GroupPosition(7)}}

    def groups_offsets(names: list[str]) -> dict[str, Any]:
        if denied := {*names} & {*hidden}:
            raise MissingRight(f"read offsets of consumer group {denied}", "GROUP_AUTHORIZATION_FAILED", "User:me")
        return {name: offsets.get(name, {}) for name in names}

    source: Any = SimpleNamespace(
        groups=lambda: [GroupInfo(name, "Stable", "consumer") for name in listed if name not in hidden],
        groups_offsets=groups_offsets,
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


def test_topics_of_groups_that_nobody_sees_are_not_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka lists what may be described: "none" moved with the topics, and the group was torn."""
    with pytest.raises(InputError, match=r"read these topics may be hidden: the principal lacks DESCRIBE on group \*"):
        parts("orders", monkeypatch, hidden=("other",))
    assert parts("users", monkeypatch, replace(WHOLE, mirror=replace(WHOLE.mirror, groups=[])), ("other",))[3] == []


def test_groups_that_the_mirror_or_its_plan_names_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    named = replace(WHOLE, mirror=replace(WHOLE.mirror, groups=["app", "gone"]))
    assert parts("orders,app-.*", monkeypatch, named, ("other",))[3] == ["app"]
    with pytest.raises(MissingRight, match="consumer group {'app'}"):
        parts("orders,app-.*", monkeypatch, named, ("app",))
    noted = replace(WHOLE, positions={"app": {"orders": {0: 7}}, "gone": {"users": {0: 1}}})
    with pytest.raises(InputError, match="group 'app' also reads .*orders"):
        parts(STATE, monkeypatch, noted, listed=())  # as where its coordinator is away
    assert parts("users", monkeypatch, noted, listed=())[3] == []
