"""What a drill has created is deleted on both sides, as far as that goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, ClusterUnreachable
from airflow_mirror.extras.drill import clean_up as module
from airflow_mirror.extras.drill import reading
from airflow_mirror.extras.drill.clean_up import Own, clean_up, clean_up_drill
from airflow_mirror.extras.drill.store import Drill
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan.ownership import claim
from tests.builders import plan_of, topic_plan
from tests.memory.admin import MemoryAdmin
from tests.memory.asking import at_once
from tests.memory.cluster import MemoryCluster
from tests.unit.ledger.memory import MemoryLedger

delete_group = module._delete_group  # which a fixture replaces
OWN = Own("m", "id")
BOTH = [ClientConfig({"bootstrap.servers": f"{role}:1"}, role) for role in ("source", "target")]


class Deleted(list[str]):
    """What was deleted, in order. ``group``: deletes one."""

    def __init__(self) -> None:
        super().__init__()
        self.group: Callable[[ClientConfig, str], None] = self.delete

    def delete(self, config: ClientConfig, group: str) -> None:
        self.append(f"{config.role} group {group}")


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> Deleted:
    """Each cluster has the topic."""
    done = Deleted()
    monkeypatch.setattr(reading, "POLL_S", 0.0)
    monkeypatch.setattr(ClusterAdmin, "topics", lambda _, names: {name: TopicInfo(name, "id", 1, 1) for name in names})
    monkeypatch.setattr(ClusterAdmin, "delete_topic", lambda one, name, i, _: done.append(f"{one.role} topic {name} {i}"))
    monkeypatch.setattr(Own, "is_not", lambda *_: "")
    monkeypatch.setattr(module, "_delete_group", lambda config, group: done.group(config, group))
    return done


def test_group_whose_coordinator_is_being_elected_is_waited_for(deleted: Deleted) -> None:
    """On a cluster that never had a group the first question has an election begin."""
    refusals = [16, 16]

    def delete(config: ClientConfig, _group: str) -> None:
        if refusals:
            raise BrokerError("delete group 'g'", refusals.pop(), "NOT_COORDINATOR")
        deleted.append(f"{config.role} group")

    deleted.group = delete
    assert clean_up(BOTH, "t", "g", OWN) == ([], [])
    assert deleted == ["source topic t id", "source group", "target topic t id", "target group"]


class Answers:
    """An admin client whose broker answers a deletion with these errors, one after the other, and then does it."""

    def __init__(self, errors: Iterable[int]) -> None:
        self.errors, self.deleted = iter(errors), list[str]()

    def delete_consumer_groups(self, groups: list[str], **_: object) -> dict[str, Future[None]]:
        answer = Future[None]()
        if (error := next(self.errors, None)) is not None:
            answer.set_exception(KafkaException(KafkaError(error)))
        else:
            self.deleted += groups
            answer.set_result(None)
        return dict.fromkeys(groups, answer)


@pytest.mark.parametrize("refusals", [2, None], ids=["for a while", "for ever"])
def test_group_without_a_coordinator_is_not_taken_for_deleted(
    deleted: Deleted, monkeypatch: pytest.MonkeyPatch, refusals: int | None
) -> None:
    """It is deleted once there is one, or said to be left."""
    error = KafkaError.COORDINATOR_NOT_AVAILABLE
    client = Answers(itertools.repeat(error) if refusals is None else [error] * refusals)
    deleted.group = delete_group
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda _: client)
    left, _ = clean_up(BOTH[:1], "t", "g", OWN, timeout_s=0.2)
    assert client.deleted == ([] if refusals is None else ["g"]) and deleted == ["source topic t id"]
    assert len(left) == (refusals is None)
    assert all("delete group 'g'" in line and "COORDINATOR_NOT_AVAILABLE" in line for line in left)


def test_group_that_is_not_there_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda _: Answers([KafkaError.GROUP_ID_NOT_FOUND]))
    delete_group(BOTH[0], "g")


@pytest.mark.parametrize("error", [ClusterUnreachable("source", "source:1", "it is gone"), TimeoutError("30 s")])
def test_what_fails_keeps_nothing_else_from_being_deleted(deleted: Deleted, error: Exception) -> None:
    def delete(config: ClientConfig, _group: str) -> None:
        if config.role == "source":
            raise error
        deleted.append("target group")

    deleted.group = delete
    assert clean_up(BOTH, "t", "g", OWN, timeout_s=0.0) == ([f"source: {error}"], [])
    assert deleted == ["source topic t id", "target topic t id", "target group"]


# --- what has a drill's name and is not the drill's -------------------------------------------------------------------


class Sides:
    """Both clusters, each with topic ``t``; the target's belongs to mirror ``m``.

    :ivar before: called before a topic is deleted.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of, self.ledger = {role: MemoryCluster(role) for role in ("source", "target")}, MemoryLedger()
        self.before: Callable[[], object] = lambda: None
        for cluster in self.of.values():
            cluster.create("t", 1)
        plan = plan_of(
            Mirror(name="m", source="a", target="b"), topic_plan("t", {0: 0}, source_topic_id=self.id("source"))
        )
        claim(self.ledger, plan, self.admin(BOTH[1]))  # type: ignore[arg-type]
        monkeypatch.setattr("airflow_mirror.kafka.admin.ClusterAdmin", self.admin)
        monkeypatch.setattr("airflow_mirror.ledger.decisions.Ledger", lambda _: self.ledger)
        self.delete_group: Callable[[ClientConfig, str], object] = lambda *_: None
        monkeypatch.setattr(module, "_delete_group", lambda *given: self.delete_group(*given))

    def id(self, role: str) -> str:
        """The present id of the topic; "" if there is none."""
        return self.of[role].topics["t"].topic_id if "t" in self.of[role].topics else ""

    def again(self, role: str) -> str:
        """Have somebody delete the topic, and create another one of its name; return its id."""
        del self.of[role].topics["t"]
        self.of[role].create("t", 1)
        return self.id(role)

    def admin(self, config: ClientConfig, *_: float) -> MemoryAdmin:
        return MemoryAdmin(self.of[config.role], self._ask)

    def _ask(self, what: str, do: Callable[[], Any], **how: Any) -> Any:
        if "delete topic" in what:
            self.before()
        return at_once(what, do, **how)


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> Sides:
    return Sides(monkeypatch)


