from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_mirror.common.patterns import exact
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import InputError, InvalidField
from airflow_mirror.kafka import session
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.checks import CHECKS
from airflow_mirror.plan.inventory import Refusal
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned
from airflow_mirror.wire.error_codes import error_name
from tests.unit.plan.builders import DEFAULTS, a_cluster, a_mirror, a_topic

NOW = datetime(2026, 1, 31, tzinfo=UTC)
EMPTY = ((0, 0), (0, 0), (0, 0))


def plan(
    source: Any, target: Any = (), known: Any = (), mirror: Mirror | None = None, owned: Any = None, **of_target: Any
) -> Plan:  # fmt: skip
    here = source if hasattr(source, "topics") else a_cluster(source)
    there = replace(a_cluster(*target, **{"cluster_id": "c2", **of_target}), owned=owned or {})
    return decide(mirror or a_mirror(), here, there, known, NOW)


def findings(made: Plan, check: str) -> list[tuple[str, str, str]]:
    return [(f.level, f.object, f.evidence) for f in made.findings if f.check == check]


def levels(made: Plan, check: str) -> list[str]:
    return [f.level for f in made.findings if f.check == check]


def test_plain_topic_and_empty_target_pass_every_check() -> None:
    """But for the notice that retention is held."""
    made = plan(a_cluster(a_topic(replicas=3), groups={"here": {"orders-0": 5}}))
    assert [f.check for f in made.findings if f.level != "pass"] == ["retention"]
    assert {f.check for f in made.findings} == CHECKS.rows.keys()
    made.raise_if_blocked()


def test_a_target_that_refuses_old_clients_warns() -> None:
    here = a_cluster(a_topic())
    assert levels(plan(here), "client_versions") == ["pass"]
    ((level, _, evidence),) = findings(plan(replace(here, drops_old_clients=True)), "client_versions")
    assert level == "warn" and "before Kafka 2.1" in evidence


def test_same_cluster_behind_both_connections_is_the_only_finding() -> None:
    made = plan(a_topic(), cluster_id="c1")
    assert [(f.level, f.check) for f in made.findings] == [("block", "same_cluster")]
    with pytest.raises(InputError, match="'kafka_dc1' and 'kafka_dc2'.*both are cluster c1"):
        made.raise_if_blocked()


def test_foreign_records_block_and_name_partition_and_end() -> None:
    made = plan(a_topic(), [a_topic(spans=((0, 0), (3, 9), (0, 0)))])
    assert findings(made, "target_data") == [
        ("block", "target topic 'orders'", "it holds data that this mirror did not write (partition 1 ends at 9)")
    ]


def test_who_has_a_prefix_already_is_told_to_take_another() -> None:
    mirror = a_mirror(policy="prefix")
    for fields, other in (({}, "choose policy='prefix'."), ({"mirror": mirror}, "choose another prefix (source_alias).")):
        name = fields["mirror"].naming.target_topic("orders") if fields else "orders"
        made = plan(a_topic(), [a_topic(name, spans=((0, 0), (3, 9), (0, 0)))], **fields)
        (said,) = [f.remedy for f in made.findings if f.check == "target_data"]
        assert other in said


def test_a_policy_that_makes_one_topic_of_two_blocks() -> None:
    source = a_cluster(*(a_topic(name, replicas=3) for name in ("Orders", "orders", "users")))
    made = plan(source, mirror=a_mirror(policy="tests.unit.test_policy:Upper"))
    assert findings(made, "names") == [
        (
            "block", "target topic 'ORDERS'",
            "policy 'tests.unit.test_policy:Upper' gives this name to Orders, orders",
        )
    ]  # fmt: skip


def test_emptied_target_is_still_foreign_by_its_offsets() -> None:
    assert levels(plan(a_topic(), [a_topic(spans=((9, 9), (0, 0), (0, 0)))]), "target_data") == ["block"]


def test_an_existing_empty_target_topic_is_taken() -> None:
    assert levels(plan(a_topic(), [a_topic(spans=EMPTY)]), "target_data") == ["pass"]


