"""What each id in a mirror's topics means on the target: a driven broker, and registries that answer as documented."""

from __future__ import annotations

import json
import uuid
from argparse import Namespace
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter

from airflow_mirror.console import schemas as command
from airflow_mirror.console.main import main
from airflow_mirror.console.registries import named_registries
from airflow_mirror.cutover.schema_ids import DIFFERENT, MISSING, SAME, SchemaProof
from airflow_mirror.errors import AnswerTooLarge, BrokerError, InputError, TryAgain
from airflow_mirror.extras.schemas.proof import prove
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.model import Plan
from airflow_mirror.sync.schemas.registry import Registry
from tests.builders import plan_of, topic_plan
from tests.driven import records
from tests.driven.cluster import DrivenCluster
from tests.driven.content import TIME_MS
from tests.driven.records import Row
from tests.unit.schemas.registries import DrivenRegistry, driven, guid_of

USER, REFERS = '{"type": "record", "name": "User", "fields": []}', '{"type":"record","name":"Order","fields":[]}'
GUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


class World:
    """Two clusters, of which the source has topics of one partition, and a registry on either side."""

    def __init__(self, stack: ExitStack) -> None:
        self.source, self.target = (stack.enter_context(DrivenCluster(role)) for role in ("source", "target"))
        self.here, self.there = stack.enter_context(driven()), stack.enter_context(driven())
        self.source.create("orders")
        self.source.create("plain")
        self.plan: Plan = plan_of(
            Mirror(name="m", source="env:SOURCE", target="env:TARGET"),
            *(topic_plan(name, {0: 0}, source_topic_id=f"id-{name}") for name in ("orders", "plain")),
            source_cluster_id=self.source.cluster_id, target_cluster_id=self.target.cluster_id,
        )  # fmt: skip

    def write(self, topic: str, values: list[bytes]) -> None:
        """A batch each, so that a sample may begin at any record."""
        log = self.source.topics[topic].logs[0]
        for value in values:
            log.lay(records.encode([Row(log.end, TIME_MS, None, value, ())], leader_epoch=log.epoch))

    def both(self, *given: Any, **more: Any) -> None:
        for one in (self.here, self.there):
            one.register(*given, **more)

    def prove(self, each: int = 200, **how: bool) -> SchemaProof:
        with ClusterAdmin(self.source.config) as admin:
            here, there = (Registry(role, {"url": one.url}) for role, one in self.sides)
            return prove(self.plan, admin, here=here, there=there, each=each, **how)

    @property
    def sides(self) -> list[tuple[str, DrivenRegistry]]:
        return [("source", self.here), ("target", self.there)]


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        yield World(stack)