@pytest.mark.parametrize("role", ["source", "target"])
def test_topic_that_somebody_has_created_since_stays_and_is_named(sides: Sides, role: str) -> None:
    """The drill's own one of that name is gone, so nothing of it is left behind."""
    drill = Drill(run="sunday", at_ms=9, topics=["t"], ids={"t": sides.id("source")})
    was, now = sides.id(role), sides.again(role)
    assert clean_up_drill(drill, BOTH, "t", "m") == [] and drill.topics == [] and drill.ids == {}
    assert {one: sides.id(one) for one in sides.of} == {"source": "", "target": "", role: now}
    assert drill.others == [f"'t' on the {role}: it is not the drill's (its id is {now}, not {was}), and stays"]
    assert drill.others[0] in drill.outcome and module.deleted(drill, ["t"]) == []


@pytest.mark.parametrize("role", ["source", "target"])
def test_topic_that_somebody_creates_between_the_look_and_the_deletion_stays(sides: Sides, role: str) -> None:
    made: list[str] = []
    sides.before = lambda: made or made.append(sides.again(role))
    (config,) = (one for one in BOTH if one.role == role)
    assert clean_up([config], "t", "t", Own("m", sides.id("source"))) == ([], [])
    assert made == [sides.id(role)]


def test_where_a_death_came_before_the_note_what_is_there_is_deleted(sides: Sides) -> None:
    assert clean_up(BOTH, "t", "t", Own("m", "")) == ([], [])
    assert [sides.id(role) for role in sides.of] == ["", ""]


def test_topic_of_another_mirror_stays_and_its_group(sides: Sides) -> None:
    """A mirror with `.*` has taken the drill's topic over, before the drill had planned."""
    groups: list[str] = []
    sides.delete_group = lambda config, _: groups.append(config.role)
    done = clean_up(BOTH, "t", "t", Own("another", sides.id("source")))
    assert done.left == [] and groups == ["source"]
    assert done.others == ["target: it is not the drill's (it belongs to mirror 'm' of cluster s), and stays"]
    assert sides.id("source") == "" and sides.id("target")


def test_brokers_without_topic_ids_delete_by_name(sides: Sides) -> None:
    for cluster in sides.of.values():
        cluster.topics["t"].topic_id = ""
    assert clean_up(BOTH, "t", "t", Own("m", "")) == ([], [])
    assert [role for role, cluster in sides.of.items() if cluster.topics] == []
