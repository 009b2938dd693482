"""What waits while a mirror writes is the source's once the mirror has ended: I1 and I10 after their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.kafka.permit import unfenced
from sandbox import Cluster
from tests.integration.parity.flow import SYNC_S, Flow, within
from tests.integration.parity.scenarios import TEN

pytestmark = pytest.mark.parity


def test_i10_what_is_on_hold_is_the_sources_in_the_end(clusters: tuple[Cluster, Cluster], tmp_path: Path) -> None:
    """Also what the source has changed meanwhile. A setting that is excluded stays the target's own."""
    with Flow(clusters, tmp_path) as flow:
        topic = flow.create("i10-end", retention_bytes="1000000", delete_retention_ms="1000")
        flow.append(topic, TEN)
        flow.start()
        flow.arrives(topic, 100)
        flow.admins[0].alter_topic_configs(topic, unfenced, {"retention.bytes": "2000000"})
        assert flow.setting(topic, "retention.bytes") == "-1"
        waits = f"{flow.there(topic)}: retention.bytes: .* -> 2000000"
        within(SYNC_S, lambda: flow.mentions("configs", "waiting", waits), "what has changed is seen")
        flow.stop()
        words = ["retire", *flow.properties(), "--mirror", flow.mirror.name]
        assert main(words) == 0
        assert flow.setting(topic, "retention.bytes") == "-1", "it only says what it would do"
        assert main([*words, "--yes"]) == 0
        ended = [flow.setting(topic, key) for key in ("retention.bytes", "delete.retention.ms")]
        assert ended == ["2000000", "86400000"]
