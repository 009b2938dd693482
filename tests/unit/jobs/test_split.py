"""Topics that pass from one mirror to another: what passes on with them, and what keeps them from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_mirror.common.partition import TopicPartition as TP
from airflow_mirror.copy.ranges import MAPPED
from airflow_mirror.errors import InputError, InvalidField, MirrorCutOver, TopicsOwned, TopicsShared, TryAgain
from airflow_mirror.extras.split import Split, keys_of, part_of, require_apart, rest_of
from airflow_mirror.jobs.runner.active import ActiveTail, active_tail
from airflow_mirror.kafka.model import Acl
from airflow_mirror.ledger.decisions import Values
from airflow_mirror.plan import ledger_store
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import Owned, owned_topics
from airflow_mirror.sync import seen_acls
from airflow_mirror.sync.following import notes
from tests.builders import plan_of, topic_plan
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.builders import a_mirror

WHOLE = replace(
    plan_of(
        a_mirror(name="all", topics=[".*"], exclude_topics=["x"], policy="prefix", source_alias="dc1"),
        *(topic_plan(t, {0: 3}, target_topic=f"dc1.{t}", source_topic_id=f"id-{t}") for t in ("or.ders", "pay", "users")),
    ),
    positions={"billing": {"or.ders": {0: 5}, "pay": {0: 6}}, "mail": {"users": {0: 7}}},
    known_topics={"dc1.or.ders": "identical", "dc1.pay": "identical", "dc1.users": "identical"},
)
SHARED = a_mirror(
    ownership="shared",
    delivery="transactional",
    offsets="mapped",
    sync_groups=False,
    sync_configs=False,
    sync_log_starts=False,
)
MOVED = ("dc1.or.ders", "dc1.pay")
WRITERS = (
    Acl(
        resource_type="TOPIC", name="dc1.pay", pattern_type="LITERAL", principal="User:shop", host="*", operation="WRITE",
        permission="ALLOW",
    ),
)  # fmt: skip


class World:
    """A target whose topics mirror ``all`` has filled."""

    def __init__(self) -> None:
        self.ledger, self.state = MemoryLedger(), MemoryState()
        self.log: list[str] = []
        ledger_store.keep(WHOLE, self.state, self.ledger)
        self.tail = ActiveTail(mirror=WHOLE.mirror.to_dict(), plan=WHOLE.hash, inputs="i", directory="d")
        self.ledger.decide(lambda _: {"active/all": self.tail.value()})
        for topic in WHOLE.known_topics:
            self.own(topic, "all")
        billing = {TP("dc1.pay", 0): ((6, ""),), TP("dc1.users", 0): ((1, ""),)}
        self.state.write(
            {
                notes.key("all", "billing"): notes.dump(notes.Note(9, billing)),
                notes.key("all", "mail"): notes.dump(notes.Note(9, {TP("dc1.users", 0): ((7, ""),)})),
                notes.key("all", "newer"): b'{"v": 99}',
                "proof/all/dc1.pay": b"compared", "proof/all/dc1.users": b"compared", "configs/all/dc1.pay": b"seen",
                "starts/all/dc1.or.ders/1": b"sight", "starts/all/dc1.users/1": b"sight", "proof/other/dc1.pay": b"x",
                **seen_acls.changed("all", {}, WRITERS),
            }
        )  # fmt: skip

    def own(self, topic: str, mirror: str, **more: Any) -> None:
        one = Owned(
            topic_id=f"id {topic}", mirror=mirror, source_id="s", source_topic_id="st", upstream=("s", "u"), **more
        )
        self.ledger.decide(lambda _: {f"topic/{topic}": one.value()})

    def split(self, part: Plan | None = None, **changed: Any) -> Split:
        whole = ledger_store.plan_in(self.state.read(), "all", str(ledger_store.last_hash(self.ledger.values(), "all")))
        part = part or part_of(WHOLE, ["or.ders", "pay"], "wave")
        given: dict[str, Any] = {
            "mirror": "all", "part": part, "rest": rest_of(whole, part), "whole": whole.hash,
            "ledger": self.ledger, "state": self.state,
            "topic_ids": {t.target_topic: f"id {t.target_topic}" for t in part.topics},
            "plans": self.state, "old_plans": self.state, "end_writing": self.end_writing,
        }  # fmt: skip
        return Split(**{**given, **changed})

    def end_writing(self) -> None:
        assert all(owned_topics(self.ledger)[topic].released for topic in MOVED), "or somebody begins right after it"
        self.log.append("writing ended")

    def do(self, most: int = 99) -> list[str]:
        """Do so many steps that have something to do; return their names."""
        done: list[str] = []
        for step in self.split().steps():
            if step.lines and len(done) < most:
                done.append(step.name)
                step.do()
            elif step.lines:
                break
        return done

    def of(self, mirror: str) -> Mapping[str, bytes]:
        return {key: value for key, value in self.state.read().items() if key.startswith(keys_of(mirror))}


@pytest.fixture
def world() -> World:
    return World()


def require_passed(world: World) -> None:
    owned = owned_topics(world.ledger)
    assert {topic: one.mirror for topic, one in owned.items()} == {**dict.fromkeys(MOVED, "wave"), "dc1.users": "all"}
    assert all((one.released, one.source_topic_id, one.upstream) == (None, "st", ("s", "u")) for one in owned.values())
    assert world.of("wave") == {
        notes.key("wave", "billing"): notes.dump(notes.Note(9, {TP("dc1.pay", 0): ((6, ""),)})),
        "proof/wave/dc1.pay": b"compared", "configs/wave/dc1.pay": b"seen", "starts/wave/dc1.or.ders/1": b"sight",
        **seen_acls.changed("wave", {}, WRITERS),
    }  # fmt: skip
    assert seen_acls.last_seen("wave", world.state) == WRITERS, "a failover before its first pass lets them in"
    part = part_of(WHOLE, ["or.ders", "pay"], "wave")
    assert ledger_store.last_hash(world.ledger.values(), "wave") == part.hash
    assert ledger_store.plan_in(world.state.read(), "wave", part.hash).known_topics == dict.fromkeys(MOVED, "identical")
    rest = ledger_store.plan_in(world.state.read(), "all", str(ledger_store.last_hash(world.ledger.values(), "all")))
    assert (rest.topics, rest.known_topics) == (WHOLE.topics[2:], {"dc1.users": "identical"})
    assert rest.positions == {"mail": WHOLE.positions["mail"]}
    assert rest.mirror.exclude_topics == ("x", r"or\.ders", "pay")
    assert active_tail(world.ledger.values(), "all") == replace(world.tail, plan=rest.hash), "a failover goes by it"


def test_what_is_known_of_the_topics_passes_on(world: World) -> None:
    """Of groups only what is about these topics; of the old mirror nothing is removed. The second time does nothing."""
    before = world.of("all")
    world.split().require_possible()
    assert world.do() == ["plan", "topics", "writing", "notes", "owner", "rest"]
    require_passed(world)
    assert world.of("all") == before and world.log == ["writing ended"]
    world.split().require_possible()
    assert world.do() == [] and world.log == ["writing ended"]


def test_both_mirrors_are_seen_by_readers_of_the_old_ones_dag(world: World) -> None:
    ledger_store.keep(WHOLE, world.state, world.ledger, dag="night")
    world.do()
    assert {ledger_store.dag_of(world.ledger.values(), name) for name in ("all", "wave")} == {"night"}


@pytest.mark.parametrize("most", range(7))
def test_killed_after_any_step_it_is_finished_by_the_next_one(world: World, most: int) -> None:
    """Before the last step neither mirror may write; whatever was noted until the writing ended passes on."""
    world.do(most)
    owned = [owned_topics(world.ledger)[topic] for topic in MOVED]
    assert [(one.mirror, one.released) for one in owned] in (
        [("all", None)] * 2 if most < 2 else [("all", True)] * 2, [("wave", None)] * 2 if most > 4 else []
    )  # fmt: skip
    if most < 5:
        world.state.write({notes.key("wave", "billing"): b"stale", "proof/wave/dc1.pay": b"stale"})
    world.split().require_possible()
    world.do()
    require_passed(world)


def test_writing_ends_before_the_notes_are_read(world: World) -> None:
    """What a task of the old mirror notes until its end passes on, too."""

    def ends() -> None:
        world.state.write({"proof/all/dc1.or.ders": b"noted at the last moment"})

    for step in world.split(end_writing=ends).steps():
        step.do()
    assert world.of("wave")["proof/wave/dc1.or.ders"] == b"noted at the last moment"


def test_tail_that_is_started_without_the_topics_meanwhile_keeps_its_plan(world: World) -> None:
    """While the old one's writing is waited for: failed over by the rest, what the tail has found since would be lost."""
    mirror = replace(WHOLE.mirror, exclude_topics=("x", r"or\.ders", "pay"))
    found = topic_plan("new", {0: 0}, target_topic="dc1.new", source_topic_id="id-new")
    newer = replace(WHOLE, mirror=mirror, topics=(WHOLE.topics[2], found), positions={})
    tail = replace(world.tail, plan=newer.hash)

    def started() -> None:
        ledger_store.keep(newer, world.state, world.ledger)
        world.ledger.decide(lambda _: {"active/all": tail.value()})

    with pytest.raises(TryAgain, match="planned anew while topics passed on to mirror 'wave'"):
        for step in world.split(end_writing=started).steps():
            step.do()
    assert ledger_store.last_hash(world.ledger.values(), "all") == newer.hash
    assert active_tail(world.ledger.values(), "all") == tail
    assert {owned_topics(world.ledger)[topic].mirror for topic in MOVED} == {"wave"}


