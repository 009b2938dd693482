"""Topic settings follow: what is set, what waits for the end of the hold, and what is given up and named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from airflow_mirror.errors import LeaseLost, MissingRight, RequestRefused
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.plan.build import decide
from airflow_mirror.sync.config_follower import ConfigFollower, ConfigReport
from airflow_mirror.sync.configs import ConfigsReport, sync_configs
from airflow_mirror.sync.seen_configs import LastSeen, last_seen, prefix
from airflow_mirror.sync.set_again import STAYED_S, SetAgain
from tests.followed import sides
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic, configs
from tests.unit.plan.test_checks import NOW
from tests.unit.sync.confirmed import Confirmed

NOW_MS = int(NOW.timestamp() * 1000)


class Cluster:
    """Topics and their overrides. ``refuse`` maps a key to what is raised when it is set."""

    wire = None

    def __init__(self, **overrides: Mapping[str, str]) -> None:
        self.overrides = {name: dict(of) for name, of in overrides.items()}
        self.refuse: dict[str, Exception] = {}
        self.defaults: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.set: list[tuple[str, dict[str, str], tuple[str, ...]]] = []

    def topic_names(self) -> list[str]:
        return sorted(self.overrides)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {n: TopicInfo(n, self.ids.get(n, f"id-of-{n}"), 3, 2) for n in names if n in self.overrides}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        more = {
            key: ConfigEntry(value="9", is_default=True, source="DEFAULT_CONFIG") for key in ("flush.ms", "segment.ms")
        }
        more |= {
            key: ConfigEntry(value=value, is_default=True, source="DYNAMIC_DEFAULT_BROKER_CONFIG")
            for key, value in self.defaults.items()
        }
        return {name: configs() | more | self.chosen(name) for name in names}

    def chosen(self, name: str) -> dict[str, ConfigEntry]:
        return {k: ConfigEntry(value=v, source="DYNAMIC_TOPIC_CONFIG") for k, v in self.overrides[name].items()}

    def alter_topic_configs(
        self, topic: str, permit: Permit, to_set: Mapping[str, str], delete: Collection[str]
    ) -> None:  # fmt: skip
        permit()
        for key in (*to_set, *delete):
            if key in self.refuse:
                raise self.refuse[key]
        self.set.append((topic, dict(to_set), tuple(delete)))
        self.overrides[topic] |= to_set
        for key in delete:
            self.overrides[topic].pop(key, None)


class State:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.writes = 0

    def read(self) -> Mapping[str, bytes]:
        return self.values

    def write(self, values: Mapping[str, bytes | None], permit: Permit) -> None:
        permit()
        self.writes += 1
        for key, value in values.items():
            self.values.pop(key, None)
            if value is not None:
                self.values[key] = value


class World:
    """Two topics, copied for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **mirror: Any) -> None:
        topics = a_topic("a", replicas=2, retention_ms="86400000"), a_topic("b", replicas=2)
        self.plan = decide(a_mirror(**mirror), a_cluster(*topics), a_cluster(cluster_id="c2"), (), NOW)
        self.source = Cluster(a={"retention.ms": "86400000"}, b={})
        self.target = Cluster(**{t.target_topic: t.held_configs for t in self.plan.topics})
        self.target.overrides["reference"] = {}
        self.right, self.state, self.now_ms = Confirmed(), State(), NOW_MS
        self.active = {"a", "b"}
        monkeypatch.setattr("airflow_mirror.sync.passes.active_topics", lambda *_: self.active)
        self.follower = self.another()

    def another(self) -> ConfigFollower:
        """The one of a new process."""
        return ConfigFollower(sides(lambda: self.plan, self.source, self.target, self.right, state=self.state))

    def follow(self) -> ConfigReport:
        self.now_ms += 30_000
        return self.follower.follow(self.now_ms)

    def change(self, topic: str, **overrides: str) -> None:
        self.source.overrides[topic] |= {key.replace("_", "."): value for key, value in overrides.items()}

    def end_of_hold(self, source: Any) -> ConfigsReport:
        return sync_configs(self.plan, source, cast("Any", self.target), unfenced, hold=False)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_change_of_the_source_is_set_once_and_said(world: World) -> None:
    assert (world.follow().changed, world.target.set, world.state.values) == (0, [], {})
    world.change("a", segment_ms="60000", min_insync_replicas="2")
    report = world.follow()
    assert world.target.set == [("a", {"min.insync.replicas": "2", "segment.ms": "60000"}, ())]
    assert (report.topics, report.changed) == (2, 2)
    assert report.latest[0].endswith(" a: min.insync.replicas: 1 (default) -> 2")
    del world.source.overrides["a"]["segment.ms"]
    assert world.follow().latest[-1].endswith(" a: segment.ms: 60000 -> the target's default")
    assert "segment.ms" not in world.target.overrides["a"]
    assert world.follow().changed == 0 and len(world.target.set) == 2