def payload(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + b"payload"


def test_each_id_that_the_source_knows_is_compared_by_content(world: World) -> None:
    world.write("orders", [payload(1), payload(2), payload(3), payload(99), b"text", payload(1)])
    world.write("plain", [b"\0\0\0\0\7binary"])
    world.both(1, USER, "orders-value", 1)
    world.both(2, USER, "orders-value", 2)
    world.there.schemas[2]["schema"] = '{"type": "string"}'
    world.here.register(3, REFERS, "orders-value", 3)
    found = world.prove()
    assert [(row.topic, row.id, row.verdict) for row in found.rows] == [
        ("orders", 1, SAME), ("orders", 2, DIFFERENT), ("orders", 3, MISSING),
    ]  # fmt: skip
    assert found.records == 7 and found.without == ["plain"], "an id that the source does not know is none"
    assert str(found.wrong[0]) == (
        "topic 'orders': id 2 of the value (orders-value version 2) is another schema on the target"
    )
    assert len({path for path, _ in world.here.asked}) == len(world.here.asked), "each is asked for once"


def test_what_a_tail_would_register_is_told_apart_from_what_none_can(world: World) -> None:
    world.write("orders", [payload(1), payload(2)])
    world.here.register(1, USER, "orders-value", 1)
    world.here.register(2, REFERS, "late-value", 1)
    world.there.register(9, USER, "orders-value", 1)
    found = world.prove(follows=True)
    assert [found.follows(row) for row in found.rows] == [False, True] and found.stops == ""
    assert not world.there.wrote and world.prove().following == ()
    world.there.has_modes = False
    found = world.prove(follows=True)
    assert not any(map(found.follows, found.rows)) and "no id could be kept" in found.stops


def test_what_a_tail_would_register_is_known_by_its_version_whatever_the_id_is(world: World) -> None:
    """A GUID was none of the numbers that it would register, and an id of another context was one."""
    world.here.gives_guids = True
    world.here.register(1, USER, "orders-value", 1)
    guid = uuid.UUID(guid_of(USER))
    log = world.source.topics["orders"].logs[0]
    row = Row(log.end, TIME_MS, None, b"v", (("__value_schema_id", b"\1" + guid.bytes),))
    log.lay(records.encode([row], leader_epoch=log.epoch))
    found = world.prove(follows=True)
    assert [(row.id, row.verdict, found.follows(row)) for row in found.rows] == [(str(guid), MISSING, True)]

    world.write("plain", [payload(1)])
    world.there.register(9, USER, "orders-value", 1)
    world.here.register(1, REFERS, ":.eu:orders-value", 1)
    found = world.prove(follows=True)
    assert found.following == {":.eu:orders-value version 1"}
    assert [(row.id, found.follows(row)) for row in found.rows if row.topic == "plain"] == [(1, False)]


def test_subject_that_stays_in_mode_import_is_named_and_one_that_is_just_filled_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("orders", [payload(1), payload(2)])
    for name, schema_id in (("left-value", 1), ("filled-value", 2)):
        world.both(schema_id, USER, name, 1)
        world.there.modes[name] = "IMPORT"
    monkeypatch.setattr(
        "airflow_mirror.extras.schemas.proof.time.sleep", lambda _: world.there.modes.pop("filled-value", None)
    )
    assert world.prove().importing == ["left-value"]
    world.there.has_modes = False
    assert world.prove().importing == [], "a registry without modes, or that tells them to nobody, refuses nothing"


def test_spaces_and_keys_in_another_order_are_no_difference_and_a_referred_schema_is(world: World) -> None:
    world.write("orders", [payload(5)])
    refers = {"references": [{"name": "User", "subject": "user/value", "version": 3}]}
    world.both(4, USER, "user/value", 3)
    world.both(5, REFERS, "orders-value", 1, **refers)
    world.there.schemas[5]["schema"] = '{"name": "Order", "fields": [], "type": "record"}'
    assert [row.verdict for row in world.prove().rows] == [SAME]
    world.there.schemas[4]["schema"] = '"string"'
    assert [row.verdict for row in world.prove().rows] == [DIFFERENT]


def test_referred_schema_that_is_deleted_softly_is_compared_too(world: World) -> None:
    world.write("orders", [payload(5)])
    refers = {"references": [{"name": "User", "subject": "user/value", "version": 3}]}
    world.both(4, USER, "user/value", 3)
    world.both(5, REFERS, "orders-value", 1, **refers)
    world.here.deleted = {("user/value", 3)}
    assert [row.verdict for row in world.prove().rows] == [SAME], "who reads finds it all the same"
    world.there.deleted = {("user/value", 3)}
    world.there.schemas[4]["schema"] = '"string"'
    assert [row.verdict for row in world.prove().rows] == [DIFFERENT]


def test_protobuf_is_compared_as_text_and_kinds_are_told_apart(world: World) -> None:
    world.write("orders", [payload(1)])
    world.both(1, 'syntax = "proto3";', kind="PROTOBUF")
    assert [row.verdict for row in world.prove().rows] == [SAME]
    world.there.register(1, '{"type": "string"}', kind="JSON")
    assert [row.verdict for row in world.prove().rows] == [DIFFERENT]


def test_text_that_is_no_json_is_compared_as_it_is(world: World) -> None:
    world.write("orders", [payload(1)])
    world.both(1, "string")  # as old registries took it
    assert [row.verdict for row in world.prove().rows] == [SAME]


def test_both_ends_of_a_partition_are_read_and_no_more(world: World) -> None:
    for n in range(1, 11):
        world.both(n, USER, f"s{n}")
        world.write("orders", [payload(n)])
    assert [row.id for row in world.prove(each=2).rows] == [1, 2, 9, 10] and world.prove(each=2).records == 4


def test_records_are_counted_and_not_offsets_that_compaction_has_emptied(world: World) -> None:
    log = world.source.topics["orders"].logs[0]
    for n, at in enumerate([0, 5000, 5001, 5002, 9000], 1):
        world.both(n, USER, f"s{n}")
        log.lay(records.encode([Row(at, TIME_MS, b"k", payload(n), ())], leader_epoch=log.epoch))
    log.begin_at(1)
    assert [row.id for row in world.prove(each=2).rows] == [2, 3, 5]


def test_what_retention_deletes_meanwhile_is_no_reason_to_block(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 2, 3):
        world.both(n, USER, f"s{n}")
        world.write("orders", [payload(n)])
    before = ClusterAdmin.offsets

    def deleted_meanwhile(self: ClusterAdmin, tps: Any, spec: Any) -> Any:
        found = before(self, tps, spec)
        if spec == "latest_committed":
            world.source.topics["orders"].logs[0].begin_at(1)
        return found

    monkeypatch.setattr(ClusterAdmin, "offsets", deleted_meanwhile)
    assert [row.id for row in world.prove(each=1).rows] == [2, 3]


def test_registry_that_is_away_or_refuses_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("orders", [payload(1)])
    for status in (401, 302, 500):  # of a redirect no answer is believed, and no secret goes there
        world.here.status = status
        with pytest.raises(BrokerError, match=f"source's schema registry for /schemas/ids/1.*{status}"):
            world.prove()
    monkeypatch.setattr(Registry, "_patience", (0.2, 0.2))
    with pytest.raises(TryAgain, match="target's schema registry does not answer"):
        Registry("target", {"url": "http://127.0.0.1:1"}).schema(1)


def test_page_to_log_in_is_no_answer(world: World) -> None:
    world.write("orders", [payload(1)])
    world.here.status, world.here.page = 200, "<html>Log in</html>"
    with pytest.raises(BrokerError, match="source's schema registry for /schemas/ids/1.*no JSON"):
        world.prove()


def test_answer_that_is_too_large_is_left_where_it_is(world: World) -> None:
    world.here.status, world.here.page = 200, "[" + " " * 300_000 + "1]"
    asked = Registry("source", {"url": world.here.url})
    assert asked.ask("GET", "/subjects") == [1]
    for most in (100, 300_001):
        with pytest.raises(AnswerTooLarge, match=f"source's schema registry, asked for /subjects.*{most:,} bytes"):
            asked.send("GET", f"{world.here.url}/subjects?deleted=true", most_bytes=most)
    assert len(asked.send("GET", f"{world.here.url}/subjects", most_bytes=300_003).content) == 300_003


def test_own_authority_counts_whatever_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With REQUESTS_CA_BUNDLE, as distributions and proxies set it, no certificate of the registry's was believed."""
    file, seen = tmp_path / "ca.pem", list[object]()
    file.touch()

    def send(*_: object, verify: object, **__: object) -> None:
        seen.append(verify)
        raise requests.ConnectionError

    monkeypatch.setattr(HTTPAdapter, "send", send)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.setenv(name, "/bundle.pem")
        for settings in ({"ssl.ca.location": str(file)}, {}):
            with pytest.raises(TryAgain, match="does not answer: ConnectionError"):
                Registry("source", {"url": "https://r:1", **settings}).schema(1)
        monkeypatch.delenv(name)
    assert seen == [str(file), "/bundle.pem"] * 2


def test_file_of_a_certificate_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an OSError without a class of ours, in the middle of a cutover."""
    for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"):
        registry = Registry.by("source", {"url": "https://r:1", name: str(tmp_path / "gone.pem")}, "a file")
        with pytest.raises(InputError, match=rf"source's schema registry: {name}: there is no '.*gone\.pem' on this"):
            registry.schema(1)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "gone.pem"))
    with pytest.raises(TryAgain, match=r"does not answer: Could not find .*gone\.pem"):
        Registry("source", {"url": "https://127.0.0.1:1"}).schema(1)


def test_login_goes_out_as_utf_8_as_javas_client_sends_it(world: World) -> None:
    """What Latin-1 does not have ended in a UnicodeEncodeError."""
    for settings, sent in (
        ({"basic.auth.user.info": "jörg:Łódź€"}, "Basic " + b64encode("jörg:Łódź€".encode()).decode()),
        ({"bearer.auth.token": "€"}, "Bearer \xe2\x82\xac"),  # as http.server reads bytes
    ):
        world.here.asked.clear()
        Registry("source", {"url": world.here.url, **settings}).schema(1)
        assert world.here.asked == [("/schemas/ids/1", sent)]


def test_header_borne_guid_is_asked_for_by_its_name(world: World) -> None:
    world.both(1, USER)
    world.here.guids[GUID] = world.there.guids[GUID] = 1
    source, target = (Registry(role, {"url": one.url}).schema(GUID) for role, one in world.sides)
    assert source is not None and target is not None and source.content == target.content
    assert source.subjects == (("s-value", 1),)
    world.here.register(5, USER, ":.eu:s-value", 3)  # by another id there
    again = Registry("source", {"url": world.here.url}).schema(GUID)
    assert again is not None and again.subjects == ((":.eu:s-value", 3), ("s-value", 1))


def test_secrets_stand_in_a_file_and_go_by_https_alone(tmp_path: Path, world: World) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(f"schema.registry.url={world.here.url}\nbasic.auth.user.info=me:hush\n")
    with pytest.raises(InputError, match="a secret would go over http") as e:
        Registry.of("source", str(file))
    assert "hush" not in str(e.value)
    with pytest.raises(InputError, match="list of processes") as e:
        Registry.of("source", "https://me:hush@registry:8081")
    assert "hush" not in str(e.value)
    for name in ("HTTPS://me:hush@registry:8081", "htps://me:hush@registry:8081"):
        with pytest.raises(InputError) as e:
            Registry.of("source", name)
        assert "hush" not in str(e.value), name
    for url in ("http://me:hush@registry:8081", "https://me:hush@registry:8081"):
        file.write_text(f"schema.registry.url={url}\n")
        with pytest.raises(InputError, match="its address has a password") as e:
            Registry.of("source", str(file))
        assert "hush" not in str(e.value)
    file.write_text("schema.registry.ulr=x\n")
    with pytest.raises(
        InputError, match=r"'schema\.registry\.ulr' is no setting.*nearest known is 'schema\.registry\.url'"
    ):
        Registry.of("source", str(file))
    with pytest.raises(InputError, match="neither an address nor a file"):
        Registry.of("target", "registry:8081")


def test_a_registrys_file_is_read_as_every_file_of_settings(tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"

    def given(text: str) -> Registry:
        file.write_text(f"schema.registry.url=https://r:8081\n{text}\n", encoding="utf-8")
        return Registry.of("source", str(file))

    said = given("bootstrap.servers=a:1\nbasic.auth.user.info=me:a\\bü\nssl.ca.location = /ca.pem  ")
    assert said._settings == {
        "schema.registry.url": "https://r:8081", "basic.auth.user.info": "me:a\\bü", "ssl.ca.location": "/ca.pem",
    }  # fmt: skip
    for wrong in (
        "bbbSECRET",
        "bbbSECRET=",
        "basic.auth.user.info=bbbSECRET ",
        "bearer.auth.tokn=bbbSECRET",
    ):
        with pytest.raises(InputError) as e:
            given(wrong)
        assert "SECRET" not in str(e.value), wrong
    assert "The nearest known is 'bearer.auth.token'" in str(e.value)


@pytest.fixture
def words(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(command, "last_plan", lambda _: world.plan)
    for role, cluster in (("SOURCE", world.source), ("TARGET", world.target)):
        monkeypatch.setenv(role, cluster.config.dump())
    registries = ["--source-registry", world.here.url, "--target-registry", world.there.url]
    return ["schemas", "--target", "env:TARGET", "--mirror", "m", *registries]


def test_command_ends_with_one_where_a_schema_is_missing(
    world: World, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    world.write("orders", [payload(1), payload(2)])
    world.both(1, USER, "orders-value", 1)
    world.here.register(2, REFERS, "orders-value", 2)
    assert main(words) == 1
    said = capsys.readouterr().out
    assert (
        "missing" in said
        and "2 ids in 2 records; 1 of them missing or different" in said
        and "without ids: plain" in said
    )
    world.there.register(2, REFERS, "orders-value", 2)
    assert main([*words, "--json"]) == 0
    assert [row["verdict"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["same", "same"]


def test_command_ends_with_one_where_a_cutover_would_be_refused_for_a_subject_in_mode_import(
    world: World, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("airflow_mirror.extras.schemas.proof.time.sleep", lambda _: None)
    world.write("orders", [payload(1)])
    world.both(1, USER, "orders-value", 1)
    world.there.modes[""] = "IMPORT"
    assert main(words) == 0, "whoever fills it sets READWRITE behind the cutover"
    assert "the whole registry of the target is in mode IMPORT" in capsys.readouterr().out
    world.there.modes |= {"": "READWRITE", "orders-value": "IMPORT"}
    assert main(words) == 1
    told = capsys.readouterr().out
    assert "subject 'orders-value' is in mode IMPORT on the target: nobody could register there" in told
    assert "0 of them missing" in told and "move-schemas --yes" in told
    assert main([*words, "--json"]) == 1 and json.loads(capsys.readouterr().out)["importing"] == ["orders-value"]


def test_command_asks_the_registries_of_the_plan_unless_others_are_named(
    world: World, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    world.write("orders", [payload(1)])
    world.both(1, USER, "orders-value", 1)
    assert main(words[:5]) == 2 and "its plan names no registries" in capsys.readouterr().err
    mirror = replace(world.plan.mirror, source_registry=world.here.url, target_registry="http://127.0.0.1:1")
    world.plan = replace(world.plan, mirror=mirror)
    assert main([*words[:5], "--target-registry", world.there.url]) == 0
    arguments = Namespace(source_registry="new", target_registry=None)
    assert named_registries(arguments, mirror).source_registry == "new"
    turned = named_registries(arguments, mirror, turned=True)
    assert (turned.source_registry, turned.target_registry) == (world.here.url, "new"), "of the way back"


def test_command_that_has_compared_nothing_proves_nothing(
    world: World, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    world.write("orders", [payload(1)])
    world.there.register(1, USER, "orders-value", 1)  # the source's registry is another one, or empty
    assert main(words) == 1
    assert "0 ids in 1 record; nothing is proven" in capsys.readouterr().out


def test_command_asks_no_other_cluster_than_the_planned_ones(
    world: World, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SOURCE", world.target.config.dump())
    assert main(words) == 2
    assert "was planned for" in capsys.readouterr().err and not world.here.asked