def test_the_part_selects_its_topics_and_goes_on_where_the_whole_was() -> None:
    """Names and settings as before; groups are selected as before, so that one that appears is not forgotten."""
    part = part_of(WHOLE, ["pay", "or.ders"], "wave")
    assert part.mirror == replace(WHOLE.mirror, name="wave", topics=[r"or\.ders", "pay"], exclude_topics=())
    assert part.topics == WHOLE.topics[:2] and part.positions == {"billing": WHOLE.positions["billing"]}
    assert part.created_at == WHOLE.created_at, "notes about settings that are newer than the plan hold"
    assert Plan.from_json(part.to_json()) == part


def test_amended_topics_belong_to_the_part_itself() -> None:
    amended = replace(WHOLE, topics=(*WHOLE.topics, topic_plan("new", {0: 0}, source_topic_id="id-new")), rule=WHOLE)
    part = part_of(amended, ["new"], "wave")
    assert (part.rule, part.revision, [t.source_topic for t in part.topics]) == (None, part.hash, ["new"])
    assert part.hash != WHOLE.hash


def test_old_mirror_has_no_rest_once_it_has_other_topics_or_none() -> None:
    """It was planned anew before the next try; or all of its topics pass on."""
    part = part_of(WHOLE, ["or.ders", "pay"], "wave")
    assert rest_of(replace(WHOLE, topics=WHOLE.topics[2:]), part) is None
    assert rest_of(WHOLE, part_of(WHOLE, ["or.ders", "pay", "users"], "wave")) is None


