"""A ledger that was lost is told from one that never was by whatever else mirrors have left on the target."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.common.policy import (
    DECISIONS,
    MAPS,
    STATE,
    WISHES,
    errand,
    lease_id,
    marker_id,
    progress_group,
    scratch_topic,
    starts_group,
)
from airflow_mirror.console import ledger as console
from airflow_mirror.errors import LedgerLost, LedgerMissing, MissingRight, TryAgain
from airflow_mirror.kafka.admin import ClusterAdmin
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.kafka.permit import Permit
from airflow_mirror.ledger import decisions
from airflow_mirror.ledger.decisions import Ledger, Values
from airflow_mirror.ledger.records import BEGIN
from airflow_mirror.plan import ownership
from tests.driven.ledger import LedgerCluster
from tests.unit.ledger.kinds import PLAN


class Target:
    """A cluster without a topic of decisions, whose topics are empty.

    ``is_young``: the broker that is asked first has just started, and lists no topic.
    """

    def __init__(self, *topics: str, groups: Collection[str] = (), ids: Collection[str] = ()) -> None:
        self._topics, self._groups, self._ids, self.created = topics, groups, ids, list[str]()
        self.may_see, self.is_young = True, False
        self.sounded_out = list[str]()
        self.wire = SimpleNamespace(
            refresh_present=lambda names: set(names) - set(topics), expect=lambda _: None,
            sound_out=self.sounded_out.extend,
        )  # fmt: skip

    def topics(self, names: Collection[str]) -> dict[str, Any]:
        there = () if self.is_young else self._topics
        return {name: SimpleNamespace(name=name, partitions=1, topic_id="id") for name in names if name in there}

    def offsets(self, partitions: Collection[TopicPartition], _: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def groups(self, *, every: bool) -> list[Any]:
        if not self.may_see:
            raise MissingRight("list groups", "Describe", "all groups")
        return [SimpleNamespace(group_id=one) for one in self._groups]

    def transactional_ids(self) -> dict[int, str]:
        return dict(enumerate(self._ids))

    def create_topics(self, specs: Collection[Any], permit: Permit) -> None:
        self.created += [one.name for one in specs]


LEFT = {
    "state": (Target(STATE), STATE),
    "maps": (Target(MAPS), MAPS),
    "wishes": (Target(WISHES), WISHES),
    "progress": (Target(groups=["app", progress_group("m")]), progress_group("m")),
    "beginning": (Target(groups=[starts_group("a.b")]), starts_group("a.b")),
    "lease": (Target(ids=["app", lease_id("m")]), lease_id("m")),
}
NOTHING = Target(
    "orders", "audit",
    groups=["airflow-mirror", "airflow-mirror-app"],
    ids=[
        "airflow-mirror:lease",
        marker_id("m", TopicPartition(scratch_topic("m"), 0)),  # by a plan that tried rights
        lease_id(errand("m", "trial")),
        lease_id(errand("m", "failback")),  # by a drill, on a source that is nobody's target yet
    ],
)  # fmt: skip


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "_LOOK_AGAIN_S", 0.0)


@pytest.mark.parametrize("what", LEFT)
def test_what_mirrors_have_left_makes_it_a_lost_one(what: str) -> None:
    """Nothing is begun beside it, not even by a mirror of other topics, which are empty."""
    target: Any
    target, name = LEFT[what]
    for ask in (
        Ledger(target).values,
        lambda: Ledger(target).decide(lambda _: None),
        lambda: ownership.begin(PLAN, target),
    ):
        with pytest.raises(LedgerLost, match=f"{name}.*delete none.*ledger restore"):
            ask()
    assert target.created == []


def test_without_any_of_it_there_never_was_one() -> None:
    target: Any = NOTHING
    with pytest.raises(LedgerMissing):
        Ledger(target).values()


def test_ledger_and_what_it_leaves_behind_are_asked_for_together() -> None:
    """Believed to be absent one after the other, each takes seconds."""
    target: Any = Target()
    with pytest.raises(LedgerMissing):
        Ledger(target).values()
    assert target.sounded_out == [DECISIONS, STATE, MAPS, WISHES]


def test_who_may_not_see_groups_goes_by_what_it_sees() -> None:
    target: Any = Target(groups=[progress_group("m")])
    target.may_see = False
    with pytest.raises(LedgerMissing):
        Ledger(target).values()


def test_one_broker_that_can_not_be_reached_keeps_nobody_from_knowing() -> None:
    """The others are believed after half a minute, which is longer than an attempt lasts."""
    target, tried = Target(), list[str]()

    def refresh_present(names: Collection[str]) -> set[str]:
        if names == {STATE, MAPS, WISHES} and not tried:
            tried.extend(names)
            raise TryAgain("target cluster", "2 of 3 broker(s) know no topic", "")
        return set(names)

    target.wire.refresh_present = refresh_present
    with pytest.raises(LedgerMissing):
        Ledger(target).values()  # type: ignore[arg-type]
    assert tried


@pytest.mark.parametrize("name", [STATE, MAPS, WISHES])
def test_what_a_broker_that_has_just_started_does_not_list_is_left_all_the_same(name: str) -> None:
    target: Any = Target(name)
    target.is_young = True
    with pytest.raises(LedgerLost, match=name):
        Ledger(target).values()


@pytest.mark.parametrize(
    "ask",
    [Ledger.values, partial(Ledger.decide, change=lambda values: {**values, BEGIN.key(): {"topic_id": "later"}})],
    ids=["values", "decide"],
)
def test_one_that_is_created_at_this_moment_is_read(
    ledger_target: LedgerCluster, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Ledger], Values]
) -> None:
    """No broker had heard of it, and one knows what came after it."""
    found, looks = Ledger._there, count()

    def there(ledger: Ledger) -> TopicInfo:
        if next(looks) == 0:
            raise LedgerMissing()
        return found(ledger)

    monkeypatch.setattr(Ledger, "_there", there)
    with ClusterAdmin(ledger_target.config) as admin:
        assert ask(Ledger(admin)).keys() == {BEGIN.key()}


@pytest.mark.parametrize("anew", [False, True])
def test_init_begins_none_beside_a_lost_one_unless_that_is_wanted(monkeypatch: pytest.MonkeyPatch, anew: bool) -> None:
    target: Any = LEFT["lease"][0]
    begun = list[str]()
    monkeypatch.setattr(Ledger, "create", lambda _: begun.append("begun"))
    monkeypatch.setattr(console, "owned_topics", lambda _: {})

    class Opened:
        def __enter__(self) -> Any:
            return target

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(console, "target_of", lambda _: Opened())
    arguments: Any = SimpleNamespace(anew=anew)
    if anew:
        console._init(arguments)
    else:
        with pytest.raises(LedgerLost):
            console._init(arguments)
    assert begun == ["begun"] * anew


def test_who_begins_a_ledger_creates_none_where_one_was_lost() -> None:
    target = Target(STATE)
    with pytest.raises(LedgerLost, match=STATE):
        Ledger(target).begin()  # type: ignore[arg-type]
    assert target.created == []
