"""The command ``airflow-mirror`` on real clusters, as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console.main import main
from airflow_mirror.kafka.admin import ClusterAdmin, GroupPosition
from airflow_mirror.kafka.permit import unfenced
from airflow_mirror.ledger.decisions import Ledger
from airflow_mirror.plan import Plan
from airflow_mirror.plan.ownership import claim
from sandbox import Cluster
from tests.integration.copying import config, copy, create, properties_of, ranges_of, wait_until, write

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run a command for the test's topic, and return its status and what it printed."""
    clusters = properties_of(tmp_path, source_cluster, target_cluster)

    def run(command: str, *options: str) -> tuple[int, str, str]:
        common = [*clusters, "--name", topic_name, "--include", topic_name, "--groups", f"{topic_name}-g"]
        status = main([command, *common, *options])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def source(source_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(source_cluster)) as admin:
        yield admin


@pytest.fixture
def target(target_cluster: Cluster) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(config(target_cluster)) as admin:
        yield admin


def test_a_plan_is_printed_and_nothing_is_written(
    source_cluster: Cluster, target_cluster: Cluster, target: ClusterAdmin, topic_name: str, run: Run
) -> None:
    create(source_cluster, topic_name)
    write(source_cluster, topic_name, 20, 1)
    before = target.topic_names()
    status, printed, errors = run("plan")
    assert (status, errors) == (0, "") and printed.startswith(f"# Plan of mirror {topic_name}\n")
    status, printed, _ = run("plan", "--json")
    plan = Plan.from_json(printed)
    assert status == 0 and plan.topic(topic_name).ends == {0: 20} and plan.capabilities.markers == "unknown"
    assert target.topic_names() == before
    status, printed, _ = run("plan", "--json", "--probe")
    assert status == 0 and Plan.from_json(printed).capabilities.markers == "direct"
    of_brokers = {"__consumer_offsets", "__transaction_state"}  # made for the probe, if nobody was there before
    wait_until(lambda: set(target.topic_names()) - of_brokers == set(before) - of_brokers, "the scratch topic is gone")


def test_every_block_of_a_plan_is_a_line_and_status_1(
    source_cluster: Cluster, target_cluster: Cluster, target: ClusterAdmin, topic_name: str, run: Run
) -> None:
    """The same topic is fine once the ledger says that it is this mirror's, and blocked again for another one."""
    create(source_cluster, topic_name)
    create(target_cluster, topic_name)
    write(source_cluster, topic_name, 20, 1)
    plan = Plan.from_json(run("plan", "--json")[1])
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name), mirror=topic_name)
    status, printed, errors = run("plan")
    assert status == 1 and printed.startswith("# Plan of mirror")
    blocked = [line for line in errors.splitlines() if not line.startswith(" ")]  # the others go on with it
    assert [line.split(": ")[:2] for line in blocked] == [["blocked", "target_data"]]
    Ledger(target).create()
    claim(Ledger(target), plan, target)
    assert run("plan")[::2] == (0, "")
    status, _, errors = run("plan", "--name", "another")
    assert status == 1 and f"mirror '{topic_name}' of cluster" in " ".join(errors.split())


def test_positions_are_shown_on_both_sides_and_committed_if_told(
    source_cluster: Cluster,
    target_cluster: Cluster,
    source: ClusterAdmin,
    target: ClusterAdmin,
    topic_name: str,
    run: Run,
) -> None:
    create(source_cluster, topic_name, 2)
    create(target_cluster, topic_name, 2)
    group, tps = f"{topic_name}-g", [TopicPartition(topic_name, p) for p in range(2)]
    for p in range(2):
        write(source_cluster, topic_name, 20, p, partition=p)
    source.commit_group_offsets(group, {tps[0]: GroupPosition(7, ""), tps[1]: GroupPosition(20, "")}, unfenced)
    status, _, errors = run("translate")
    assert status == 1 and errors.count("refused: ") == 2  # nothing is copied yet
    copy(source_cluster, target_cluster, ranges_of(source_cluster, topic_name, 2), mirror=topic_name)
    status, printed, errors = run("translate", "--json")
    moves = json.loads(printed)["moves"]
    assert (status, errors) == (0, "")
    assert [(m["source_offset"], m["target_offset"], m["before"], m["action"]) for m in moves] == [
        (7, 7, None, "commit"), (20, 20, None, "commit"),
    ]  # fmt: skip
    assert target.group_offsets(group) == {}
    Ledger(target).create()  # as a plan does, before anything is copied
    status, printed, _ = run("translate", "--yes")
    assert status == 0 and printed.rstrip().endswith("committed; a tail leaves these positions alone from now on")
    assert {tp: p.offset for tp, p in target.group_offsets(group).items()} == {tps[0]: 7, tps[1]: 20}
    source.commit_group_offsets(group, {tps[0]: GroupPosition(3, "")}, unfenced)
    run("translate", "--yes")  # it never sets a group back
    assert target.group_offsets(group)[tps[0]].offset == 7
    run("translate", "--yes", "--allow-rewind")
    assert target.group_offsets(group)[tps[0]].offset == 3
