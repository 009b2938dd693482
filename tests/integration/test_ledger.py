"""The ledger on a real broker: created once, never taken for new, and no decision lost or applied twice."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import DECISIONS, STATE
from airflow_mirror.console.main import main
from airflow_mirror.cutover.failover.check import check
from airflow_mirror.cutover.platform import Side
from airflow_mirror.errors import InputError, LedgerLost, LedgerMissing, MirrorCutOver, TopicsOwned
from airflow_mirror.kafka.admin import ClusterAdmin, NewTopicSpec
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger import decisions
from airflow_mirror.ledger.decisions import SETTINGS, Ledger
from airflow_mirror.ledger.export import export, restore
from airflow_mirror.ledger.log import DecisionLog
from airflow_mirror.ledger.records import PLAN
from airflow_mirror.ledger.state import SETTINGS as SETTINGS_OF_STATE
from airflow_mirror.ledger.state import WISHED, state_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ledger_store import fetch, keep, last_hash
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.ownership import begin, claim, mark_cut_over
from airflow_mirror.plan.requirements import require_active
from sandbox import Cluster
from tests.builders import plan_of, topic_plan
from tests.integration import copying, plain
from tests.integration.copying import config, create, flow_of, properties_of

WRITER = Path(__file__).with_name("ledger_writer.py")
PROCESSES, WRITERS, TIMES = 4, 5, 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One of its own: what is lost here would be missed elsewhere."""
    with Cluster("ledger") as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterAdmin]:
    """A cluster without a ledger. What other tests have left there is no trace of a lost one."""
    monkeypatch.setattr(Ledger, "was_there", lambda _: False)
    with ClusterAdmin(config(cluster)) as admin:
        remove(admin)
        yield admin


def remove(admin: ClusterAdmin) -> None:
    if DECISIONS in admin.topic_names():
        admin.delete_topics([DECISIONS], unfenced)
    while DECISIONS in admin.topic_names():
        time.sleep(0.05)


def records_of(admin: ClusterAdmin) -> Iterator[bytes]:
    return (value or b"" for _, value, _ in DecisionLog(admin.wire).read(0))