@pytest.mark.parametrize(
    ("whole", "topics", "name", "error", "says"),
    [
        (WHOLE, ["lost"], "wave", InputError, "mirror 'all' does not copy lost: its plan"),
        (WHOLE, ["pay"], "all", InputError, "topics would pass from mirror 'all' to itself"),
        (WHOLE, ["pay"], "no name", InvalidField, "name='no name': not usable"),
        (
            replace(WHOLE, topics=(replace(WHOLE.topics[1], mode=MAPPED),)), ["pay"], "wave",
            InputError, "pay: the offset map of a topic is its mirror's",
        ),
        (replace(WHOLE, mirror=SHARED), ["pay"], "wave", TopicsShared, "split off topics"),
    ],
)  # fmt: skip
def test_what_is_no_part_is_refused_by_name(
    whole: Plan, topics: list[str], name: str, error: type[InputError], says: str
) -> None:
    with pytest.raises(error) as raised:
        part_of(whole, topics, name)
    assert says in str(raised.value)


def test_group_that_would_be_parted_is_named() -> None:
    reads = {"billing": ["orders", "pay"], "audit": ["pay", "refunds"], "mail": ["users"]}
    every = ["orders", "pay", "refunds", "users", "unread"]
    with pytest.raises(InputError) as raised:
        require_apart(["orders", "pay", "users"], every, reads)
    assert str(raised.value) == (
        "groups and the topics that they read are cut over together: group 'audit' also reads refunds. Split all of them "
        "off, which are orders, pay, refunds."
    )
    assert require_apart(["orders", "pay", "refunds"], every, reads) == ["audit", "billing"]
    assert require_apart(["unread"], every, reads) == []


def other(topic: str, mirror: str, **more: Any) -> Callable[[World], None]:
    return lambda world: world.own(topic, mirror, **more)


def another_plan(world: World) -> None:
    ledger_store.keep(replace(WHOLE, mirror=replace(WHOLE.mirror, name="wave")), world.state, world.ledger)


def nobodys(world: World) -> None:
    world.ledger.decide(lambda _: {"topic/dc1.pay": None})


@pytest.mark.parametrize(
    ("happened", "error", "says"),
    [
        (other("dc1.pay", "else"), TopicsOwned, "dc1.pay: mirror 'else' of cluster s"),
        (other("dc1.pay", "all", opened_by="h", opened_at="noon"), MirrorCutOver, "noon"),
        (nobodys, InputError, "topics dc1.pay: the ledger does not say that they belong to mirror 'all'"),
        (another_plan, InputError, "mirror 'wave': it has a plan of its own already"),
    ],
)  # fmt: skip
def test_what_is_not_the_old_mirrors_does_not_pass(
    world: World, happened: Callable[[World], None], error: type[Exception], says: str
) -> None:
    happened(world)
    before: tuple[Values, Mapping[str, bytes]] = world.ledger.values(), world.state.read()
    with pytest.raises(error, match=says):
        world.split().require_possible()
    assert (world.ledger.values(), world.state.read()) == before


def test_topic_that_was_created_again_or_is_gone_does_not_pass(world: World) -> None:
    with pytest.raises(InputError, match=r"dc1\.pay: the ledger does not say that they belong"):
        world.split(topic_ids={"dc1.or.ders": "id dc1.or.ders", "dc1.pay": "another"}).require_possible()
    with pytest.raises(InputError, match=r"the target has no topic dc1\.pay"):
        world.split(topic_ids={"dc1.or.ders": "id dc1.or.ders"}).require_possible()


def test_topic_of_the_same_name_from_another_source_stays(world: World) -> None:
    value = json.loads(json.dumps(world.ledger.values()["topic/dc1.pay"])) | {"source_id": "another"}
    world.ledger.decide(lambda _: {"topic/dc1.pay": value})
    with pytest.raises(TopicsOwned, match="mirror 'all' of cluster another"):
        world.split().require_possible()
