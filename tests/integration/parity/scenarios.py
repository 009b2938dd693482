"""MirrorMaker 2's own scenarios, as black boxes on our tail: the same set-up and limits, and stronger assertions.

The names are those of the table in docs/parity.md, which says what MirrorMaker 2 asserts. A variant (S1 to S4) is a class
that runs all of them in another setting. Each scenario has topics and groups of its own; they share one running tail,
which takes them in as they appear.
"""

from __future__ import annotations

from typing import Any, ClassVar

from prometheus_client.parser import text_string_to_metric_families

from airflow_mirror.kafka.permit import unfenced
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import PARTITIONS, SYNC_S, TOPICS_S, Flow, within

TEN = [10] * PARTITIONS


class Scenarios:
    """One way, all records once, every group exact.

    :cvar FIELDS: of the Mirror.
    :cvar TRANSACTIONS: applications write in transactions.
    :cvar SPARK: the tail is the Spark job; else it is ``airflow-mirror follow``.
    """

    FIELDS: ClassVar[dict[str, Any]] = {}
    TRANSACTIONS: ClassVar[bool] = False
    SPARK: ClassVar[bool] = False

    def test_i1_replication(self, flow: Flow) -> None:
        topic, group = f"{flow.name}-test-topic-1", flow.group("group-1")
        flow.arrives(topic, 100)
        assert flow.admins[1].topics([flow.there(topic)])[flow.there(topic)].partitions == PARTITIONS
        flow.group_arrives(group, topic)
        assert not any(apps.resume(flow.target, group, [flow.there(topic)]).values()), "it reads nothing again"
        # Created while the tail runs. Retention is on hold while it writes; what comes after it, is known.
        second = flow.create("test-topic-2", retention_bytes="1000", delete_retention_ms="1000", segment_ms="123456")
        flow.append(second, [10])
        flow.arrives(second, 10)
        assert (flow.setting(second, "segment.ms"), flow.setting(second, "retention.bytes")) == ("123456", "-1")
        assert flow.setting(second, "delete.retention.ms") == "86400000"

    def test_i2_empty_partition(self, flow: Flow) -> None:
        topic, group = flow.create("i2"), flow.group("i2")
        flow.append(topic, [10] * 9 + [0])
        apps.consume(flow.source, group, [topic], 90)
        flow.arrives(topic, 90)
        there = flow.group_arrives(group, topic)
        # An aborted transaction may lie before the place; no record does.
        assert len(there) == PARTITIONS and flow.passed(group, topic)[9] == 0 and (there[9] == 0 or flow.transactions)
        flow.append(topic, [0] * 9 + [7])
        here, _ = flow.arrives(topic, 97)
        assert apps.resume(flow.target, group, [flow.there(topic)]) == {
            (flow.there(topic), p): [record for _, record in here[p]] if p == 9 else [] for p in range(PARTITIONS)
        }

    def test_i3_automatic_offset_sync(self, flow: Flow) -> None:
        """Also of a topic that comes while the tail runs: what is read again is nothing, not less than ten."""
        group, topics = flow.group("i3"), [flow.create("i3")]
        flow.append(topics[0], TEN)
        apps.consume(flow.source, group, topics, 100)
        flow.arrives(topics[0], 100)
        flow.group_arrives(group, topics[0])
        topics.append(flow.create("i3-later"))
        flow.append(topics[1], TEN)
        apps.consume(flow.source, group, topics[1:], 100)
        flow.arrives(topics[1], 100)
        for topic in topics:
            flow.group_arrives(group, topic)
        assert not any(apps.resume(flow.target, group, map(flow.there, topics)).values())

    def test_i4_a_group_in_the_middle_goes_on_exactly(self, flow: Flow) -> None:
        """Where MirrorMaker 2 needs an offset-sync for every record."""
        topic, group = flow.create("i4"), flow.group("i4")
        flow.append(topic, TEN)
        here, _ = flow.arrives(topic, 100)
        places = {p: here[p][min(p, 9)][0] for p in range(PARTITIONS)}
        apps.commit(flow.source, group, {(topic, p): offset for p, offset in places.items()})
        flow.group_arrives(group, topic)
        left = {(flow.there(topic), p): [r for offset, r in here[p] if offset >= places[p]] for p in range(PARTITIONS)}
        assert apps.resume(flow.target, group, [flow.there(topic)]) == left

    def test_i5_nothing_is_written_to_the_source(self, flow: Flow) -> None:
        """No topic of offset-syncs, no heartbeats, nothing at all: what is new there are applications' topics."""
        topic = flow.create("i5")
        flow.append(topic, TEN)
        flow.arrives(topic, 100)
        new = set(flow.admins[0].topic_names()) - flow.before
        of_brokers = {"__consumer_offsets", "__transaction_state"}  # made for the applications here
        assert not {name for name in new - of_brokers if not name.startswith(f"{flow.name}-")}
        assert sum(map(len, apps.log_of(flow.source, topic).values())) == 100

    def test_i7_a_group_on_a_topic_without_records(self, flow: Flow) -> None:
        """It is at 0 on both sides at once, where MirrorMaker 2 knows nothing of it before there are records."""
        filled, empty = flow.create("i7"), flow.create("i7-empty", 1)
        group = flow.group("i7")
        flow.append(filled, TEN)
        apps.consume(flow.source, group, [filled], 100)
        apps.commit(flow.source, group, {(empty, 0): 0})
        flow.arrives(filled, 100)
        flow.arrives(empty, 0)
        flow.group_arrives(group, filled)
        assert flow.group_arrives(group, empty) == {0: 0}
        flow.append(empty, [10])
        flow.arrives(empty, 10)
        apps.consume(flow.source, group, [empty], 10)
        for topic in (filled, empty):
            flow.group_arrives(group, topic)

    def test_i8_restart(self, flow: Flow) -> None:
        """Nothing is there twice, and the group never goes back, also not while nothing runs."""
        topic, group = flow.create("i8"), flow.group("i8")
        flow.append(topic, TEN)
        apps.consume(flow.source, group, [topic], 100)
        flow.arrives(topic, 100)
        before = flow.group_arrives(group, topic)
        flow.stop()
        flow.append(topic, TEN)
        assert flow.passed(group, topic) == [10] * PARTITIONS
        flow.start()
        flow.arrives(topic, 200)
        assert flow.passed(group, topic) == [10] * PARTITIONS
        apps.consume(flow.source, group, [topic], 100)
        after = flow.group_arrives(group, topic)
        assert all(after[p] >= before[p] + 10 for p in range(PARTITIONS))
        assert not any(apps.resume(flow.target, group, [flow.there(topic)]).values())

    def test_i9_a_group_behind_the_flow(self, flow: Flow) -> None:
        """Forward, and back."""
        topic, group = flow.create("i9", 1), flow.group("i9")
        flow.append(topic, [10_000])
        here, _ = flow.arrives(topic, 10_000)
        for place in (1, 9_000, 1_000):
            apps.commit(flow.source, group, {(topic, 0): here[0][place][0]})
            there = flow.group_arrives(group, topic)
            assert apps.passed(apps.log_of(flow.target, flow.there(topic)), there) == {0: place}

    def test_i10_settings_return_and_excluded_ones_stay(self, flow: Flow) -> None:
        """Retention is on hold, and comes back as that."""
        topic = flow.create("i10", 1, segment_ms="111111", retention_bytes="1000")
        flow.append(topic, [10])
        flow.arrives(topic, 10)
        by_hand = {"segment.ms": "222222", "delete.retention.ms": "2000", "retention.bytes": "999999999"}
        flow.admins[1].alter_topic_configs(flow.there(topic), unfenced, by_hand)
        for key, value in (("segment.ms", "111111"), ("retention.bytes", "-1")):
            within(SYNC_S + 10, lambda k=key, v=value: flow.setting(topic, k) == v, f"{key} is {value} again")
        assert flow.setting(topic, "delete.retention.ms") == "2000"

    def test_i12_a_default_of_the_source_is_the_targets(self, flow: Flow) -> None:
        topic = flow.create("i12", 1)
        flow.append(topic, [10])
        flow.arrives(topic, 10)
        default = flow.setting(topic, "segment.ms")
        larger = "2000000000"  # than the default of segments
        chosen = {"segment.ms": "7654321", "segment.bytes": larger, "retention.bytes": "1000"}
        flow.admins[0].alter_topic_configs(topic, unfenced, chosen)
        within(SYNC_S, lambda: flow.setting(topic, "segment.ms") == "7654321", "it is synced")
        within(SYNC_S, lambda: flow.setting(topic, "segment.bytes") == larger, "so is a larger limit of size")
        held = f"{flow.there(topic)}: retention.bytes: .* -> 1000"
        within(SYNC_S, lambda: flow.mentions("configs", "waiting", held), "what is on hold is listed")
        flow.admins[0].alter_topic_configs(topic, unfenced, {}, list(chosen))
        within(SYNC_S, lambda: flow.setting(topic, "segment.ms") == default, "it is the target's own again")
        smaller = f"{flow.there(topic)}: segment.bytes: {larger} -> "
        within(SYNC_S, lambda: flow.mentions("configs", "waiting", smaller), "a smaller one waits, and is listed")
        within(SYNC_S, lambda: not flow.mentions("configs", "waiting", held), "so will be what is on hold")

    def test_i14_metrics(self, flow: Flow) -> None:
        """Their six figures by ours, and what theirs don't have: how much is missing on the target."""
        topic = flow.create("i14", 2)
        flow.append(topic, [10, 10])
        flow.arrives(topic, 20)
        wanted = {
            "records_total", "bytes_total", "lag_records", "lag_seconds", "record_age_seconds_count",
            "record_age_seconds_sum", "record_age_min_seconds", "record_age_max_seconds",
            "replication_latency_seconds_count", "replication_latency_seconds_sum", "replication_latency_min_seconds",
            "replication_latency_max_seconds", "hold_intact", "job_running", "writer_epoch",
        }  # fmt: skip
        labels = {"mirror": flow.name, "source": "primary", "target": "backup", "topic": flow.there(topic)}

        def shown() -> dict[tuple[str, str], float]:
            families = text_string_to_metric_families(flow.figures.read_text())
            ours = (sample for family in families for sample in family.samples)
            return {
                (sample.name.removeprefix("airflow_mirror_"), sample.labels.get("partition", "")): sample.value
                for sample in ours
                if sample.labels.items() >= labels.items() or "topic" not in sample.labels
            }

        def complete() -> bool:
            found = shown()
            return wanted <= {name for name, _ in found} and all(found.get(("records_total", p)) == 10 for p in "01")

        within(TOPICS_S, complete, "every figure has a series")
        assert all(shown()["lag_records", p] == 0 for p in "01")
