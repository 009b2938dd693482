"""What MirrorMaker 2's file says about one flow."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.adopt.file import flow_of, read
from airflow_mirror.errors import InputError

FILE = """\
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->B.enabled = true
A->B.topics = orders.*
replication.policy.separator = _
B.offset.storage.topic = where-it-is
B.group.id = workers
status.storage.topic = what-it-does
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "connect-mirror-maker.properties"
    path.write_text(FILE)
    return path


def test_a_flow_has_its_mirror_its_clusters_and_its_names(file: Path) -> None:
    found = read([file])
    assert found.mirror.naming.target_topic("orders") == "A_orders"
    assert (found.source.bootstrap, found.target.bootstrap) == ("a:9092", "b:9092")
    assert (found.flow.source, found.flow.target) == ("A", "B")
    assert found.flow.offsets == "where-it-is" and found.flow.status == "what-it-does"
    assert found.flow.workers == "workers" and found.flow.checkpoints == "A_checkpoints_internal"
    assert read([file], "A -> B").flow == found.flow


def test_a_flow_that_is_not_enabled_or_one_of_several_has_to_be_named(file: Path) -> None:
    with pytest.raises(InputError, match=r"--flow B->A: no such flow. Enabled are A->B"):
        read([file], "B->A")
    file.write_text(f"{FILE}A->C.enabled = true\n")
    with pytest.raises(InputError, match="several flows: name one"):
        read([file])
    assert read([file], "A->C").target.bootstrap == "c:9092"


def test_internal_topics_may_keep_their_dots() -> None:
    own = "replication.policy.internal.topic.separator.enabled"
    assert flow_of({own: "false"}, "A", "B", "_").checkpoints == "A.checkpoints.internal"
    assert flow_of({f"A->B.{own}": "true", own: "false"}, "A", "B", "_").checkpoints == "A_checkpoints_internal"


def test_the_top_levels_storage_topic_wins_over_the_clusters() -> None:
    keys = {"offset.storage.topic": "top", "B.offset.storage.topic": "cluster", "group.id": "not looked for"}
    assert flow_of(keys, "A", "B").offsets == "top" and flow_of(keys, "A", "B").workers == "A-mm2"