def test_what_is_on_hold_waits_and_is_noted(world: World) -> None:
    world.change("a", retention_ms="3600000", cleanup_policy="compact")
    world.target.overrides["b"]["retention.ms"] = "5"  # whoever watches the hold sets that back
    for _ in range(2):
        report = world.follow()
    assert world.target.set == [] and report.changed == 0 and world.state.writes == 1
    assert report.waiting == [
        "a: cleanup.policy: the target's default -> compact", "a: retention.ms: 86400000 -> 3600000",
    ]  # fmt: skip
    assert "2 apply when the mirror has ended, as a: cleanup.policy" in str(report)
    assert last_seen(world.plan, world.state.values)["a"] == {"cleanup.policy": "compact", "retention.ms": "3600000"}
    assert last_seen(world.plan, world.state.values)["b"] == {}


def test_default_that_the_plan_wrote_down_is_no_change(world: World) -> None:
    """When it was made, no topic of the target showed what applies there."""
    a, b = world.plan.topics
    world.plan = replace(world.plan, topics=(a, replace(b, configs={"max.message.bytes": "1048588"})))
    assert world.follow().waiting == [] and world.state.writes == 0
    world.change("b", max_message_bytes="1000000")
    world.target.overrides["b"]["max.message.bytes"] = "1048588"
    assert world.follow().waiting == ["b: max.message.bytes: 1048588 -> 1000000"]


@pytest.mark.parametrize("is_lost", [True, False])
def test_end_of_the_hold_sets_what_the_source_had_last(world: World, is_lost: bool) -> None:
    """With the source or, after a disaster, without: the plan's values are old in both cases."""
    world.change("a", retention_ms="3600000")
    world.follow()
    source = LastSeen(world.plan, world.state.values) if is_lost else world.source
    world.end_of_hold(source)
    assert world.target.topic_configs(["a"])["a"]["retention.ms"].value == "3600000"
    assert world.target.topic_configs(["b"])["b"]["retention.ms"].value == "604800000"
    assert world.end_of_hold(source).drift == ()


def test_default_of_the_target_that_changes_counts_at_the_next_look(world: World) -> None:
    """What equalled it needs an override now: it is noted, and the end without the source sets it."""
    assert world.follow().changed == 0 and world.state.values == {}
    world.target.defaults = {"retention.ms": "3600000", "segment.ms": "60000"}
    report = world.follow()
    assert report.changed == 2 and {changed["segment.ms"] for _, changed, _ in world.target.set} == {"9"}
    assert last_seen(world.plan, world.state.values)["b"] == {"retention.ms": "604800000", "segment.ms": "9"}
    world.end_of_hold(LastSeen(world.plan, world.state.values))
    assert world.target.topic_configs(["b"])["b"]["retention.ms"].value == "604800000"


def test_default_that_cannot_be_seen_any_more_is_as_it_was(world: World) -> None:
    world.follow()
    del world.target.overrides["reference"]  # the others are on hold
    report = world.follow()
    assert report.changed == 0 and report.waiting == [] and world.state.values == {}


def test_the_newer_one_of_note_and_plan_says_what_was_last_seen(world: World) -> None:
    """A tail goes on by its plan when there is a later one, by which a failover goes."""
    world.change("a", retention_ms="3600000")
    world.follow()
    (a, b), at = world.plan.topics, datetime.fromtimestamp(world.now_ms / 1000 + 1, UTC).isoformat()
    later = replace(world.plan, created_at=at, topics=(replace(a, configs={"retention.ms": "7200000"}), b))
    assert last_seen(later, world.state.values)["a"] == {"retention.ms": "7200000"}
    world.change("a", retention_ms="86400000")  # as the tail's own plan has it
    assert world.follow().waiting == []
    for plan in (world.plan, later):
        assert last_seen(plan, world.state.values)["a"] == {"retention.ms": "86400000"}
    assert world.follow().waiting == [] and world.state.writes == 2


