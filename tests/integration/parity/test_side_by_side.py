"""MirrorMaker 2 and ours, from one source into two targets: the same records, and what a group that moves reads again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import mirrormaker
from sandbox import Cluster
from sandbox.process import Child
from tests.integration.copying import await_stable, wait_until
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import Flow, client

pytestmark = pytest.mark.parity

LAGS = (0, 1_000, 100_000)
COUNTS = [300_741, 301_287, 300_503]  # records of a partition: not the same distance from any sample
ALIAS, COPIES = "primary", "mm2"


@pytest.fixture(scope="module")
def other_target() -> Iterator[Cluster]:
    with Cluster("other", overrides={"broker.session.timeout.ms": "60000"}, ready_timeout_s=240) as cluster:
        yield cluster


@pytest.fixture
def begun(clusters: tuple[Cluster, Cluster], other_target: Cluster, tmp_path: Path) -> Iterator[tuple[Flow, Child]]:
    """A flow whose tail does not run yet, and a MirrorMaker 2 that runs with its defaults, but for shorter intervals."""
    with Flow(clusters, tmp_path) as flow:
        settings = mirrormaker.settings(
            ALIAS, f"{flow.name}-.*", flow.source, client(other_target), (1, 1)
        ) | {
            f"{ALIAS}.consumer.isolation.level": "read_committed",
            "groups": f"{flow.name}-.*",
            "sync.group.offsets.enabled": "true",
            **{
                f"{what}.interval.seconds": "1"
                for what in ("sync.group.offsets", "emit.checkpoints", "refresh.groups", "refresh.topics")
            },
        }  # fmt: skip
        file = tmp_path / "mm2.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        mm2 = Child(mirrormaker.command(file, tmp_path), tmp_path / "mm2.log", tmp_path, dict(os.environ))
        try:
            yield flow, mm2
        finally:
            mm2.terminate(5)


def test_the_same_records_and_no_group_reads_anything_again(
    begun: tuple[Flow, Child], other_target: Cluster, tmp_path: Path
) -> None:
    """At lags of 0, 1,000 and 100,000 records in each partition. What both read again is printed."""
    (flow, mm2), there = begun, client(other_target)
    topic = flow.create("orders", len(COUNTS))
    flow.append(topic, COUNTS)
    apps.append(flow.source, topic, [500] * len(COUNTS), 77, transactions=True)  # offsets of a plain copy shift
    await_stable(flow.clusters[0], topic, len(COUNTS))
    here = apps.log_of(flow.source, topic)
    flow.start()
    flow.arrives(topic, sum(map(len, here.values())))

    total = {p: len(log) for p, log in here.items()}

    def copied() -> bool:
        assert mm2.status() is None, (tmp_path / "mm2.log").read_text()[-3000:]
        found = apps.ends(there, f"{ALIAS}.{topic}")
        return found.keys() == total.keys() and all(found[p] >= count for p, count in total.items())

    wait_until(copied, "MirrorMaker 2 has copied as many records", 600, 0.5)
    assert records(apps.log_of(there, f"{ALIAS}.{topic}")) == records(here)
    read_again = count(flow, topic, there)
    print("\nread again by a group, mean and most of a partition:")
    for lag, (theirs, ours) in read_again.items():
        print(f"lag {lag:7,}: MirrorMaker 2 {sum(theirs) / len(theirs):10,.0f} {max(theirs):8,}; ours {max(ours)}")
    assert all(not any(ours) for _, ours in read_again.values())
    assert all(min(theirs) >= 0 for theirs, _ in read_again.values()), "it misses nothing either"
    assert all(any(read_again[lag][0]) for lag in LAGS[1:]), "the measure sees what is read again"


def count(flow: Flow, topic: str, there: dict[str, str]) -> dict[int, tuple[list[int], list[int]]]:
    """Return, by lag, how many records groups read again in each partition: behind MirrorMaker 2, and behind ours."""
    here, theirs = apps.log_of(flow.source, topic), apps.log_of(there, f"{ALIAS}.{topic}")
    for lag in LAGS:
        places = {(topic, p): log[-lag][0] if lag else log[-1][0] + 1 for p, log in here.items()}
        apps.commit(flow.source, flow.group(f"lag-{lag}"), places)
    apps.commit(flow.source, flow.group("last"), {(topic, 0): here[0][-1][0] + 1})
    groups = [flow.group(f"lag-{lag}") for lag in LAGS]

    def all_there() -> bool:  # the last one comes by a pass over all groups
        found = [apps.positions(there, group, f"{ALIAS}.{topic}") for group in (*groups, flow.group("last"))]
        return [len(one) for one in found] == [len(here)] * len(groups) + [1]

    wait_until(all_there, "MirrorMaker 2 has set every group", 600, 1.0)
    found = {}
    for lag, group in zip(LAGS, groups, strict=True):
        ours = apps.passed(apps.log_of(flow.target, topic), flow.group_arrives(group, topic))
        mm2 = apps.passed(theirs, apps.positions(there, group, f"{ALIAS}.{topic}"))
        found[lag] = (
            [len(log) - lag - mm2[p] for p, log in here.items()],
            [len(log) - lag - ours[p] for p, log in here.items()],
        )
    return found


def records(log: apps.Log) -> dict[int, list[apps.Record]]:
    return {p: [record for _, record in its] for p, its in log.items()}
