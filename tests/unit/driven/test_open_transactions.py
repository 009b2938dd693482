"""Which transactions are open is believed only if every coordinator told all that it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import BrokerError
from airflow_mirror.extras.readiness.look import transactional_ids
from airflow_mirror.jobs.driver.stable import left_behind, stable_ends
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.held import named
from airflow_mirror.kafka.model import COORDINATORS
from airflow_mirror.kafka.transactions import telling_ids
from airflow_mirror.wire.error_codes import ErrorCode
from airflow_mirror.wire.errors import ApiNotServed
from airflow_mirror.wire.routing import TRANSACTION
from tests.builders import rule
from tests.driven.cluster import DrivenCluster
from tests.driven.content import Writer
from tests.driven.handlers import describe_acls
from tests.driven.release import RELEASES
from tests.driven.script import Fault

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
FORBIDDEN = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture
def cluster() -> Iterator[DrivenCluster]:
    with DrivenCluster("source", brokers=2) as made:
        made.create("orders"), made.create("payments")
        yield made


@pytest.fixture
def admin(cluster: DrivenCluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(cluster.config, timeout_s=2) as admin:
        yield admin


def refused(admin: ClusterAdmin, match: str) -> None:
    """Ask what no broker answers, and wait a moment for that."""
    admin.timeout_s = 0.1
    with pytest.raises(BrokerError, match=match):
        admin.open_transactions()


def begin(cluster: DrivenCluster, name: str, *tps: TopicPartition) -> tuple[int, int]:
    identity = cluster.transactions.init(name, 60_000)
    cluster.transactions.add(name, *identity, set(tps))
    return identity


def test_a_transaction_without_data_is_open_with_its_partitions(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    cluster.transactions.init("idle", 60_000)
    done = begin(cluster, "done", PAYMENTS)
    cluster.transactions.end("done", *done, commit=True)
    producer_id, epoch = begin(cluster, "open", ORDERS, PAYMENTS)
    (found,) = admin.open_transactions()
    assert (found.transactional_id, found.producer_id, found.epoch, found.state) == (
        "open",
        producer_id,
        epoch,
        "Ongoing",
    )
    assert found.partitions == {ORDERS, PAYMENTS} and found.started_ms == cluster.clock.now_ms
    cluster.transactions.holds_markers = True
    cluster.transactions.end("open", producer_id, epoch, commit=True)
    assert [one.state for one in admin.open_transactions()] == ["PrepareCommit"], "its markers are to come"


def test_coordinators_that_move_are_all_asked_again(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    begin(cluster, "open", ORDERS)
    cluster.move_coordinator(TRANSACTION, 2)
    move = Fault(before=lambda _: cluster.move_coordinator(TRANSACTION, 1))
    cluster.script.on("DescribeTransactions", move)
    assert [one.transactional_id for one in admin.open_transactions()] == ["open"]


def test_a_coordinator_that_moves_between_two_answers_is_asked_again(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    """To a broker that had answered, from one that had not: neither listed its transactions."""
    begin(cluster, "open", ORDERS)
    cluster.create(COORDINATORS)

    def lead(broker: int) -> None:
        cluster.move_leader(TopicPartition(COORDINATORS, 0), broker)
        cluster.move_coordinator(TRANSACTION, broker)

    lead(2)
    moved = cluster.script.on("ListTransactions", Fault(before=lambda _: lead(1)), broker=2)
    assert [one.transactional_id for one in admin.open_transactions()] == ["open"] and len(moved.hits) == 1


@pytest.mark.parametrize(
    "fault", [Fault.lost_answer(), Fault.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), Fault.cut_answer(9)]
)
@pytest.mark.parametrize("api", ["ListTransactions", "DescribeTransactions"])
def test_part_of_the_answers_is_no_answer(cluster: DrivenCluster, admin: ClusterAdmin, api: str, fault: Fault) -> None:
    begin(cluster, "open", ORDERS)
    cluster.script.on(api, fault)
    assert [one.transactional_id for one in admin.open_transactions()] == ["open"]
    cluster.script.on(api, Fault.refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), times=None)
    refused(admin, "list transactions.*COORDINATOR_LOAD_IN_PROGRESS")


def test_a_coordinator_without_a_leader_is_no_answer(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    cluster.create(COORDINATORS, 2)
    assert admin.open_transactions() == []
    cluster.move_leader(TopicPartition(COORDINATORS, 1), -1)
    refused(admin, f"{COORDINATORS}|COORDINATOR_NOT_AVAILABLE")


def test_broker_that_does_not_know_the_coordinators_is_no_answer(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    """It has just started: what it coordinates, it does not know either."""
    cluster.create(COORDINATORS)
    unknown = Fault.refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    asks = lambda request: [t.name for t in request.message.topics or []] == [COORDINATORS]  # noqa: E731
    cluster.script.on("Metadata", unknown, times=1, broker=2, when=asks)
    assert admin.open_transactions() == []
    cluster.script.on("Metadata", unknown, times=None, broker=2, when=asks)
    refused(admin, "COORDINATOR_NOT_AVAILABLE")


def test_without_an_authorizer_nothing_is_hidden(admin: ClusterAdmin) -> None:
    assert admin.transactions_hidden() == ""


def test_ids_that_may_not_be_described_are_said_to_be_hidden(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    """By whichever broker: each goes by the ACLs that it knows."""
    cluster.script.on("DescribeTransactions", Fault.refused(FORBIDDEN), broker=2)
    assert admin.transactions_hidden().endswith("lacks Describe on transactional id *")


def test_coordinators_that_may_not_be_described_are_said_to_be_hidden(
    cluster: DrivenCluster, admin: ClusterAdmin
) -> None:
    asks = lambda request: [t.name for t in request.message.topics or []] == [COORDINATORS]  # noqa: E731
    cluster.script.on("Metadata", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None, when=asks)
    assert admin.transactions_hidden().endswith(f"lacks Describe on topic {COORDINATORS}")


def test_brokers_before_3_hide_all_transactions() -> None:
    with DrivenCluster("source", version="2.8.2") as old, ClusterAdmin(old.config, timeout_s=2) as admin:
        assert admin.transactions_hidden().startswith("brokers before 3.0 do not list transactions")
        with pytest.raises(ApiNotServed, match="ListTransactions"):
            admin.open_transactions()


def test_brokers_that_serve_no_acls_hide_some_perhaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MSK with IAM does not: what is listed is still what is there."""
    without = replace(RELEASES["4.4.0"], serves={**RELEASES["4.4.0"].serves, describe_acls.KEY: (0, -1)})
    monkeypatch.setitem(RELEASES, "4.4.0", without)
    with DrivenCluster("target") as cluster, ClusterAdmin(cluster.config, timeout_s=2) as admin:
        assert "ACLs can't be read" in (why := admin.transactions_hidden()) and "DescribeAcls" in why
        hidden = list[str]()
        assert transactional_ids(admin, hidden) == {} and len(hidden) == 1


