"""Who may end the hold of a plan's topics: the operator and the command ask the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.errors import InputError, LedgerMissing
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan.owned import Owned
from airflow_mirror.sync import holding
from airflow_mirror.sync.configs import ConfigsReport
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """``owned`` is what the ledger says, ``writing`` whether a job holds the lease, ``asked`` what was applied."""
    world = SimpleNamespace(
        owned={"orders": Owned(topic_id="", mirror="m", source_id="s")}, writing=False, asked=None, state=MemoryState()
    )

    def sync_configs(plan: Any, known: Any, target: Any, permit: Any, *, hold: bool, dry_run: bool) -> ConfigsReport:
        world.asked = hold, dry_run
        return ConfigsReport(hold=hold, changes=(), applied=not dry_run, refused=tuple(world.refused))

    world.refused, world.ids = [], {"orders": "id"}

    monkeypatch.setattr(holding, "Ledger", lambda target: MemoryLedger())
    monkeypatch.setattr(holding, "owned_topics", lambda _: world.owned)
    monkeypatch.setattr(holding, "is_anybody_writing", lambda *_: world.writing)
    monkeypatch.setattr(holding, "sync_configs", sync_configs)
    monkeypatch.setattr(holding, "state_of", lambda *_: world.state)
    return world


def end_the_hold(
    *, dry_run: bool = False, topic_id: str = "id", ids: tuple[str, str] = ("s", "t"), source_lost: bool = False
) -> ConfigsReport:
    """End it. :param ids: of the clusters to which the connections lead."""
    there = {"orders": TopicInfo("orders", topic_id, 1, 1)}

    def cluster(role: str, its: str) -> Any:
        return SimpleNamespace(role=role, cluster_id=lambda: its, wire=None, topics=lambda _: there)

    plan = plan_of(a_mirror(name="m"), topic_plan("orders", {0: 0}, source_topic_id="id"))
    sides = cluster("source", ids[0]), cluster("target", ids[1])
    return holding.sync_plan(plan, *sides, hold=False, dry_run=dry_run, source_lost=source_lost)


def test_a_hold_ends_only_once_no_job_may_write(world: SimpleNamespace) -> None:
    world.writing = True
    with pytest.raises(InputError, match="a job holds its writer lease"):
        end_the_hold()
    assert world.asked is None
    end_the_hold(dry_run=True)  # changes nothing
    world.writing = False
    end_the_hold()
    assert world.asked == (False, False)


@pytest.mark.parametrize("of", [(), ("another", "s"), ("m", "another")], ids=["nobody", "another", "its namesake"])
def test_nothing_is_set_of_topics_that_are_not_the_mirrors(world: SimpleNamespace, of: tuple[str, ...]) -> None:
    """Mirrors of one name and several sources are several mirrors."""
    world.owned = {"orders": Owned(topic_id="", mirror=of[0], source_id=of[1])} if of else {}
    with pytest.raises(InputError, match="topics that it does not own: orders"):
        end_the_hold()
    assert world.asked is None


def test_who_shares_a_topic_may(world: SimpleNamespace) -> None:
    world.owned = {
        "orders": Owned.shared(
            Owned(topic_id="", mirror="m", source_id="s"), Owned(topic_id="", mirror="other", source_id="c2")
        )
    }
    end_the_hold()
    assert world.asked == (False, False)


def test_a_look_needs_no_ledger(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(MemoryLedger):
        def values(self) -> Any:
            raise LedgerMissing

        def peek(self) -> dict[str, Any]:
            return {}

    monkeypatch.setattr(holding, "Ledger", lambda target: Missing())
    end_the_hold(dry_run=True)
    assert world.asked == (False, True)


def test_topic_that_was_created_again_is_not_the_mirrors(world: SimpleNamespace) -> None:
    world.owned = {"orders": Owned(topic_id="id", mirror="m", source_id="s")}
    with pytest.raises(InputError, match="topics that it does not own: orders"):
        end_the_hold(topic_id="another")
    end_the_hold()
    assert world.asked == (False, False)


def opened(at: str) -> dict[str, Owned]:
    return {"orders": Owned(topic_id="id", mirror="m", source_id="s", opened_by="plan", opened_at=at)}


def test_hold_of_a_topic_in_production_ends_once_behind_each_opening(world: SimpleNamespace) -> None:
    """A task that is cleared weeks later finds other settings: they were chosen there."""
    world.owned = opened("monday")
    end_the_hold(dry_run=True)
    assert world.state.read() == {}
    end_the_hold()
    assert world.asked == (False, False)
    end_the_hold()
    assert world.asked == (False, True), "only to tell what differs"
    world.owned = opened("friday")  # a rollback had taken it back
    end_the_hold()
    assert world.asked == (False, False)


def test_refused_setting_is_told_and_tried_again(world: SimpleNamespace) -> None:
    world.owned, world.refused = opened("monday"), ["orders: retention.ms: -1 -> 5: POLICY_VIOLATION: no"]
    for _ in range(2):
        with pytest.raises(InputError, match=r"(?s)refuses orders: retention.ms: -1 -> 5.*all other settings are set"):
            end_the_hold()
        assert world.asked == (False, False)
    world.refused = []
    end_the_hold()
    end_the_hold()
    assert world.asked == (False, True)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("ids", "role"), [(("t", "t"), "source"), (("s", "s"), "target")])
def test_other_clusters_than_the_plans_end_no_hold(
    world: SimpleNamespace, ids: tuple[str, str], role: str, dry_run: bool
) -> None:
    """A target differs in nothing from itself: the hold would be noted as ended, and its retention stay off."""
    world.owned = opened("monday")
    with pytest.raises(InputError, match=f"{role} cluster: it is {ids[0]}, and mirror 'm' was planned for"):
        end_the_hold(ids=ids, dry_run=dry_run)
    assert world.asked is None and world.state.read() == {}


def test_lost_source_is_not_asked_which_cluster_it_is(world: SimpleNamespace) -> None:
    world.owned = opened("monday")
    end_the_hold(ids=("t", "t"), source_lost=True)
    assert world.asked == (False, False)
    with pytest.raises(InputError, match="target cluster: it is s"):
        end_the_hold(ids=("s", "s"), source_lost=True)
