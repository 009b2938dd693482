"""What a Mirror names and nothing has, and what is left out for its name alone, is said by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.policy import DRILL_PREFIX
from airflow_mirror.compat.keys import DEFAULTS
from airflow_mirror.errors import NothingMatches, TryAgain
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.selection import DELETED, HIDDEN, absent_topics, gone_topics, select_topics
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import levels, plan
from tests.unit.plan.test_store import FakeCluster

INTERNAL = ("__app", ".hidden", "mm2-own-internal", "x.checkpoints.internal")
KAFKAS = ("__consumer_offsets", "__transaction_state", "__share_group_state", "airflow-mirror.decisions")


def made(
    *topics: str, gone: tuple[str, ...] = (), absent: dict[str, str] | None = None, goes_on: bool = False, **fields: Any
) -> Plan:
    """A plan of a mirror of a source that has these topics, and ``ok``."""
    mirror = a_mirror(**fields)
    here = a_cluster(*(a_topic(n) for n in ("ok", *topics) if mirror.selects_topic(n)), groups={"app": {"ok-0": 5}})
    here = replace(here, names=("ok", *topics), gone=gone, absent=absent or {}, goes_on=goes_on)
    return plan(here, mirror=mirror)


def said(one: Plan, check: str) -> list[tuple[str, str]]:
    return [(f.level, f"{f.object}: {f.evidence}") for f in one.findings if f.check == check]


def test_topics_whose_names_look_internal_are_listed() -> None:
    assert said(made(*INTERNAL, *KAFKAS), "internal_topics") == [
        ("warn", "4 topics: they are left out, because their names look internal: " + ", ".join(sorted(INTERNAL)))
    ]
    assert levels(made(*INTERNAL, exclude_topics=["_.*", "[.]hidden", ".*internal"]), "internal_topics") == ["pass"]
    assert levels(made(*INTERNAL, topics=["o.*"]), "internal_topics") == ["pass"], "nobody asked for them"
    assert levels(made(*KAFKAS), "internal_topics") == ["pass"], "nobody means them"
    assert levels(made(f"{DRILL_PREFIX}1"), "internal_topics") == ["pass"], "nor what is gone when the drill is over"


@pytest.mark.parametrize("name", [*INTERNAL, *KAFKAS])
def test_one_that_is_named_blocks(name: str) -> None:
    (finding,) = [f for f in made(name, topics=["ok", name]).findings if f.check == "internal_topics"]
    assert (finding.level, finding.object) == ("block", f"topics: {name!r}") and "left out" in finding.evidence
    assert ("internal_topics=True" in finding.remedy) == (name in INTERNAL)


@pytest.mark.parametrize("policy", ["identity", "prefix"])
def test_on_request_they_are_copied_and_kafkas_own_are_not(policy: str) -> None:
    one = made(*INTERNAL, *KAFKAS, internal_topics=True, policy=policy)
    assert sorted(t.source_topic for t in one.topics) == sorted(("ok", *INTERNAL)) and not one.blocks
    assert levels(made(*KAFKAS, topics=["ok", *KAFKAS], internal_topics=True), "internal_topics") == ["block"] * len(
        KAFKAS
    )


def test_where_nothing_else_matches_the_error_says_why() -> None:
    source: Any = FakeCluster(dict.fromkeys([*INTERNAL, "other"], "i"))
    with pytest.raises(NothingMatches, match="names look internal: __app. internal_topics=True"):
        select_topics(a_mirror(topics=["__app"]), source)
    with pytest.raises(NothingMatches, match="match no topic on the source") as caught:
        select_topics(a_mirror(topics=["okk"]), source)
    assert "internal" not in str(caught.value)


def test_a_name_that_no_topic_has_blocks_and_a_pattern_warns() -> None:
    """Somebody who lists two topics, and gets one without a word, finds out after the cutover."""
    assert said(made("orders", topics=["ok", "okk", "orders.eu", "pay.*"]), "unmatched") == [
        ("block", "topics: 'okk': the source has no such topic. The nearest known is 'ok'"),
        ("block", "topics: 'orders.eu': the source has no such topic. The nearest known is 'orders'"),
        ("warn", "topics: 'pay.*': no topic of the source matches it"),
    ]
    assert said(made(topics=["ok", "(later)"]), "unmatched") == [
        ("warn", "topics: '(later)': no topic of the source matches it")
    ]
    assert levels(made(), "unmatched") == ["pass"]


def test_a_topic_that_was_deleted_on_the_source_since_blocks_nothing() -> None:
    """A tail that is started again at night must not ask for a person."""
    one = made(topics=["ok", "old"], gone=("old",))
    assert said(one, "unmatched") == [("warn", "topics: 'old': the source has no such topic any more")]
    mirror, target = (
        a_mirror(topics=["ok", "old", "never", "o.*", "__x"], policy="prefix"),
        FakeCluster({"kafka_dc1.old": "i"}),
    )
    gone: Any = gone_topics(mirror, ["ok"], target)  # type: ignore[arg-type]
    assert gone == ("old",)


def test_topic_of_the_last_plan_that_is_not_listed_any_more_is_hidden_or_deleted() -> None:
    """Kafka leaves out of its list what may not be described, and says no error."""
    mirror = a_mirror(topics=[r"orders\..*"], exclude_topics=["orders.x"])
    before = [f"orders.{one}" for one in "abcdx"] + ["users"]  # another Mirror's by now: x, and users
    source: Any = FakeCluster({"orders.a": "i", "orders.b": "i", "orders.x": "i"}, hidden=["orders.b", "orders.c"])
    found = absent_topics(mirror, ["orders.a"], before, source)
    assert found == {"orders.b": HIDDEN, "orders.c": HIDDEN, "orders.d": DELETED}
    assert absent_topics(mirror, ["orders.a"], ["orders.a", "users"], None) == {}  # type: ignore[arg-type]
    late: Any = FakeCluster({"orders.a": "i", "orders.b": "i"}, hidden=["orders.c"])
    with pytest.raises(TryAgain, match=r"a broker of the source does not list orders\.b, and has them"):
        absent_topics(mirror, ["orders.a"], before, late)


def test_hidden_topic_of_the_last_plan_blocks_and_a_deleted_one_warns() -> None:
    """Else the next plan, and a cutover by it, would be without it, and nobody be told."""
    (hidden, deleted) = said(made(absent={"orders.b": HIDDEN, "orders.d": DELETED}), "absent_topics")
    assert hidden == (
        "block",
        "1 topic: the last plan has them, and the source hides them: the principal may not DESCRIBE them: orders.b",
    )
    assert deleted[0] == "warn" and "no such topics any more: orders.d" in deleted[1]
    going_on = made(absent={"orders.b": HIDDEN}, goes_on=True)
    assert levels(going_on, "absent_topics") == ["warn"], "a job that starts at night by itself copies what it can"
    assert levels(made(), "absent_topics") == ["pass"]


def test_what_became_of_a_name_is_said_once() -> None:
    one = made(topics=["ok", "old"], gone=("old",), absent={"old": DELETED})
    assert (levels(one, "unmatched"), levels(one, "absent_topics")) == (["warn"], ["pass"])
    one = made(topics=["ok", "old"], gone=("old",), absent={"old": HIDDEN})
    assert (levels(one, "unmatched"), levels(one, "absent_topics")) == (["pass"], ["block"])


def test_a_misspelt_name_is_no_missing_right_on_the_target() -> None:
    """To whom the mirror's topics alone are granted, the target hides the name that a slip would have there."""

    target = FakeCluster({"kafka_dc1.old": "i"}, hidden=["kafka_dc1.userz"])
    mirror = a_mirror(topics=["users", "userz", "old"], policy="prefix")
    assert gone_topics(mirror, ["users"], target) == ("old",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"exclude_topics": ["okk", "x.*"]}, "exclude_topics: 'okk': it is no topic of the source. The nearest known "
         "is 'ok'"),
        ({"groups": ["app", "ap p"]}, "groups: 'ap p': it is no group of the source. The nearest known is 'app'"),
        ({"groups": [r"ap\.p"]}, "groups: 'ap\\\\.p': it is no group of the source. The nearest known is 'app'"),
        ({"exclude_groups": ["billing"]}, "exclude_groups: 'billing': it is no group of the source"),
        ({"exclude_configs": ["retention.m"]}, "exclude_configs: 'retention.m': it is no setting of a topic. The nearest "
         "known is 'retention.ms'"),
        ({"keep_configs": ["retention.ms", "nonsense"]}, "keep_configs: 'nonsense': it is no setting of a topic"),
    ],
)  # fmt: skip
def test_other_names_that_nothing_has_warn(fields: dict[str, Any], line: str) -> None:
    assert said(made(**fields), "unmatched") == [("warn", line)]


def test_what_mirrormaker_excludes_by_default_is_no_slip() -> None:
    """Its list has a setting that Kafka 4.0 has removed."""
    excluded = DEFAULTS["config.properties.exclude"].split(",")
    one = made(exclude_configs=excluded, exclude_topics=DEFAULTS["topics.exclude"].split(","))
    assert "message.timestamp.difference.max.ms" in excluded and levels(one, "unmatched") == ["pass"]
