"""Managed clusters: recognised or told, refused where a ledger can't live, and docs/managed.md."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.errors import InvalidField
from airflow_mirror.mirror import TARGET_KINDS
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.documented import ABOUT, SAID
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.targets import KINDS, NOT_KNOWN, Fact, kind_of
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic

PAGE = Path(__file__).parents[3] / "docs" / "managed.md"
NOW = datetime(2026, 11, 27, tzinfo=UTC)


@pytest.mark.parametrize(
    ("bootstrap", "kind"),
    [
        ("b-1.demo.abcde1.c2.kafka.us-east-1.amazonaws.com:9098,b-2.x:9098", "msk"),
        ("boot-abcde1.c2.kafka-serverless.us-east-1.amazonaws.com:9098", "msk-serverless"),
        ("b-1.demo.kafka.cn-north-1.amazonaws.com.cn:9098", "msk"),
        ("pkc-abc12.eu-west-1.aws.confluent.cloud:9092", "confluent-cloud"),
        ("orders.servicebus.windows.net:9093", "event-hubs"),
        ("Kafka-1-acme.AIVENCLOUD.com:12345", "aiven"),
        ("seed-1.abc.byoc.prd.cloud.redpanda.com:9092", "redpanda"),
        ("bootstrap.orders.europe-west1.managedkafka.my-project.cloud.goog:9092", "google"),
        ("broker1.example.com:9092", None),
        ("kafka.us-east-1.amazonaws.com.example.com:9092", None),
        ("ec2-1.us-east-1.compute.amazonaws.com:9092", None),
    ],
)
def test_kind_by_addresses(bootstrap: str, kind: str | None) -> None:
    assert kind_of("auto", bootstrap) == kind
    assert kind_of("msk-express", bootstrap) == "msk-express" and kind_of("kafka", bootstrap) is None


def found(kind: str | None, told: str = "auto", by_address: str | None = None, **answers: Any) -> list[Finding]:
    served = answers.pop("served", frozenset())
    target = replace(a_cluster(cluster_id="c2", kind=kind, kind_by_address=by_address, **answers), served=served)
    plan = decide(a_mirror(target_kind=told), a_cluster(a_topic("orders")), target, (), NOW)
    return [finding for finding in plan.findings if finding.check == "target_kind"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("msk-express", "unclean elections are on"), ("event-hubs", "no settings by the admin API"),
        ("msk-serverless", "`min.insync.replicas`, which the ledger's have"),
    ],
)  # fmt: skip
def test_plan_is_refused_where_no_ledger_can_live_and_says_nothing_else(kind: str, says: str) -> None:
    (block,) = decide(a_mirror(), a_cluster(a_topic("orders")), a_cluster(cluster_id="c2", kind=kind), (), NOW).findings
    assert (block.level, block.object) == ("block", "target cluster")
    assert f"it is {KINDS[kind].title}, by its addresses, and its ledger can't be there: " in block.evidence
    assert says in block.evidence and "the vendor's" in block.evidence and "set target_kind" in block.remedy


def test_what_another_kind_fixes_is_told_and_a_cluster_of_no_kind_passes() -> None:
    (told,) = found("confluent-cloud", "confluent-cloud")
    assert told.level == "pass" and "it is Confluent Cloud, as target_kind says: `cleanup.policy`" in told.evidence
    assert found("aiven")[0].evidence.endswith("nothing is known that it forbids")
    assert [finding.level for finding in found(None)] == ["pass"]


def test_kind_that_the_addresses_contradict_is_refused_with_both_names() -> None:
    (block,) = found("aiven", "aiven", "confluent-cloud")
    assert block.level == "block" and "says Aiven for Apache Kafka, and" in block.evidence
    assert block.evidence.endswith("are those of Confluent Cloud") and "'confluent-cloud' or 'auto'" in block.remedy
    (block,) = found("event-hubs", "event-hubs", "msk")  # what it forbids is not said of a cluster that it is not
    assert "are those of Amazon MSK, standard brokers" in block.evidence


@pytest.mark.parametrize(("told", "by_address"), [("aiven", None), ("aiven", "aiven"), ("msk-express", "msk")])
def test_kind_that_the_addresses_do_not_contradict_is_taken(told: str, by_address: str | None) -> None:
    (finding,) = found(told, told, by_address)
    assert f"it is {KINDS[told].title}, as target_kind says" in finding.evidence


def test_who_says_that_addresses_mislead_is_told_what_is_not_looked_at() -> None:
    (warning,) = found(None, "kafka", "aiven")
    assert warning.level == "warn" and "Aiven for Apache Kafka: what that fixes" in warning.evidence


@pytest.mark.parametrize(
    ("kind", "answers", "says"),
    [
        ("redpanda", {"served": frozenset({"Produce", "WriteTxnMarkers"})}, "it serves WriteTxnMarkers"),
        ("confluent-cloud", {"brokers": 1}, "its brokers are 1, too few for 3 replicas"),
        ("confluent-cloud", {"own_configs": {"compression.type": "zstd"}}, "compression.type is zstd"),
        ("confluent-cloud", {"own_configs": {"segment.bytes": "1048576"}}, "segment.bytes is 1048576"),
        ("confluent-cloud", {"own_configs": {"delete.retention.ms": "60566400001"}}, "retention.ms is 60566400001"),
    ],
)
def test_kind_that_the_clusters_own_answers_contradict_is_refused(kind: str, answers: dict[str, Any], says: str) -> None:
    """Recognised by its addresses it is of that kind, whatever it has learnt since the table was written."""
    (block,) = found(kind, kind, **answers)
    assert block.level == "block" and "as none of these does: " in block.evidence and block.evidence.endswith(says)
    assert "Correct target_kind of the Mirror" in block.remedy
    (warning,) = found(kind, **answers)
    assert warning.level == "warn" and says in warning.evidence and "older than this cluster" in warning.evidence


def test_every_kind_knows_whose_addresses_it_has() -> None:
    assert all(kind.address or KINDS[kind.addressed_as].address for kind in KINDS.values())


@pytest.mark.parametrize(("fields", "replicas"), [({}, 3), ({"replication_factor": 2}, 2)])
def test_topics_get_the_replicas_that_every_topic_of_the_kind_has(fields: dict[str, int], replicas: int) -> None:
    """Who asks for another number is refused by the cluster, in its words."""
    target = a_cluster(cluster_id="c2", kind="confluent-cloud", brokers=6)
    plan = decide(a_mirror(**fields), a_cluster(a_topic("orders", replicas=1)), target, (), NOW)
    assert [topic.replication_factor for topic in plan.topics] == [replicas]
    assert [f.level for f in plan.findings if f.check == "replication"] == ["pass"]


def test_rules_are_of_those_that_the_stand_in_and_the_plan_know() -> None:
    known = re.compile(r"replicas|cluster|unserved|(fixed|least|most|never)\.[a-z.]+")
    assert all(known.fullmatch(key) and value for kind in KINDS.values() for key, value in kind.rules.items())


def test_every_kind_can_be_told() -> None:
    assert set(KINDS) == set(TARGET_KINDS)
    assert all(a_mirror(target_kind=kind).target_kind == kind for kind in ("auto", "kafka", *KINDS))
    with pytest.raises(InvalidField, match="target_kind='msk-expres'.*msk-express"):
        a_mirror(target_kind="msk-expres")


# --- docs/managed.md -------------------------------------------------------------------------------------------------


def cell(fact: Fact) -> str:
    return f"{'**no**: ' if fact.forbids else ''}{fact.says}" + (f" ({fact.source})" if fact.source else "")


def tables() -> str:
    lines = ["| `target_kind` | cluster | recognised by | ledger | lease |", "| --- | --- | --- | --- | --- |"]
    for name, kind in KINDS.items():
        by = f"`{kind.address}`".replace("|", "\\|") if kind.address else "not by its addresses: say it"
        lines.append(f"| `{name}` | {kind.title} | {by} | {cell(kind.ledger)} | {cell(kind.lease)} |")
    lines += ["", "| cluster | fixes, forbids, lacks | source | stand-in |", "| --- | --- | --- | --- |"]
    for kind in KINDS.values():
        for fact in kind.facts or (NOT_KNOWN,):
            rules = ", ".join(f"`{key}={value}`" for key, value in fact.rules.items())
            lines.append(f"| {kind.title} | {fact.says} | {fact.source or 'none yet'} | {rules} |")
    return "\n".join(lines) + "\n"


def documented() -> str:
    lines = ["| cluster | about | says | source |", "| --- | --- | --- | --- |"]
    for name, kind in KINDS.items():
        said = SAID[name]
        for about in ABOUT:
            if about in said:
                says, page = said[about]
                lines.append(f"| {kind.title} | {about} | {says} | [{page.title}]({page.address}) |")
        silent = ", ".join(about for about in ABOUT if about not in said)
        lines.append(f"| {kind.title} | {silent} | not documented | |")
    return "\n".join(lines) + "\n"


def replaced(page: str, head: str, table: str) -> str:
    begin, _, rest = page.partition(head)
    _, _, end = rest.partition("\n\n## ")
    return f"{begin}{table}\n## {end}"


def test_page_is_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    wanted = replaced(page, "| `target_kind` |", tables())
    wanted = replaced(wanted, "| cluster | about |", documented())
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(wanted, encoding="utf-8")
    else:
        assert page == wanted


def test_every_kind_says_what_of_it_is_documented_and_where() -> None:
    assert SAID.keys() == KINDS.keys()
    for said in SAID.values():
        assert said.keys() < set(ABOUT)
        assert all(says and page.title and page.address.startswith("https://") for says, page in said.values())


def test_every_fact_has_its_source() -> None:
    facts = [fact for kind in KINDS.values() for fact in (*kind.facts, kind.ledger, kind.lease)]
    assert all(fact.source for fact in facts if fact is not NOT_KNOWN)
    assert all(kind.forbids == [] or "(the vendor's" in kind.forbids[0] for kind in KINDS.values())
