"""Schema ids in the headers of records, as the serializers of confluent-kafka write them: GUIDs, by content.

Apicurio 3.0.9 gives none, so the registries are driven ones, whose answers are those of Confluent's documentation.
"""

from __future__ import annotations

import pytest

from airflow_mirror.console.main import main
from airflow_mirror.cutover.schema_ids import MISSING, SAME, SchemaProof
from airflow_mirror.extras.schemas.proof import prove
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.sync.schemas.registry import Registry
from sandbox import Cluster
from tests.builders import plan_of, topic_plan
from tests.integration import serializers
from tests.integration.copying import config, create
from tests.unit.schemas.registries import DrivenRegistry, driven

pytestmark = pytest.mark.managed

NAMES = [
    "Ada Lovelace",
    "Grace Hopper",
]  # the deserializer of Avro takes no value below 6 bytes, whatever the header says


def proven(cluster: Cluster, topic: str, here: DrivenRegistry, there: DrivenRegistry) -> SchemaProof:
    plan = plan_of(Mirror(name="m", source="s", target="t"), topic_plan(topic, {0: 0}, source_topic_id=""))
    old, new = (Registry(role, {"url": one.url}) for role, one in (("source", here), ("target", there)))
    with ClusterAdmin(config(cluster)) as admin:
        return prove(plan, admin, here=old, there=new, each=200)


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_guids_in_headers_are_proven_and_readers_go_by_the_targets_registry(
    source_cluster: Cluster, topic_name: str, kind: str
) -> None:
    create(source_cluster, topic_name)
    with driven() as here, driven() as there:
        here.gives_guids = there.gives_guids = True
        serializers.write(source_cluster.properties(), here.url, topic_name, kind, NAMES, in_headers=True)
        (guid,) = here.guids
        found = proven(source_cluster, topic_name, here, there).to_dict()["rows"]
        assert [(row["id"], row["verdict"]) for row in found] == [(guid, MISSING)]
        registries = [f"--{role}-registry={one.url}" for role, one in (("source", here), ("target", there))]
        assert main(["move-schemas", *registries, "--yes"]) == 0
        (row,) = proven(source_cluster, topic_name, here, there).to_dict()["rows"]
        assert (row["part"], row["id"], row["verdict"]) == ("value", guid, SAME)
        assert row["subjects"] == [f"{topic_name}-value version 1"]
        read = serializers.read(source_cluster.properties(), there.url, topic_name, kind, f"{topic_name}-g", len(NAMES))
    assert read == NAMES
