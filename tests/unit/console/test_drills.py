"""``airflow-mirror drills``: what the target keeps of drills, as a list, a page and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.main import main
from airflow_mirror.extras.drill import clean_up as module
from airflow_mirror.extras.drill import turn
from airflow_mirror.extras.drill.store import Drill, Drills
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.ledger.state import State
from airflow_mirror.wire.error_codes import ErrorCode
from tests.driven.cluster import DrivenCluster
from tests.driven.groups import Committed
from tests.driven.ledger import LedgerCluster
from tests.driven.script import Fault

FIGURES = {
    "rpo_s": 1.5, "rto_s": 20.0, "lost": 1200, "reread": 3, "acknowledged": 9000, "skipped": 0, "first_read_s": 1.0,
    "first_write_s": 20.0,
}  # fmt: skip


@pytest.fixture
def state(dst: LedgerCluster, src: DrivenCluster) -> State:
    one = dst.state
    Drills(one, "dr-drill").save(Drill(run="monday", at_ms=1_790_000_000_000, figures=FIGURES, missed=["RPO"]))
    Drills(one, "dr-drill").save(
        Drill(run="sunday", at_ms=1_780_000_000_000, topics=["mirror-drill.1"], source_id=src.cluster_id)
    )
    return one


@pytest.mark.usefixtures("state")
def test_drills_are_listed_the_newest_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drills", "--target", "dst"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2026-05-28 20:26 UTC: nothing measured: not judged; its topic mirror-drill.1 may still be there "
        "(--clean-up sunday)",
        "2026-09-21 14:13 UTC: RPO 1.50 s, RTO 20.00 s, 1,200 lost, 3 read again: RPO",
    ]
    assert main(["drills", "--target", "dst", "--json"]) == 0
    sunday, monday = json.loads(capsys.readouterr().out)
    assert (sunday["run"], monday["run"], monday["lost"]) == ("sunday", "monday", 1200) and "figures" not in monday


@pytest.mark.usefixtures("state")
def test_the_last_drill_is_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drills", "--target", "dst", "--html", str(tmp_path / "x.html")]) == 0
    assert main(["drills", "--target", "dst", "--html", "-"]) == 0
    page = (tmp_path / "x.html").read_text()
    assert capsys.readouterr().out.endswith(page) and "1,200 of 9,000 acknowledged records lost" in page


@pytest.mark.usefixtures("state")
def test_mirror_without_drills_is_told_which_have_some(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drills", "--target", "dst", "--mirror", "m"]) == 2
    assert "no drill of it\n  why: it knows drills of: dr-drill\n" in capsys.readouterr().err


def drilling(ledger: Ledger) -> list[str]:
    return [key for key in ledger.values() if key.startswith("drilling/")]


def clean_up(run: str, *words: str) -> int:
    return main(["drills", "--target", "dst", "--clean-up", run, *words])


def test_what_a_drill_left_is_deleted_once_on_both_sides(
    state: State, src: DrivenCluster, dst: LedgerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger, one = dst.ledger, "mirror-drill.1"
    assert turn.begin(ledger, "dr-drill", "sunday", "another Airflow", 1000.0) == ""
    for cluster in (src, dst):
        cluster.create(one)
        cluster.groups.committed[one] = {TopicPartition(one, 0): Committed(1, "", -1)}
    src.script.on("DeleteTopics", Fault.refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert clean_up("sunday", "--source", "src") == 1 and drilling(ledger), "it is not ended before all is deleted"
    assert one in src.topics and one not in dst.topics
    assert [clean_up("sunday", "--source", "src") for _ in range(2)] == [0, 0]
    assert not any(one in cluster.topics or one in cluster.groups.committed for cluster in (src, dst))
    assert len(src.asked("DeleteTopics")) == 2 and len(dst.asked("DeleteTopics")) == 1
    assert not drilling(ledger), "the next drill may begin"
    said = capsys.readouterr()
    assert "could not delete all that it has made\n  why: 'mirror-drill.1' on the source: " in said.err
    assert said.out.splitlines() == ["deleted on both sides: mirror-drill.1", "sunday has left nothing"]
    assert [found.topics for found in Drills(state, "dr-drill").all()] == [[], []]


@pytest.mark.usefixtures("state")
def test_drill_that_died_behind_its_turn_is_ended_without_a_source(
    dst: LedgerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has noted nothing, so it has created nothing; its turn would hold the next drill off for a day."""
    ledger = dst.ledger
    assert turn.begin(ledger, "dr-drill", "tuesday", "another Airflow", 1000.0) == ""
    assert clean_up("wednesday", "--source", "src") == 2 and drilling(ledger), "that name has no turn"
    assert clean_up("tuesday") == 0 and not drilling(ledger)
    assert capsys.readouterr().out == "tuesday has left nothing\n"


def test_what_another_source_has_is_not_looked_for_on_this_one(
    state: State, src: DrivenCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would be taken for deleted, and forgotten."""
    Drills(state, "dr-drill").save(Drill(run="friday", at_ms=9, topics=["there"], source_id="one"))
    src.cluster_id = "two"
    assert [clean_up("friday", "--source", "src"), clean_up("friday"), clean_up("nobody")] == [2, 2, 2]
    said = capsys.readouterr().err
    assert "has cluster id two\n  why: the drill's had one" in said and "--clean-up needs --source" in said
    assert "no drill has this name\n  why: drills that left topics: friday, sunday" in said
    drills = Drills(state, "dr-drill")
    lines = module.clean_up_earlier(drills, [], "two", 9e9, "mirror-drill.")
    assert lines[0] == "there of drill friday stay: on a source with cluster id 'one'"
    assert [one.topics for one in drills.all()] == [["there"], ["mirror-drill.1"], []]


def test_topic_that_is_no_drills_is_not_deleted(
    state: State, src: DrivenCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever may write to the target's ledger can name any."""
    Drills(state, "dr-drill").save(Drill(run="forged", at_ms=9, topics=["payments"], source_id=src.cluster_id))
    src.create("payments")
    assert clean_up("forged", "--source", "src") == 1 and "payments" in src.topics
    assert "'payments' on the clusters: no name of a drill, which begins with 'mirror-drill.'" in capsys.readouterr().err
