"""The plan for the night, from what was seen."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.identity import data_producer_id
from airflow_mirror.errors import BrokerError
from airflow_mirror.extras.readiness.build import decide
from airflow_mirror.extras.readiness.estimate import TARGET, Estimate, Trial
from airflow_mirror.extras.readiness.logs import Limits
from airflow_mirror.extras.readiness.look import COMMITTED, COPY, PRODUCERS, ReadinessFacts
from airflow_mirror.extras.readiness.model import NightPlan
from airflow_mirror.extras.readiness.producers import Producer, producers
from airflow_mirror.extras.readiness.race import Log, Race
from airflow_mirror.extras.readiness.sections import html, markdown
from airflow_mirror.kafka.model import GroupInfo, GroupPosition
from airflow_mirror.wire.topology import ProducerState
from tests.builders import plan_of, topic_plan
from tests.unit.plan.builders import a_mirror

PLAN = plan_of(
    a_mirror(), *(topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in ("orders", "pay", "users"))
)


def at(*topics: str) -> dict[TopicPartition, GroupPosition]:
    return {TopicPartition(topic, 0): GroupPosition(7) for topic in topics}


def night(**seen: Any) -> NightPlan:
    return decide(PLAN, ReadinessFacts(**{"at_ms": 1_769_000_000_000, **seen}))


def test_only_groups_that_move_tie_topics_and_the_others_stay() -> None:
    """A sink connector reads with a group that no mirror selects unasked."""
    found = night(
        positions={"billing": at("orders", "pay"), "connect-sink": at("pay", "users"), "theirs": at("elsewhere")}
    )
    assert [one.topics for one in found.waves] == [("orders", "pay"), ("users",)]
    assert found.left_groups == ["connect-sink"]


def test_topics_that_stay_are_listed_without_internal_ones() -> None:
    assert night(topics=["__consumer_offsets", "orders", "raw"]).left_topics == ["raw"]


def test_members_without_a_position_are_a_warning() -> None:
    """Nobody knows which topics they read, so the waves may be too small."""
    groups = [GroupInfo("new", "Stable", "consumer"), GroupInfo("gone", "Empty", "consumer")]
    (found,) = night(groups=groups, positions={"new": {}, "gone": {}}).findings
    assert (found.level, found.check, found.object) == ("warn", "waves", "1 group") and found.evidence.endswith(": new")


def log(**fields: Any) -> Log:
    return Log(**{"start": 10, "end": 90, "position": 10, "expires": [(0.0, 10), (3600.0, 90)], **fields})


def test_races_are_told_by_topic_with_the_worst_partition() -> None:
    logs = {
        TopicPartition("orders", 0): log(position=8),
        TopicPartition("orders", 1): log(position=3),
        TopicPartition("orders", 2): log(position=90),
        TopicPartition("pay", 0): log(),
    }
    found = night(logs=logs)
    assert [(f.level, f.check, f.object) for f in found.findings] == [
        ("block", "retention_race", "topic 'orders'"), ("warn", "retention_race", "topic 'pay'")
    ]  # fmt: skip
    assert "never copied: 2 partitions, orders-1: 7 offsets gone" in found.findings[0].evidence
    assert found.blocks == found.findings[:1] and len(found.races) == 4
    text = markdown(found)
    assert "| orders-1 | now | 80 | 0.0/s |  | lost |" in text and "orders-0" not in text


def test_topic_that_takes_longer_than_its_source_keeps_records_does_not_win() -> None:
    """Nobody knew the copy's rate, a day and more was left, and a trial copy said that it takes four days."""
    days = [(0.0, 10), (2 * 86_400.0, 10), (12 * 86_400.0, 90)]
    logs = {TopicPartition("orders", 0): log(expires=days, offset_bytes=1e6)}

    def tried(bytes_per_s: int, **fields: Any) -> NightPlan:
        trial = Trial(
            alone="orders-0", together=["orders-0"], one_bytes_per_s=bytes_per_s, task_bytes_per_s=bytes_per_s,
            copied_bytes=1, waits_for=TARGET,
        )  # fmt: skip
        its = {tp: replace(one, **fields) for tp, one in logs.items()}
        return decide(PLAN, ReadinessFacts(at_ms=1_769_000_000_000, logs=its), trial)

    slow = tried(231)
    (found,) = slow.findings
    assert (found.level, found.check, found.object) == ("warn", "retention_race", "topic 'orders'")
    assert "orders-0: 2 d left" in found.evidence and found.evidence.endswith("; level in 4 d")
    assert [one.verdict for one in slow.races] == ["late"] and "|  | late |" in markdown(slow)
    assert [one.verdict for one in tried(1_000_000).races] == ["wins"] and tried(1_000_000).findings == []
    copied = tried(231, copied_per_s=0.0004)
    assert copied.estimates[0].seconds == pytest.approx(200_000), "later than the first loss as well"
    assert [one.verdict for one in copied.races] == ["wins"], "what would go first was copied first"
    assert [one.verdict for one in night(logs=logs).races] == ["wins"], "nothing was tried"


