"""What keeps a fence from being raised, and how long one would last: values in, verdicts out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.cutover.forecast import Forecast, Times, forecast
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.cutover.preview import CHECKS, Preview, judge
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SAME, SchemaProof, SchemaRow
from airflow_mirror.cutover.seen import Compared, CutoverFacts, Holder
from airflow_mirror.cutover.steps import STEPS
from airflow_mirror.errors import BrokerError, CutoverBlocked, MissingRight
from airflow_mirror.jobs.runner.active import ActiveTail
from airflow_mirror.jobs.runner.state import LOST, RUNNING
from airflow_mirror.kafka.model import Replicas
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.missing_acls import Lacking

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
TIMES = Times(
    look=0.1, intent=0.2, settle=1.0, still=3.0, drain=0.5, verify=2.0, groups=0.3, positions=0, quiet=0.0,
    commits=False, handover=7.0,
)  # fmt: skip
TAIL = ActiveTail(mirror={"name": "flow"}, plan="p", inputs="i", directory="", host="host-a")
FREE = {1: 10**12}


def a_schema(schema_id: int, verdict: str = SAME) -> SchemaRow:
    return SchemaRow(topic="orders", part="value", id=schema_id, subjects=["orders-value version 2"], verdict=verdict)


WELL = CutoverFacts(
    times=TIMES, watched_s=10.0, tail=TAIL, tail_status=RUNNING, behind={ZERO: 200}, offsets_per_s=400.0,
    bytes_an_offset=1000.0, rest=500, compared=Compared(offsets=500, seconds=2.0), groups=3, free_bytes=FREE,
    replicas={"source": {ZERO: Replicas(3, 3)}, "target": {ZERO: Replicas(3, 3)}}, least={"orders": 2},
    schemas=SchemaProof(rows=[a_schema(7)], records=40, without=()),
)  # fmt: skip
HOLDER = Holder(name="billing", producer_id=7, epoch=3, since_ms=1_700_000_000_000, partitions=[ZERO])


def found(limits: Limits | None = None, **changed: Any) -> dict[str, tuple[str, str]]:
    """The verdict of each check, and its evidence, by its name."""
    return {
        f.check: (f.level, f"{f.object}: {f.evidence}") for f in judge(replace(WELL, **changed), limits or Limits())[0]
    }


def test_well_prepared_cutover_passes_with_its_evidence() -> None:
    said = found()
    assert {level for level, _ in said.values()} == {"pass"} and list(said) == list(CHECKS.rows)
    assert "200 offsets (about 200.0 KB) behind in 1 partition, at 400 offsets/s: 0.5 s" in said["lag"][1]
    assert "500 offsets left to compare, 2.0 s; 500 of them took 2.0 s" in said["compared"][1]
    findings, expected = judge(WELL, Limits())
    lines = Preview(mirror="flow", plan="p", revision="r", at=1.0, findings=findings, forecast=expected).lines()
    assert lines[0] == f"predicted length of the fence: {expected}" and not any("length:" in line for line in lines)
    assert lines[1] == "ok: tail: both clusters: the tail lives and holds the writer lease"


@pytest.mark.parametrize(
    ("changed", "level", "says"),
    [
        ({"tail_status": LOST}, "block", "no sign of life from host host-a"),
        ({"tail_status": LOST, "behind": {}}, "warn", "no sign of life"),
        ({"tail_status": LOST, "behind": {}, "written": True}, "block", "no sign of life"),
        ({"leased": False}, "block", "does not hold the writer lease"),
        ({"tail": None}, "warn", "nobody has decided on one"),
        ({"tail": None, "leased": False}, "block", "nobody has decided on one"),
    ],
)
def test_tail_must_live_where_something_is_to_be_copied(changed: dict[str, Any], level: str, says: str) -> None:
    verdict, evidence = found(**changed)["tail"]
    assert verdict == level and says in evidence


def test_partition_that_stands_still_blocks_once_watched_long_enough() -> None:
    stands: dict[str, Any] = {"behind": {ZERO: 200, ONE: 5}, "stands": [ONE]}
    assert found(**stands)["lag"] == (
        "block", "1 partition: nothing was copied for 10.0 s although the target is behind: orders-1 (5 offsets)",
    )  # fmt: skip
    assert found(**stands, watched_s=0.2)["lag"][0] == "warn"


def test_difference_found_before_the_fence_blocks() -> None:
    differs = Compared(offsets=500, seconds=2.0, differences=["orders-0 [0, 9): value at offset 3"])
    assert found(compared=differs)["compared"] == (
        "block", "1 partition: both sides differ: orders-0 [0, 9): value at offset 3",
    )  # fmt: skip
    unknown = {"rest": None, "compared": None, "times": replace(TIMES, verify=None)}
    said = found(**unknown)
    assert said["compared"][0] == said["length"][0] == "warn" and "not known: verify" in said["length"][1]
    nothing_yet = found(compared=None, times=replace(TIMES, verify=None))
    assert nothing_yet["compared"] == ("warn", "target: 500 offsets to compare, and nothing that could be yet")


def test_transaction_that_never_ends_blocks_and_an_open_one_warns() -> None:
    shown = "transactional id 'billing', producer 7, epoch 3, since 2023-11-14T22:13:20+00:00: orders-0"
    assert found(holders=[HOLDER])["transactions"] == ("warn", f"1 transaction: open: {shown}")
    hangs = replace(HOLDER, name="", hangs=True)
    findings, _ = judge(replace(WELL, holders=[HOLDER, hangs], unseen="a right"), Limits())
    said = [(f.level, f.evidence) for f in findings if f.check == "transactions"]
    assert [level for level, _ in said] == ["block", "warn", "warn"]
    assert "never end: producer 7, epoch 3, since 2023-11-14T22:13:20+00:00: orders-0" in said[0][1]
    assert "unseen: a right" in said[2][1]


def test_position_without_a_counterpart_blocks_and_others_warn() -> None:
    assert found(untranslated=["group 'a' at orders-0"])["groups"] == ("block", "1 position: group 'a' at orders-0")
    assert found(left_behind=["connect"])["groups"][0] == "warn"
    quiet = found(times=replace(TIMES, quiet=6.0))["groups"]
    assert quiet == ("warn", "source: a group of accept_still_groups has members and lag, and commits nothing")


def test_schema_id_that_is_not_the_same_on_the_target_blocks_by_name() -> None:
    rows = [a_schema(7), a_schema(8, MISSING), a_schema(9, DIFFERENT)]
    findings, _ = judge(replace(WELL, schemas=SchemaProof(rows=rows, records=40, without=())), Limits())
    one, other = (f for f in findings if f.check == "schemas")
    assert (one.level, one.object) == (other.level, other.object) == ("block", "1 schema id")
    assert "topic 'orders': id 8 of the value (orders-value version 2) is not there on the target" in one.evidence
    assert "airflow-mirror move-schemas" in one.remedy
    assert "topic 'orders': id 9 of the value (orders-value version 2) is another schema" in other.evidence

    held = SchemaProof(rows=[a_schema(7)], records=40, without=(), importing=["orders-value"])
    findings, _ = judge(replace(WELL, schemas=held), Limits())
    (one,) = (f for f in findings if f.check == "schemas" and f.level != "pass")
    assert (one.level, one.object) == ("block", "1 subject") and "orders-value" in one.evidence
    to_come = SchemaProof(rows=[a_schema(8, MISSING)], records=40, without=(), following=["orders-value version 2"])
    findings, _ = judge(replace(WELL, schemas=to_come), Limits())
    (one,) = (f for f in findings if f.check == "schemas")
    assert one.level == "block" and "The tail registers them" in one.remedy

    nothing = found(schemas=SchemaProof(rows=(), records=3, without=["orders"]))["schemas"]
    assert nothing[0] == "warn" and "none of 3 records carries an id" in nothing[1]
    assert "schemas" not in found(schemas=None), "a mirror without registries"
    away = found(schemas=None, unknown={"schemas": BrokerError("ask it", 503, "away")})["schemas"]
    assert away[0] == "block" and "not known: ask it" in away[1]


@pytest.mark.parametrize(
    ("side", "one", "level", "says"),
    [
        ("source", Replicas(3, 2), "warn", "not all their replicas are in sync: orders-1"),
        ("source", Replicas(3, 1), "warn", "not all"),
        ("target", Replicas(3, 2), "warn", "not all"),
        ("target", Replicas(3, 1), "block", "fewer replicas in sync than a write takes"),
        ("source", Replicas(3, 0, led=False), "block", "have no leader: orders-1"),
    ],
)
def test_replicas_out_of_sync_are_named(side: str, one: Replicas, level: str, says: str) -> None:
    verdict, evidence = found(replicas={**WELL.replicas, side: {ZERO: Replicas(3, 3), ONE: one}})["replicas"]
    assert verdict == level and says in evidence and f"{side}, 1 partition" in evidence


def test_ledger_that_no_replica_holds_in_sync_blocks() -> None:
    """Nobody has asked for its min.insync.replicas: one is the least."""
    decisions = {TopicPartition("airflow-mirror.decisions", 0): Replicas(3, 0)}
    assert found(replicas={**WELL.replicas, "target": decisions})["replicas"][0] == "block"


def test_room_on_the_target_and_old_brokers_are_told() -> None:
    assert found(free_bytes={1: 10**12, 2: 10**9})["disk"] == (
        "warn",
        "target, broker 2: 1.0 GB free, and 200.0 KB still to copy",
    )
    assert found(free_bytes={1: 10**3})["disk"][0] == "block"
    assert found(free_bytes={1: None})["disk"] == ("warn", "target: its brokers don't tell what is free")
    assert found(old=["leader epochs"])["versions"] == ("warn", "source: its brokers can't give: leader epochs")


def test_missing_right_blocks_unless_the_cutover_can_do_without() -> None:
    lacking = Lacking(side="target", kind="group", operation="READ", names=["a", "b"], why="commit positions")
    assert found(lacking=[lacking])["rights"] == (
        "block", "target, 2 groups: READ is not allowed to the mirror on groups a, b (commit positions)",
    )  # fmt: skip
    assert found(lacking=[replace(lacking, operation="DELETE")])["rights"][0] == "warn"
    unseen = replace(lacking, kind="cluster", operation="DESCRIBE")  # who is trusted in the ledger is asked elsewhere
    assert found(lacking=[unseen])["rights"][0] == "warn"
    assert found(rights=1234)["rights"] == ("pass", "both clusters: all granted, on 1,234 topics and groups")


@pytest.mark.parametrize("check", CHECKS.rows)
def test_what_nobody_can_know_is_not_well(check: str) -> None:
    """Only what a cluster tells those alone who have a right does no more than warn."""
    away = found(unknown={check: BrokerError("read x", 7, "REQUEST_TIMED_OUT")})[check]
    assert away[0] == "block" and "not known: " in away[1] and "REQUEST_TIMED_OUT" in away[1]
    assert found(unknown={check: MissingRight("read x", "CLUSTER_AUTHORIZATION_FAILED", "User:m")})[check][0] == "warn"


# --- the forecast ----------------------------------------------------------------------------------------------------


def test_forecast_is_the_sum_of_all_steps() -> None:
    expected = forecast(TIMES)
    assert list(expected.steps) == [step.name for step in STEPS]
    assert expected.steps == pytest.approx({
        "fence": 0.3, "prove_fence": 1.1, "drain": 0.5, "stop_writers": 0.1, "verify": 2.0, "commit_groups": 0.9,
        "stand_still": 0.0, "seal_target": 4.2, "open_target": 0.3,
    })  # fmt: skip
    assert expected.seconds == pytest.approx(9.4) and not expected.unknown
    many = forecast(replace(TIMES, positions=30_000)).steps
    assert many["commit_groups"] == pytest.approx(0.9 + 1.8) and many["seal_target"] == pytest.approx(4.2 - 1.8)
    assert str(expected).startswith("9.4 s (fence 0.3, prove_fence 1.1, drain 0.5")


def test_groups_take_what_is_left_until_they_commit() -> None:
    """The time in which a consumer commits next runs from the fence; that it stands still is seen only behind it."""
    wait = 5.0 - 3.7
    assert forecast(replace(TIMES, commits=True)).steps["commit_groups"] == pytest.approx(0.6 + wait + 0.3 / wait)
    assert forecast(replace(TIMES, commits=True, verify=4.0)).steps["commit_groups"] == pytest.approx(0.9)
    early = replace(TIMES, commits=True, drain=0.0, verify=0.0, still=1.0)
    assert forecast(early).steps["commit_groups"] == pytest.approx(0.6 + 3.8 + 0.3 / 3.8)
    assert forecast(replace(early, quiet=6.0)).steps["commit_groups"] == pytest.approx(6.9), "they rest all at once"


@pytest.mark.parametrize(("changed", "says"), [({}, False), ({"commits": True}, True), ({"quiet": 5.0}, True)])
def test_members_that_crash_hold_a_fence_up_for_as_long_as_nobody_can_tell(changed: dict[str, Any], says: bool) -> None:
    text = str(forecast(replace(TIMES, **changed)))
    assert text.endswith("session timeout of its clients (45 s by default) longer") is says


def test_unknown_parts_make_a_forecast_a_least_one() -> None:
    expected = forecast(replace(TIMES, drain=None))
    assert (
        expected.unknown == ["drain"]
        and str(expected).startswith("at least 8.9 s (")
        and "not known: drain" in str(expected)
    )
    assert expected.to_dict()["steps"]["drain"] is None and expected.to_dict()["seconds"] == pytest.approx(8.9)


def test_fence_that_would_last_too_long_blocks() -> None:
    assert found(Limits(max_fence_s=9.5))["length"][0] == "pass"
    level, evidence = found(Limits(max_fence_s=9.3))["length"]
    assert level == "block" and "it would last 9.4 s (" in evidence and "max_fence_s is 9.3" in evidence
    assert found(Limits(max_fence_s=8.8), times=replace(TIMES, drain=None))["length"][0] == "block", "at least"


def test_every_block_is_told_at_once() -> None:
    block, warn = Finding("block", "lag", "x", "stands", "Do."), Finding("warn", "disk", "y", "full", "Do.")
    one = Preview(
        mirror="flow", plan="p", revision="r", at=1.0, findings=[block, replace(block, check="tail"), warn],
        forecast=Forecast(steps={"drain": 1.0}),
    )  # fmt: skip
    with pytest.raises(
        CutoverBlocked, match=r"2 finding\(s\); nothing was touched:\n  - lag: x: stands\. Do\.\n  - tail"
    ):
        one.raise_if_blocked()
    assert one.lines()[0] == "predicted length of the fence: 1.0 s (drain 1.0)" and one.lines()[3].startswith(
        "warn: disk: y"
    )
    replace(one, findings=[warn]).raise_if_blocked()
