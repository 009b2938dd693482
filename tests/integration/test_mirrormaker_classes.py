"""What the pages say that MirrorMaker 2 does, asked of its own classes: whatever needs no cluster."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from airflow_mirror.jobs.runner.java import find_java
from sandbox.jars import classpath
from sandbox.versions import TOOLS_VERSION
from tests.integration import java_clients
from tests.unit.compat.test_client_keys import keys_of_java

pytestmark = pytest.mark.parity

SYNTAX = Path(__file__).parents[1] / "unit" / "compat" / "apache" / "syntax.properties"
Answers = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What ``MirrorMakerSays.java`` prints: answers by key, by question."""
    classes = java_clients.compiled(tmp_path_factory.mktemp("classes"))
    found: Answers = defaultdict(dict)
    for question, key, answer in java_clients.run(classes, "MirrorMakerSays", str(SYNTAX)):
        found[question][key] = answer
    return found


def test_exactly_once_is_off_unless_it_is_enabled_and_its_consumer_reads_committed(said: Answers) -> None:
    found = said["exactly once"]
    assert found["default"] == "disabled"
    assert {*re.findall("[A-Z]+", found["values"])} == {"DISABLED", "PREPARING", "ENABLED"}
    assert (found["as it is"], found["read_committed"]) == ("UNSUPPORTED", "SUPPORTED")


def test_its_producer_has_one_request_in_flight_and_no_bound_of_its_own(said: Answers) -> None:
    """Nor is it idempotent: a request whose answer is lost is written again."""
    assert said["producer"] == {
        "max.in.flight.requests.per.connection": "1", "enable.idempotence": "false", "acks": "all",
        "delivery.timeout.ms": str(2**31 - 1), "max.block.ms": str(2**63 - 1),
    }  # fmt: skip
    assert said["producer of a file"]["delivery.timeout.ms"] == "5000"


def test_partitions_are_dealt_by_number_whatever_is_in_them(said: Answers) -> None:
    assert said["dealt"] == {"0": "hot-0,hot-3,small-2", "1": "hot-1,small-0,small-3", "2": "hot-2,small-1"}


def test_a_filter_and_a_policy_of_ones_own_are_classes_of_java(said: Answers) -> None:
    assert said["own filter"] == {"mine-1": "true", "orders": "false"}
    assert said["own policy"] == {"orders": "orders-of-A"}


def test_a_group_is_set_by_what_the_step_before_has_seen_of_it(said: Answers) -> None:
    """The position that it translates is 60. A group that has read on meanwhile, and ended, is set back there."""
    assert said["group"] == {"seen at 50": "60", "seen at 70": "left alone", "seen at ": "60"}


def test_a_topic_that_begins_with_the_targets_alias_is_never_mirrored(said: Answers) -> None:
    assert said["mirrored"] == {"orders": "true", "B.orders": "false", "C.orders": "true"}


def test_where_the_interval_of_checkpoints_is_negative_nobody_makes_any(said: Answers) -> None:
    """Without them no group moves."""
    assert said["checkpoints"] == {"60": "1", "-1": "0"}


def test_the_rack_of_its_consumer_is_what_the_file_says(said: Answers) -> None:
    assert said["consumer"] == {"client.rack": "eu-1"}


def test_a_comment_behind_a_value_is_a_part_of_it(said: Answers) -> None:
    """Of Apache's own example."""
    assert said["clusters"].keys() == {"us-west", "us-east   # defines cluster aliases"}


def test_it_can_be_told_of_no_rate_no_comparison_and_no_way_back() -> None:
    """All that it can be told is its keys, and one option."""
    command = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-cp"]
    command += [classpath("broker", "tools", version=TOOLS_VERSION), "org.apache.kafka.connect.mirror.MirrorMaker", "-h"]
    usage = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert {*re.findall(r"--[\w-]+", usage.stdout + usage.stderr)} == {"--help", "--clusters"}
    keys = {key for keys in keys_of_java().values() for key in keys}
    assert "offset.lag.max" in keys
    asked = re.compile(r"throttl|quota|per\.second|bandwidth|\brate|compar|fenc|cutover|fail(over|back)|rollback")
    assert [key for key in keys if asked.search(key)] == []