def test_one_id_is_tried_for_each_rule_about_ids() -> None:
    rules = [
        rule("billing", "WRITE", kind="TRANSACTIONAL_ID"), rule("*", "DESCRIBE", kind="TRANSACTIONAL_ID"),
        rule("app-", "DESCRIBE", "DENY", kind="TRANSACTIONAL_ID", pattern="PREFIXED"),
    ]  # fmt: skip
    assert list(telling_ids(rules, "x1")) == ["billing", "app-x1"]


def test_what_waits_for_a_transaction_is_named_with_whose_it_is(
    cluster: DrivenCluster, admin: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_mirror.jobs.driver.stable.PATIENCE_S", 0.0)
    producer_id, epoch = begin(cluster, "app-1", ORDERS)
    writer = Writer(cluster.topics["orders"].logs[0])
    writer.plain(4)
    writer.in_transaction(producer_id, 1, epoch)
    writer.plain(1000)
    Writer(cluster.topics["payments"].logs[0]).in_transaction(4711, 2)
    _, found = stable_ends(admin.wire, [PAYMENTS, ORDERS])
    assert [str(one) for one in named(admin, found)] == [
        "orders-0: 1,001 offsets behind an open transaction since offset 4 (transactional id 'app-1')",
        "payments-0: 2 offsets behind an open transaction since offset 0 (producer id 4711)",
    ]
    assert left_behind(found, {ORDERS: 3, PAYMENTS: 0}) == found[1:], "a range may end before"
    cluster.script.on("DescribeProducers", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=9)
    assert named(admin, found) == found, "who may not know whose it is still knows that it is"


def test_a_transaction_that_ends_at_once_keeps_nothing_back(cluster: DrivenCluster, admin: ClusterAdmin) -> None:
    """Exactly-once writers always have one."""
    writer = Writer(cluster.topics["orders"].logs[0])
    writer.in_transaction(4711, 2)
    cluster.script.on("ListOffsets", Fault(after=lambda _: writer.end(4711, commit=True)), nth=2)
    assert stable_ends(admin.wire, [ORDERS]) == ({ORDERS: 3}, [])
