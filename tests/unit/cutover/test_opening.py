"""The record that opens very many topics: whether the target's ledger takes it is known before the fence."""

from __future__ import annotations

import random
import string
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from airflow_mirror.common.policy import DECISIONS
from airflow_mirror.cutover import check, foreseen
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.opening import opening_bytes, require_fits
from airflow_mirror.cutover.request import CutoverRequest
from airflow_mirror.errors import MissingRight, OpeningTooLarge, RequestRefused
from airflow_mirror.kafka.model import ConfigEntry, TopicInfo
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import claim, mark_cut_over
from tests.driven.ledger import LedgerCluster
from tests.unit.cutover.builders import a_plan, a_run

NOON = "2026-01-31T12:00:00+00:00"


@cache
def long_names(topics: int) -> Plan:
    """Return a plan of topics whose names compress badly: each of 120 characters by lot."""
    lot = random.Random(topics)
    return a_plan(*("".join(lot.choices(string.ascii_letters + string.digits, k=120)) for _ in range(topics)))


def ids(plan: Plan) -> dict[str, str]:
    lot = random.Random(1)
    return {t.target_topic: "".join(lot.choices(string.ascii_letters + string.digits, k=22)) for t in plan.topics}


def claimed(target: LedgerCluster, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {name: TopicInfo(name, topic_id, 1, 1) for name, topic_id in ids(plan).items()}
    with monkeypatch.context() as only_here:
        topics = target.admin.topics
        only_here.setattr(
            target.admin, "topics", lambda names: topics(names) if DECISIONS in names else {n: there[n] for n in names}
        )
        claim(target.ledger, plan, target.admin, lambda _: {plan.source_cluster_id})


def take_more(target: LedgerCluster, size: int) -> None:
    (log,) = target.topics[DECISIONS].logs
    log.config = replace(log.config, max_message_bytes=size)


def test_an_opening_that_the_ledger_would_refuse_is_refused_before_the_fence(ledger_target: LedgerCluster) -> None:
    """By the broker it was refused as the last step, at each try again. With the setting that is named it fits."""
    plan = long_names(10_000)
    with pytest.raises(RequestRefused, match=r"raise its max\.message\.bytes"):
        mark_cut_over(ledger_target.ledger, plan, ids(plan), NOON)
    with pytest.raises(OpeningTooLarge, match=r"10,000 topics can't be opened at once: .* takes 1,048,588") as refused:
        require_fits(plan, ledger_target.admin)
    take_more(ledger_target, refused.value.enough)
    require_fits(plan, ledger_target.admin)
    mark_cut_over(ledger_target.ledger, plan, ids(plan), NOON)


@pytest.mark.parametrize("topics", [100, 2000])
def test_what_is_measured_is_no_less_than_what_is_appended(
    ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    plan = long_names(topics)
    claimed(ledger_target, plan, monkeypatch)
    mark_cut_over(ledger_target.ledger, plan, ids(plan), NOON)
    appended = ledger_target.topics[DECISIONS].logs[0].batches[-1]
    assert appended.header is not None
    assert appended.header.size <= opening_bytes(plan) < appended.header.size * 1.2 + 5000


def test_a_small_opening_asks_nothing() -> None:
    require_fits(a_plan("orders", "payments"), None)  # type: ignore[arg-type]


class NoLedger:
    """A target on which no plan has begun a ledger.

    :param told: by each broker, of its message.max.bytes; None: the right to ask is missing.
    """

    def __init__(self, *told: str | None) -> None:
        self.told = told

    def topics(self, _: object) -> dict[str, TopicInfo]:
        return {}

    def broker_configs(self) -> dict[int, dict[str, ConfigEntry]]:
        if None in self.told:
            raise MissingRight("read the settings of brokers", "CLUSTER_AUTHORIZATION_FAILED", "User:m")
        return {number: {"message.max.bytes": ConfigEntry(value=one)} for number, one in enumerate(self.told)}


@pytest.mark.parametrize(("told", "takes"), [(("8388608", "1000000"), 1_000_000), ((None,), 1_048_588), ((), 1_048_588)])
def test_before_there_is_a_ledger_its_brokers_say_what_it_will_take(told: tuple[str | None, ...], takes: int) -> None:
    plan = long_names(10_000)
    require_fits(plan, NoLedger("8388608", "8388608"))  # type: ignore[arg-type]
    with pytest.raises(OpeningTooLarge) as refused:
        require_fits(plan, NoLedger(*told))  # type: ignore[arg-type]
    assert refused.value.takes == takes


def test_precheck_and_plan_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan warns, since the setting can be changed until the cutover; the cutover begins nothing."""

    def too_large(plan: Plan, _: object) -> None:
        raise OpeningTooLarge(DECISIONS, len(plan.topics), 2_000_000, 1_048_588)

    monkeypatch.setattr(check, "require_fits", too_large)
    monkeypatch.setattr(foreseen, "require_fits", too_large)
    run = a_run(tmp_path / "run", CallableFence(lambda: None, lambda: None))
    with pytest.raises(OpeningTooLarge):
        list(check.CHECKS.rows["opening"].judge(run) or ())
    request = CutoverRequest(plan=run.plan, mirror=run.plan.mirror)
    (found,) = foreseen.CHECKS.rows["cutover_opening"].judge(request, None, None, None) or ()  # type: ignore[arg-type]
    assert isinstance(found, Finding) and found.level == "warn" and "airflow-mirror split" in found.remedy
