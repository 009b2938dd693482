"""What becomes of the groups of a target that is adopted: they are the mirror's, and follow from then on."""

from __future__ import annotations

from argparse import Namespace
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.console import adopt as console
from airflow_mirror.copy.offsets.map import OffsetMap
from airflow_mirror.copy.writer import lease
from airflow_mirror.errors import InputError, LeaseLost
from airflow_mirror.extras.adopt import groups
from airflow_mirror.extras.adopt.examine import Adoption
from airflow_mirror.extras.adopt.matching import KINDS, Match
from airflow_mirror.extras.adopt.report import lines
from airflow_mirror.extras.adopt.stopped import Seen
from airflow_mirror.kafka.model import GroupPosition
from airflow_mirror.plan.ownership import claim
from airflow_mirror.sync.following import notes
from airflow_mirror.sync.following.follower import FollowReport, GroupFollower
from airflow_mirror.sync.write_permit import WritePermit
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.memory.admin import MemoryAdmin
from tests.memory.cluster import MemoryCluster
from tests.memory.ledger import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

HERE, THERE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
NOW = 1_800_000_000_000


class Killed(BaseException):
    """As a signal would end the process."""


class World:
    """A target that was taken over: of ten records it has eight. Its groups come last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.target = MemoryCluster("source"), MemoryCluster("target")
        self.source.create(HERE.topic)
        self.target.create(THERE.topic)
        self.source.append(HERE, *[b"x"] * 10)
        self.map = OffsetMap(0, 0)
        self.copy(8)
        self.maps: Any = SimpleNamespace(to_target=groups.through({HERE: self.map}))
        source_id = self.source.topics[HERE.topic].topic_id
        topic = topic_plan(HERE.topic, {0: 0}, mode="mapped", source_topic_id=source_id, target_topic=THERE.topic)
        self.plan = plan_of(a_mirror(name="m"), topic)
        self.signs: list[Seen] = []
        self.found = Adoption(
            plan=self.plan, topics=self.plan.topics, done=(), seen=(), matches=(), again=lambda _: self.signs
        )
        claim(MemoryLedger(self.target), self.plan, self.there)
        monkeypatch.setattr(groups, "Ledger", lambda admin: MemoryLedger(admin.cluster))
        monkeypatch.setattr(groups, "state_of", lambda admin, *prefixes: MemoryState(admin.cluster, *prefixes))
        self.token = lease.take(self.there.wire, "m")

    @property
    def here(self) -> Any:
        return MemoryAdmin(self.source)

    @property
    def there(self) -> Any:
        return MemoryAdmin(self.target)

    def copy(self, count: int) -> None:
        at = self.target.append(THERE, *[b"x"] * count)
        self.map.add(at, at, count)

    def put(self, here: int, there: int | None = None) -> None:
        """Let group ``g`` stand somewhere."""
        self.source.commit("g", {HERE: GroupPosition(here)})
        if there is not None:
            self.target.commit("g", {THERE: GroupPosition(there)})

    def at(self) -> int | None:
        found = self.target.positions("g").get(THERE)
        return None if found is None else found.offset

    def take_over(self, **options: Any) -> FollowReport:
        return groups.take_over(self.found, self.here, self.there, self.maps, self.token, **options)

    def tail(self) -> FollowReport:
        """A pass of the mirror's tail, which was started behind that."""
        token = lease.take(self.there.wire, "m")
        given = sides(
            self.plan, self.here, self.there, WritePermit(lambda: token), ledger=MemoryLedger(self.target),
            state=MemoryState(self.target, notes.prefix("m")), maps=self.maps,
        )  # fmt: skip
        return GroupFollower(given).follow(NOW)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.mark.parametrize("before", [None, 2, 5])
def test_a_group_that_was_adopted_moves_on_with_the_source(world: World, before: int | None) -> None:
    """Wherever it stood, also at its place by chance or by MirrorMaker: it would be left alone for ever."""
    world.put(5, before)
    world.take_over()
    assert world.at() == 5
    for position in (7, 3):
        world.put(position)
        assert not world.tail().left_alone
        assert world.at() == position