def test_our_own_records_are_a_resume() -> None:
    assert levels(plan(a_topic(), [a_topic(spans=((0, 60), (0, 0), (0, 7)))], known=["orders"]), "target_data") == [
        "pass"
    ]


def test_our_own_topic_that_is_longer_than_the_source_blocks() -> None:
    made = plan(a_topic(), [a_topic(spans=((0, 101), (0, 0), (0, 7)))], known=["orders"])
    assert levels(made, "target_data") == ["block"]
    assert "partition 0: 101 there, 100 here" in made.blocks[0].evidence


def test_blocked_plan_adopts_nothing_and_blocks_again() -> None:
    target = [a_topic(spans=((0, 60), (0, 0), (0, 7)))]
    first = plan(a_topic(), target)
    assert first.blocks and first.known_topics == {}
    assert plan(a_topic(), target, known=first.known_topics).blocks


def test_blocked_plan_keeps_what_was_known() -> None:
    """Or our own data would be foreign later."""
    too_far = a_mirror(offsets="identical", prime_budget=5)
    blocked = plan(a_topic(spans=((6, 9),)), known=["orders", "old"], mirror=too_far)
    assert blocked.blocks
    assert blocked.known_topics == {"old": "", "orders": ""}


def test_plan_that_may_start_owns_topics_by_target_name() -> None:
    assert plan(a_topic(), mirror=a_mirror(policy="prefix")).known_topics == {"kafka_dc1.orders": "identical"}


@pytest.mark.parametrize(
    ("partitions", "known", "level"),
    [(2, [], "block"), (2, ["orders"], "warn"), (3, [], "pass"), (5, [], "warn"), (5, ["orders"], "warn")],
)
def test_partition_counts(partitions: int, known: list[str], level: str) -> None:
    made = plan(a_topic(), [a_topic(spans=((0, 0),) * partitions)], known)
    assert levels(made, "partitions") == [level]


@pytest.mark.parametrize(
    ("here", "there", "known", "level"),
    [
        ("5000000", "1048588", [], "block"),
        ("5000000", "1048588", ["orders"], "warn"),
        ("1048588", "1048588", [], "pass"),
        ("77", "5000000", [], "pass"),
    ],
)
def test_target_topic_must_take_the_sources_largest_batch(here: str, there: str, known: list[str], level: str) -> None:
    made = plan(a_topic(max_message_bytes=here), [a_topic(spans=EMPTY, max_message_bytes=there)], known)
    assert levels(made, "message_size") == [level]


@pytest.mark.parametrize("fields", [{"exclude_configs": ["max.message.bytes"]}, {"keep_configs": ["max.message.bytes"]}])
@pytest.mark.parametrize("known", [[], ["orders"]], ids=["somebody else's", "ours"])
def test_batch_limit_that_stays_as_it_is_is_not_said_to_be_raised(fields: dict[str, Any], known: list[str]) -> None:
    """Nor is it asked for where the topic was there before: somebody keeps it low, and a batch as large may not exist."""
    there = a_topic(spans=EMPTY, static={"max.message.bytes": "1048588"})
    made = plan(a_topic(max_message_bytes="5000000"), [there], known, mirror=a_mirror(**fields))
    (finding,) = [f for f in made.findings if f.check == "message_size"]
    assert finding.level == "warn" and finding.remedy.startswith("It stays, by exclude_configs or keep_configs")


def test_created_topic_without_the_sources_batch_limit_is_a_warning() -> None:
    mirror = a_mirror(exclude_configs=["max.message.bytes"])
    for own, level in (("1048588", "warn"), ("5000000", "pass")):
        made = plan(
            a_topic(max_message_bytes="5000000"), mirror=mirror, own_configs={**DEFAULTS, "max.message.bytes": own}
        )
        assert levels(made, "message_size") == [level]


def test_created_topic_gets_the_sources_batch_limit() -> None:
    """Even if that is only Kafka's default."""
    made = plan(a_topic(), own_configs={**DEFAULTS, "max.message.bytes": "1000"})
    assert levels(made, "message_size") == ["pass"]
    assert made.topics[0].held_configs["max.message.bytes"] == "1048588"
    assert made.topics[0].configs == {"max.message.bytes": "1048588"}