def test_note_of_a_newer_version_stays_and_settings_still_follow(world: World) -> None:
    newer = {f"{prefix(world.plan.mirror.name)}a": b'{"v":99}'}
    world.state.values |= newer
    world.change("a", retention_ms="3600000", segment_bytes="2000000000")
    report = world.follow()
    assert report.changed == 1 and "can't read" in report.failed[0] and "'a'" in report.failed[0]
    assert world.state.values == newer


def test_limit_that_is_raised_follows_and_one_that_is_lowered_waits(world: World) -> None:
    world.change("a", max_message_bytes="5000000", segment_bytes="2000000000")
    assert world.follow().changed == 2
    world.change("a", max_message_bytes="2000000")
    report = world.follow()
    assert (report.changed, report.waiting) == (0, ["a: max.message.bytes: 5000000 -> 2000000"])


@pytest.mark.parametrize("planned", [{}, {"segment.bytes": "2000000000"}], ids=["a default", "a value"])
def test_limit_that_is_back_at_what_the_plan_had_is_listed_as_well(world: World, planned: dict[str, str]) -> None:
    """Raised while the mirror writes, and lowered again: the target differs, whatever the plan says."""
    a, b = world.plan.topics
    world.plan = replace(world.plan, topics=(replace(a, configs={**a.configs, **planned}), b))
    world.change("a", segment_bytes="2000000000")
    assert world.follow().waiting == []
    del world.source.overrides["a"]["segment.bytes"]
    for _ in range(2):
        assert world.follow().waiting == ["a: segment.bytes: 2000000000 -> the target's default"]
    world.end_of_hold(world.source)
    assert world.target.topic_configs(["a"])["a"]["segment.bytes"].value == "1073741824"
    assert world.follow().waiting == []


def test_setting_that_its_owner_sets_back_is_given_up_and_named(world: World) -> None:
    """Another value is tried again, and other settings are not held up."""
    world.change("a", segment_ms="60000")
    for time in range(4):
        assert world.follow().changed == 1
        assert world.target.overrides["a"].pop("segment.ms") == "60000", time
    assert world.follow().latest[-1].endswith("-> 60000 (again, 3 of 3 times)")
    world.change("a", flush_ms="7")
    report = world.follow()
    (given_up,) = report.given_up
    assert given_up.startswith(
        "a: segment.ms was set to 60000 3 times again, and is set back by its owner (Strimzi, Terr"
    )
    assert "set back by somebody else: a: segment.ms" in report.to_dict()["said"][0]
    assert world.target.set[-1] == ("a", {"flush.ms": "7"}, ())
    world.target.overrides["a"]["segment.ms"] = "60000"
    assert world.follow().given_up == []  # its owner has changed it
    world.change("a", segment_ms="61000")
    assert world.follow().changed == 1


@pytest.mark.parametrize("before, after", [(3, 1), (4, 5)])
def test_value_that_had_stayed_counts_anew_unless_it_is_given_up(before: int, after: int) -> None:
    now = 0.0
    counted = SetAgain(lambda: now)
    for _ in range(before):
        counted.count("a", "segment.ms", "1")
    now = STAYED_S - 1
    assert counted.times("a", "segment.ms", "1") == before
    now = STAYED_S
    assert counted.count("a", "segment.ms", "1") == after and counted.by_topic() == {"a": before + 1}


def test_refused_value_is_told_in_the_brokers_words_and_not_tried_again(world: World) -> None:
    """It keeps no other setting of the topic back."""
    world.target.refuse["segment.ms"] = RequestRefused("alter", 44, "POLICY_VIOLATION", "rolls too often")
    world.change("a", segment_ms="1", flush_ms="7")
    report = world.follow()
    assert (report.changed, report.refused) == (1, ["a: segment.ms=1: POLICY_VIOLATION: rolls too often"])
    world.target.refuse.clear()
    assert world.follow().refused == report.refused and len(world.target.set) == 1
    world.change("a", segment_ms="60000")
    assert (world.follow().refused, world.target.overrides["a"]["segment.ms"]) == ([], "60000")


