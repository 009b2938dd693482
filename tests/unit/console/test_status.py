"""What people see of the mirrors of a target."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.cutover.decision import LIFTED, OPENED, UP, FenceState
from airflow_mirror.cutover.decision_copy import note_copy
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.jobs.runner import process
from airflow_mirror.jobs.runner.active import ActiveTail, Heartbeat, JobId
from airflow_mirror.jobs.runner.wishes import Wish, wish
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import State
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.wire.error_codes import ErrorCode
from tests.builders import plan_of, rule, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.driven.protocol import API_VERSIONS
from tests.driven.script import Fault
from tests.memory.rules import Rules
from tests.unit.console.conftest import Time
from tests.unit.ledger.kinds import MORE, every
from tests.unit.plan.builders import a_mirror


@pytest.fixture
def ledger(dst: LedgerCluster) -> Ledger:
    return dst.ledger


@pytest.fixture
def state(dst: LedgerCluster) -> State:
    """What the target's ledger says."""
    return dst.state


def tail(ledger: Ledger, name: str, host: str) -> ActiveTail:
    one = ActiveTail(mirror={"name": name}, plan="p", inputs="i", directory="", host=host, where=host)
    ledger.decide(lambda _: {f"active/{name}": one.value()})
    return one


def own(ledger: Ledger, mirror: str, *topics: str, opened: str | None = None) -> None:
    value = {"v": 1, "topic_id": "x", "mirror": mirror, "source_id": "A", "opened_by": opened}
    ledger.decide(lambda _: {f"topic/{topic}": value for topic in topics})


