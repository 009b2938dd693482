"""Every line that a tail logs while nothing goes wrong: start, records, idleness, a second process, take-over, stop.

An operator reads them at night. A line of another form fails here, and has to earn its place; a warning has to be one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox import Cluster
from tests.integration.copying import create, ends, properties_of, wait_until, write
from tests.integration.plain import Follow

pytestmark = pytest.mark.faults

# What a plan warns of on two clusters without an authorizer, without groups and with a file of settings.
PLAN = r"WARNING (ledger_writers|groups|left_out_configs): .*"
FIGURES = r"[\d.]+ [kM]B/s, [\d,]+ records/s"
BEGINS = (
    PLAN,
    rf"INFO 2 partitions being opened; {FIGURES}",
    r"INFO source: the ends of 2 partitions noted on the target, for a failover",
    r"INFO topics: 1 topic in the plan",
    r"INFO groups: 0 groups kept level; left out: the source lists no group: .*",
    r"INFO configs: 1 topic kept level",
    r"INFO log_starts: 1 topic kept level",
)
# On a machine that is busy a figure may come before the first record: then it says that nothing advances, which is true.
COPIES = (
    rf"INFO \d+ offsets behind in 2 partitions; {FIGURES}(, lag does not shrink)?(; slowest TOPIC-\d: .*?)?"
    r"(; batches: \d+ (passed|merged))?"
)
ENDED = r"INFO TOPIC has ended, as it was asked to"


def lines(follow: Follow, topic: str) -> list[str]:
    """Return its log without times; the summary, which is its last line, and the blank behind it are left out."""
    said = follow.said.replace(topic, "TOPIC").splitlines()
    return [re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", "", line) for line in said if line and line[0] != "{"]


def foreign(follow: Follow, topic: str, *forms: str) -> list[str]:
    return [line for line in lines(follow, topic) if not any(re.fullmatch(form, line) for form in forms)]


@pytest.fixture
def arguments(source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path) -> list[str]:
    create(source_cluster, topic_name, 2)
    write(source_cluster, topic_name, 500, seed=1)
    clusters = properties_of(tmp_path, source_cluster, target_cluster)
    return [*clusters, "--name", topic_name, "--include", topic_name]


def test_two_processes_share_and_the_second_goes_on(
    source_cluster: Cluster, target_cluster: Cluster, arguments: list[str], topic_name: str, tmp_path: Path
) -> None:
    with Follow(*arguments, log=tmp_path / "first") as first:
        first.says("0 offsets behind")
        write(source_cluster, topic_name, 100, seed=2)
        wait_until(lambda: ends(target_cluster, topic_name, 2) == ends(source_cluster, topic_name, 2), "it follows")
        with Follow(*arguments, log=tmp_path / "second") as second:
            second.says("copying for the tail")
            first.stop()
            second.says("0 offsets behind")
            second.stop()
    one_joins = r"INFO a process on host \S+ copies from now on, too: \w+"
    shared = (
        r"INFO 2 processes share the mirror; this process copies 1 partition: TOPIC-\d; \w+ copies 1 partition: TOPIC-\d"
    )
    assert foreign(first, topic_name, *BEGINS, COPIES, one_joins, shared, ENDED) == []
    joined = (
        r"INFO standing by: the tail on host \S+ has dealt this process nothing \(yet\)",
        r"INFO copying for the tail on host \S+: 1 partition: TOPIC-\d",
        r"INFO the tail on host \S+ has ended; this process takes its place",
    )
    assert foreign(second, topic_name, *joined, *BEGINS, COPIES, ENDED) == []


def test_who_is_replaced_says_so_once(arguments: list[str], topic_name: str, tmp_path: Path) -> None:
    with Follow(*arguments, log=tmp_path / "old") as old:
        old.says("0 offsets behind")
        with Follow(*arguments, "--takeover", log=tmp_path / "new") as new:
            new.says("0 offsets behind")
            wait_until(lambda: old.process.poll() is not None, "the old one has ended", 60)
            new.stop()
    waits = r"INFO waiting [\d.]+ s: earlier tasks of this mirror may still be writing"
    assert foreign(new, topic_name, *BEGINS, COPIES, waits, ENDED) == []
    replaced = r"the tail of mirror 'TOPIC' is another one now, on host '\S+'\. This one copies no more; no record is .*"
    stopped = rf"{COPIES}; [12] stopped \(.*\)"
    ends = (rf"WARNING {replaced}", rf"error: {replaced}", r"INFO the turns end: writer lease .*", stopped)
    assert foreign(old, topic_name, *BEGINS, COPIES, *ends) == []
    assert old.said.count("is another one now") in (1, 2) and " ERROR " not in old.said  # as a log line, and as its end