@pytest.mark.parametrize(("known", "level"), [([], "block"), (["orders"], "warn")])
def test_log_append_time_on_a_target_topic_is_found(known: list[str], level: str) -> None:
    """Every record's time would be lost there."""
    made = plan(a_topic(), [a_topic(spans=EMPTY, message_timestamp_type="LogAppendTime")], known)
    assert levels(made, "timestamp_type") == [level]


def test_a_target_topic_that_recompresses_is_a_warning() -> None:
    assert levels(plan(a_topic(), [a_topic(spans=EMPTY, compression_type="zstd")]), "compression") == ["warn"]


@pytest.mark.parametrize(
    ("overrides", "level"),
    [
        ({}, "warn"),
        ({"retention_ms": "-1"}, "pass"),
        ({"retention_ms": "-1", "retention_bytes": "5"}, "warn"),
        ({"cleanup_policy": "compact"}, "pass"),
        ({"cleanup_policy": "compact,delete", "retention_ms": "60000"}, "warn"),
    ],
)
def test_retention_deleting_arriving_records_is_told_and_held_open(overrides: dict[str, Any], level: str) -> None:
    made = plan(a_topic(**overrides))
    assert levels(made, "retention") == [level]
    assert made.topics[0].held_configs["retention.ms"] == "-1"


def test_by_key_takes_a_target_of_any_partition_count() -> None:
    """And says what it can't do."""
    target = a_topic(spans=((0, 0), (0, 0), (0, 0)))
    made = plan(a_topic(spans=((0, 9), (0, 4))), [target], mirror=a_mirror(partitioning="by_key"))
    assert levels(made, "partitioning") == ["warn"] and not made.blocks
    assert made.topics[0].mode == "mapped" and "offsets are not translated" in made.topics[0].reason
    assert levels(made, "partitions") == ["pass"] and made.topics[0].key_partitions == 3
    created = plan(a_topic(spans=((0, 9), (0, 4))), mirror=a_mirror(partitioning="by_key"))
    assert created.topics[0].key_partitions == 2 and plan(a_topic()).topics[0].key_partitions is None


def owned_as(**fields: Any) -> dict[str, Owned]:
    return {"orders": Owned(topic_id="id-of-orders", mirror="dc1-to-dc2", source_id="c1", **fields)}


@pytest.mark.parametrize(
    ("there", "level", "said"),
    [(2, "pass", ""), (4, "warn", "began with 2 partitions, and it has 4"), (1, "block", "2 partitions, and it has 1")],
)
def test_keys_are_dealt_out_among_as_many_partitions_as_when_the_copy_began(there: int, level: str, said: str) -> None:
    """Otherwise all that is there would be copied again, to other partitions."""
    target, mirror = a_topic(spans=((0, 5),) * there), a_mirror(partitioning="by_key")
    made = plan(a_topic(), [target], {"orders": "mapped"}, mirror, owned_as(key_partitions=2))
    assert made.topics[0].key_partitions == 2
    ((found, _, evidence),) = findings(made, "partitions")
    assert found == level and said in evidence
    empty = plan(a_topic(), [a_topic(spans=((0, 0),) * there)], {"orders": "mapped"}, mirror, owned_as(key_partitions=2))
    assert empty.topics[0].key_partitions == there and levels(empty, "partitions") == ["pass"], "its copy begins only now"


