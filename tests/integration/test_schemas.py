"""What schema ids in real records mean in two real registries (Apicurio), before and after one of them is gone.

The payloads are what the serializers of confluent-kafka 2.16.1 write for these schemas and this name. Only the ids are
the registries' own. What they write themselves is proven in ``test_to_the_cloud.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_mirror.console.main import main
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SAME, SchemaProof
from airflow_mirror.errors import InputError, TryAgain
from airflow_mirror.extras.schemas.proof import prove
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.inventory import read_topics
from airflow_mirror.plan.registry_topics import registry_topics
from airflow_mirror.sync.schemas.move import MoveReport, move
from airflow_mirror.sync.schemas.registry import MOST_BYTES, Registry
from sandbox import Cluster
from sandbox.registry import SchemaRegistry
from tests.builders import plan_of, topic_plan
from tests.integration import plain
from tests.integration.copying import config, create, ends, properties_of, wait_until

pytestmark = pytest.mark.tools

NAME = '{"type":"record","name":"Name","fields":[{"name":"name","type":"string"}]}'
USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"Name"}]}'
JSON = (
    '{"$schema":"http://json-schema.org/draft-07/schema#","title":"User","type":"object",'
    '"properties":{"name":{"type":"string"}}}'
)
PROTOBUF = "Cgp1c2VyLnByb3RvIhQKBFVzZXISDAoEbmFtZRgBIAEoCWIGcHJvdG8z"  # as that serializer registers it
WRITTEN = {"avro": b"\x06Ada", "json": b'{"name":"Ada"}', "protobuf": b"\x00\n\x03Ada"}


@dataclass
class World:
    """A source, and a registry on either side with the same schemas. :ivar ids: of what each kind's value carries."""

    cluster: Cluster
    here: SchemaRegistry
    there: SchemaRegistry
    ids: dict[str, int]

    def write(self, topic: str, *values: bytes) -> None:
        create(self.cluster, topic)
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(240) == 0

    def prove(self, *topics: str) -> SchemaProof:
        planned = (topic_plan(name, {0: 0}, source_topic_id="") for name in topics)
        plan = plan_of(Mirror(name="m", source="s", target="t"), *planned)
        with ClusterAdmin(config(self.cluster)) as admin:
            here, there = (Registry(role, {"url": r.url}) for role, r in (("source", self.here), ("target", self.there)))
            return prove(plan, admin, here=here, there=there, each=200)


def history(registry: SchemaRegistry) -> dict[str, int]:
    registry.register("name", NAME)
    refers = [{"name": "Name", "subject": "name", "version": 1}]
    return {
        "avro": registry.register("avro-value", USER, references=refers),
        "json": registry.register("json-value", JSON, "JSON"),
        "protobuf": registry.register("protobuf-value", PROTOBUF, "PROTOBUF"),
    }


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with (
        Cluster("source", ready_timeout_s=240) as cluster,
        SchemaRegistry("here") as here,
        SchemaRegistry("there") as there,
    ):
        ids = history(here)
        assert history(there) == ids
        yield World(cluster, here, there, ids)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def test_ids_of_each_kind_of_serializer_are_proven_and_others_named(world: World) -> None:
    for kind, payload in WRITTEN.items():
        world.write(kind, framed(world.ids[kind], payload), b"\0\0\0\0", b"text", b"\0\xff\xff\xff\xffbinary")
    found = world.prove(*WRITTEN)
    assert [(row.topic, row.id, row.verdict) for row in found.rows] == [
        (kind, world.ids[kind], SAME) for kind in WRITTEN
    ]  # fmt: skip
    assert [list(row.subjects) for row in found.rows] == [[f"{kind}-value version 1"] for kind in WRITTEN]
    assert not found.wrong and not found.without

    other = world.here.register("late-value", '"int"')
    assert world.there.register("late-value", '"long"') == other
    only = world.here.register("new-value", '"float"')
    world.write("late", framed(other, b"\x02"), framed(only, b"\0\0\0\0"))
    found = world.prove("avro", "late")
    assert [row.verdict for row in found.rows] == [SAME, DIFFERENT, MISSING]
    assert [str(row) for row in found.wrong] == [
        f"topic 'late': id {other} of the value (late-value version 1) is another schema on the target",
        f"topic 'late': id {only} of the value (new-value version 1) is not there on the target",
    ]


def test_registry_that_is_gone_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("gone", framed(world.ids["avro"], WRITTEN["avro"]))
    monkeypatch.setattr(Registry, "_patience", (2.0, 2.0))
    world.there.kill()
    try:
        with pytest.raises(TryAgain, match="target's schema registry does not answer"):
            world.prove("gone")
    finally:
        world.there.start()  # at the same address, and empty
    assert [row.verdict for row in world.prove("gone").rows] == [MISSING]
    assert history(world.there) == world.ids
    assert [row.verdict for row in world.prove("gone").rows] == [SAME]


