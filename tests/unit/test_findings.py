"""What each pipeline of checks finds, word for word: where all is well, where nothing is, and where nobody answers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.copy.writer.identity import data_producer_id
from airflow_mirror.cutover import preview
from airflow_mirror.cutover.callable_fence import CallableFence
from airflow_mirror.cutover.check import refusals
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.schema_ids import MISSING, SchemaProof
from airflow_mirror.cutover.seen import Compared
from airflow_mirror.errors import BrokerError, MissingRight
from airflow_mirror.extras.adopt.examine import Limits as Adoptable
from airflow_mirror.extras.drill.report import failures
from airflow_mirror.extras.readiness.drift import drift
from airflow_mirror.extras.readiness.logs import Limits as Deleting
from airflow_mirror.jobs.health import judging
from airflow_mirror.jobs.runner.wishes import Wish
from airflow_mirror.kafka.model import GroupInfo, Replicas
from airflow_mirror.kafka.quotas import QuotaEntity
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.findings import block, warn
from airflow_mirror.plan.holes import HoleSamples
from airflow_mirror.plan.inventory import Refusal
from airflow_mirror.plan.ledger_writers import Writer
from airflow_mirror.plan.missing_acls import Lacking
from airflow_mirror.plan.model import Capabilities, HoleEstimate
from airflow_mirror.plan.upstream import Upstream
from airflow_mirror.sync.lag import PartitionLag
from airflow_mirror.wire.served import Without
from tests.unit.adopt.test_limits import CLEAN
from tests.unit.cutover import test_check, test_preview
from tests.unit.cutover.builders import Logs, a_run, want
from tests.unit.drill.test_drill import a_drill
from tests.unit.jobs import test_health
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW
from tests.unit.plan.test_model import a_plan
from tests.unit.readiness import test_build

GOLDEN = Path(__file__).parents[1] / "golden" / "findings.json"
AWAY, SECRET = (
    BrokerError("ask x", 7, "REQUEST_TIMED_OUT"),
    MissingRight("ask x", "CLUSTER_AUTHORIZATION_FAILED", "User:m"),
)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_findings_say_what_they_always_said(tmp_path: Path) -> None:
    """Re-made by UPDATE_GOLDEN=1; review the difference."""
    said = {
        "plan": plan(), "precheck": precheck(tmp_path), "preview": cutover(), "health": health(), "night": night(),
        "drill": drill(), "adopt": adopt(),
    }  # fmt: skip
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    assert said == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_finding_says_its_remedy_with_and_without_an_object() -> None:
    """Without one it left out what to do; behind an error's full stop there was a second one."""
    whole = block("it is full.", "Free some.")
    assert str(replace(whole, check="disk")) == "disk: it is full. Free some."
    assert str(replace(whole, check="disk", object="b1")) == "disk: b1: it is full. Free some."
    assert str(replace(whole, check="disk", remedy="")) == "disk: it is full."


def test_finding_in_lines_is_wrapped_and_can_fake_none() -> None:
    """Names of groups are their owners', line breaks included."""
    said = replace(warn("group 'x\nblock  disk' " * 9, "Free some. " * 20, "b1"), check="disk").lines.splitlines()
    assert said[:2] == ["warn  disk: b1", "  why: " + said[1][7:]] and max(map(len, said)) <= 110
    assert sum(line.startswith("  do:  Free") for line in said) == 1
    assert all(line.startswith("       ") or line[:7] in ("  why: ", "  do:  ") for line in said[1:])


def lines(findings: Iterable[Any]) -> list[str]:
    return [" | ".join((f.level, f.check, f.object, f.evidence, f.remedy)) for f in findings]


