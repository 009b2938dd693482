"""I6: offset-syncs on the target. MirrorMaker 2's client translates from what lies there, and the source has nothing."""

from __future__ import annotations

import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from airflow_mirror.sync.mm2_topics.formats import read_checkpoint
from sandbox import Cluster
from tests.integration.copying import read
from tests.integration.java_clients import compiled, java_client
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import GROUPS_S, PARTITIONS, Flow, within
from tests.integration.parity.scenarios import TEN

pytestmark = pytest.mark.parity


def test_i6_syncs_on_the_target(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    """Offsets are mapped, so that an untranslated one would be wrong; the group moves on, and is exact each time."""
    alias = f"primary{uuid.uuid4().hex[:8]}"
    fields = {
        "policy": "prefix", "source_alias": alias, "target_alias": "backup", "offsets": "mapped",
        "traces": "checkpoints, offset-syncs", "checkpoint_interval_s": 0.5,
    }  # fmt: skip
    classpath = compiled(tmp_path)
    with Flow(clusters, tmp_path / "flow", transactions=True, **fields) as flow:
        topic, group = flow.create("i6"), flow.group("i6")
        flow.append(topic, TEN)
        before = names(flow, 0)
        flow.start()
        flow.append(topic, TEN)
        flow.arrives(topic, 200)
        with java_client(classpath, flow.target["bootstrap.servers"], {}) as java:
            for read_so_far in (100, 200):
                apps.consume(flow.source, group, [topic], 100)
                wanted = apps.passed(apps.log_of(flow.source, topic), apps.positions(flow.source, group, topic))
                assert sum(wanted.values()) == read_so_far
                there = apps.log_of(flow.target, flow.there(topic))

                def translated(log: apps.Log = there) -> dict[int, int]:
                    found = java.offsets(alias, group)
                    return apps.passed(log, {p: at for (_, p), (at, _) in found.items()})

                within(GROUPS_S, lambda t=translated, w=wanted: t() == w, "RemoteClusterUtils gives the exact position")
        assert names(flow, 0) == before, "nothing is new on the source"
        assert {f"mm2-offset-syncs.{alias}.internal", f"{alias}.checkpoints.internal"} <= names(flow, 1)
    written = defaultdict(list)
    for _, _, key, value, _ in read(clusters[1], f"{alias}.checkpoints.internal"):
        if (one := read_checkpoint(key or b"", value or b"")) is not None:
            written[one.group, one.tp].append(one.downstream)
    assert len([at for at in written if at[0] == group]) == PARTITIONS
    assert [at for at, places in written.items() if places != sorted(places)] == [], "none goes back"


def names(flow: Flow, side: int) -> set[str]:
    """Return the topics of a cluster, without the broker's own, which applications cause."""
    return {name for name in flow.admins[side].topic_names() if not name.startswith("__")}