@pytest.mark.parametrize(
    ("began", "asked"),
    [
        ({"partitioning": "preserve"}, {"partitioning": "by_key"}),
        ({"partitioning": "by_key", "key_partitions": 3}, {"offsets": "mapped"}),
        ({"delivery": "idempotent"}, {"delivery": "transactional"}),
        ({"delivery": "transactional"}, {"delivery": "idempotent"}),
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
def test_copy_with_a_map_goes_on_as_it_began(began: dict[str, Any], asked: dict[str, Any]) -> None:
    """Another partitioning has other maps and producers, another delivery knows another end: records would come twice."""
    target, known = [a_topic(spans=((0, 5),) * 3)], {"orders": "mapped"}
    made = plan(a_topic(), target, known, a_mirror(**asked), owned_as(**began))
    ((level, object_, evidence),) = findings(made, "offsets")
    ((name, was),) = list(began.items())[:1]
    assert (level, object_) == ("block", "target topic 'orders'") and f"began with {name}={was!r}; " in evidence
    as_begun = {name: value for name, value in began.items() if name != "key_partitions"}
    assert not plan(a_topic(), target, known, a_mirror(**as_begun), owned_as(**began)).blocks
    assert not plan(a_topic(), target, known, a_mirror(**asked), owned_as()).blocks, "nobody wrote it down"
    empty = plan(a_topic(), [a_topic(spans=((0, 0),) * 3)], known, a_mirror(**asked), owned_as(**began))
    assert not empty.blocks, "nothing was copied yet"


def test_transactional_delivery_needs_mapped_offsets_and_auto_gives_them() -> None:
    made = plan(a_topic(), mirror=a_mirror(delivery="transactional"))
    assert made.topics[0].mode == "mapped" and "delivery='transactional'" in made.topics[0].reason
    with pytest.raises(InvalidField, match="delivery"):
        a_mirror(delivery="transactional", offsets="identical")
    with pytest.raises(InvalidField, match="partitioning"):
        a_mirror(partitioning="by_key", offsets="identical")


SHARED = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}


def test_what_a_shared_topic_can_not_promise_is_said() -> None:
    """Records of others in it are no surprise, and that no group moves is no missing right."""
    made = plan(a_topic(), [a_topic(spans=((0, 9), (0, 4), (0, 0)))], mirror=a_mirror(**SHARED))
    assert levels(made, "ownership") == ["warn"] and levels(made, "groups") == ["pass"] and not made.blocks
    assert made.topics[0].mode == "mapped" and levels(plan(a_topic()), "ownership") == ["pass"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delivery": "idempotent"}, "ownership='shared': where others write.*delivery='transactional'"),
        ({"sync_groups": True}, "sync_groups=True: ownership='shared'.*sync_groups=False"),
        ({"sync_configs": True}, "sync_configs=True: ownership='shared'.*sync_configs=False"),
        ({"sync_acls": True}, "sync_acls=True: ownership='shared'.*sync_acls=False"),
        ({"ownership": "ours"}, "ownership='ours': unknown. Use one of exclusive, shared"),
    ],
)
def test_sharing_that_can_not_be_is_refused_with_the_remedy(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidField, match=message):
        a_mirror(**{**SHARED, **fields})


def test_more_replicas_than_brokers_are_capped_and_said() -> None:
    for mirror in (a_mirror(), a_mirror(replication_factor=3)):
        made = plan(a_topic(replicas=3), mirror=mirror, brokers=2)
        assert levels(made, "replication") == ["warn"] and made.topics[0].replication_factor == 2


def test_the_asked_replication_factor_wins_over_the_sources() -> None:
    made = plan(a_topic(replicas=3), mirror=a_mirror(replication_factor=2))
    assert levels(made, "replication") == ["pass"] and made.topics[0].replication_factor == 2


def test_log_starting_above_zero_is_primed_per_partition() -> None:
    made = plan(a_topic(spans=((54321, 60000), (0, 5), (7, 7))))
    assert made.topics[0].prime == {0: 54321, 2: 7} and levels(made, "priming") == ["warn"]
    assert made.prime_offsets == 54328


def test_a_partition_that_has_been_primed_is_not_primed_again() -> None:
    made = plan(a_topic(spans=((50, 60), (0, 5), (7, 7))), [a_topic(spans=((50, 55), (0, 0), (0, 0)))], known=["orders"])
    assert made.topics[0].prime == {2: 7}


def test_start_beyond_the_priming_budget_blocks_or_is_mapped() -> None:
    """It is mapped where offsets are auto."""
    far = a_topic(spans=((2_000_000_001, 2_000_000_009),))
    assert levels(plan(far, mirror=a_mirror(offsets="identical")), "priming") == ["block"]
    assert plan(far).topics[0].mode == "mapped"


def test_only_mapped_offsets_may_join_existing_target_data() -> None:
    source, target = a_topic(spans=((0, 7),)), [a_topic(spans=((0, 5),))]
    mapped = plan(source, target, mirror=a_mirror(offsets="mapped"))
    assert levels(mapped, "target_data") == ["warn"] and not mapped.blocks
    assert levels(plan(source, target), "target_data") == ["block"]


