"""Topics join a plan on the target's word alone, and a look that is cut off anywhere is continued by the next one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from threading import Thread
from typing import Any, cast

import pytest

from airflow_mirror.errors import BrokerError, ClusterUnreachable, InputError, LeaseLost, LedgerMissing, MissingRight
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.kafka.permit import Permit, unfenced
from airflow_mirror.ledger import state
from airflow_mirror.mirror import Mirror
from airflow_mirror.plan import Plan
from airflow_mirror.plan.amend import Draft
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.ledger_store import keep, with_amendments
from airflow_mirror.plan.model import TopicPlan
from airflow_mirror.plan.owned import Owned, owned_topics
from airflow_mirror.plan.ownership import claim
from airflow_mirror.plan.upstream import Upstream
from airflow_mirror.sync import topic_discovery
from airflow_mirror.sync.topic_discovery import AmendingReport, TopicFollower
from airflow_mirror.sync.topics import TopicsReport, settle
from airflow_mirror.sync.write_permit import Stopped, WritePermit
from tests.builders import plan_of, topic_plan
from tests.followed import sides
from tests.unit.ledger.memory import MemoryLedger, MemoryState

MIRROR = Mirror(name="m", source="src", target="dst", topics=["t.*"])
NOW_MS = 1_800_000_000_000
WARNING = Finding("warn", "retention", "1 of 1 topic", "short", "Off.")


class Killed(BaseException):
    """As a signal would end the process."""


class Cluster:
    """Topics by name, with their partition counts."""

    def __init__(self, **topics: int) -> None:
        self.there, self.wire = dict(topics), None
        self.ids: dict[str, str] = {}

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        shown = self.there if names is None else {n: self.there[n] for n in names if n in self.there}
        return {n: TopicInfo(n, self.ids.get(n, f"id-of-{n}"), count, 1) for n, count in shown.items()}


class World:
    """Two clusters, of which the target remembers; ``effects`` are what was done to it, in order.

    :ivar cut: the process dies before the effect of this number.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source, self.target = Cluster(t=1), Cluster(t=1)
        self.records: list[bytes] = []
        self.plans = MemoryState()
        self.effects: list[str] = []
        self.cut: int | None = None
        self.refused: dict[str, Exception] = {}
        self.overtaken: set[str] = set()  # topics that somebody else creates right before the mirror does
        self.left_out: dict[str, str] = {}
        self.upstream = Upstream("src")
        self.plan = self.made("t")
        self.taken: Plan = self.plan
        self.lease = True
        self.ends: Thread | None = None  # of another thread, that ends the job while a topic is read back
        monkeypatch.setattr(topic_discovery, "draft", self.draft)
        monkeypatch.setattr(topic_discovery, "create_target_topics", self.create)
        monkeypatch.setattr(
            topic_discovery, "sync_configs", lambda plan, *_, hold, going: self.did(f"hold {names(plan)} {hold}")
        )
        monkeypatch.setattr(topic_discovery, "make_ready", lambda _: self.did("maps"))
        monkeypatch.setattr(state, "state_of", lambda *_, **__: self.plans)

    def made(self, *topics: str, partitions: int = 1) -> Plan:
        """A plan of these topics that the target keeps, as the mirror's last one."""
        plan = plan_of(MIRROR, *(self.planned(t, partitions) for t in topics))
        keep(plan, self.plans, MemoryLedger(self.records))
        claim(MemoryLedger(self.records), plan, self.target)  # type: ignore[arg-type]  # as the copy does
        return plan

    def planned(self, name: str, partitions: int, **fields: Any) -> TopicPlan:
        starts = dict.fromkeys(range(partitions), 0)
        return topic_plan(name, starts, **{"source_topic_id": f"id-of-{name}", "target_exists": False, **fields})

    def did(self, what: str) -> None:
        if self.cut == len(self.effects):
            raise Killed
        self.effects.append(what)

    def draft(self, plan: Plan, source: Any, target: Any, wanted: Collection[str], now: datetime, _: Any) -> Draft:
        for name in wanted:
            if name.startswith("t-read") and name in self.refused:
                raise self.refused[name]
        topics = [self.drafted(name) for name in wanted if name not in self.left_out]
        left_out = {n: why for n, why in self.left_out.items() if n in wanted}
        return Draft(topics=topics, findings={"t-new": [WARNING]}, left_out=left_out, upstream=self.upstream)

    def drafted(self, name: str) -> TopicPlan:
        mode = "mapped" if "map" in name else "identical"
        return self.planned(name, self.source.there[name], target_exists=name in self.target.there, mode=mode)

    def create(self, plan: Plan, target: Any, permit: Any, going: Any) -> TopicsReport:
        permit()
        (topic,) = plan.topics
        if topic.target_topic in self.refused:
            raise self.refused[topic.target_topic]
        if topic.target_topic in self.overtaken:
            self.target.there[topic.target_topic] = topic.partitions
        there = (topic.target_topic,) if topic.target_topic in self.target.there else ()
        if self.target.there.get(topic.target_topic, 0) < topic.partitions:
            self.did(f"create {topic.target_topic}")
            self.target.there[topic.target_topic] = topic.partitions
        if self.ends is not None:
            self.ends.start()
            settle(lambda: [f"{topic.target_topic}: does not exist"], "topics", going=going)
        return TopicsReport(created=() if there else (topic.target_topic,), grown=(), existing=there, differences=())

    def take_in(self, plan: Plan) -> None:
        for topic in plan.topics:
            assert self.target.there.get(topic.target_topic, 0) >= topic.partitions or topic.target_topic == "gone"
        assert plan.revision == self.fetched(plan.rule or plan).revision, "nothing is copied before it is decided"
        self.did("take in")
        self.taken = plan

    def fetched(self, plan: Plan) -> Plan:
        return with_amendments(plan, None, MemoryLedger(self.records))  # type: ignore[arg-type]

    def process(self, joins: bool = True, plan: Plan | None = None) -> TopicFollower:
        """A new one, which carries out the plan as the target has it, or the given one."""
        self.taken = plan or self.fetched(self.plan)
        world = self

        class Decisions(MemoryLedger):
            def append(self, value: bytes) -> int:
                world.did("decide")
                return super().append(value)

        class State(MemoryState):
            def write(self, values: Any, permit: Permit = unfenced) -> None:
                world.did("write")
                world.plans.write(values)

        class Ours(WritePermit):
            def confirm(self, target: Any) -> None:
                if not world.lease:
                    raise LeaseLost("m", 1, "epoch 2")

            def check(self) -> None:
                self.require_going()

        self.right = right = Ours(lambda: cast("Any", None))
        mirror = replace(self.taken.mirror, sync_topics=joins)
        return TopicFollower(
            sides(
                lambda: self.taken, self.source, self.target, right, mirror=mirror, state=State(),
                ledger=Decisions(self.records), take_in=self.take_in,
                gone=lambda: {"t-gone": "t-gone-0 offsets [0, 90): the source topic is gone"},
            )
        )  # fmt: skip

    def look(self, **how: Any) -> AmendingReport:
        return self.process(**how).follow(NOW_MS)


