"""Schemas follow beside a tail: each change by the tail's right, nothing overwritten, and told where people look."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from requests.auth import HTTPBasicAuth

from airflow_mirror.config import ClientConfig, Handover, load
from airflow_mirror.errors import BrokerError, InputError, InvalidField, LeaseLost, TryAgain
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.mirror import COPY_IGNORES, Mirror
from airflow_mirror.sync.schemas.follower import SchemaFollower
from airflow_mirror.sync.schemas.registry import Registry
from airflow_mirror.sync.write_permit import Stopped
from tests import followed, loopback
from tests.builders import plan_of
from tests.unit.schemas.moving import INT, LONG, fill
from tests.unit.schemas.registries import DrivenRegistry, driven
from tests.unit.sync.confirmed import Confirmed


class Counted(Confirmed):
    """Knows whether it is held. :ivar taken: how often it was."""

    taken, held, ended = 0, False, False

    def require_going(self) -> None:
        if self.ended:
            raise Stopped("it ends")

    @contextmanager
    def granted(self, target: Any) -> Iterator[Permit]:
        with super().granted(target) as permit:
            self.taken, self.held = self.taken + 1, True
            yield permit
            self.held = False


class World:
    """A tail that lets schemas follow between two registries."""

    def __init__(self, here: DrivenRegistry, there: DrivenRegistry) -> None:
        self.here, self.there, self.right = here, there, Counted()
        self.mirror = Mirror(
            name="m", source="src", target="dst", source_registry=here.url, target_registry=there.url, sync_schemas=True
        )

    def follower(self, target_config: ClientConfig | None = None) -> SchemaFollower:
        source, target = (
            SimpleNamespace(wire=None, config=config)
            for config in (ClientConfig({"bootstrap.servers": "x:1"}, "source"), target_config or cluster())
        )
        return SchemaFollower(followed.sides(plan_of(self.mirror), source, target, self.right))


@pytest.fixture
def world() -> Iterator[World]:
    with driven() as here, driven() as there:
        fill(here, modes=False)
        yield World(here, there)


def test_what_the_target_lacks_is_registered_and_what_differs_is_told(world: World) -> None:
    follower = world.follower()
    first = follower.follow(0)
    assert world.there.holds() == world.here.holds() and first.versions == 7
    assert first.to_dict()["done"]["count"] == len(first.done) > 7 and not first.to_dict()["said"]
    ended = [one for one in world.there.wrote if one.startswith("DELETE mode")]
    assert len(ended) >= 5 and world.right.taken == len(world.there.wrote) - len(ended)

    world.here.register(60, INT, "again-value", 2)
    world.there.register(61, LONG, "theirs-value", 1)
    found = follower.follow(0)
    assert found.done == ["register again-value version 2 as id 60"] and world.there.subjects["again-value", 2] == 60
    assert str(found) == (
        "8 versions of schemas kept level; differ on the target: theirs-value version 1 is on the target alone"
    )
    assert found.to_dict()["said"] == ["schemas don't follow: theirs-value version 1 is on the target alone"]
    assert world.there.schemas[61]["schema"] == LONG
    before = len(world.there.wrote)
    assert follower.follow(0).done == [] and len(world.there.wrote) == before and world.here.wrote == []


def test_each_change_is_made_while_the_right_is_held(world: World) -> None:
    there, held = world.there, list[bool]()
    answer = there.answer

    def noted(method: str, path: str, query: Any, body: Any) -> Any:
        if method != "GET" and not (method == "DELETE" and path.startswith("/mode")):
            held.append(world.right.held)
        return answer(method, path, query, body)

    there.answer = noted  # type: ignore[method-assign]
    world.follower().follow(0)
    assert held == [True] * world.right.taken


def test_lease_that_is_lost_anywhere_leaves_no_subject_in_mode_import(world: World) -> None:
    """A cutover may take it between any two changes, and applications register right behind the opening."""
    world.follower().follow(0)
    whole = world.right.taken
    assert whole > 15
    for left in range(0, whole, 3):  # every one is in `test_move`
        with driven() as there:
            one = World(world.here, there)
            one.right.left = left + 1  # the pass itself asks once
            with pytest.raises(LeaseLost):
                one.follower().follow(0)
            assert "IMPORT" not in there.modes.values() and len(there.wrote) >= left
            one.right.left = 1000
            found = one.follower().follow(0)
            late = world.here.deleted - there.deleted  # the target had them by then, as its applications might have
            named = [f"{s} version {n} is deleted on the source, and not on the target" for s, n in sorted(late)]
            assert sorted(found.differs) == named
            assert {**there.holds(), "deleted": 0} == {**world.here.holds(), "deleted": 0}, f"lost behind {left} changes"


def test_busy_registry_is_asked_again_but_for_changes(world: World) -> None:
    """A right that was confirmed is none for a request that is sent again later. What is only read needs none."""
    there, answer, busy = world.there, world.there.answer, list[str]()

    def sometimes(method: str, path: str, query: Any, body: Any) -> Any:
        if method == "GET" and len(there.asked) % 5 == 0:
            busy.append(path)
            return 503, {}
        return answer(method, path, query, body)

    there.answer = sometimes  # type: ignore[method-assign]
    world.follower().follow(0)
    assert there.holds() == world.here.holds() and len(busy) > 5
    there.status = 503
    asked = len(there.asked)
    with pytest.raises(BrokerError, match="503"):
        world.follower()._registries()[1].ask("PUT", "/mode/x", {"mode": "IMPORT"})
    assert len(there.asked) == asked + 1


@pytest.mark.parametrize("of_the_cluster", [True, False])
def test_settings_that_were_replaced_are_read_by_the_next_pass(
    world: World, tmp_path: Path, of_the_cluster: bool
) -> None:
    """A tail lives longer than a password. By the address here: no secret goes over http."""
    file = tmp_path / "target.properties"

    def write(url: str) -> None:
        file.write_text("bootstrap.servers=x:1\n" * of_the_cluster + f"schema.registry.url={url}\n")

    with driven() as refuses:
        refuses.status, refuses.page = 401, {"error_code": 40101, "message": "Unauthorized"}
        write(refuses.url)
        world.mirror = replace(world.mirror, target_registry="conn" if of_the_cluster else str(file))
        follower = world.follower(load(str(file), "target") if of_the_cluster else None)
        with pytest.raises(BrokerError, match="Unauthorized"):
            follower.follow(0)
        write(world.there.url)
        follower.follow(0)
    assert world.there.holds() == world.here.holds()


def test_who_stops_the_tail_waits_for_no_reading(world: World) -> None:
    follower = world.follower()
    world.right.ended = True
    asked = len(world.here.asked)
    with pytest.raises(Stopped):
        follower.follow(0)
    assert len(world.here.asked) == asked


def test_change_that_is_answered_byte_by_byte_holds_the_right_for_seconds() -> None:
    """Each read had its own time limit, and so did each byte."""

    class Drips(loopback.Quiet):
        def do_PUT(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for _ in range(40):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.5)

    with loopback.serving(Drips) as url:
        registry = Registry("target", {"url": url}).by_right(nullcontext)
        begun = time.monotonic()
        with pytest.raises(TryAgain, match="does not answer: not within 5 s"):
            registry.ask("PUT", "/mode/x", {"mode": "IMPORT"})
        assert time.monotonic() - begun < 15


# --- where a job finds them ---------------------------------------------------------------------------------------------


def cluster(**more: str) -> ClientConfig:
    return ClientConfig({"bootstrap.servers": "x:1", **{k.replace("_", "."): v for k, v in more.items()}}, "target")


def test_job_reaches_a_registry_by_its_address_a_file_or_the_settings_of_its_cluster(tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("schema.registry.url=https://filed:1\n")
    said = cluster(schema_registry_url="https://handed:1", schema_registry_basic_auth_user_info="me:hush")
    for name, url in (("http://named:1", "http://named:1"), (str(file), "https://filed:1"), ("conn", "https://handed:1")):
        assert Registry.beside(said, name).url == url
    login = HTTPBasicAuth(b"me", b"hush")
    assert Registry.beside(said, "conn")._session.auth == login
    downloaded = cluster(schema_registry_url="https://cloud", basic_auth_user_info="me:hush")
    assert Registry.beside(downloaded, "conn")._session.auth == login, "as Confluent's own file has it"
    with pytest.raises(InputError, match="target registry 'conn'.*settings don't name it.*schema.registry.url"):
        Registry.beside(cluster(), "conn")


def test_settings_come_back_as_they_were_handed_over_and_no_task_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"schema.registry.url": "https://r:1", "bearer.auth.token": "hush", "ssl.ca.location": "/ca.pem"}
    handed = Registry.by("target", settings, "a file").handed()
    config = ClientConfig({"bootstrap.servers": "x:1", **handed, "basic.auth.user.info": "as Confluent has it"}, "target")
    assert config.secrets() == ["hush", "as Confluent has it"]
    assert handed.items() <= Registry.beside(config, "conn").handed().items()
    monkeypatch.setenv("SOMEWHERE", config.dump())
    to_tasks = Handover.of("env:SOMEWHERE")
    assert dict(to_tasks.settings["env:SOMEWHERE"]) == {"bootstrap.servers": "x:1"} and to_tasks.secrets() == []


def test_only_a_tail_that_lets_schemas_follow_depends_on_registries() -> None:
    with pytest.raises(InvalidField, match="sync_schemas=True: no registries are named"):
        Mirror(name="m", source="a", target="b", sync_schemas=True)
    idle = Mirror(name="m", source="a", target="b", source_registry="x", target_registry="y")
    follows = replace(idle, sync_schemas=True)
    of_schemas = {"source_registry", "target_registry", "schema_interval_s"}
    assert of_schemas <= idle.tail_ignores and of_schemas.isdisjoint(follows.tail_ignores)
    assert not {"sync_schemas"} & (idle.tail_ignores | follows.tail_ignores), "a tail that is told so begins, or ends, it"
    assert of_schemas | {"sync_schemas"} <= COPY_IGNORES