def test_the_budget_itself_may_be_spent() -> None:
    assert plan(a_topic(spans=((2_000_000_000, 2_000_000_009),))).topics[0].mode == "identical"


def test_a_compacted_topic_is_named_and_compacted_again_only_afterwards() -> None:
    made = plan(a_topic(cleanup_policy="compact"))
    topic = made.topics[0]
    assert topic.compacted and levels(made, "compacted") == ["warn"]
    assert (topic.held_configs["cleanup.policy"], topic.configs["cleanup.policy"]) == ("delete", "compact")


def test_open_transaction_limits_only_readers_of_committed_data() -> None:
    source = a_topic(stable={0: 93})
    committed, uncommitted = plan(source), plan(source, mirror=a_mirror(isolation="read_uncommitted"))
    assert (levels(committed, "open_transactions"), committed.topics[0].ends[0]) == (["warn"], 93)
    assert (levels(uncommitted, "open_transactions"), uncommitted.topics[0].ends[0]) == (["pass"], 100)


def test_a_target_that_creates_topics_by_itself_is_a_warning() -> None:
    assert levels(plan(a_topic(), auto_create="true"), "auto_create") == ["warn"]


def test_brokers_whose_settings_differ_from_the_first_ones_are_named() -> None:
    """Each has a file of its own; the last one to be started may have been forgotten."""
    made = plan(
        a_topic(**{"max_message_bytes": "1048588"}),
        auto_create={1: "false", 2: "true", 3: "false"},
        socket_request_max_bytes={1: "104857600", 2: "9000", 3: "8000"},
        transactional_id_expiration_ms={1: "604800000", 3: "9"},
    )
    assert findings(made, "auto_create") == [("warn", "target cluster", "auto.create.topics.enable is true on broker 2")]
    ((level, _, said),) = findings(made, "request_size")
    assert level == "block" and said.endswith("above 8,000 bytes (socket.request.max.bytes on broker 2, broker 3)")
    ((level, _, said),) = findings(made, "lease")
    assert level == "warn" and said.startswith("transactional.id.expiration.ms is 9 on broker 3: so soon")


def test_a_target_whose_broker_settings_are_secret_is_a_warning() -> None:
    there = replace(a_cluster(cluster_id="c2"), broker_configs=None)
    made = decide(a_mirror(), a_cluster(a_topic("a"), a_topic("b")), there, (), NOW)
    for check, about, key in (
        ("auto_create", "target cluster", "auto.create.topics.enable"),
        ("request_size", "target brokers", "socket.request.max.bytes"),
        ("lease", "target brokers", "transaction.max.timeout.ms"),
    ):
        assert findings(made, check) == [("warn", about, f"{key} can't be read (no DESCRIBE_CONFIGS on the cluster)")]
    made.raise_if_blocked()


def test_a_setting_that_some_brokers_do_not_tell_is_a_warning_that_names_them() -> None:
    """They have settings, and not this one: another vendor's, or as a rule of the cluster shows them."""
    made = plan(a_topic(), auto_create={2: "false"}, socket_request_max_bytes={1: "104857600"})
    assert findings(made, "auto_create") == [
        ("warn", "target cluster", "auto.create.topics.enable can't be read of broker 1, broker 3")
    ]
    assert findings(made, "request_size") == [
        ("warn", "target brokers", "socket.request.max.bytes can't be read of broker 2, broker 3")
    ]


def test_brokers_that_would_refuse_the_lease_block_by_name() -> None:
    """A cutover's mark is the longest: the refusal would come behind the fence."""
    needed = lease.LONGEST_MARK_MS
    assert levels(
        plan(a_topic(), brokers=2, transaction_max_timeout_ms={1: str(needed), 2: str(needed + 1)}), "lease"
    ) == ["pass"]
    made = plan(a_topic(), transaction_max_timeout_ms={1: str(needed), 2: str(needed - 1), 3: "60000"})
    assert findings(made, "lease") == [
        (
            "block",
            "target brokers",
            "transaction.max.timeout.ms is 159,302 on broker 2, 60,000 on broker 3; "
            "the writer lease asks for up to 159,303",
        )
    ]
    with pytest.raises(InputError, match="159303 or more"):
        made.raise_if_blocked()