def names(plan: Plan) -> list[str]:
    return [t.source_topic for t in plan.topics]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_new_topic_is_created_owned_decided_and_then_copied(world: World) -> None:
    world.source.there |= {"t-new": 3, "other": 1}
    report = world.look()
    assert world.effects == ["create t-new", "decide", "write", "decide", "take in"]
    assert names(world.taken) == ["t", "t-new"] and world.taken.hash == world.plan.hash
    assert owned_topics(MemoryLedger(world.records)).keys() == {"t", "t-new"}
    (amendment,) = world.taken.amendments
    assert (amendment.number, amendment.after, amendment.findings) == (1, world.plan.hash, (WARNING,))
    assert amendment.created_at == "2027-01-15T08:00:00+00:00"
    assert (report.topics, report.amendments, report.added) == (2, 1, ["t-new"])
    assert report.revision == amendment.hash == world.fetched(world.plan).revision


def test_topic_that_was_created_again_on_the_target_does_not_grow(world: World) -> None:
    """The copy has stopped on it, by its id. It has the name that the plan knows, and whose it is nobody has decided."""
    world.source.there["t"] = 4
    world.target.ids["t"] = "another"
    report = world.look()
    assert world.effects == [] and world.target.there["t"] == 1 and names(world.taken) == ["t"]
    assert report.left_out == ["t: the ledger does not say that t is this mirror's and not in production"]