def test_missing_right_is_said_and_tried_again(world: World) -> None:
    world.target.refuse["segment.ms"] = MissingRight("alter", "a", "User:m")
    world.change("a", segment_ms="1")
    world.change("b", flush_ms="1")
    report = world.follow()
    assert (report.changed, len(report.failed)) == (1, 1) and "User:m" in report.failed[0]
    world.target.refuse.clear()
    assert world.follow().changed == 1


def test_more_replicas_than_there_are_would_stop_the_copy(world: World) -> None:
    world.change("a", min_insync_replicas="3", segment_ms="1")
    report = world.follow()
    assert (report.changed, report.left_out) == (1, ["a: min.insync.replicas is 3 on the source, replicas here are 2"])
    world.target.topics = lambda names: {}  # type: ignore[method-assign]  # deleted meanwhile: who sets it is told
    assert world.follow().left_out == []


def test_topics_that_are_not_the_mirrors_are_left_out(world: World) -> None:
    """In production, gone, or created again on the source."""
    for topic in "ab":
        world.change(topic, segment_ms="1")
    world.active.discard("a")
    world.source.ids["b"] = "another"
    report = world.follow()
    assert (report.topics, report.changed, world.target.set) == (0, 0, [])
    assert [line.partition(":")[0] for line in report.left_out] == ["a", "b"] and "created again" in report.left_out[1]
    world.active.add("a")
    del world.source.overrides["a"]
    assert "no such topic" in world.follow().left_out[0]


@pytest.mark.parametrize("again", ["another id", None], ids=["created again", "deleted"])
def test_settings_of_a_topic_that_takes_the_name_amid_a_look_are_not_taken(world: World, again: str | None) -> None:
    """They are the new one's, and nobody knows whether the old one ever had them."""
    read = world.source.topic_configs

    def topic_configs(names: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
        world.change("a", segment_ms="60000", retention_ms="1")
        found = read(names)
        world.source.ids |= {"a": again} if again else {}
        if not again:
            del world.source.overrides["a"]
        return found

    world.source.topic_configs = topic_configs  # type: ignore[method-assign]
    report = world.follow()
    assert (report.topics, world.target.set, world.state.values) == (1, [], {})
    assert report.left_out[0].startswith("a: the source") and not report.waiting


@pytest.mark.parametrize("confirmed", [1, 2])
def test_job_that_lost_the_lease_sets_and_notes_nothing_more(world: World, confirmed: int) -> None:
    world.change("a", segment_ms="60000", retention_ms="5")
    world.right.left = confirmed
    with pytest.raises(LeaseLost):
        world.follow()
    assert world.target.set == [] and len(world.state.values) == confirmed - 1
    world.right.left = 100
    world.follower = world.another()
    assert world.follow().changed == 1 and last_seen(world.plan, world.state.values)["a"]["retention.ms"] == "5"


def test_kept_and_excluded_settings_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, keep_configs=["retention.ms"], exclude_configs=["segment.*"])
    world.change("a", retention_ms="5", segment_ms="5", segment_bytes="5000000", flush_ms="5")
    assert world.follow().waiting == [] and world.target.set == [("a", {"flush.ms": "5"}, ())]
    world.end_of_hold(LastSeen(world.plan, world.state.values))
    assert world.target.overrides["a"]["retention.ms"] == "86400000"  # with which the mirror created it


def test_topics_that_join_the_plan_follow_too(world: World) -> None:
    both, world.plan = world.plan, replace(world.plan, topics=world.plan.topics[:1])
    world.change("b", segment_ms="5")
    assert (world.follow().topics, world.target.set) == (1, [])
    world.plan = both
    assert (world.follow().topics, len(world.target.set)) == (2, 1)


def test_report_stays_small_however_much_there_is(world: World) -> None:
    report = ConfigReport(topics=9, waiting=[f"{n:04}: {'x' * 1000}" for n in range(1000)])
    found = report.to_dict()
    assert found["waiting"]["count"] == 1000 and len(str(found)) < 5000