def test_unknown_transaction_limits_of_brokers_only_warn() -> None:
    unreadable = replace(a_cluster(cluster_id="c2"), broker_configs=None)
    made = decide(a_mirror(), a_cluster(a_topic()), unreadable, (), NOW)
    assert [level for level, _, _ in findings(made, "lease")] == ["warn"]
    hidden = plan(a_topic(), brokers=2, transaction_max_timeout_ms={1: "900000"})
    assert findings(hidden, "lease") == [
        ("warn", "target brokers", "transaction.max.timeout.ms can't be read of broker 2")
    ]
    made.raise_if_blocked(), hidden.raise_if_blocked()


@pytest.mark.parametrize(
    ("ms", "level"), [("604800000", "pass"), ("600000", "pass"), ("599999", "warn"), ("6000", "warn")]
)
def test_a_target_that_soon_forgets_the_lease_is_a_warning(ms: str, level: str) -> None:
    made = plan(a_topic(), transactional_id_expiration_ms=ms)
    assert levels(made, "lease") == [level]
    if level == "warn":
        ((_, _, said),) = findings(made, "lease")
        assert f"transactional.id.expiration.ms is {int(ms):,}" in said


def test_groups_moved_in_part_or_not_at_all_are_named() -> None:
    groups = {"here": {"orders-0": 5}, "both": {"orders-0": 1, "audit-3": 2}, "elsewhere": {"audit-0": 1}, "never": {}}
    made = plan(a_cluster(a_topic(), groups=groups))
    assert made.groups == ["both", "here"]
    assert [o for _, o, _ in findings(made, "groups")] == ["group 'both'", "group 'elsewhere'", "group 'never'"]


def test_cluster_specific_settings_are_listed_as_left_out() -> None:
    made = plan(a_topic(vendor_tier="gold", static={"preallocate": "true"}))
    assert made.topics[0].left_out == {"preallocate": "true", "vendor.tier": "gold"}
    assert levels(made, "left_out_configs") == ["warn"]


def test_no_group_at_all_may_be_a_missing_right() -> None:
    """A broker lists those that the principal may see, and says nothing of the others."""
    [(level, about, evidence)] = findings(plan(a_topic()), "groups")
    assert (level, about) == ("warn", "source cluster") and "none of the selected groups" in evidence
    for none_move in (a_mirror(groups=[]), a_mirror(partitioning="by_key")):
        assert levels(plan(a_topic(), mirror=none_move), "groups") == ["pass"]


def test_list_that_may_lack_groups_without_a_coordinator_warns() -> None:
    here = replace(a_cluster(a_topic(), groups={"seen": {"orders-0": 5}}), sees_coordinators=False)
    for named in ([".*"], ["seen"]):
        ((level, about, evidence),) = findings(plan(here, mirror=a_mirror(groups=named)), "groups")
        assert (level, about) == ("warn", "source cluster") and "Describe on topic __consumer_offsets" in evidence


def test_groups_that_the_principal_may_not_see_are_no_whole() -> None:
    """Kafka lists what may be described, and says no error: the others would stay behind, and the plan passed."""
    here = replace(a_cluster(a_topic(), groups={"seen": {"orders-0": 5}}), hides_groups=True)
    ((level, about, evidence),) = findings(plan(here), "groups")
    assert (level, about) == ("warn", "source cluster") and "lacks DESCRIBE on group *" in evidence
    (found,) = [f for f in plan(here).findings if f.check == "groups"]
    assert "a cutover only warns of that again" in found.remedy, "its preview does"
    assert levels(plan(replace(here, hides_groups=False)), "groups") == ["pass"]
    for seen in ([], ["seen"], ["seen", exact("team.orders")]):  # who names it is told whether it is there
        assert levels(plan(here, mirror=a_mirror(groups=seen)), "groups") == ["pass"]