def plan() -> dict[str, list[str]]:
    a, b = (TopicPartition(name, 0) for name in "ab")
    here = replace(
        a_cluster(
            a_topic("a", max_message_bytes="9000000", min_insync_replicas="5", vendor_x="1"),
            a_topic("b", stable={0: 90}), a_topic("c", spans=((7, 9),), cleanup_policy="compact"), a_topic("d"),
            a_topic("h", spans=((0, 99),)),
            groups={"both": {"a-0": 1, "x-0": 2}, "none": {}}, sizes={"a": 7 * 10**12},
            quotas={QuotaEntity.of(user="m"): {"consumer_byte_rate": 1e6}},
        ),
        upstream=Upstream("c1", unreadable="no right"), returning=("back",), traces=("mm2",), displaced=("heartbeats",),
        again={"old": "old"}, other_topics=("left",), other_groups=("theirs",), names=("a", "b", "c", "x.internal"),
        gone=("gone",), holders={b: "billing"}, absent={"z1": "hidden", "z2": "deleted", "gone": "deleted"},
    )  # fmt: skip
    there = replace(
        a_cluster(
            a_topic("a", spans=((0, 0), (0, 0)), compression_type="zstd", message_timestamp_type="LogAppendTime"),
            a_topic("b", spans=((0, 9), (0, 0), (0, 0))), a_topic("d", spans=((0, 900), (0, 0), (0, 0), (0, 0))),
            cluster_id="c2", brokers=2, auto_create="true", usable_bytes={1: 5, 2: 9}, quotas=None,
            socket_request_max_bytes="9", transactional_id_expiration_ms="7", transaction_max_timeout_ms={1: "5"},
        ),
        unfit_traces={"heartbeats": "two partitions"}, ledger_writers=(Writer("User:x", "a rule", "kafka-acls"),),
    )  # fmt: skip
    wrong = a_mirror(
        topics=["a", "b", "c", "d", "h", "typo", "gone", "z.*"], exclude_topics=["slip"], groups=["both", "slip"]
    )
    poor = Capabilities(markers="coordinator", lacks=("CREATE",), note="a note")
    samples = HoleSamples({"h": HoleEstimate(50, 9, 0.5, 99)}, {"b": "no right"})
    refused = {"c": Refusal(44, "POLICY", {}), "h": Refusal(40, "INVALID_CONFIG: retention.ms", {"retention.ms": "-1"})}
    silent = {"a": Refusal(None, "timed out")}
    old = (Without("leader epochs", "2.1", "less is seen"),)
    before, filled = replace(here, lost=old), replace(there, refused=refused)
    dark = replace(
        a_cluster(cluster_id="c2", quotas=None), broker_configs=None, usable_bytes={}, refused=silent,
        refused_ledger=silent,
    )  # fmt: skip
    shared = a_mirror(ownership="shared", delivery="transactional", sync_groups=False, sync_configs=False)
    return {
        "well": lines(decide(a_mirror(), a_cluster(a_topic()), a_cluster(cluster_id="c2"), (), NOW).findings),
        "wrong": lines(decide(wrong, before, filled, {"d": "mapped"}, NOW, samples, poor).findings),
        "ours": lines(decide(wrong, here, there, dict.fromkeys("abcd", "identical"), NOW, samples).findings),
        "dark": lines(decide(a_mirror(), a_cluster(a_topic("a"), sizes=None), dark, (), NOW).findings),
        "shared": lines(decide(shared, here, there, (), NOW).findings),
        "by_key": lines(decide(a_mirror(partitioning="by_key", policy="prefix"), here, there, (), NOW).findings),
        "itself": lines(decide(a_mirror(), a_cluster(a_topic()), a_cluster(), (), NOW).findings),
        "golden": lines(a_plan().findings),
    }


def precheck(tmp_path: Path) -> dict[str, list[str]]:
    run = a_run(tmp_path / "run", CallableFence(lambda: None, lambda: None))
    topics: Any = test_check.Topics("orders", "payments")
    logs: Any = Logs({test_check.ORDERS: 100, test_check.PAYMENTS: 50})
    run.on.source.admin = run.on.target.admin = topics
    run.on.source.log = run.on.target.log = logs
    found = {"well": lines(refusals(run))}
    topics.names = ("orders", "payments", "more")
    found["drift"] = lines(refusals(run))
    want(run, plan=replace(run.plan, mirror=replace(run.plan.mirror, partitioning="by_key")))
    return found | {"by_key": lines(refusals(run))}


def cutover() -> dict[str, list[str]]:
    well, hangs = test_preview.WELL, replace(test_preview.HOLDER, hangs=True)
    no_leader, short = Replicas(3, 0, led=False), Replicas(3, 1)
    wrong = replace(
        well, tail=None, leased=False, stands=[test_preview.ZERO], rest=None, holders=[test_preview.HOLDER, hangs],
        unseen="a right", untranslated=["group 'g' at t-0"], applications={"app": "Kafka Streams"}, still=["g (lag 4)"],
        left_behind=["theirs"], left_out={"mine": "it begins anew"}, old=["epochs"], free_bytes={1: 5},
        lacking=[Lacking(side="target", kind="group", operation=op, names=["g"], why="why") for op in ("READ", "DELETE")],
        replicas={"source": {T0: no_leader}, "target": {T1: short}}, least={"t": 2}, times=replace(well.times, quiet=6.0),
        schemas=SchemaProof(rows=[test_preview.a_schema(3, MISSING)], records=9, without=()),
    )  # fmt: skip
    warned = replace(
        wrong, stops=True, watched_s=0.1, tail_status="LOST", tail=well.tail, behind={}, stands=(), rest=9, compared=None,
        times=replace(well.times, verify=None), replicas={"source": {T0: Replicas(3, 2)}}, free_bytes={1: 10**9},
    )  # fmt: skip
    differs = replace(well, compared=Compared(offsets=9, seconds=2.0, differences=["t-0: value"]), free_bytes={1: None})
    names = ("tail", "lag", "compared", "transactions", "groups", "replicas", "rights", "versions", "disk", "schemas")
    return {
        name: lines(preview.judge(seen, Limits(max_fence_s=most_s))[0])
        for name, seen, most_s in (
            ("well", well, 60.0), ("wrong", wrong, 60.0), ("warned", warned, 60.0), ("differs", differs, 1.0),
            ("away", replace(well, unknown=dict.fromkeys(names, AWAY)), 60.0),
            ("secret", replace(well, unknown=dict.fromkeys(names, SECRET)), 60.0),
        )
    }  # fmt: skip


