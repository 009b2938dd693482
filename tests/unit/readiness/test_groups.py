"""Kinds of groups, as brokers of different ages tell them."""

from __future__ import annotations

import pytest

from airflow_mirror.extras.readiness.groups import TO_DO, Group, groups, kind_of
from airflow_mirror.extras.readiness.waves import waves
from airflow_mirror.kafka.model import CONNECT, STREAMS, GroupInfo


@pytest.mark.parametrize(
    ("info", "kind"),
    [
        (GroupInfo("g", "Stable", "consumer"), "classic consumer"),
        (GroupInfo("g", "Stable", "consumer", group_type="classic"), "classic consumer"),
        (GroupInfo("g", "Stable", "consumer", group_type="consumer"), "consumer protocol"),
        (GroupInfo("g", "Empty", ""), "positions only"),
        (GroupInfo("app", "Empty", "consumer", group_type="classic"), "Kafka Streams"),
        (GroupInfo("g", "Stable", "streams", group_type="streams"), "Kafka Streams"),
        (GroupInfo("g", "Stable", "consumer", application=STREAMS), "Kafka Streams"),
        (GroupInfo("g", "Stable", "consumer", application=CONNECT), "Connect sink"),
        (GroupInfo("g", "Stable", "share", group_type="share"), "share group"),
        (GroupInfo("g", "Stable", "connect", group_type="classic"), "Connect workers"),
        (GroupInfo("connect-sink", "Stable", "consumer", group_type="classic"), "Connect sink"),
        (GroupInfo("g", "Stable", "sr"), "other"),
    ],
)
def test_each_group_has_a_kind_with_something_to_do(info: GroupInfo, kind: str) -> None:
    assert kind_of(info, ["app"]) == kind and TO_DO[kind]


def test_groups_of_other_topics_are_none_of_ours() -> None:
    """One without any position may still be: a share group, workers of Connect, a consumer that begins."""
    every = [GroupInfo(name, "Empty", "consumer") for name in ("billing", "left", "theirs", "new")]
    reads = {"billing": ["orders", "raw"], "left": ["orders"], "theirs": ["raw"]}
    ways = waves(["orders"], {"billing": ["orders"]})
    told = {"kind": "classic consumer", "state": "Empty", "alive": False}
    assert groups(every, (), reads, ways) == [
        Group(name="billing", topics=["orders"], wave=1, **told),
        Group(name="left", topics=["orders"], wave=0, **told),
        Group(name="new", topics=[], wave=0, **told),
    ]