def test_topics_that_the_mirror_leaves_out_are_listed() -> None:
    """That is no warning: somebody has said so."""
    here = replace(a_cluster(a_topic()), other_topics=("audit", "clicks.tmp"))
    [(level, about, evidence)] = findings(plan(here), "other_topics")
    assert (level, about) == ("pass", "2 topics") and "does not select them: audit, clicks.tmp" in evidence
    [(level, _, evidence)] = findings(plan(a_cluster(a_topic())), "other_topics")
    assert (level, evidence) == ("pass", "no topic of the source is left out")


def test_groups_that_stay_behind_are_listed() -> None:
    here = replace(a_cluster(a_topic()), other_groups=("connect-sink", "console-consumer-7"))
    [(level, _, evidence)] = findings(plan(here), "other_groups")
    assert level == "warn" and "connect-sink, console-consumer-7" in evidence


def test_fewer_replicas_than_acks_all_asks_for_block() -> None:
    made = plan(a_topic(static={"min.insync.replicas": "2"}), brokers=1)
    assert levels(made, "min_insync") == ["block"]
    assert levels(plan(a_topic(static={"min.insync.replicas": "2"}), brokers=2), "min_insync") == ["pass"]


def test_existing_topic_with_too_few_replicas_blocks_too() -> None:
    there = a_topic(spans=((0, 0),) * 3, replicas=1)
    assert levels(plan(a_topic(min_insync_replicas="2"), [there]), "min_insync") == ["block"]


@pytest.mark.parametrize(
    ("fields", "here", "own", "level"),
    [
        ({"exclude_configs": ["min.insync.replicas"]}, {"min_insync_replicas": "2"}, "1", "pass"),
        ({"exclude_configs": ["min.insync.replicas"]}, {}, "2", "block"),
        ({"use_defaults_from": "target"}, {"min_insync_replicas": "1"}, "2", "pass"),
        ({"use_defaults_from": "target"}, {}, "2", "block"),
        ({}, {}, "2", "pass"),
    ],
)
def test_replicas_in_sync_are_those_that_the_created_topic_will_ask_for(
    fields: dict[str, Any], here: dict[str, str], own: str, level: str
) -> None:
    """A setting of the source that stays behind keeps nobody from writing, and one of the target does."""
    own_configs = {**DEFAULTS, "min.insync.replicas": own}
    made = plan(a_topic(replicas=1, **here), mirror=a_mirror(**fields), own_configs=own_configs)
    assert levels(made, "min_insync") == [level]
    for _, _, evidence in findings(made, "min_insync") if level == "block" else ():
        assert evidence.startswith("min.insync.replicas is 2 on the target, and the topic has 1 replica")


@pytest.mark.parametrize("field", ["exclude_configs", "keep_configs"])
@pytest.mark.parametrize(("here", "there", "level"), [("2", "1", "pass"), ("1", "2", "block")])
def test_existing_topic_that_keeps_its_replicas_in_sync_is_judged_by_them(
    field: str, here: str, there: str, level: str
) -> None:
    target = a_topic(spans=EMPTY, replicas=1, min_insync_replicas=there)
    mirror = a_mirror(**{field: ["min.insync.replicas"]})
    assert levels(plan(a_topic(min_insync_replicas=here), [target], mirror=mirror), "min_insync") == [level]


@pytest.mark.parametrize("limit", [5 << 20, 10 << 20, 18 << 20])
def test_requests_larger_than_the_target_takes_block(limit: int) -> None:
    """The batches of many partitions go in one, of up to 8 MiB and a batch."""
    source = a_topic(static={"max.message.bytes": "10485760"})
    assert levels(plan(source, socket_request_max_bytes=str(limit)), "request_size") == ["block"]
    assert levels(plan(source, socket_request_max_bytes="104857600"), "request_size") == ["pass"]


