"""What the comparison behind the fence is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.config import ClientConfig
from airflow_mirror.kafka.model import ConfigEntry
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.configs import LONG_MAX
from airflow_mirror.plan.model import Plan
from airflow_mirror.verify import remaining
from airflow_mirror.verify.bounds import bounds_difference
from airflow_mirror.verify.result import LogBounds
from tests.unit.cutover.builders import a_plan

NOBODY = ClientConfig({"bootstrap.servers": "nobody:1"}, "source")


class FakeTarget:
    """A target on which only ``held`` keeps what is old."""

    def __init__(self, config: ClientConfig, held: str = "orders") -> None:
        self.held = held

    def __enter__(self) -> FakeTarget:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def topic_configs(self, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        open_, by_age = ({"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": ms} for ms in ("-1", "9"))
        return {n: {k: ConfigEntry(value=v) for k, v in (open_ if n == self.held else by_age).items()} for n in names}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The comparisons that were asked for: their pairs and options."""
    calls = []
    monkeypatch.setattr(
        remaining, "compare_partitions", lambda pairs, *_, **options: calls.append((pairs, options)) or []
    )
    monkeypatch.setattr(remaining, "ClusterAdmin", FakeTarget)
    monkeypatch.setattr(remaining, "active_topics", lambda _ledger, plan, _target: {"copied"} & topics_of(plan))
    return calls


def topics_of(plan: Plan) -> set[str]:
    return {t.target_topic for t in plan.topics}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_the_rest_is_compared_in_the_isolation_of_the_copy(asked: list[Any], isolation: str) -> None:
    plan = replace(a_plan("orders"), mirror=Mirror(name="flow", source="src", target="dst", isolation=isolation))
    assert remaining.verify_rest(plan, NOBODY, NOBODY, {TP("orders", 0): 5})({TP("orders", 0): 9}) == []
    [([pair], options)] = asked
    assert (pair.source, pair.start_offset, pair.end_offset) == (TP("orders", 0), 5, 9)
    assert options["isolation"] == isolation


def test_without_a_proof_all_is_compared_from_the_plans_start(asked: list[Any]) -> None:
    plan = a_plan("orders", "users")
    plan = replace(plan, topics=tuple(replace(t, starts={0: 3}) for t in plan.topics))
    remaining.verify_rest(plan, NOBODY, NOBODY)({TP("orders", 0): 9, TP("users", 0): 4})
    [(pairs, _)] = asked
    assert [(p.start_offset, p.end_offset, p.held) for p in pairs] == [(3, 9, True), (3, 4, False)]


def test_what_is_the_mirrors_has_to_be_whole_whatever_its_settings_are(asked: list[Any]) -> None:
    """Somebody has set a retention on the target that is not in production yet: what that took is missing."""
    remaining.verify_rest(a_plan("copied"), NOBODY, NOBODY)({TP("copied", 0): 9})
    [([pair], _)] = asked
    assert pair.held


@pytest.mark.parametrize(("source_start", "missing"), [(0, 0), (20, 20), (50, None), (70, None)])
def test_what_was_proven_has_to_be_there_still(asked: list[Any], source_start: int, missing: int | None) -> None:
    """Somebody has deleted records of the target since: the source has them, and nobody reads them again."""
    remaining.verify_rest(a_plan("copied"), NOBODY, NOBODY, {TP("copied", 0): 100})({TP("copied", 0): 120})
    [([pair], _)] = asked
    found = bounds_difference(pair, LogBounds(source_start, 120, 120), LogBounds(50, 120, 120))
    assert (found.offset if found else None, pair.start_offset) == (missing, 100)


@pytest.mark.parametrize(
    ("policy", "lag", "compacted", "start"),
    [
        ("compact", "0", False, 0), ("compact,delete", "0", False, 0),
        ("compact", LONG_MAX, False, 100), ("delete", "0", False, 100), ("compact", "0", True, 100),
    ],
    ids=["set since", "both", "nothing is old enough", "not compacted", "as planned"],
)  # fmt: skip
def test_what_was_proven_is_compared_again_if_a_cleaner_works_against_the_plan(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch, policy: str, lag: str, compacted: bool, start: int
) -> None:
    """Somebody has set compaction on the target: records are gone since, and neither start nor end of its log tells."""

    def settings(_: FakeTarget, names: list[str]) -> dict[str, dict[str, ConfigEntry]]:
        one = {"cleanup.policy": policy, "min.compaction.lag.ms": lag, "retention.bytes": "-1", "retention.ms": "-1"}
        own = {k: ConfigEntry(value=v, source="DYNAMIC_TOPIC_CONFIG") for k, v in one.items()}
        return dict.fromkeys(names, own)

    monkeypatch.setattr(FakeTarget, "topic_configs", settings)
    plan = a_plan("copied")
    plan = replace(plan, topics=tuple(replace(t, compacted=compacted) for t in plan.topics))
    remaining.verify_rest(plan, NOBODY, NOBODY, {TP("copied", 0): 100})({TP("copied", 0): 120})
    [([pair], _)] = asked
    assert (pair.begin, pair.start_offset) == (0, start)