def test_schemas_move_to_an_empty_registry_of_its_kind_and_follow() -> None:
    """Ids that the target's own counter would not have given; killed in the middle; and new versions that follow."""
    with SchemaRegistry("full") as full, SchemaRegistry("empty") as empty:
        full.register("gone-value", '"bytes"')
        ids = history(full)
        full.ask("DELETE", "/subjects/gone-value")
        second = full.register("late-value", '"int"')
        full.ask("PUT", "/config/late-value", compatibility="BACKWARD")
        empty.register("late-value", '"int"')  # under another id

        def moved(writes: int = 1000, **how: bool) -> MoveReport:
            """By a person, who also completes what a kill has left."""
            wanted = {"dry_run": False, "complete": True, **how}
            return move(Registry("source", {"url": full.url}), Dying(empty.url, writes), **wanted)

        with pytest.raises(InputError, match="it has no modes, so it can't be held"):
            move(Registry("source", {"url": full.url}), Dying(empty.url, 0), dry_run=False, keep_out=True)
        before = moved(dry_run=True, complete=False)
        assert before.conflicts == [
            "gone-value version 1 is id 1, which is late-value version 1 on the target, another schema",
            f"late-value version 1 is id {second} on the source, and id 1 on the target",
            "settings of late-value differ: BACKWARD on the source, none on the target",
        ]
        empty.kill()
        empty.start()
        for writes in (0, 1, 2, 5):
            with pytest.raises(Killed):
                moved(writes)
        moved()
        for kind, schema_id in ids.items():
            assert empty.ask("GET", f"/schemas/ids/{schema_id}/versions") == [{"subject": f"{kind}-value", "version": 1}]
        assert empty.ask("GET", "/subjects") and "gone-value" not in empty.ask("GET", "/subjects")
        assert "gone-value" in empty.ask("GET", "/subjects?deleted=true")
        assert empty.ask("GET", "/config/late-value") == {"compatibilityLevel": "BACKWARD"}
        assert (moved().done, moved().conflicts) == ([], [])

        third = full.register("late-value", '["null","int"]')
        assert moved().done == [f"register late-value version 2 as id {third}"]
        latest = empty.ask("GET", "/subjects/late-value/versions/latest")
        assert (latest["id"], latest["version"]) == (third, 2)
        words = ["move-schemas", "--source-registry", full.url, "--target-registry", empty.url]
        assert main(words) == 0
        empty.register("late-value", '["null","int","long"]')
        assert main([*words, "--yes"]) == 1, "the target has what the source has not"


def test_schemas_follow_beside_a_real_tail(
    source_cluster: Cluster, target_cluster: Cluster, topic_name: str, tmp_path: Path
) -> None:
    """New ones within a pass; what differs and a registry that is away are told, and hold up no record."""
    create(source_cluster, topic_name)
    with SchemaRegistry("full") as full, SchemaRegistry("empty") as empty:
        ids = history(full)
        mirror = tmp_path / "mirror.yaml"
        registries_of = {"source_registry": full.url, "target_registry": empty.url}
        mirror.write_text(
            json.dumps({
                "name": topic_name, "source": "src", "target": "dst", "topics": [topic_name],
                "sync_schemas": True, "schema_interval_s": 1, **registries_of,
            })
        )  # fmt: skip
        clusters = properties_of(tmp_path, source_cluster, target_cluster)
        status = tmp_path / "job" / "status.json"

        def told() -> dict[str, Any]:
            follows: dict[str, Any] = json.loads(status.read_text())["follows"]
            return follows["schemas"]

        def known(*schema_ids: int) -> bool:
            try:
                return all(empty.ask("GET", f"/schemas/ids/{one}/versions") for one in schema_ids)
            except OSError:
                return False

        options = ["--mirror", str(mirror), *clusters, "--job-dir", str(status.parent)]
        with plain.Follow(*options, log=tmp_path / "tail.log") as tail:
            tail.says("4 versions of schemas kept level")
            assert known(*ids.values())
            late = full.register("late-value", '"int"')
            wait_until(lambda: known(late), "a new schema follows", 60)

            theirs = empty.register("theirs-value", '"double"')
            line = "schemas don't follow: theirs-value version 1 is on the target alone"
            wait_until(lambda: told().get("said") == [line], "what differs is told", 60)
            assert known(theirs), "and stays"

            empty.kill()
            tail.says("schemas don't follow now: the target's schema registry does not answer")
            producer = Producer({"bootstrap.servers": source_cluster.bootstrap})
            producer.produce(topic_name, framed(late, b"\x02"))
            assert producer.flush(120) == 0
            wait_until(
                lambda: [end for _, _, end in ends(target_cluster, topic_name, 1).values()] == [1], "records follow", 120
            )
            empty.start()  # without what it had
            wait_until(lambda: known(late, *ids.values()), "all of it follows again", 120)
            wait_until(lambda: told().get("error") is None, "and it is told", 60)
            tail.stop()


def test_store_of_a_registry_is_recognised_on_a_real_broker(world: World) -> None:
    for name, key in (("_schemas", b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'), ("changelog", b"k")):
        create(world.cluster, name, cleanup_policy="compact")
        producer = Producer({"bootstrap.servers": world.cluster.bootstrap, "compression.type": "zstd"})
        producer.produce(name, b"{}", key)
        assert producer.flush(240) == 0
    with ClusterAdmin(config(world.cluster)) as admin:
        assert registry_topics(admin, read_topics(admin, ["_schemas", "changelog"])) == (("_schemas",), {})


class Killed(BaseException):
    pass


class Dying(Registry):
    """A registry whose caller is killed before one of its writes."""

    def __init__(self, url: str, writes: int) -> None:
        super().__init__("target", {"url": url})
        self._writes = writes

    def send(self, method: str, url: str, data: Any = None, headers: Any = None, most_bytes: int = MOST_BYTES) -> Any:
        if method != "GET":
            if self._writes == 0:
                raise Killed
            self._writes -= 1
        return super().send(method, url, data, headers, most_bytes)