def test_settings_that_the_target_refuses_block_with_its_own_words() -> None:
    here, there = a_cluster(a_topic()), a_cluster(cluster_id="c2")
    for code in sorted(session._REFUSED):  # whatever it says each time
        name = error_name(code)
        made = decide(a_mirror(), here, replace(there, refused={"orders": Refusal(code, f"{name}: not that")}), (), NOW)
        [(level, about, evidence)] = findings(made, "refused_configs")
        assert (level, about) == ("block", "target topic 'orders'") and f"{name}: not that" in evidence

    failed = {"orders": Refusal(-1, "UNKNOWN_SERVER_ERROR: java.lang.NullPointerException")}
    [(level, _, evidence)] = findings(
        decide(a_mirror(), here, replace(there, refused=failed), (), NOW), "refused_configs"
    )
    assert level == "warn" and "NullPointerException" in evidence

    def said(**hold: str) -> str:
        refused = {"orders": Refusal(44, "POLICY_VIOLATION: at most 7 days", hold)}
        with pytest.raises(InputError, match="block this mirror; nothing was written") as e:
            decide(a_mirror(), here, replace(there, refused=refused), (), NOW).raise_if_blocked()
        return str(e.value)

    assert "exclude_configs" in said() and "hold" not in said()
    assert "the target refuses the hold" in said(retention_ms="-1")
    assert "The hold is retention_ms=-1." in said(retention_ms="-1") and "source topic" not in said(retention_ms="-1")


def test_refused_settings_of_a_topic_that_exists_block_until_the_mirror_has_begun() -> None:
    """Then the source was changed, and a tail that begins again must not stay down for what matters after the cutover."""
    here, there = a_cluster(a_topic(retention_ms="9")), a_cluster(a_topic(spans=((0, 0),) * 3), cluster_id="c2")
    refused = {"orders": Refusal(44, "POLICY_VIOLATION: retention.ms is at most 5", on_hold=False)}
    made = decide(a_mirror(), here, replace(there, refused=refused), (), NOW)
    [(level, _, evidence)] = findings(made, "refused_configs")
    assert level == "block" and "source's settings after the cutover (POLICY_VIOLATION: retention.ms" in evidence
    with pytest.raises(InputError, match=r"keep_configs=\['retention.ms'\]"):
        made.raise_if_blocked()
    begun = decide(a_mirror(), here, replace(there, refused=refused), ["orders"], NOW)
    assert [level for level, _, _ in findings(begun, "refused_configs")] == ["warn"]
    for hold in ({"retention.ms": "-1"}, {}):  # empty: the source's settings are refused as well
        both = {"orders": Refusal(44, "POLICY_VIOLATION: not for ever", hold)}
        assert levels(decide(a_mirror(), here, replace(there, refused=both), ["orders"], NOW), "refused_configs") == [
            "block"
        ]


def test_a_setting_that_the_target_refuses_by_name_can_be_left_out_by_name() -> None:
    """Kafka 4 refuses segments of less than a megabyte; the source may be older."""
    source = a_topic(static={"segment.bytes": "10240", "segment.ms": "9", "retention.bytes": "8"})
    words = "INVALID_CONFIG: Invalid value 10240 for configuration segment.bytes: Value must be at least 1048576"
    with pytest.raises(InputError, match=r"leave it out \(exclude_configs=\['segment.bytes'\]\)"):
        decide(
            a_mirror(),
            a_cluster(source),
            replace(a_cluster(cluster_id="c2"), refused={"orders": Refusal(40, words)}),
            (),
            NOW,
        ).raise_if_blocked()
    out = decide(a_mirror(exclude_configs=["segment.bytes"]), a_cluster(source), a_cluster(cluster_id="c2"), (), NOW)
    assert all("segment.bytes" not in one for one in (out.topics[0].held_configs, out.topics[0].configs))


def test_all_blocks_are_reported_together_with_what_to_do() -> None:
    source = a_cluster(a_topic("a", max_message_bytes="9000000"), a_topic("b"), a_topic("c"))
    target = [a_topic("a", spans=EMPTY), a_topic("b", spans=((0, 0),)), a_topic("c", spans=((0, 1), (0, 0), (0, 0)))]
    with pytest.raises(InputError, match="block this mirror; nothing was written") as e:
        plan(source, target).raise_if_blocked()
    assert e.value.what.startswith("3 check(s)") and e.value.cause.count("\n  - ") == 3
    assert all(word in str(e.value) for word in ("'a'", "9,000,000", "'b'", "1 on the target", "'c'", "did not write"))