@pytest.mark.parametrize(
    ("question", "check"), [(COPY, "retention_race"), (COMMITTED, "waves"), (PRODUCERS, "producers")]
)
def test_what_could_not_be_judged_is_to_be_done_too(question: str, check: str) -> None:
    """That nobody could be asked looked like a night without a race, and PlanMirrorOperator's log said nothing of it."""
    (found,) = night(unknown={question: BrokerError("ask x", 7, "REQUEST_TIMED_OUT")}).findings
    assert (found.level, found.check) == ("warn", check) and found.evidence.startswith("not known: ask x")


def test_limits_of_size_need_the_sizes_of_logs() -> None:
    limit = Limits(retention_s=None, retention_bytes=1000, segment_bytes=1, segment_s=1.0)
    (found,) = night(limits={"orders": limit, "pay": replace(limit, retention_bytes=None)}).findings
    assert found.level == "warn" and found.evidence.endswith("not known: orders")
    assert night(limits={"orders": limit}, sizes={TopicPartition("orders", 0): 1}).findings == []
    (found,) = night(limits={"orders": limit}, sizes={TopicPartition("pay", 0): 1}).findings
    assert found.evidence.endswith("not known: orders"), "in tiered storage, without a sample"


def writing(producer_id: int, last_ms: int = 5, txn: int = -1) -> ProducerState:
    return ProducerState(producer_id, 0, 7, last_ms, txn)


def test_each_producer_is_told_once_with_what_people_call_it() -> None:
    states = {
        TopicPartition("orders", 1): [writing(1, 30), writing(2, 90, txn=4)],
        TopicPartition("orders", 0): [writing(1, 60)],
    }
    ways = night(positions={"billing": at("orders")}).waves
    assert producers(states, {2: "tx"}, ways) == [
        Producer(producer_id=2, epoch=0, transactional_id="tx", last_ms=90, partitions=["orders-1"], waves=[1],
                 in_transaction=True, is_mirror=False),
        Producer(producer_id=1, epoch=0, transactional_id="", last_ms=60, partitions=["orders-0", "orders-1"], waves=[1],
                 in_transaction=False, is_mirror=False),
    ]  # fmt: skip


def test_producer_of_two_waves_and_a_mirror_are_warnings() -> None:
    """The one would write to both clusters for a time; the other goes on copying to a source that was left."""
    states = {TopicPartition(t, 0): [writing(1)] for t in ("orders", "pay")}
    states[TopicPartition("users", 0)] = [writing(data_producer_id("other", TopicPartition("users", 0)))]
    found = night(positions={"a": at("orders"), "b": at("pay")}, producers=states, transactional_ids={1: "tx"})
    assert [(f.level, f.check) for f in found.findings] == [("warn", "producers")] * 2
    assert found.findings[0].evidence == "a mirror copies to the source: users-0"
    assert found.findings[1].evidence == "they write to topics of several waves: tx (waves 1, 2)"
    assert "| tx | 1 | 0 | 1970-01-01T00:00:00+00:00 | orders-0, pay-0 | 1, 2 |  |" in markdown(found)


def test_records_of_nobody_that_a_leader_lists_are_a_warning() -> None:
    logs = {TopicPartition("orders", p): log(position=90, produced_per_s=1.0) for p in range(3)}
    states = {TopicPartition("orders", 0): [], TopicPartition("orders", 1): [writing(1)]}
    (found,) = night(logs=logs, producers=states).findings
    assert found.evidence.endswith("from producers that no broker lists: orders-0"), "of the third, nobody was asked"