def test_a_group_that_goes_on_beyond_the_copy_follows_with_it(world: World) -> None:
    """Consumers go on while MirrorMaker is stopped: most groups stand there."""
    world.put(10, 4)
    world.take_over()
    assert world.at() == 8
    world.copy(2)
    world.tail()
    assert world.at() == 10


def test_a_group_that_is_further_may_have_read_there_and_stays_its_own(world: World) -> None:
    world.put(3, 6)
    world.take_over()
    world.put(4)
    assert world.tail().left_alone == ["g at A.orders-0: the target has 6, the mirror wrote none"] and world.at() == 6
    world.token = lease.take(world.there.wire, "m")
    world.take_over(allow_rewind=True)
    assert world.at() == 4


def test_a_group_with_members_stays_its_own(world: World) -> None:
    world.put(5, 2)
    world.target.join("g", "consumer")
    assert world.take_over().active == ["g"] and world.at() == 2
    world.target.leave("g", "consumer")
    assert world.tail().left_alone and world.at() == 2


@pytest.mark.parametrize("effect", ["write", "commit_groups"])
@pytest.mark.parametrize("happens", [False, True])
def test_who_was_killed_amid_it_leaves_groups_to_the_next_call_or_to_the_tail(
    world: World, effect: str, happens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(5, 2)
    owner: Any = MemoryState if effect == "write" else MemoryAdmin
    do = getattr(owner, effect)

    def dies(*given: Any, **named: Any) -> None:
        if happens:
            do(*given, **named)
        raise Killed

    with monkeypatch.context() as m, pytest.raises(Killed):
        m.setattr(owner, effect, dies)
        world.take_over()
    assert world.at() == (5 if (effect, happens) == ("commit_groups", True) else 2)
    if (effect, happens) == ("write", False):  # nothing is noted: the command is called again
        world.take_over()
    world.put(7)
    assert not world.tail().left_alone and world.at() == 7


def test_a_job_that_begins_meanwhile_is_the_notes_one_writer(world: World) -> None:
    world.put(5, 2)
    lease.take(world.there.wire, "m")
    with pytest.raises(LeaseLost):
        world.take_over()
    assert world.at() == 2 and not world.target.state


def test_mirrormaker_that_comes_back_sets_its_groups_itself(world: World) -> None:
    world.put(5, 2)
    world.signs.append(Seen("group 'A-mm2' has members", alive=True))
    with pytest.raises(InputError, match="(?s)may still copy.*Of groups nothing more was changed"):
        world.take_over()
    assert world.at() == 2 and not world.target.state


@pytest.mark.parametrize("follow", [True, False])
def test_groups_of_a_file_by_which_none_moves_are_told_and_not_set(
    world: World, follow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By MirrorMaker's default: it has set no position, and what stands on the target is an application's own."""
    world.put(5, 2)
    match = Match(
        source=HERE, target=THERE, source_end=10, target_start=0, target_end=8, records=8, copies=8,
        counts=dict.fromkeys(KINDS, 0), through=world.map,
    )  # fmt: skip
    plan = replace(world.plan, mirror=replace(world.plan.mirror, sync_groups=follow))
    world.found = replace(world.found, plan=plan, matches=(match,))
    monkeypatch.setattr(console, "OffsetMaps", lambda *_: nullcontext(world.maps))
    monkeypatch.setattr(console, "take", lambda *_, then=None, **__: then and then(world.token))
    nobody: Any = None
    arguments = Namespace(yes=True, end_writing=False, allow_rewind=True)
    report = console._taken(arguments, world.found, (world.here, world.there), (nobody, nobody))
    assert report is not None and report.committed == follow
    assert (world.at(), bool(world.target.state)) == ((5, True) if follow else (2, False))
    told = [line for line in lines(world.found, report) if line.startswith("group")]
    assert told[-1].endswith("at A.orders-0: stands at 2, and would read 3 again; exact is 5 (source 5, exact)")
    assert ("sync_groups is off" in told[0]) == (not follow)
