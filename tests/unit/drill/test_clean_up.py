"""What a drill has created is deleted on both sides, as far as that goes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_mirror.config import ClientConfig
from airflow_mirror.errors import BrokerError, ClusterUnreachable
from airflow_mirror.extras.drill import clean_up as module
from airflow_mirror.extras.drill import reading
from airflow_mirror.extras.drill.clean_up import clean_up
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo

delete_group = module._delete_group  # which a fixture replaces
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
    monkeypatch.setattr(ClusterAdmin, "delete_topics", lambda one, names, _: done.append(f"{one.role} topic {[*names]}"))
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
    assert clean_up(BOTH, "t", "g") == []
    assert deleted == ["source group", "source topic ['t']", "target group", "target topic ['t']"]


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
    left = clean_up(BOTH[:1], "t", "g", timeout_s=0.2)
    assert client.deleted == ([] if refusals is None else ["g"]) and deleted == ["source topic ['t']"]
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
    (left,) = clean_up(BOTH, "t", "g", timeout_s=0.0)
    assert left == f"source: {error}"
    assert deleted == ["source topic ['t']", "target group", "target topic ['t']"]
