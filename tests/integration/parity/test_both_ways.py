"""I1 in both directions at once: each record once on the other side, none comes home, and groups go there and back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox import Cluster
from tests.integration.parity import applications as apps
from tests.integration.parity.flow import PARTITIONS, Flow
from tests.integration.parity.scenarios import TEN

pytestmark = pytest.mark.parity


@pytest.fixture(scope="module")
def flows(clusters: tuple[Cluster, Cluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Flow, Flow]]:
    """Two mirrors that select everything of each other, copies as well."""
    directory, (primary, backup) = tmp_path_factory.mktemp("flows"), clusters
    name = f"p{uuid.uuid4().hex[:8]}"
    fields: Any = {"name": name, "policy": "prefix", "topics": [f"(.*[.])?{name}-.*"]}
    there = Flow((primary, backup), directory / "there", **fields)
    back = Flow((backup, primary), directory / "back", **fields, source="backup", target="primary")
    with there, back:
        for one in (there, back):
            topic = one.create("test-topic-1")
            one.append(topic, TEN)
        for one in (there, back):
            one.start()
        yield there, back


def test_i1_replication_both_ways(flows: tuple[Flow, Flow]) -> None:
    """100 each, 200 together, on both sides; groups at the same records; and topics that come later do the same."""
    there, back = flows
    topic = f"{there.name}-test-topic-1"
    for one, other in ((there, back), (back, there)):
        one.arrives(topic, 100)
        group = one.group(f"from-{one.mirror.source}")
        apps.consume(one.source, group, [topic], 100)
        one.group_arrives(group, topic)
        assert not any(apps.resume(one.target, group, [one.there(topic)]).values())
        later = one.create(f"later-{one.mirror.source}")
        one.append(later, [10])
        one.arrives(later, 10)
        # Its counterpart looks for topics as often: by now it has seen the copies, and left them alone.
        last = other.create(f"last-{one.mirror.source}")
        other.append(last, [10])
        other.arrives(last, 10)
    for one, other in ((there, back), (back, there)):
        names = {name for name in one.admins[1].topic_names() if one.name in name}
        here, away = one.mirror.source, other.mirror.source
        own = {f"{one.name}-{suffix}" for suffix in ("test-topic-1", f"later-{away}", f"last-{here}")}
        others = {f"{one.name}-{suffix}" for suffix in ("test-topic-1", f"later-{here}", f"last-{away}")}
        assert names == own | {f"{here}.{name}" for name in others}
        union = [apps.log_of(one.target, name) for name in (topic, one.there(topic))]
        assert [sum(map(len, log.values())) for log in union] == [100, 100]
        assert all(len(log) == PARTITIONS for log in union)
