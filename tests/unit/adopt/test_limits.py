"""What refuses to be taken over, and which option would allow it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.extras.adopt.examine import Limits, _cleaned
from airflow_mirror.extras.adopt.matching import KINDS, Match
from airflow_mirror.kafka.model import ConfigEntry
from tests.unit.cutover.builders import a_plan

CLEAN = Match(
    source=TopicPartition("orders", 0), target=TopicPartition("A.orders", 0), source_end=100, target_start=0,
    target_end=100, records=100, copies=100, counts=dict.fromkeys(KINDS, 0),
)  # fmt: skip


def one(kind: str, count: int) -> Match:
    return replace(CLEAN, counts={**CLEAN.counts, kind: count}, ranges={kind: [(3, 3 + count)]})


@pytest.mark.parametrize("kind", ["repeated", "aborted", "older", "left out at the start"])
def test_what_is_only_reported_refuses_nothing(kind: str) -> None:
    assert list(Limits().refusals(one(kind, 50))) == []


@pytest.mark.parametrize("kind", ["missing", "unknown"])
def test_what_is_missing_or_unknown_is_refused_up_to_its_limit(kind: str) -> None:
    (reason,) = Limits().refusals(one(kind, 5))
    assert f"5 records {kind}" in reason and f"(--max-{kind})" in reason and "[3, 8)" in reason
    assert list(Limits(missing=5, unknown=5).refusals(one(kind, 5))) == []
    assert list(Limits(missing=4, unknown=4).refusals(one(kind, 5)))
    assert list(Limits().refusals(replace(one(kind, 5), compacted=True))) == []


def test_partition_of_which_no_copy_is_left_is_refused() -> None:
    """It passed, and the tail copied again whatever the source still had."""
    gone = replace(CLEAN, records=0, copies=0, target_start=500, target_end=500, source_records=100)
    (reason,) = Limits(ambiguous=1, missing=999, unknown=999).refusals(gone, 449)
    assert reason.startswith("A.orders-0: none of the copies is left, up to offset 500, and nobody can tell which")
    assert "100 records were copied (MirrorMaker 2 says it has replicated offset 449, and may have sent more)" in reason
    (reason,) = Limits().refusals(gone)
    assert "MirrorMaker 2 says" not in reason
    assert list(Limits().refusals(replace(gone, source_records=0))) == [], "nothing is copied again"
    assert list(Limits().refusals(replace(gone, target_start=0))) == [], "it never had more than markers"
    assert list(Limits().refusals(replace(gone, target_start=0, compacted=True)))


def test_compacted_topic_without_a_copy_is_not_excused_by_its_cleaner() -> None:
    """It leaves the last record of each key: that none is a copy has another cause, a transform for instance."""
    none = replace(one("unknown", 100), copies=0, compacted=True, source_records=100)
    (reason,) = Limits().refusals(none)
    assert "100 records unknown" in reason and "(--max-unknown)" in reason
    assert list(Limits(unknown=100).refusals(none)) == []


def test_ambiguous_copies_are_refused_above_their_share() -> None:
    (reason,) = Limits(ambiguous=0.04).refusals(one("ambiguous", 5))
    assert "5.000% of its copies, and may be 4.000% (--max-ambiguous)" in reason
    assert list(Limits(ambiguous=0.05).refusals(one("ambiguous", 5))) == []


def test_copies_of_open_transactions_are_waited_for() -> None:
    (reason,) = Limits().refusals(replace(CLEAN, undecided=2))
    assert "2 copies are of transactions that are still open on the source" in reason


def test_no_option_allows_what_can_only_be_read_out_of_order() -> None:
    (reason,) = Limits(ambiguous=1, missing=99, unknown=99).refusals(one("disordered", 1))
    assert "orders-0: 1 records disordered, at source offsets [3, 4)" in reason


def test_cleaner_works_by_plan_on_a_target_that_shows_no_policies() -> None:
    def entry(policy: str) -> dict[str, ConfigEntry]:
        return {"cleanup.policy": ConfigEntry(value=policy)}

    first, *others = a_plan("hidden", "plain", "compacted").topics
    policies: dict[str, dict[str, ConfigEntry]] = {
        "hidden": {},
        "plain": entry("delete"),
        "compacted": entry("compact,delete"),
    }
    target: Any = SimpleNamespace(topic_configs=lambda names: {name: policies[name] for name in names})
    assert _cleaned([first, *others], target) == {"compacted"}
    assert _cleaned([replace(first, compacted=True), *others], target) == {"hidden", "compacted"}
