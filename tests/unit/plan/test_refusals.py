"""What the target would refuse of a plan: of topics to create, and of changes to those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from airflow_mirror.common.policy import DECISIONS, STATE, WISHES
from airflow_mirror.errors import BrokerError, MirrorError, RequestRefused
from airflow_mirror.kafka import session
from airflow_mirror.kafka.model import NewConfigs, NewTopicSpec
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.configs import HELD_OPEN
from airflow_mirror.plan.inventory import Refusal, TopicState
from airflow_mirror.plan.refusals import refusals, refused_ledger
from airflow_mirror.wire.error_codes import error_name
from airflow_mirror.wire.errors import ConnectionLost, refusal
from tests.unit.plan.builders import DEFAULTS, a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW

DAY, WEEK = "86400000", "604800001"  # a default of a week needs no override
MIRROR = a_mirror(topics=[".*"])


class Target:
    """A cluster that keeps nothing for longer than a day, unless it is for ever.

    Somebody has just created ``late``, and ``closed`` may not be altered: the copy says so, in the words for that.
    """

    def __init__(self, *topics: str) -> None:
        self.topics, self.forever = topics, True
        self.created, self.altered = list[str](), list[Mapping[str, NewConfigs]]()

    def refused_topics(self, specs: list[NewTopicSpec]) -> dict[str, MirrorError]:
        said: dict[str, tuple[int, str, str]] = {}
        for spec in specs:
            self.created.append(spec.name)
            if unknown := set(spec.configs) - set(DEFAULTS):
                said[spec.name] = 40, "INVALID_CONFIG", f"Unknown topic config name: {unknown.pop()}"
            elif too_long := self._too_long(spec.configs):
                said[spec.name] = too_long
            elif spec.partitions > 6:
                said[spec.name] = 44, "POLICY_VIOLATION", "at most 6 partitions"
            elif spec.name.replace(".", "_") in self.topics:
                said[spec.name] = 17, "INVALID_TOPIC_EXCEPTION", f"collides with {spec.name.replace('.', '_')}"
        return {
            **{name: RequestRefused("create", *words) for name, words in said.items()},
            "late": BrokerError("create", 36, "TOPIC_ALREADY_EXISTS"),
        }

    def refused_configs(self, changes: Mapping[str, NewConfigs]) -> dict[str, MirrorError]:
        self.altered.append(changes)
        said = {name: self._too_long(change.set) for name, change in changes.items()}
        return {
            **{name: RequestRefused("alter", *words) for name, words in said.items() if words},
            "closed": refusal("alter", 29, "AlterConfigs", "closed", "User:mirror"),
        }

    def _too_long(self, configs: Mapping[str, str]) -> tuple[int, str, str] | None:
        retention = int(configs.get("retention.ms", "1"))
        if retention > int(DAY):
            return 44, "POLICY_VIOLATION", "at most a day"
        return (44, "POLICY_VIOLATION", "not for ever") if retention < 0 and not self.forever else None


def asked(
    target: Target, *topics: TopicState, there: Sequence[TopicState] = (), mirror: Mirror = MIRROR
) -> dict[str, Refusal]:  # fmt: skip
    """Return what the target refuses of a plan for these topics of the source."""
    source = a_cluster(*(topics or there))
    target_side = a_cluster(*there, a_topic("d"), cluster_id="c2")
    plan = decide(mirror, source, target_side, (), NOW)
    return refusals(target, mirror, plan.topics, source.topics, target_side)


def test_each_topic_is_validated_with_its_own_name_and_partitions() -> None:
    """On hold, and as it is afterwards."""
    target = Target("team_orders")
    wide = a_topic("wide", spans=((0, 0),) * 8)
    assert asked(target, a_topic("a"), a_topic("team.orders"), wide) == {
        "team.orders": Refusal(17, "INVALID_TOPIC_EXCEPTION: collides with team_orders"),
        "wide": Refusal(44, "POLICY_VIOLATION: at most 6 partitions"),
    }
    assert target.created == ["a", "team.orders", "wide"] * 2


def test_what_the_target_has_against_the_hold_is_told_apart() -> None:
    target = Target()
    week = [a_topic(name, retention_ms=WEEK) for name in "ab"]
    said = "POLICY_VIOLATION: at most a day"
    assert asked(target, *week) == dict.fromkeys("ab", Refusal(44, said, on_hold=False))
    target.forever = False
    assert asked(target, *week) == dict.fromkeys("ab", Refusal(44, f"{said}; on hold POLICY_VIOLATION: not for ever"))
    (hold,) = asked(target, a_topic("a", retention_ms="1000")).values()
    assert hold.words == "POLICY_VIOLATION: not for ever"
    assert hold.hold["retention.ms"] == "-1" and "max.message.bytes" not in hold.hold


def test_topic_that_exists_is_validated_with_what_would_change() -> None:
    """Nothing was asked about it: the copy found out, with other topics created already."""
    target = Target()
    target.forever = False
    there = [a_topic("a", retention_ms="1000"), a_topic("b", **{k.replace(".", "_"): v for k, v in HELD_OPEN.items()})]
    found = asked(target, a_topic("a", retention_ms="1000"), a_topic("b", retention_ms="1000"), there=there)
    assert found == {"a": Refusal(44, "POLICY_VIOLATION: not for ever", found["a"].hold)} and target.created == []
    assert found["a"].hold == {"retention.ms": "-1", "message.timestamp.after.max.ms": "9223372036854775807"}
    on_hold, later = target.altered
    assert not on_hold["b"] and later["b"].set["retention.ms"] == "1000"  # it is on hold already
    assert not later["a"]


def test_settings_of_the_source_are_refused_of_a_topic_that_exists_too() -> None:
    target = Target()
    found = asked(target, a_topic("a", retention_ms=WEEK), there=[a_topic("a", retention_ms="1000")])
    assert found == {"a": Refusal(44, "POLICY_VIOLATION: at most a day", on_hold=False)}
    keeps = a_mirror(topics=[".*"], keep_configs=["retention.ms"])  # the remedy
    assert not asked(target, a_topic("a", retention_ms=WEEK), there=[a_topic("a", retention_ms="1000")], mirror=keeps)


@pytest.mark.parametrize("code", sorted(session._REFUSED))
def test_whatever_the_target_would_say_each_time_is_found_with_its_words(code: int) -> None:
    target, name = Target(), error_name(code)
    refused = RequestRefused("create", code, name, "not that")
    target.refused_topics = lambda specs: {spec.name: refused for spec in specs}  # type: ignore[method-assign]
    assert asked(target, a_topic("a")) == {"a": Refusal(code, f"{name}: not that")}


def test_a_policy_that_fails_is_found_and_hides_no_refusal() -> None:
    target, name = Target(), "UNKNOWN_SERVER_ERROR"
    failed = BrokerError("create", -1, name, "java.lang.NullPointerException")
    target.refused_topics = lambda specs: {spec.name: failed for spec in specs}  # type: ignore[method-assign]
    assert asked(target, a_topic("a")) == {"a": Refusal(-1, f"{name}: java.lang.NullPointerException")}
    said = iter([RequestRefused("create", 44, "POLICY_VIOLATION", "not for ever"), failed])  # on hold, afterwards
    target.refused_topics = lambda specs: {spec.name: next(said) for spec in specs}  # type: ignore[method-assign]
    assert asked(target, a_topic("a"))["a"].code == 44


AWAY = (
    BrokerError("create", 7, "REQUEST_TIMED_OUT"), BrokerError("create", 41, "NOT_CONTROLLER"),
    ConnectionLost("target", "b:9092", "CreateTopics", "timed out"),
)  # fmt: skip


@pytest.mark.parametrize("away", AWAY, ids=str)
def test_what_the_target_did_not_answer_is_not_taken(away: MirrorError) -> None:
    """Its controller is elected anew: that it has nothing against the topics is not known."""
    target = Target()
    target.refused_topics = lambda specs: {spec.name: away for spec in specs}  # type: ignore[method-assign]
    target.refused_configs = lambda changes: dict.fromkeys(changes, away)  # type: ignore[method-assign]
    here, there = a_cluster(a_topic("a"), a_topic("b")), a_cluster(a_topic("a", spans=((0, 0),) * 3), cluster_id="c2")
    plan = decide(MIRROR, here, there, (), NOW)
    found = refusals(target, MIRROR, plan.topics, here.topics, there)
    assert found == dict.fromkeys("ab", Refusal(None, str(away)))
    ledger = refused_ledger(Kept(away=away), [])  # type: ignore[arg-type]
    assert ledger == dict.fromkeys([DECISIONS, STATE, WISHES], Refusal(None, str(away)))
    told = decide(MIRROR, here, replace(there, refused=found, refused_ledger=ledger), (), NOW).findings
    said = [(f.level, f.object, f.evidence) for f in told if f.check in ("refused_configs", "ledger_topics")]
    assert said == [
        *(("warn", f"ledger topic {topic!r}", f"not known: {away}") for topic in ledger),
        ("warn", "2 of 2 topics", f"not known: a: {away}, b: {away}"),
    ]


def test_one_form_of_a_topic_that_is_refused_says_enough() -> None:
    target, away = Target(), AWAY[0]
    said = iter([RequestRefused("create", 44, "POLICY_VIOLATION", "not for ever"), away])  # on hold, afterwards
    target.refused_topics = lambda specs: {spec.name: next(said) for spec in specs}  # type: ignore[method-assign]
    assert asked(target, a_topic("a")) == {"a": Refusal(44, "POLICY_VIOLATION: not for ever")}


class Kept:
    """A cluster that has some of the ledger's topics, and refuses what is to be kept for ever.

    :param away: what it says instead, while its controller is away.
    """

    def __init__(self, *topics: str, away: MirrorError | None = None) -> None:
        self.there, self.asked, self.away = topics, list[NewTopicSpec](), away

    def topics(self, names: Iterable[str]) -> dict[str, None]:
        return {name: None for name in names if name in self.there}

    def broker_count(self) -> int:
        self.counted = getattr(self, "counted", 0) + 1
        return 5

    def refused_topics(self, specs: list[NewTopicSpec]) -> dict[str, MirrorError]:
        self.asked += specs
        if self.away is not None:
            return {spec.name: self.away for spec in specs}
        forever = [spec.name for spec in specs if spec.configs.get("retention.ms") == "-1"]
        return {name: RequestRefused("create", 44, "POLICY_VIOLATION", "at most a day") for name in forever}


def test_the_ledgers_own_topics_are_asked_for_where_they_are_missing() -> None:
    target = Kept(STATE)
    assert refused_ledger(target, []) == {DECISIONS: Refusal(44, "POLICY_VIOLATION: at most a day")}  # type: ignore[arg-type]
    assert [spec.name for spec in target.asked] == [DECISIONS, WISHES] and target.counted == 1
    assert {spec.replication_factor for spec in target.asked} == {3}


def test_a_ledger_that_is_there_is_not_asked_about() -> None:
    target = Kept(DECISIONS, STATE, WISHES)
    assert refused_ledger(target, []) == {} and target.asked == []  # type: ignore[arg-type]