def test_look_that_is_cut_off_anywhere_is_continued_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic is new and one has got partitions, one stands on the target already."""
    expected = None
    for cut in [None, *range(14)]:
        world = World(monkeypatch)
        world.source.there |= {"t": 4, "t-new": 2, "t-map": 1}
        world.target.there["t-map"] = 1
        world.cut = cut
        if cut is not None and cut < len(expected or ()):
            with pytest.raises(Killed):
                world.look()
        else:
            world.look()
        world.cut = None
        report = world.look()
        found = world.fetched(world.plan)
        assert world.taken == found and names(found) == ["t", "t-map", "t-new"]
        assert found.topic("t").partitions == 4 == world.target.there["t"]
        assert world.target.there == {"t": 4, "t-new": 2, "t-map": 1}
        assert owned_topics(MemoryLedger(world.records)).keys() == {"t", "t-map", "t-new"}
        assert not report.left_out and report.amendments == 1
        expected = expected or world.effects
    assert len(expected or ()) < 14


def test_decision_without_an_answer_is_found_by_the_next_look(world: World) -> None:
    """Of the same process, whose copy has not taken it in."""
    world.source.there |= {"t-new": 1}
    process = world.process()
    world.cut = 4
    with pytest.raises(Killed):
        process.follow(NOW_MS)
    assert names(world.taken) == ["t"]
    world.cut = None
    process.follow(NOW_MS)
    assert names(world.taken) == ["t", "t-new"] and world.effects[4:] == ["take in"]


def test_while_nothing_happens_nothing_is_written(world: World) -> None:
    world.source.there["t-new"] = 1
    process = world.process()
    first = process.follow(NOW_MS)
    done = list(world.effects)
    second = process.follow(NOW_MS + 1000)
    assert world.effects == done and str(first) == str(second)
    assert (first.topics, second.amendments) == (2, 1)


def test_topics_that_may_not_join_are_listed_and_others_do(world: World) -> None:
    """For its own data, its owner, an operator's policy, or because it can't be read."""
    world.source.there |= dict.fromkeys(
        ["t-data", "t-owned", "t-opened", "t-policy", "t-read", "t-read-later", "t-new"], 1
    )
    world.target.there |= {"t-owned": 1, "t-opened": 1}
    world.left_out["t-data"] = "target_data: it holds data"
    world.refused["t-policy"] = MissingRight("CreateTopics", "TOPIC_AUTHORIZATION_FAILED", "User:m")
    world.refused["t-read"] = InputError("no DESCRIBE_CONFIGS on t-read")
    world.refused["t-read-later"] = BrokerError("ListOffsets", 5, "LEADER_NOT_AVAILABLE")
    theirs = Owned(topic_id="id-of-t-owned", mirror="other", source_id="s")
    opened = Owned(topic_id="id-of-t-opened", mirror="m", source_id="s", opened_by="h", opened_at="yesterday")
    values = {"topic/t-owned": theirs.value(), "topic/t-opened": opened.value()}
    MemoryLedger(world.records).decide(lambda _: values)
    for _ in range(2):
        report = world.look()
        assert names(world.taken) == ["t", "t-new"]
        why = dict(line.split(": ", 1) for line in report.left_out)
        assert why.keys() == {"t-data", "t-owned", "t-opened", "t-policy", "t-read", "t-read-later"}
    assert "belongs to mirror 'other'" in why["t-owned"]
    assert "handed over to applications (yesterday)" in why["t-opened"]
    assert "TOPIC_AUTHORIZATION_FAILED" in why["t-policy"]
    assert "no DESCRIBE_CONFIGS" in why["t-read"] and "LEADER_NOT_AVAILABLE" in why["t-read-later"]
    shown = report.to_dict()
    assert shown["left_out"]["count"] == 6 and len(shown["said"]) == 1
    assert shown["said"][0].startswith("6 left out, as t-data: target_data: it holds data")
    assert owned_topics(MemoryLedger(world.records))["t-new"].upstream == ("src",), "also behind one that can't be read"


def test_on_a_source_that_is_a_target_topics_join_at_the_second_look(world: World) -> None:
    """Another mirror may have created it, and not yet said that it is its own, nor where its records come from."""
    world.source.there["t-new"] = 1
    world.upstream = Upstream("src", is_target=True)
    process = world.process()
    for early_ms in (0, 500, 4_999):  # a host that is busy says so seconds later
        report = process.follow(NOW_MS + early_ms)
        assert "seen for the first time" in report.left_out[0] and not report.added and not world.effects
    world.upstream = Upstream("src", {"t-new": Owned(topic_id="x", mirror="up", source_id="dc0")}, is_target=True)
    assert process.follow(NOW_MS + 5_000).added == ["t-new"]
    assert owned_topics(MemoryLedger(world.records))["t-new"].upstream == ("dc0", "src")


def test_topic_that_can_not_be_read_lets_none_join_at_the_first_look(world: World) -> None:
    """It comes last, and nothing is known of the source by it."""
    world.source.there |= {"t-new": 1, "t-read": 1}
    world.refused["t-read"] = InputError("no DESCRIBE_CONFIGS on t-read")
    world.upstream = Upstream("src", is_target=True)
    process = world.process()
    assert not process.follow(NOW_MS).added and not world.effects
    assert process.follow(NOW_MS + 5_000).added == ["t-new"]


def test_topic_that_gets_partitions_comes_from_where_it_came_from(world: World) -> None:
    """Only new topics are looked up on the source."""
    world.source.there["t-new"] = 1
    world.upstream = Upstream("src", {"t-new": Owned(topic_id="x", mirror="up", source_id="dc0")})
    world.look()
    world.source.there["t-new"] = 2
    world.upstream = Upstream("src")
    world.look()
    assert world.taken.topic("t-new").partitions == 2
    assert owned_topics(MemoryLedger(world.records))["t-new"].upstream == ("dc0", "src")


def test_many_new_topics_are_copied_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_discovery, "_AT_ONCE", 2)
    world.source.there |= {f"t{n}": 1 for n in range(5)}
    report = world.look()
    assert report.amendments == 3 and len(names(world.taken)) == 6
    assert world.effects.count("take in") == 3 and world.effects.index("take in") < world.effects.index("create t2")


def test_existing_topic_is_held_open_before_it_joins(world: World) -> None:
    world.source.there |= {"t-map": 1}
    world.target.there |= {"t-map": 1}
    world.look()
    assert world.effects == ["hold ['t-map'] True", "maps", "decide", "write", "decide", "take in"]


def test_topic_that_somebody_else_creates_in_between_is_looked_at_before_it_joins(world: World) -> None:
    """It may hold records, keep none of ours, or have too few replicas. One that grows was looked at with the plan."""
    world.source.there |= {"t": 2, "t-new": 1}
    world.overtaken = {"t-new"}
    report = world.look()
    assert names(world.taken) == ["t"] and world.taken.topic("t").partitions == 2
    (line,) = report.left_out
    assert line.startswith("t-new: topic 't-new' was created on the target meanwhile: its records, settings")
    done = len(world.effects)
    assert not world.look().left_out and names(world.taken) == ["t", "t-new"]
    assert world.effects[done] == "hold ['t-new'] True"


def test_turned_off_it_reports_and_takes_nothing_in(world: World) -> None:
    world.source.there |= {"t": 2, "t-new": 1}
    report = world.look(joins=False)
    off = "sync_topics is off: a new plan takes it in"
    assert not world.effects and report.left_out == [f"t: {off}", f"t-new: {off}"]


def test_what_is_gone_is_said_with_what_its_copy_knows(world: World) -> None:
    plan = world.plan = world.made("t", "t-gone", "t-again")
    world.source.there |= {"t-again": 1}
    world.source.ids["t-again"] = "another"
    report = world.look(plan=plan)
    assert report.gone == ["t-gone: t-gone-0 offsets [0, 90): the source topic is gone"]
    assert report.again == ["t-again: its partitions stop where they are"] and not report.left_out and not world.effects
    assert [line.split(":")[0] for line in report.to_dict()["said"]] == [
        "gone from the source", "created again on the source",
    ]  # fmt: skip
    assert "gone from the source: t-gone" in str(report) and "created again on the source: t-again" in str(report)


def test_job_that_lost_its_lease_touches_nothing(world: World) -> None:
    world.source.there |= {"t-new": 1}
    world.lease = False
    with pytest.raises(LeaseLost):
        world.look()
    assert not world.effects and world.fetched(world.plan) == world.plan


def test_job_that_ends_waits_for_no_topic_to_be_seen(world: World) -> None:
    """A cutover may be waiting for that, with its producers fenced."""
    world.source.there |= {"t-new": 1}
    process = world.process()
    world.ends = Thread(target=world.right.end)
    with pytest.raises(Stopped):
        process.follow(NOW_MS)
    world.ends.join()
    assert world.effects == ["create t-new"]
    world.ends = None
    world.look()
    assert names(world.taken) == ["t", "t-new"]


def test_a_source_that_can_not_be_read_ends_the_look_alone(world: World) -> None:
    world.source.there |= {"t-read": 1}
    world.refused["t-read"] = ClusterUnreachable("source", "b:1", "timed out")
    with pytest.raises(ClusterUnreachable):
        world.look()
    assert not world.effects
    del world.refused["t-read"]
    world.look()
    assert names(world.taken) == ["t", "t-read"]


def test_last_plan_learns_what_an_older_plans_tail_took_in(world: World) -> None:
    """It was made of the same rule, before the topic appeared; and so is what its next plan is told to be its own."""
    later = world.made("t", "t-of-both")
    assert later.hash != world.plan.hash
    world.source.there |= {"t": 3, "t-of-both": 1, "t-new": 1}
    world.target.there |= {"t-of-both": 1}
    process = world.process()
    process.follow(NOW_MS)
    assert names(world.fetched(world.plan)) == names(world.fetched(later)) == ["t", "t-new", "t-of-both"]
    assert world.fetched(later).topic("t").partitions == 3 and "t-new" in world.fetched(later).known_topics
    (amendment,) = world.fetched(later).amendments
    assert [t.source_topic for t in amendment.topics] == ["t", "t-new"]
    done = len(world.effects)
    process.follow(NOW_MS)
    assert len(world.effects) == done


def test_topic_created_again_is_not_carried_to_the_last_plan(world: World) -> None:
    world.source.there |= {"t-new": 1}
    world.look()
    later = world.made("t", "t-other")
    world.source.ids["t-new"] = "another"
    world.look()
    assert not world.fetched(later).amendments


@pytest.mark.parametrize("other", [{"mirror": replace(MIRROR, topics=["t"])}, {"target_cluster_id": "x"}])
def test_last_plan_of_another_rule_is_left_alone(world: World, other: dict[str, Any]) -> None:
    later = plan_of(**{"mirror": MIRROR, "target_cluster_id": "t", **other})
    keep(later, world.plans, MemoryLedger(world.records))
    world.source.there |= {"t-new": 1}
    world.look()
    assert names(world.taken) == ["t", "t-new"] and not world.fetched(later).amendments


def test_without_a_ledger_it_says_so_and_creates_nothing_it_could_not_own(world: World) -> None:
    world.source.there |= {"t-new": 1}
    process = world.process()

    def values() -> None:
        raise LedgerMissing

    process._ledger.values = values  # type: ignore[method-assign]
    with pytest.raises(LedgerMissing):
        process.follow(NOW_MS)
    assert not world.effects