def write(cluster: Cluster, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(DECISIONS, value)
        assert producer.flush(240) == 0


def alter(admin: ClusterAdmin, key: str, value: str) -> None:
    """The broker hears of it a moment after the controller."""
    admin.alter_topic_configs(DECISIONS, unfenced, {key: value})
    copying.wait_until(lambda: admin.topic_configs([DECISIONS])[DECISIONS][key].value == value, f"{key} is {value}")


def add_one(ledger: Ledger) -> None:
    ledger.decide(lambda values: {"n": values.get("n", 0) + 1})


def test_twenty_writers_of_four_processes_lose_no_update(cluster: Cluster, admin: ClusterAdmin) -> None:
    """One process after the other is frozen for a while, which makes what it sent late."""
    Ledger(admin).create()
    command = [sys.executable, str(WRITER), cluster.bootstrap, str(WRITERS), str(TIMES)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    try:
        for process in processes * 2:
            time.sleep(0.7)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.7)
            process.send_signal(signal.SIGCONT)
        said = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    values = Ledger(admin).values()
    told: Counter[str] = sum((Counter(one["added"]) for one in said), Counter())
    assert {key: values[key] for key in told} == dict(told) and sum(told.values()) == PROCESSES * WRITERS * TIMES
    took_ms = sorted(ms for one in said for ms in one["took_ms"])
    print(f"median {took_ms[len(took_ms) // 2]} ms, longest {took_ms[-1]} ms")


def test_several_create_it_at_once_and_it_is_one(cluster: Cluster, admin: ClusterAdmin) -> None:
    def created(_: int) -> Any:
        with ClusterAdmin(config(cluster)) as admin:
            ledger = Ledger(admin)
            ledger.create()
            add_one(ledger)
            return ledger.values()["ledger"]

    with ThreadPoolExecutor(4) as pool:
        begun = list(pool.map(created, range(4)))
    assert begun == [{"v": 1, "topic_id": admin.topics([DECISIONS])[DECISIONS].topic_id}] * 4
    assert Ledger(admin).values()["n"] == 4
    entries = admin.topic_configs([DECISIONS])[DECISIONS]
    assert {key: entries[key].value for key in SETTINGS} == SETTINGS


def test_a_ledger_that_never_was_is_missing_not_empty(admin: ClusterAdmin) -> None:
    """Neither is one whose creation was cut short; the next one who creates it completes it."""
    with pytest.raises(LedgerMissing, match="airflow-mirror ledger init"):
        Ledger(admin).values()
    admin.create_topics([NewTopicSpec(DECISIONS, 1, 1, SETTINGS)], unfenced)
    with pytest.raises(LedgerMissing):
        add_one(Ledger(admin))
    Ledger(admin).create()
    add_one(Ledger(admin))


@pytest.mark.parametrize("reader", ["the same", "a new one"])
def test_a_ledger_that_was_deleted_is_never_taken_for_new(
    cluster: Cluster, admin: ClusterAdmin, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by who has read it, and not by anybody else who finds something in its place."""
    monkeypatch.setattr(decisions, "_NEWS_S", 0.0)  # what the only broker does not show is not there
    ledger = Ledger(admin)
    ledger.create()
    add_one(ledger)
    old = admin.topics([DECISIONS])[DECISIONS].topic_id
    records = list(records_of(admin))
    remove(admin)
    with pytest.raises(LedgerLost if reader == "the same" else LedgerMissing):
        (ledger if reader == "the same" else Ledger(admin)).values()
    admin.create_topics([NewTopicSpec(DECISIONS, 1, 1, SETTINGS)], unfenced)
    write(cluster, records)  # somebody brought the records back, with a tool of their own
    assert admin.topics([DECISIONS])[DECISIONS].topic_id != old
    with pytest.raises(LedgerLost, match="created again"):
        (ledger if reader == "the same" else Ledger(admin)).values()
    with pytest.raises(LedgerLost, match="created again"):
        Ledger(admin).create()


@pytest.mark.parametrize(("key", "value"), [("retention.ms", "3600000"), ("cleanup.policy", "compact")])
def test_settings_that_lose_decisions_are_named(admin: ClusterAdmin, key: str, value: str) -> None:
    ledger = Ledger(admin)
    ledger.create()
    alter(admin, key, value)
    with pytest.raises(LedgerLost, match=f"{key}={value} instead of {SETTINGS[key]}"):
        ledger.values()
    with pytest.raises(LedgerLost, match=key):
        add_one(Ledger(admin))
    alter(admin, key, SETTINGS[key])
    add_one(ledger)


def test_a_ledger_without_its_first_records_is_lost(admin: ClusterAdmin) -> None:
    ledger = Ledger(admin)
    ledger.create()
    add_one(ledger)
    admin.delete_records({TopicPartition(DECISIONS, 0): 1}, unfenced)
    for one in (ledger, Ledger(admin)):
        with pytest.raises(LedgerLost, match="begins at offset 1"):
            one.values()


# --- out and back -----------------------------------------------------------------------------------------------------


def test_a_lost_ledger_is_restored_with_its_versions(cluster: Cluster, admin: ClusterAdmin) -> None:
    """A writer that read the old one goes on in the new one; until it is whole it counts as lost."""
    ledger = Ledger(admin)
    ledger.create()
    for _ in range(3):
        add_one(ledger)
    write(cluster, [b"", b"no decision"])
    add_one(ledger)
    exported = json.loads(json.dumps(export(admin)))
    remove(admin)
    for part in range(1, 4):  # a restore that was cut short, further each time
        with pytest.raises(LedgerLost if part > 1 else LedgerMissing):
            Ledger(admin).values()
        Ledger(admin).create_topic()
        write(cluster, [base64.b64decode(text) for text in exported["records"][part - 1 : part]])
    with pytest.raises(LedgerLost, match="created again"):
        add_one(Ledger(admin))
    assert restore(admin, exported) == 7
    assert Ledger(admin).values() == ledger.values()
    add_one(ledger)
    add_one(Ledger(admin))
    assert ledger.values()["n"] == 6
    with pytest.raises(InputError):
        restore(admin, exported)


def test_an_export_that_was_cut_restores_nothing(admin: ClusterAdmin) -> None:
    Ledger(admin).create()
    add_one(Ledger(admin))
    exported = export(admin)
    remove(admin)
    cut = {**exported, "records": exported["records"][1:]}
    wrongs: list[Any] = [cut, {**exported, "v": 2}, {"v": 1, "records": []}, []]
    for wrong in wrongs:
        with pytest.raises(InputError, match="Nothing was touched"):
            restore(admin, wrong)
    assert DECISIONS not in admin.topic_names()


@pytest.mark.nights
def test_the_command_shows_exports_and_restores(
    cluster: Cluster, admin: ClusterAdmin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str, status: int = 0) -> str:
        assert main(["ledger", words[0], "--target", str(file), *words[1:]]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    file, kept = tmp_path / "target.properties", str(tmp_path / "ledger.json")
    file.write_text(f"bootstrap.servers={cluster.bootstrap}\n")
    create(cluster, "shown")
    assert "has no ledger" in said("show", status=2)
    assert "0 topics" in said("init")
    assert said("show") == "no topic belongs to a mirror\n"
    plan = planned("shown")
    claim(Ledger(admin), plan, admin)
    assert [word in said("show") for word in ("shown", "the mirror's")] == [True, True]
    mark_cut_over(Ledger(admin), plan, {"shown": admin.topics(["shown"])["shown"].topic_id}, "noon")
    (row,) = json.loads(said("show", "--json"))
    assert (row["topic"], row["mirror"], row["state"]) == ("shown", "m", "in production since noon")
    assert "3 records of cluster" in said("export", kept)
    assert said("export", f"{kept}/below-a-file", status=1).startswith("error: ")
    create(cluster, "trial")
    claim(Ledger(admin), planned("trial", "trial"), admin)
    assert said("release", "trial") == "given up: trial\n"
    assert said("release", "trial") == "mirror 'trial' owns no topic to give up\n"
    claim(Ledger(admin), planned("trial"), admin)
    remove(admin)
    assert "1 topics belong to mirrors" in said("restore", kept)
    admin.delete_topics(["shown"], unfenced)
    copying.wait_until(lambda: json.loads(said("show", "--json"))[0]["state"] == "deleted", "it is gone")
    assert "can't be read as JSON" in said("restore", str(file), status=2)


# --- whose a topic is -------------------------------------------------------------------------------------------------


def planned(topic: str, name: str = "m") -> Plan:
    return plan_of(
        Mirror(name=name, source="src", target="dst", topics=[topic]), topic_plan(topic, {0: 0}, source_topic_id="s")
    )


@pytest.mark.nights
def test_first_plan_onto_empty_topics_begins_the_ledger(cluster: Cluster, admin: ClusterAdmin) -> None:
    """Also where another one was killed when it had created the topic."""
    create(cluster, "empty")
    plan = planned("empty")
    Ledger(admin).create_topic()
    ledger = begin(plan, admin)
    claim(ledger, plan, admin)
    with pytest.raises(TopicsOwned, match="empty: mirror 'm' of cluster s"):
        require_active(begin(plan, admin), planned("empty", "other"), admin)
    mark_cut_over(ledger, plan, {"empty": admin.topics(["empty"])["empty"].topic_id}, "noon")
    with pytest.raises(MirrorCutOver, match="noon"):
        require_active(Ledger(admin), plan, admin)


@pytest.mark.nights
def test_plan_of_ten_thousand_topics_is_the_same_on_another_host(cluster: Cluster, admin: ClusterAdmin) -> None:
    """In many records, in a topic that is compacted and has the settings which keep it small."""
    topics = [topic_plan(f"orders.{n}", {p: n * p for p in range(3)}, source_topic_id=f"id-{n}") for n in range(10_000)]
    plan = plan_of(Mirror(name="big", source="src", target="dst"), *topics)
    ledger = Ledger(admin)
    ledger.create()
    keep(plan, state_of(admin, PLAN.below("big"), keys_only=True), ledger)
    with ClusterAdmin(admin.config) as elsewhere:
        plan_hash = last_hash(Ledger(elsewhere).values(), "big")
        assert plan_hash == plan.hash and fetch(plan_hash, "big", elsewhere, Ledger(elsewhere)) == plan
    entries = admin.topic_configs([STATE])[STATE]
    assert {key: entries[key].value for key in {**SETTINGS_OF_STATE, **WISHED}} == {**SETTINGS_OF_STATE, **WISHED}


@pytest.mark.nights
def test_a_plan_onto_data_begins_no_ledger(cluster: Cluster, admin: ClusterAdmin) -> None:
    """It may have been lost together with what was decided about these topics."""
    create(cluster, "filled")
    copying.write(cluster, "filled", 3, seed=1)
    with pytest.raises(LedgerMissing):
        begin(planned("filled"), admin)
    assert DECISIONS not in admin.topic_names()


# --- lost under mirrors -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def losing() -> Iterator[Cluster]:
    """A target whose ledger is lost while mirrors copy to it: what they leave there would be traces to other tests."""
    with Cluster("ledger-lost") as cluster:
        yield cluster


def gone(admin: ClusterAdmin, topic: str) -> None:
    admin.delete_topics([topic], unfenced)
    copying.wait_until(lambda: topic not in admin.topic_names(), f"{topic} is gone")


@pytest.mark.nights
@pytest.mark.parametrize("lost", ["deleted", "created again", "all of it"])
def test_nothing_is_begun_where_a_ledger_was_lost(
    source_cluster: Cluster,
    losing: Cluster,
    topic_name: str,
    tmp_path: Path,
    lost: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not on a topic that is in production, whose settings a hold would change, and not on a new and empty one."""
    new, log = f"{topic_name}-new", tmp_path / "copy.log"
    clusters = properties_of(tmp_path, source_cluster, losing)
    for name in (topic_name, new):
        create(source_cluster, name)
        copying.write(source_cluster, name, 20, seed=1)
    flow = [*clusters, "--include", topic_name, "--name", topic_name, "--no-probe"]
    with ClusterAdmin(config(losing)) as admin:
        Ledger(admin).create()
        assert plain.copy(*flow, log=log) == 0, log.read_text()
        ledger = Ledger(admin)
        assert (plan_hash := last_hash(ledger.values(), topic_name)) is not None
        plan = fetch(plan_hash, topic_name, admin, ledger)
        mark_cut_over(ledger, plan, {topic_name: admin.topics([topic_name])[topic_name].topic_id}, "noon")
        admin.alter_topic_configs(topic_name, unfenced, {"retention.ms": "86400000"})  # as applications have it
        copying.write(source_cluster, topic_name, 20, seed=2)
        gone(admin, DECISIONS)
        if lost == "created again":
            admin.create_topics([NewTopicSpec(DECISIONS, 1, 1, SETTINGS)], unfenced)
        if lost == "all of it":
            gone(admin, STATE)
        end = copying.ends(losing, topic_name)[0][2]
        for hold in ("--hold",), ():
            assert plain.copy(*flow, *hold, log=log) != 0
            assert "the ledger on the target is lost" in (said := log.read_text()) and "delete none" in said
        assert plain.copy(*clusters, "--include", new, "--name", "new", "--no-probe", log=log) != 0
        assert "the ledger on the target is lost" in log.read_text() and new not in admin.topic_names()
        assert main(["plan", *flow[:-1]]) != 0
        said = capsys.readouterr().err
        assert "is lost" in said and "ledger restore" in said and "mpty the topic" not in said
        assert main(["ledger", "init", *clusters[2:]]) != 0 and "is lost" in capsys.readouterr().err
        assert copying.ends(losing, topic_name)[0][2] == end
        assert admin.topic_configs([topic_name])[topic_name]["retention.ms"].value == "86400000"
        if DECISIONS in admin.topic_names():
            gone(admin, DECISIONS)
        assert main(["ledger", "init", "--anew", *clusters[2:]]) == 0


@pytest.mark.nights
def test_tail_whose_state_was_deleted_can_be_failed_over(
    source_cluster: Cluster, losing: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """It copies on, and writes again what a failover needs: nobody else has it."""
    create(source_cluster, topic_name)
    copying.write(source_cluster, topic_name, 20, seed=1)
    flow = flow_of(tmp_path, source_cluster, losing, topic_name)
    with ClusterAdmin(config(losing)) as admin, plain.Follow(*flow, "--no-probe", log=tmp_path / "log") as follow:
        Ledger(admin).create()
        copying.wait_until(
            lambda: topic_name in admin.topic_names() and copying.ends(losing, topic_name)[0][2] == 20, "copy"
        )
        assert check(Side(admin), topic_name).plan.mirror.name == topic_name
        gone(admin, STATE)
        follow.says("had lost the plan by which this tail copies", 120)
        found = check(Side(admin), topic_name)
        assert found.tail.status == "RUNNING" and [t.source_topic for t in found.plan.topics] == [topic_name]
        copying.write(source_cluster, topic_name, 5, seed=2)
        copying.wait_until(lambda: copying.ends(losing, topic_name)[0][2] == 25, "it copies on")