def health() -> dict[str, list[str]]:
    well, wish = test_health.WELL, Wish(by="ann", at="noon")
    sign = test_health.sign(
        summary={"states": {"stopped": 2}, "stopped": ["t-0: x"], "open_transactions": ["t-0: open"]}, notes=["n"],
        follows={"groups": {"error": "no right", "said": ["alone"]}, "topics": {"said": ["1 left out"]}},
    )  # fmt: skip
    wrong = replace(
        well, tail=replace(sign, differing=["topics: a there, b asked for"]), lease="nobody", late={T0}, racing={T0: 9.0},
        lags=[PartitionLag(T0, 0, 9)], lost={T1: 3},
        not_held=[("t", "retention.ms", "5")], free_bytes={1: 7}, fences=["a fence"], fences_gone=["another"],
        unexplained=["DENY"],
    )  # fmt: skip
    names = ("tail", "lease", "lag", "retention", "hold", "disk", "fence")
    every = {
        "well": well, "wrong": wrong, "paused": replace(well, tail=test_health.tail(pause=wish)),
        "never": judging.Facts(), "away": replace(well, unknown=dict.fromkeys(names, AWAY)),
        "secret": replace(well, unknown=dict.fromkeys(names, SECRET)),
        **{status: replace(well, tail=test_health.tail(status=status)) for status in ("LOST", "FAILED", "SUCCEEDED")},
        "ended": replace(well, tail=test_health.tail(status="FAILED", ended="ended by cutover")),
    }  # fmt: skip
    limits = judging.Limits(max_lag_records=3)
    return {name: [troubled(one) for one in judging.judge(facts, limits)] for name, facts in every.items()}


def troubled(one: Any) -> str:
    return f"{'fails' if one.level == 'block' else 'warns'} | {one}"


def night() -> dict[str, list[str]]:
    log, at = test_build.log, test_build.at
    limit = Deleting(retention_s=None, retention_bytes=1000, segment_bytes=1, segment_s=1.0)
    states = {TopicPartition(t, 0): [test_build.writing(1)] for t in ("orders", "pay")}
    mirror = data_producer_id("other", TopicPartition("users", 0))
    wrong = test_build.night(
        positions={"a": at("orders"), "b": at("pay"), "new": {}, "app": at("orders")},
        producers={**states, TopicPartition("users", 0): [test_build.writing(mirror)], TopicPartition("users", 1): []},
        groups=[
            GroupInfo("new", "Stable", "consumer"), GroupInfo("app", "Empty", "consumer"),
            GroupInfo("s", "Empty", "share", group_type="share"),
        ],
        topics=["app-x-changelog", "orders"], limits={"pay": limit},
        logs={
            TopicPartition("orders", 0): log(position=8), TopicPartition("pay", 0): log(),
            TopicPartition("users", 1): log(position=90, produced_per_s=1.0),
        },
    )  # fmt: skip
    return {
        "well": lines(test_build.night().findings), "wrong": lines(wrong.findings),
        "drift": lines(drift(test_build.night().to_json(), replace(wrong, topics={}))),
    }  # fmt: skip


def drill() -> dict[str, list[str]]:
    row = {"fault": "kill_tail", "noticed_s": None, "how": "it was not noticed"}
    figures = {"rpo_s": 1.0, "rto_s": 1.0, "lost": 2, "skipped": 1, "reread": 3}
    back = {"differing": ["t-0: end"], "nowhere": 2, "skipped": 1, "reread": 3}
    return {
        "missed": failures(a_drill(figures, {"rpo_s": 0.4}, failback=back, rehearsal=[row])),
        "nothing": failures(a_drill({}, {}, failback={})),
    }


def adopt() -> dict[str, list[str]]:
    counts = {**CLEAN.counts, "ambiguous": 50, "missing": 2, "unknown": 3, "disordered": 4}
    spans = dict.fromkeys(counts, [(3, 8)])
    return {"refused": list(Adoptable().refusals(replace(CLEAN, counts=counts, ranges=spans, undecided=2)))}