def test_changelogs_move_with_their_application() -> None:
    """Nobody commits positions in them."""
    plan = replace(PLAN, topics=(*PLAN.topics, topic_plan("app-counts-changelog", {0: 0}, source_topic_id="c")))
    seen = ReadinessFacts(
        at_ms=1, topics=["app-counts-changelog", "app-join-repartition", "orders"], positions={"app": at("orders")},
        groups=[GroupInfo("app", "Stable", "consumer"), GroupInfo("share", "Empty", "share", group_type="share")],
    )  # fmt: skip
    found = decide(plan, seen)
    assert found.waves[0].topics == ("app-counts-changelog", "orders")
    assert [(one.name, one.kind, one.wave) for one in found.groups] == [
        ("app", "Kafka Streams", 1),
        ("share", "share group", 0),
    ]
    assert [(f.check, f.object) for f in found.findings] == [
        ("groups", "1 share group"),
        ("elsewhere", "Kafka Streams app"),
    ]
    assert "does not select all of its topics: app-join-repartition" in found.findings[1].evidence


def test_half_a_registry_or_connect_cluster_is_a_warning() -> None:
    names = ["connect-offsets", "connect-configs", "_schemas", "mm2-configs.dc1.internal", "heartbeats"]
    plan = replace(PLAN, topics=(*PLAN.topics, topic_plan("connect-offsets", {0: 0}, source_topic_id="c")))
    found = decide(plan, ReadinessFacts(at_ms=1, topics=names, modes={"": "READONLY"}))
    (finding,) = found.findings
    assert finding.object == "Kafka Connect" and finding.evidence.endswith("topics: connect-configs")
    assert "| Schema Registry, modes: all subjects READONLY | _schemas | _schemas |" in markdown(found)


def test_page_escapes_every_name_and_needs_nothing_from_elsewhere() -> None:
    evil = "<script>alert(1)</script>"
    found = night(
        positions={evil: at("orders", "pay")}, groups=[GroupInfo(evil, "Stable", "consumer")], topics=[evil],
        logs={TopicPartition("orders", 0): log(position=3)}, unseen=[evil],
    )  # fmt: skip
    page = html(found)
    assert "<script" not in page and page.count("&lt;script&gt;") >= 5
    assert "src=" not in page and "href=" not in page and '<td class="bad">BLOCK</td>' in page
    assert "blocked</span>" in page and "nothing blocks" in html(night())


def test_page_of_many_producers_counts_what_it_leaves_out() -> None:
    states = {TopicPartition("orders", 0): [writing(n) for n in range(1200)]}
    page = html(night(producers=states))
    assert "and 700 more: the JSON has all of them" in page and len(page) < 250_000


def test_json_has_a_mirror_for_each_wave() -> None:
    found = json.loads(night(positions={"billing.eu": at("orders")}, unseen=["quotas: no"]).to_json())
    assert [one["mirror"] for one in found["waves"]] == [
        {"topics": ["orders"], "groups": ["billing\\.eu"]}, {"topics": ["pay", "users"], "groups": []}
    ]  # fmt: skip
    assert found["topics"]["orders"] == {"topic_id": "id-orders", "partitions": 1} and found["unseen"][0] == "quotas: no"


def test_markdown_names_what_keeps_topics_together() -> None:
    text = markdown(night(positions={"billing": at("orders", "pay")}, topics=["raw"]))
    assert "| 1 | 2 topics: orders, pay | 1 group: billing | billing (orders, pay) |" in text
    assert "| topics that the mirror does not select | raw |" in text and "| producers that don't number" in text


def test_page_of_ten_thousand_partitions_shows_who_is_first_and_how_all_are_spread() -> None:
    """Whatever topics are called: each name stands in the page with places to go on in the next line."""
    name = "shop.eu-central-1." + "x" * 230
    races = [
        Race(
            topic=f"orders-{n:04d}" if n else name, partition=n % 10, lost=0, left_s=float(n), behind=10_000 - n,
            produced_per_s=1.0, copied_per_s=None, verdict="loses" if n == 3 else "wins",
        )
        for n in range(10_000)
    ]  # fmt: skip
    slow = [Estimate(topic=f"t-{n}", behind=1, copied_per_s=1.0, seconds=float(n), bottleneck="") for n in range(1000)]
    page = html(replace(night(), races=races, estimates=slow))
    assert len(page) < 1_500_000 and page.count("<svg") == 6
    assert "First loss by retention, if nothing is copied: the first 12 of 10,000 partitions" in page
    assert page.count('class="bar failed"') == 1 and "Until a topic is level: all of them" in page
    shown = re.sub(r"<(desc|title).*?</\1>", "", page[page.index("</style>") :])
    words = re.split(r"\s|<wbr>", re.sub(r"<(?!wbr)[^>]*>", " ", shown))
    assert max(map(len, words)) <= 44, "no word is wider than its column"
