"""A hold that ends: what the source still has must be younger, when a mirror begins and while its tail runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import HoldTooShort, InvalidField, TryAgain
from airflow_mirror.plan.amend import decide_each
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.configs import Rules, is_held
from airflow_mirror.plan.finite_hold import EVERY_S, FiniteHold, older, too_old
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.inventory import with_age
from airflow_mirror.wire.errors import UnknownTopic
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW

HOUR_MS, NOW_MS = 3_600_000, 1_800_000_000_000
ORDERS = TopicPartition("orders", 0)
MINUTE_MS = 60_000


class Source:
    """A cluster with one log: its records' ages in minutes, None for one without a time, by offset.

    :ivar changes: what happens to the log between two requests.
    """

    def __init__(self, **ages: float | None) -> None:
        self.log = {int(offset[1:]): age for offset, age in ages.items()}
        self.changes: list[dict[int, float | None]] = []
        self.asked, self.away, self.topic_id = 0, False, "orders-id"
        self.goes: Exception | None = None  # what a request for offsets meets

    def topics(self, names: Iterable[str]) -> dict[str, object]:
        if self.away:
            raise TryAgain("the source is away")
        return {"orders": replace(a_topic("orders").info, topic_id=self.topic_id)} if self.topic_id else {}

    def offsets(self, partitions: Iterable[TopicPartition], spec: str | int = "latest") -> dict[TopicPartition, int]:
        """As ListOffsets answers: by a time the first record of it or later, -1 if there is none."""
        self.asked += 1
        if self.goes is not None:
            raise self.goes
        if spec == "latest":
            found = max(self.log, default=-1) + 1
        else:
            times = {offset: NOW_MS - age * MINUTE_MS for offset, age in self.log.items() if age is not None}
            found = min((offset for offset, time in times.items() if time >= int(spec)), default=-1)
        if self.changes:
            self.log = self.changes.pop(0)
        return dict.fromkeys(partitions, found)


def old(source: Source, begin: int = 0, share: float = 0.9) -> bool:
    return bool(too_old(source, {ORDERS: begin}, HOUR_MS, share, NOW_MS))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "log, answer",
    [
        ({}, False),
        ({"_0": 53.0}, False),
        ({"_0": 55.0}, True),  # alone
        ({"_0": 55.0, "_1": 1.0}, True),
        ({"_0": 1.0, "_1": 600.0}, False),  # what stands behind a young record stays: brokers delete from the front
        ({"_7": 53.0, "_9": 2.0}, False),  # compacted: the first record is not at the log start
        ({"_7": 58.0, "_9": 2.0}, True),
        ({"_0": None, "_1": 2.0}, False),  # no time: that of its file
    ],
)
def test_the_first_record_decides(log: dict[str, float | None], answer: bool) -> None:
    assert old(Source(**log)) is answer


def test_nothing_is_older_than_the_epoch_and_nobody_is_asked() -> None:
    """A retention of three hundred years: ListOffsets takes negative times for something else."""
    source = Source(_0=55.0)
    assert older(source, {ORDERS: 0}, -5) == set() and source.asked == 0  # type: ignore[arg-type]


def test_records_before_the_mirrors_start_do_not_count() -> None:
    source = Source(_0=600.0, _1=300.0, _2=2.0)
    assert old(source) and old(source, begin=1) and not old(source, begin=2) and not old(source, begin=3)
    assert not old(Source(_0=600.0), begin=1)


@pytest.mark.parametrize("then", [{1: 2.0}, {0: 2.0}])
def test_a_log_that_changes_between_two_requests_is_looked_at_again(then: dict[int, float | None]) -> None:
    """The source has deleted the old record; or its empty partition has got a record."""
    deleted = Source(_0=55.0, _1=2.0)
    deleted.changes = [then, then]
    assert not old(deleted)


def a_plan(hold_ms: int | None = HOUR_MS) -> tuple[FiniteHold, Source, list[float]]:
    source, now = Source(_0=2.0), [0.0, NOW_MS / 1000]
    planned = decide(
        a_mirror(hold_retention_ms=hold_ms), a_cluster(a_topic("orders")), a_cluster(cluster_id="c2"), (), NOW
    )
    source.topic_id = planned.topics[0].source_topic_id
    return FiniteHold(planned, source, lambda: now[0], lambda: now[1]), source, now  # type: ignore[arg-type]


def test_a_tail_ends_before_the_brokers_delete() -> None:
    hold, source, now = a_plan()
    hold.look_in_turn()
    now[0], now[1] = EVERY_S - 1, now[1] + 3600
    hold.look_in_turn()  # not yet its turn
    now[0] = EVERY_S
    with pytest.raises(HoldTooShort, match="hold_retention_ms=3600000: .* nearly that old in orders-0"):
        hold.look_in_turn()


def test_a_tail_goes_on_without_the_source_and_without_topics_that_are_gone() -> None:
    hold, source, now = a_plan()
    source.log = {0: 59.0}
    source.away = True
    hold.look_in_turn()
    source.away, source.goes, now[0] = False, UnknownTopic("ListOffsets", "orders"), EVERY_S
    hold.look_in_turn()  # it was deleted between two requests
    source.goes, source.topic_id, now[0] = None, "another", 2 * EVERY_S
    hold.look_in_turn()
    source.topic_id, now[0] = "", 3 * EVERY_S
    hold.look_in_turn()


def test_a_hold_without_an_end_asks_nobody() -> None:
    hold, source, _ = a_plan(None)
    hold.look_in_turn()
    assert source.asked == 0


def test_the_plan_holds_with_it_and_blocks_what_it_would_lose() -> None:
    mirror = a_mirror(hold_retention_ms=HOUR_MS)
    fine = decide(mirror, a_cluster(a_topic("orders")), a_cluster(cluster_id="c2"), (), NOW)
    assert fine.topics[0].held_configs["retention.ms"] == "3600000" and not fine.blocks
    aged = replace(a_topic("orders"), too_old=(0, 2))
    made = decide(mirror, a_cluster(aged), a_cluster(cluster_id="c2"), (), NOW)
    (found,) = made.blocks
    assert (found.check, found.object) == ("finite_hold", "2 partitions")
    assert "older than 90% of hold_retention_ms=3600000" in found.evidence and "orders-0, orders-2" in found.evidence


def test_a_topic_that_joins_is_asked_for_its_age_as_well() -> None:
    """It is left out with the reason; the tail, which would end by it, goes on."""
    source, topic = Source(_0=55.0), a_topic("users", spans=((0, 1),))
    source.log = {0: 55.0}
    now = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    mirror = a_mirror(hold_retention_ms=HOUR_MS)
    assert with_age({"users": topic}, source, mirror, now)["users"].too_old == (0,)  # type: ignore[arg-type]
    assert with_age({"users": topic}, source, a_mirror(), now)["users"].too_old == ()  # type: ignore[arg-type]
    plan = decide(mirror, a_cluster(a_topic("orders")), a_cluster(cluster_id="c2"), (), NOW)
    found = decide_each(plan, {"users": replace(topic, too_old=(0,))}, a_cluster(cluster_id="c2"), HoleSamples(), NOW)
    assert not found.topics and "finite_hold" in found.left_out["users"]


def test_a_comparison_excuses_nothing_where_the_hold_ends() -> None:
    """Who holds with -1 now, by an earlier plan, holds as well."""
    rules = Rules.of(a_mirror(hold_retention_ms=HOUR_MS))
    for ms, held in (("3600000", True), ("-1", True), ("7200000", False)):
        entries = a_topic("orders", cleanup_policy="delete", retention_ms=ms, retention_bytes="-1").configs
        assert is_held(entries, rules) is held
    entries = a_topic("orders", cleanup_policy="delete", retention_ms="3600000", retention_bytes="-1").configs
    assert not is_held(entries, Rules())


@pytest.mark.parametrize("value", [0, -1, 3_599_999, True, 1.5e9, "7d"])
def test_a_hold_is_an_hour_at_least(value: object) -> None:
    with pytest.raises(InvalidField, match="hold_retention_ms"):
        a_mirror(hold_retention_ms=value)


def test_mirrors_of_one_topic_hold_alike() -> None:
    with pytest.raises(InvalidField, match="each to its own"):
        a_mirror(
            hold_retention_ms=HOUR_MS, ownership="shared", delivery="transactional", sync_groups=False, sync_configs=False
        )
