"""``airflow-mirror clients``: the tables, what is waited for, and a watch that ends when nobody is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.console import clients as command
from airflow_mirror.console.main import main
from airflow_mirror.errors import ClusterUnreachable, MirrorError
from airflow_mirror.extras.clients.commits import BEFORE
from airflow_mirror.extras.clients.inventory import NOT_YET, READS, WRITES, Inventory, Reader, Writer
from airflow_mirror.plan.ledger_store import keep
from tests.builders import plan_of, topic_plan
from tests.driven.cluster import DrivenCluster
from tests.driven.ledger import LedgerCluster
from tests.unit.console.conftest import Time
from tests.unit.plan.builders import a_mirror

READERS = (
    Reader(
        group="billing", kind="consumer protocol", state="Stable", clients=["billing-1 at 10.0.4.7"], topics=["orders"],
        wave=2, commit_ms=160_000, commit_is=BEFORE, on_target=NOT_YET,
    ),
    Reader(group="mail", kind="classic consumer", state="Empty", clients=(), topics=["orders", "users"], on_target=READS),
)  # fmt: skip
WRITERS = (
    Writer(
        name="shop-7",
        transactional=True,
        topics=["orders"],
        last_ms=41_000,
        producer_id=7,
        waves=(1, 2),
        on_target=WRITES,
    ),  # fmt: skip
    Writer(name="producer 4011", transactional=False, topics=["users"], last_ms=100_000, producer_id=4011, waves=(2,)),
)
OPEN = Inventory(
    mirror="m", at_ms=161_000, opened_ms=90_000, readers=READERS, writers=WRITERS, newcomers=1, unseen=["groups: no"]
)
DONE = replace(OPEN, readers=READERS[1:], writers=WRITERS[:1], unseen=())


@pytest.fixture
def run(src: DrivenCluster, dst: LedgerCluster, time: Time, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command, which finds these one after the other."""
    topic = topic_plan("t", {0: 0}, source_topic_id="id")
    clusters = {"source_cluster_id": src.cluster_id, "target_cluster_id": dst.cluster_id}
    keep(plan_of(a_mirror(name="m", source="src"), topic, **clusters), dst.state, dst.ledger)
    monkeypatch.setenv("COLUMNS", "160")
    left: list[Inventory | MirrorError] = []

    def look(*_: object) -> Inventory:
        found = left.pop(0)
        if isinstance(found, MirrorError):
            raise found
        return found

    monkeypatch.setattr(command, "look", look)

    def run(found: list[Inventory | MirrorError], *words: str) -> int:
        left[:] = found
        status = main(["clients", "--target", "dst", "--mirror", "m", *words], time)
        assert not left, "each was asked for"
        return status

    return run


def test_tables_say_who_is_there_and_who_is_waited_for(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([OPEN]) == 1
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines()]
    for told in (
        "2 billing consumer protocol Stable billing-1 at 10.0.4.7 before 1970-01-01 00:02:40 orders not yet",
        "none mail classic consumer Empty none not told orders, users is a member",
        "1, 2 shop-7 7 2 min before orders has written",
        "2 producer 4011 4011 61 s before users ?",
    ):
        assert told.split() in rows
    assert "waited for:\n  - group 'billing' has members on the source: billing-1 at 10.0.4.7\n" in text
    assert "not seen:\n  - groups: no\n  - no broker lists: clients that read without a group" in text


def test_only_what_was_seen_is_now(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A clock that is two hours ahead, or behind, says nothing about who is still there."""
    writers = [
        Writer(name=name, transactional=True, topics=["orders"], last_ms=161_000 + off_ms, writing=writing)
        for name, off_ms, writing in (("ahead", 7_200_000, False), ("behind", -100_000, True), ("none", -161_001, False))
    ]
    run([replace(OPEN, opened_ms=0, writers=writers)])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["ahead", "-1", "2", "h", "ahead", "of", "our", "clock", "orders"] in rows
    assert ["behind", "-1", "now", "orders"] in rows and ["none", "-1", "unknown", "orders"] in rows


def test_nothing_is_ticked_off_before_the_target_is_open(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([replace(OPEN, opened_ms=0, unseen=())]) == 0
    text = capsys.readouterr().out
    assert "on the target" not in text and "waited for" not in text and "billing" in text


def test_watch_ends_when_nobody_is_waited_for(run: Any, time: Time, capsys: pytest.CaptureFixture[str]) -> None:
    going = replace(OPEN, readers=READERS[:1], unseen=())
    began = time.now
    assert run([OPEN, going, going, DONE], "--watch", "60") == 0 and time.now - began == 180
    assert capsys.readouterr().out.count("waited for:\n  nobody") == 1


def lacking(one: Inventory, *questions: str) -> Inventory:
    return replace(one, unseen=[f"{question}: no" for question in questions], unanswered=questions)


def test_watch_goes_on_while_a_question_fails_that_could_be_answered(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    target = lacking(DONE, "groups of the target")
    assert run([lacking(OPEN), target, target, DONE], "--watch", "60") == 0
    text = capsys.readouterr().out
    assert text.count("not seen:\n  - groups of the target: no\n") == 1 and "not seen:\n  only what" in text
    assert text.count("waited for:\n  nobody that could be seen\n") == text.count("waited for:\n  nobody\n") == 1
    run([target, DONE], "--watch", "60")  # the first look is no better than others


def test_watch_ends_though_a_question_is_never_answered(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    open_, done = lacking(OPEN, "producers"), lacking(DONE, "producers")
    assert run([open_, lacking(DONE, "producers", "groups"), done], "--watch", "60") == 1
    assert "waited for:\n  nobody that could be seen\nnot seen:\n  - producers: no\n" in capsys.readouterr().out
    assert run([open_, OPEN, done, DONE], "--watch", "60") == 0, "one look could"


def test_watch_goes_on_behind_a_cluster_that_did_not_answer(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    away = ClusterUnreachable("source", "old:9092", "it is gone")
    assert run([OPEN, away, away, DONE], "--watch", "60") == 0
    assert capsys.readouterr().err.count("not seen: source cluster: no broker at old:9092") == 1
    assert run([away], "--watch", "60") != 0, "the first look fails, as without a watch"


def test_json_has_what_is_waited_for_and_what_is_too_old(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").write_text('a_deprecatedrequestspersec{request="Fetch",version="3"} 1\na_authorization_denied 3\n')
    assert run([DONE], "--json", "--broker-file", str(tmp_path / "m")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["waiting"] == [] and found["readers"][0]["group"] == "mail" and found["untold"]
    assert found["too_old"] == ["a client that does not say what it is: Fetch v3"]
    assert found["refused"] == ["its authorizer denies requests: 3.0 a minute"]
    run([DONE], "--broker-file", str(tmp_path / "m"))
    assert "refused by the source:\n  - its authorizer denies" in capsys.readouterr().out


def test_broker_file_that_does_not_tell_who_is_too_old_is_no_all_clear(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").write_text("a_failed_authentication_total 3\n")
    assert run([DONE], "--broker-file", str(tmp_path / "m")) == 1
    assert "not seen:\n  - who is too old for Kafka 4" in capsys.readouterr().out
    assert run([DONE], "--json", "--broker-file", str(tmp_path / "m")) == 1
    assert "no DeprecatedRequestsPerSec" in json.loads(capsys.readouterr().out)["unseen"][0]