def seen(capsys: pytest.CaptureFixture[str], time: Time) -> list[dict[str, Any]]:
    assert main(["status", "--target", "dst", "--json"], time) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_mirrors_are_shown_with_what_their_tails_say(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    own(ledger, "done", "a", "b", opened="plan")
    own(ledger, "new", "c")
    Heartbeat(state, tail(ledger, "ended", "host-a")).give("FAILED", error="t-0: foreign data", summary={"lag": 4})
    tail(ledger, "lost", "host-b")
    rows = {row["mirror"]: row for row in seen(capsys, time)}
    assert list(rows) == ["done", "ended", "lost", "new"]
    assert (rows["done"]["topics"], rows["done"]["in_production"], rows["done"]["tail"]) == (2, 2, "none")
    assert (rows["new"]["topics"], rows["new"]["in_production"]) == (1, 0)
    assert (rows["ended"]["tail"], rows["ended"]["lag"]) == ("failed", None)
    assert rows["ended"]["said"] == "tail: it ended with an error on host host-a: t-0: foreign data"
    assert (rows["lost"]["tail"], rows["lost"]["host"]) == ("lost", "host-b")
    assert rows["lost"]["said"].startswith("tail: no sign of life from host host-b for 30 s")
    assert rows["done"]["said"] is rows["new"]["said"] is None, "nobody says that they should run"


def test_tails_are_shown_to_who_may_only_read(
    dst: LedgerCluster, ledger: Ledger, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    """One that is lost on another host ended the command for all: it writes, to see whether the target takes that."""
    for name in ("a", "b"):
        tail(ledger, name, "host-a")
    refused = dst.script.on("Produce", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    assert [row["tail"] for row in seen(capsys, time)] == ["lost", "lost"]
    assert len(refused.hits) == 2, "once for each"


@pytest.mark.parametrize(("by", "word"), [("2f" * 32, "cutover"), ("failover 000001-x", "failover")])
@pytest.mark.parametrize("sign", ["FAILED", None])
def test_a_tail_that_was_ended_for_good_has_neither_failed_nor_is_it_lost(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], sign: str | None, by: str, word: str, time: Time
) -> None:
    own(ledger, "m", "a", "b", opened=by)
    signs = Heartbeat(state, tail(ledger, "m", "host-a"))
    if sign:
        signs.give(sign, error="PRODUCER_FENCED: find the other job")
    (row,) = seen(capsys, time)
    assert (row["tail"], row["said"], row["host"]) == (f"ended by {word}", None, "host-a")
    own(ledger, "m", "c")  # one topic is the mirror's still
    (row,) = seen(capsys, time)
    assert row["tail"] == ("failed" if sign else "lost") and row["said"].startswith("tail: ")


def test_the_tail_that_a_drill_has_killed_is_not_lost(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    drills = Drills(state, "dr-drill")
    drills.save(Drill(run="monday", at_ms=1, missed=[]))
    tail(ledger, "dr-drill", "host-a")
    own(ledger, "dr-drill", "t")
    (row,) = seen(capsys, time)
    assert (row["tail"], row["said"]) == ("drill over", None)
    drills.save(Drill(run="tuesday", at_ms=2))
    assert seen(capsys, time)[0]["tail"] == "lost", "the next one is at work, or was killed"


def test_a_tail_runs_once_it_gave_a_sign_while_we_looked(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    signs = Heartbeat(state, tail(ledger, "m", "host-a"))
    signs.give("RUNNING", phase="starting Spark")
    figures = {"lag": 12345, "records_per_s": 678, "states": {"stopped": 1}, "stopped": ["t-1: broken"]}
    later: list[float] = []

    def pause(seconds: float) -> None:
        later.append(seconds)
        signs.give("RUNNING", phase="copying", summary=figures, notes=("retention was set again",))

    time.meanwhile = pause
    (row,) = seen(capsys, time)
    assert (row["tail"], row["phase"], row["lag"], row["records_per_s"]) == ("running", "copying", 12345, 678)
    assert row["said"].splitlines() == ["stopped: 1 partition stopped: t-1: broken", "notes: retention was set again"]
    assert len(later) == 1
    assert main(["status", "--target", "dst"], time) == 0
    assert "12,345" in capsys.readouterr().out


@pytest.mark.parametrize("end", ["goes on", "killed", "well", "in production"])
def test_a_bulk_copy_runs_or_is_lost_as_a_tail_is(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time, end: str
) -> None:
    """One that was killed had left nothing that was shown."""
    own(ledger, "m", "t", opened="plan" if end == "in production" else None)
    signs = Heartbeat(state, JobId(name="m", host="host-a", where="host-a", bulk=True))
    signs.give("RUNNING", phase="copying", summary={"lag": 4})
    if end == "goes on":
        time.meanwhile = lambda _: signs.give("RUNNING", phase="copying", summary={"lag": 3})
    elif end == "well":
        signs.forget()
    (row,) = seen(capsys, time)
    assert (row["tail"], row["copy"]) == ("none", {"goes on": "running", "killed": "lost"}.get(end))
    lost = "bulk copy: no sign of life from host host-a for 30 s: the process or the host is lost. Run its task again"
    assert (row["said"] or "").startswith(lost) is (end == "killed")
    assert main(["status", "--target", "dst"], time) == 0
    shown = capsys.readouterr().out
    assert ("bulk copy" in shown) is (row["copy"] is not None) and (end != "killed" or "host host-a" in shown)


def test_a_killed_bulk_copy_is_not_lost_beside_one_that_copies(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    own(ledger, "m", "t")
    killed, signs = (Heartbeat(state, JobId(name="m", host=h, where=h, bulk=True)) for h in ("host-a", "host-b"))
    for one in (killed, signs):
        one.give("RUNNING")
    time.meanwhile = lambda _: signs.give("RUNNING")
    (row,) = seen(capsys, time)
    assert (row["copy"], row["said"]) == ("running", None)


def test_a_tail_that_a_quota_holds_up_says_whose(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    signs = Heartbeat(state, tail(ledger, "m", "host-a"))
    signs.give("RUNNING", phase="copying")
    slowed = {"lag": 9, "records_per_s": 1, "throttled": {"target": 2500}}
    time.meanwhile = lambda _: signs.give("RUNNING", phase="copying", summary=slowed)
    (row,) = seen(capsys, time)
    assert row["said"] == "throttled by quota: the target by 2.5 s a request"


def test_fence_that_is_up_is_named_whatever_host_raised_it(
    dst: LedgerCluster, ledger: Ledger, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    """Also of a mirror that has neither a topic nor a tail any more."""
    for mirror, phase in {"m": UP, "n": OPENED, "over": LIFTED}.items():
        fence = FenceState(
            run="monday", attempt=2, id="i", plan="p", revision="p", owner="o", max_fence_s=60.0, kind="callable",
            name="ops.gate", phase=phase, process={"host": "w-3"},
        )  # fmt: skip
        note_copy(ledger, mirror, fence)
    rows = seen(capsys, time)
    shared = {"run": "monday", "attempt": 2, "host": "w-3", "kind": "callable", "name": "ops.gate"}
    at_s = dst.clock.now_ms // 1000
    shared["since"] = since = datetime.fromtimestamp(at_s, UTC).isoformat()
    assert {row["mirror"]: row["fences"] for row in rows} == {
        "m": [{**shared, "phase": "up", "kept": False, "text": "is up, raised from host w-3"}],
        "n": [{**shared, "phase": "opened", "kept": True, "text": "stands behind an open target"}],
    }
    assert main(["status", "--target", "dst"], time) == 0
    said = " ".join(capsys.readouterr().out.split())
    fenced = "by the ledger the source is fenced (ops.gate): the fence of cutover monday"
    assert f"m: {fenced} is up, raised from host w-3, since {since}" in said
    assert f"n: {fenced} stands behind an open target, since" in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topic/theirs", {"v": 9, "all": "different"}), ("topic/theirs", "text"), ("plan/m", {"v": 9}),
        ("active/m", {"v": 9}), ("wish", b'{"v":9}'),
    ],
)  # fmt: skip
def test_what_a_newer_version_wrote_hides_nothing_else(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], key: str, value: Any, time: Time
) -> None:
    """It is named, with its version, and the command says by its status that something is missing."""
    own(ledger, "m", "a", "b")
    own(ledger, "other", "c")
    Heartbeat(state, tail(ledger, "other", "host-a")).give("FAILED", error="t-0: foreign data")
    if key == "wish":
        state.write({"wish/m/pause": value})
    else:
        ledger.decide(lambda _: {key: value})
    assert main(["status", "--target", "dst", "--json"], time) == 1
    printed = capsys.readouterr()
    rows = {row["mirror"]: row for row in json.loads(printed.out)}
    assert (rows["m"]["topics"], rows["other"]["topics"], rows["other"]["tail"]) == (2, 1, "failed")
    assert rows["m"]["tail"] == ("unreadable" if key == "active/m" else "none") and rows["m"]["plan"] is None
    key = "wish/m" if key == "wish" else key
    version = "unknown" if value == "text" else 9
    assert f"{key}: written by a newer version of airflow-mirror (version {version})" in printed.err
    assert main(["status", "--target", "dst"], time) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{key}: written by a newer version" in shown and "foreign data" in shown


def test_watching_goes_on_until_interrupted(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    tail(ledger, "m", "host-a")
    looks: list[float] = []

    def pause(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    time.meanwhile = pause
    assert main(["status", "--target", "dst", "--watch"], time) == 130
    assert "listening" in capsys.readouterr().out and len(looks) == 3


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"error": "no lease"}, "follow: groups do not follow: no lease"),
        ({"said": ["3 position(s) left alone, as g: x"]}, "notes: groups: 3 position(s) left alone, as g: x"),
        ({"error": None, "said": []}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_groups_that_do_not_follow_are_said_with_their_cause(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time,
    groups: dict[str, object], said: str | None,
) -> None:  # fmt: skip
    signs = Heartbeat(state, tail(ledger, "m", "host-a"))
    signs.give("RUNNING")
    time.meanwhile = lambda _: signs.give("RUNNING", follows={"groups": groups})
    (row,) = seen(capsys, time)
    assert row["said"] == said


def test_what_is_wished_of_a_mirror_is_shown(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    own(ledger, "m", "t")
    wish(state, "m", "pause", Wish(by="ann@desk", at="2026-11-23T07:00:00+00:00"))
    wish(state, "m", "rate", Wish(by="bob@desk", at="2026-11-22T07:00:00+00:00", max_bytes_per_second=5000000))
    (row,) = seen(capsys, time)
    assert row["said"].splitlines() == [
        "paused: paused by ann@desk since 2026-11-23T07:00:00+00:00; nothing is copied until 'airflow-mirror resume'",
        "rate set to 5,000,000 bytes per second by bob@desk since 2026-11-22T07:00:00+00:00",
    ]
    assert row["pause"]["by"] == "ann@desk" and row["rate"]["max_bytes_per_second"] == 5000000


def test_target_without_mirrors_is_said_to_have_none(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    assert main(["status", "--target", "dst"], time) == 0
    assert capsys.readouterr().out == "this target has no mirror\n"


def test_cluster_that_is_new_has_no_mirror_and_one_with_data_needs_its_ledger(
    dst: LedgerCluster, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    for topic in list(dst.topics):
        dst.delete(topic)
    assert main(["status", "--target", "dst"], time) == 0
    assert capsys.readouterr().out == "this target has no mirror\n"
    dst.create("orders")
    assert main(["status", "--target", "dst"], time) == 2
    assert "the target has no ledger" in capsys.readouterr().err


# --- the flows of a file ---------------------------------------------------------------------------------------------

FLOWS = """
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = {B}
C.bootstrap.servers = {C}
A->B.enabled = true
C->B.enabled = true
A->C.enabled = true
"""


@pytest.fixture
def flows(dst: LedgerCluster) -> Iterator[str]:
    """Three flows; what is there of C can't be asked for anything."""
    with DrivenCluster("C") as old:
        old.brokers[1].served = {API_VERSIONS: old.brokers[1].served[API_VERSIONS]}
        yield FLOWS.format(B=dst.config.bootstrap, C=old.config.bootstrap)


@pytest.fixture
def file(flows: str, tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(flows)
    return path


def test_every_enabled_flow_is_listed_and_all_must_run(
    ledger: Ledger, state: State, file: Path, flows: str, capsys: pytest.CaptureFixture[str],
    time: Time,
) -> None:  # fmt: skip
    own(ledger, "A-to-B", "x")
    own(ledger, "another", "y")
    one = Heartbeat(state, tail(ledger, "A-to-B", "host-a"))
    one.give("RUNNING")
    time.meanwhile = lambda _: one.give("RUNNING", phase="copying")

    def shown(*arguments: str) -> tuple[int, dict[str, tuple[str, Any]]]:
        code = main(["status", "--config", str(file), "--json", *arguments], time)
        rows = json.loads(capsys.readouterr().out)
        return code, {row["flow"]: (row["tail"], row["said"]) for row in rows}

    status, found = shown()
    unknown, why = found.pop("A->C")
    assert (status, found) == (1, {"A->B": ("running", None), "C->B": ("never started", None)})
    assert unknown == "unknown" and "this broker does not serve it at all" in why
    file.write_text(flows.replace("C->B.enabled = true", ""))
    assert shown("--clusters", "B") == (0, {"A->B": ("running", None)})
    file.write_text(flows)
    assert main(["status", "--config", str(file)], time) == 1
    assert "never started" in capsys.readouterr().out.replace("\n", " ")
    assert main(["status", "--config", str(file), "--clusters", "A"], time) == 2
    assert "no enabled flow leads there\n  do:  Name some of these: B, C." in capsys.readouterr().err


def test_a_flow_that_failed_before_the_ledger_knew_it_says_why(
    ledger: Ledger, state: State, file: Path, flows: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, time: Time
) -> None:
    """As one whose plan is blocked: it was "never started"."""
    job = tmp_path / "home" / "C-to-B" / "jobs" / "tail" / "1"
    job.mkdir(parents=True)
    handle = {"name": "tail", "generation": 1, "dir": str(job), "kind": "streaming_tail", "id": "x", "mirror": "C-to-B"}
    handle |= {"place": "client", "pid": 2**22, "started": 1, "host": "here", "where": process.here(), "spec": "s"}
    (job / "job.json").write_text(json.dumps(handle))
    (job / "status.json").write_text(json.dumps({"state": "FAILED", "error": "the plan is blocked"}))
    file.write_text(flows.replace("A->B.enabled = true", "").replace("A->C.enabled = true", ""))
    assert main(["status", "--config", str(file), "--json", "--home", str(tmp_path / "home")], time) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["tail"], row["host"], row["said"]) == ("failed", "here", "the plan is blocked")


def test_a_target_on_which_nothing_ever_ran_has_no_ledger(
    dst: LedgerCluster, file: Path, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    for topic in list(dst.topics):
        dst.delete(topic)
    assert main(["status", "--config", str(file), "--json", "--clusters", "B"], time) == 1
    assert [row["tail"] for row in json.loads(capsys.readouterr().out)] == ["never started"] * 2


def test_status_shows_what_it_can_beside_a_newer_version(
    ledger: Ledger, state: State, capsys: pytest.CaptureFixture[str], time: Time
) -> None:
    for mirror, more in (("others", {"v": 99, "version": 99}), ("m", MORE)):
        decisions, said = every(mirror, **more)
        ledger.decide(lambda _, decisions=decisions: decisions)  # type: ignore[misc]
        state.write(said)
    assert main(["status", "--target", "dst"], time) == 1, "it could not show everything"
    out = capsys.readouterr().out
    assert "active/others: written by a newer version" in out and "topic/theirs: written by a newer version" in out
    assert main(["status", "--target", "dst", "--json"], time) == 1
    rows = {row["mirror"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["m"]["in_production"], rows["m"]["tail"], rows["others"]["tail"]) == (1, "running", "unreadable")
    assert [fence.get("kind") for fence in rows["m"]["fences"]] == ["acl"] and "fence/others: written by a newer" in out


@pytest.mark.parametrize("there", [True, False])
def test_kept_fence_is_looked_for_at_the_source_that_is_given(
    dst: LedgerCluster, src: DrivenCluster, capsys: pytest.CaptureFixture[str], time: Time, there: bool
) -> None:
    plan = plan_of(a_mirror(name="a"), topic_plan("a", {0: 0}, source_topic_id="id"), source_cluster_id=src.cluster_id)
    keep(plan, dst.state, dst.ledger)
    fence = FenceState(
        run="r", attempt=1, id="i", plan=plan.hash, revision=plan.hash, owner="o", max_fence_s=60.0, phase=OPENED
    )
    note_copy(dst.ledger, "a", fence)
    own(dst.ledger, "a", "a")
    src.rules = Rules(now=frozenset([rule("a", "WRITE", "DENY")] if there else [rule("a", "READ", "ALLOW")]))
    assert main(["status", "--target", "dst", "--source", "src", "--json"], time) == 0
    said = json.loads(capsys.readouterr().out)[0]["said"] or ""
    assert ("the fence of cutover r was kept behind an open target, and is gone" in said) is not there


@pytest.mark.parametrize("broken", ["plan", "fence"])
def test_mirror_whose_records_can_not_be_read_hides_no_rules_of_others(
    dst: LedgerCluster, src: DrivenCluster, capsys: pytest.CaptureFixture[str], time: Time, broken: str
) -> None:
    """The look ended with it, before the next one."""
    plan = plan_of(a_mirror(name="b"), topic_plan("b", {0: 0}, source_topic_id="id"), source_cluster_id=src.cluster_id)
    keep(plan, dst.state, dst.ledger)
    for mirror in ("a", "b"):
        own(dst.ledger, mirror, mirror)
    lost = {"plan/a": {"v": 1, "hash": "0" * 64}} if broken == "plan" else {"fence/a": {"v": 99}}
    dst.ledger.decide(lambda _: lost)
    src.rules = Rules(now=frozenset([rule("b", "WRITE", "DENY")]))
    main(["status", "--target", "dst", "--source", "src", "--json"], time)
    out, err = capsys.readouterr()
    said = {row["mirror"]: row["said"] or "" for row in json.loads(out)}
    assert "lift-fence --unexplained" in said["b"] and "lift-fence" not in said["a"]
    assert "rules of mirror 'a' that no record explains were not looked for: " in err


@pytest.mark.parametrize("planned", ["there", "elsewhere"])
def test_rules_that_no_record_explains_are_looked_for_at_the_source_that_is_given(
    dst: LedgerCluster, src: DrivenCluster, capsys: pytest.CaptureFixture[str], time: Time, planned: str
) -> None:
    """At that of the mirror's plan, not at another one with topics of the same names."""
    source_id = src.cluster_id if planned == "there" else "another"
    for mirror in ("a", "over"):
        plan = plan_of(
            a_mirror(name=mirror), topic_plan(mirror, {0: 0}, source_topic_id="id"), source_cluster_id=source_id
        )
        keep(plan, dst.state, dst.ledger)
        fence = FenceState(
            run="r", attempt=1, id="i", plan=plan.hash, revision=plan.hash, owner="o", max_fence_s=60.0, phase=LIFTED
        )
        note_copy(dst.ledger, mirror, fence)
    own(dst.ledger, "a", "a")
    dst.ledger.decide(lambda _: {"plan/over": None})
    src.rules = Rules(now=frozenset(rule(name, "WRITE", "DENY") for name in ("a", "over")))
    given = ["status", "--target", "dst", "--source", "src", "--json"]
    assert main(given, time) == 0
    out, err = capsys.readouterr()
    said = json.loads(out)[0]["said"]
    assert (said is not None and "lift-fence --unexplained" in said) == (planned == "there")
    assert ("mirror 'over', retired: " in err) == (planned == "there")
    src.script.on("DescribeAcls", Fault.refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), times=99)
    assert main(given, time) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["said"] is None
    assert ("were not looked for: " in err) == (planned == "there")
    src.brokers[1].served = {API_VERSIONS: src.brokers[1].served[API_VERSIONS]}
    assert main(given, time) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[0]["said"] is None and "were not looked for: broker " in err
