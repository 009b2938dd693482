"""Whose a target topic is, and whether it is in production: decided in the target's ledger."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.partition import TopicPartition
from airflow_mirror.errors import InputError, MirrorCutOver, TopicsOwned, TopicsShared
from airflow_mirror.jobs import planning
from airflow_mirror.kafka.model import TopicInfo
from airflow_mirror.plan.ledger_store import keep
from airflow_mirror.plan.model import Plan
from airflow_mirror.plan.owned import active_topics, kept_topics, mirrors, owned_topics, topics_of
from airflow_mirror.plan.ownership import claim, mark_cut_over, release
from airflow_mirror.plan.requirements import require_active, require_opened, require_own_name, require_planned_ids
from tests.unit.ledger.memory import MemoryLedger, MemoryState
from tests.unit.plan.test_model import a_plan
from tests.unit.plan.test_store import FakeCluster

NOON = "2026-01-31T12:00:00+00:00"


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


def ids(plan: Plan, prefix: str = "id-of-") -> dict[str, str]:
    return {t.target_topic: prefix + t.target_topic for t in plan.topics}


def there(plan: Plan, prefix: str = "id-of-") -> FakeCluster:
    return FakeCluster(ids(plan, prefix))


def of_another(plan: Plan, **mirror: str) -> Plan:
    return replace(plan, mirror=replace(plan.mirror, **mirror))  # type: ignore[arg-type]


def test_running_job_leaves_a_topic_that_was_created_again_to_others(ledger: MemoryLedger) -> None:
    """It says again where records come from; the new topic may be claimed by another mirror, or be by now."""
    plan = a_plan()
    claim(ledger, plan, there(plan))
    before = owned_topics(ledger)
    known = ids(plan)
    claim(ledger, plan, there(plan, "new-"), lambda _: ["c9"], known)
    assert owned_topics(ledger) == before
    other = of_another(plan, name="other")
    claim(ledger, other, there(plan, "new-"))
    claim(ledger, plan, there(plan, "new-"), lambda _: ["c9"], known)
    assert {one.mirror for one in owned_topics(ledger).values()} == {"other"}


class Written(FakeCluster):
    """One whose topics hold records, or none."""

    is_empty, partitions = False, 1

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicInfo]:
        return {n: replace(info, partitions=self.partitions) for n, info in super().topics(names).items()}

    def offsets(self, tps: list[TopicPartition], _when: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0 if self.is_empty else 5)


def keyed(plan: Plan, count: int | None) -> Plan:
    return replace(plan, topics=tuple(replace(t, mode="mapped", key_partitions=count) for t in plan.topics))


def test_key_partitions_stay_as_the_copy_began_with_them(ledger: MemoryLedger) -> None:
    """A plan of before the first record may name another count: its tasks would copy everything again."""
    plan, target = a_plan(), Written(ids(a_plan()))
    target.partitions = 12
    for known, count in ((None, 6), (6, None), (6, 6)):
        claim(ledger, keyed(plan, count), target)
        assert {one.key_partitions for one in owned_topics(ledger).values()} == {known or count}
    with pytest.raises(InputError, match=r"does not copy into target topic .* began with key_partitions=6 .*Plan again"):
        claim(ledger, keyed(plan, 12), target)
    assert {one.key_partitions for one in owned_topics(ledger).values()} == {6}
    target.is_empty = True
    claim(ledger, keyed(plan, 12), target)
    assert {one.key_partitions for one in owned_topics(ledger).values()} == {12}
    claim(ledger, plan, target)
    assert {one.key_partitions for one in owned_topics(ledger).values()} == {None}


def test_plan_without_key_partitions_takes_those_of_the_moment_once(ledger: MemoryLedger) -> None:
    plan, target = of_another(keyed(a_plan(), None), partitioning="by_key"), Written(ids(a_plan()))
    for target.partitions in (2, 4):
        claim(ledger, plan, target)
        assert {one.key_partitions for one in owned_topics(ledger).values()} == {2}


@pytest.mark.parametrize("decided", [False, None, 6])
def test_copy_does_not_begin_among_another_count_than_the_topic_has(ledger: MemoryLedger, decided: int | None) -> None:
    """It was planned before somebody else created the topic; a topic that grows behind the decision is no such one."""
    plan, target = of_another(keyed(a_plan(), 3), partitioning="by_key"), Written(ids(a_plan()))
    target.is_empty, target.partitions = True, decided or 12
    if decided is not False:
        claim(ledger, keyed(plan, decided) if decided else of_another(keyed(plan, None), partitioning="preserve"), target)
    before, topic = owned_topics(ledger), plan.topics[0].target_topic
    target.partitions = 12
    with pytest.raises(InputError, match=rf"(?s)for good.*{topic}: 3 by the plan, 12 on the target.*Plan again"):
        claim(ledger, plan, target)
    assert owned_topics(ledger) == before
    for target.partitions in (3, 12):
        claim(ledger, plan, target)
        assert {one.key_partitions for one in owned_topics(ledger).values()} == {3}


def test_way_in_which_a_copy_with_a_map_began_is_decided(ledger: MemoryLedger) -> None:
    plan, target = a_plan(), Written(ids(a_plan()))
    mapped = keyed(plan, None)
    claim(ledger, plan, target)
    assert {(one.partitioning, one.delivery) for one in owned_topics(ledger).values()} == {(None, None)}, "the log tells"
    claim(ledger, mapped, target)
    assert {(one.partitioning, one.delivery) for one in owned_topics(ledger).values()} == {("preserve", "idempotent")}
    for name, other in (("partitioning", "by_key"), ("delivery", "transactional")):
        with pytest.raises(InputError, match=rf"began with {name}="):
            claim(ledger, of_another(mapped, **{name: other}), target)
    claim(ledger, plan, target)
    assert {one.partitioning for one in owned_topics(ledger).values()} == {"preserve"}, "its records are there"
    target.is_empty = True
    claim(ledger, of_another(mapped, delivery="transactional"), target)
    assert {one.delivery for one in owned_topics(ledger).values()} == {"transactional"}


def planned_again(ledger: MemoryLedger, plan: Plan, target: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Plan:
    for name, found in (("last_between", None), ("known_by_hand", {}), ("begun_before", None)):
        monkeypatch.setattr(planning, name, lambda *_, found=found: found)
    monkeypatch.setattr(planning, "build", lambda *_, **__: replace(plan, created_at=NOON))
    return planning.planned(plan.mirror, target, target, ledger, probe=False)[0]  # type: ignore[arg-type]


def test_plan_takes_no_topic_that_was_created_again_behind_it(
    ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of a finished migration is cleared, and the topic is by now its team's own. A new plan takes it."""
    plan = a_plan()
    require_planned_ids(ledger, plan, there(plan))
    claim(ledger, plan, there(plan))
    require_planned_ids(ledger, plan, there(plan))
    mark_cut_over(ledger, plan, ids(plan), NOON)
    require_planned_ids(ledger, plan, FakeCluster({}))  # deleted: it is created
    with pytest.raises(InputError, match=r"(?s)does not take target topics .*created again.*Plan again"):
        require_planned_ids(ledger, plan, there(plan, "new-"))
    require_planned_ids(ledger, plan, FakeCluster(dict.fromkeys(ids(plan), "")))  # brokers without ids
    # Deleted on purpose, or created again, before the next plan: which is carried out, also after a crash.
    for now in (FakeCluster({}), there(plan, "new-")):
        again = planned_again(ledger, plan, now, monkeypatch)
        assert again.hash != plan.hash and Plan.from_json(again.to_json()) == again
        require_planned_ids(ledger, again, there(plan, "new-"))
    claim(ledger, again, there(plan, "new-"))
    require_planned_ids(ledger, again, there(plan, "new-"))
    with pytest.raises(InputError, match="does not take target topics"):
        require_planned_ids(ledger, again, there(plan, "newest-"))
    assert planned_again(ledger, plan, there(plan, "new-"), monkeypatch).hash == plan.hash, "nothing is new to it"


def test_what_was_cut_over_is_not_written_again(ledger: MemoryLedger) -> None:
    plan = a_plan()
    claim(ledger, plan, there(plan))
    require_active(ledger, plan, there(plan))
    mark_cut_over(ledger, plan, ids(plan), NOON)
    another_worker = MemoryLedger(ledger.records)
    for again in (plan, a_plan(end=60001)):  # the finished run's own plan, and one that was made afterwards
        for refused in (require_active, claim):
            with pytest.raises(MirrorCutOver, match=f"cut over \\({NOON}\\): target topics dc1.audit|raw, dc1.orders"):
                refused(another_worker, again, there(plan))


def test_applications_may_write_once_all_topics_are_handed_over(ledger: MemoryLedger) -> None:
    """Also if a topic was created again since; not if the cutover was another mirror's."""
    plan = a_plan()
    with pytest.raises(InputError, match="'dc1-to-dc2' has not handed over target topics dc1.audit.raw, .*, dc1.users: "):
        require_opened(ledger, plan)  # nobody owns them yet
    claim(ledger, plan, there(plan))
    some = {topic: topic_id for topic, topic_id in ids(plan).items() if topic != "dc1.users"}
    mark_cut_over(ledger, plan, some, NOON)
    with pytest.raises(InputError, match="target topics dc1.users: "):
        require_opened(ledger, plan)
    mark_cut_over(ledger, plan, ids(plan), NOON)
    require_opened(ledger, plan)
    for other in (of_another(plan, name="another"), replace(plan, source_cluster_id="another")):
        with pytest.raises(InputError):
            require_opened(ledger, other)


def test_a_repeated_cutover_keeps_the_first_note(ledger: MemoryLedger) -> None:
    plan = a_plan()
    mark_cut_over(ledger, plan, ids(plan), NOON)
    decided = len(ledger.records)
    mark_cut_over(ledger, plan, ids(plan), "2027-01-01T00:00:00+00:00")
    assert {value["opened_at"] for value in ledger.values().values()} == {NOON}
    assert len(ledger.records) == decided


def test_a_target_topic_that_was_created_again_belongs_to_nobody(ledger: MemoryLedger) -> None:
    plan = a_plan()
    mark_cut_over(ledger, plan, ids(plan), NOON)
    other = of_another(plan, name="other")
    for created in (there(plan, "another-"), FakeCluster({})):
        require_active(ledger, plan, created)
        require_active(ledger, other, created)
    claim(ledger, other, there(plan, "another-"))
    with pytest.raises(TopicsOwned):
        require_active(ledger, plan, there(plan, "another-"))


def test_topics_that_a_mirror_keeps_are_known_by_their_ids(ledger: MemoryLedger) -> None:
    """Also those that its plan has no longer; none that applications have, or somebody has made anew."""
    plan = a_plan()
    claim(ledger, plan, there(plan))
    less = replace(plan, topics=plan.topics[:1])
    assert kept_topics(ledger.values(), less, there(plan).topics()) == set(ids(plan))
    assert not kept_topics(ledger.values(), plan, there(plan, "new-").topics())
    assert not kept_topics(ledger.values(), of_another(plan, name="other"), there(plan).topics())
    hidden = FakeCluster(ids(plan), hidden={t.target_topic for t in plan.topics[1:]})
    assert kept_topics(ledger.values(), less, hidden.topics()) == set(ids(less))
    mark_cut_over(ledger, less, ids(less), NOON)
    assert kept_topics(ledger.values(), plan, there(plan).topics()) == set(ids(plan)) - set(ids(less))


def test_topics_beside_those_that_were_cut_over_are_free(ledger: MemoryLedger) -> None:
    plan = a_plan()
    mark_cut_over(ledger, replace(plan, topics=plan.topics[1:]), ids(plan), NOON)
    require_active(ledger, replace(plan, topics=plan.topics[:1]), there(plan))


def test_a_topic_has_one_mirror_and_the_second_is_refused(ledger: MemoryLedger) -> None:
    """By name and source cluster: one name in two Airflows may stand for two sources."""
    plan = a_plan()
    claim(ledger, plan, there(plan))
    claim(ledger, plan, there(plan))
    decided = len(ledger.records)
    for other in (of_another(plan, name="other"), replace(plan, source_cluster_id="elsewhere")):
        for refused in (require_active, claim):
            with pytest.raises(TopicsOwned, match=f"dc1.orders: mirror {plan.mirror.name!r} of cluster") as caught:
                refused(ledger, other, there(plan))
            assert set(caught.value.owned) == set(ids(plan))
        with pytest.raises(TopicsOwned):
            mark_cut_over(ledger, other, ids(plan), NOON)
    assert len(ledger.records) == decided, "nothing was decided by those who were refused"


def test_topics_that_are_not_there_yet_are_nobodys(ledger: MemoryLedger) -> None:
    plan = a_plan()
    name = plan.topics[0].target_topic
    claim(ledger, plan, FakeCluster({name: "id"}))
    assert [key for key in ledger.values()] == [f"topic/{name}"]


def test_of_two_mirrors_that_claim_at_once_one_wins(ledger: MemoryLedger) -> None:
    """The slower one has read a ledger in which the topics are free."""
    plan = a_plan()
    slow, fast = MemoryLedger(ledger.records), MemoryLedger(ledger.records)
    appended = slow.append

    def too_late(value: bytes) -> int:
        claim(fast, plan, there(plan))
        return appended(value)

    slow.append = too_late  # type: ignore[method-assign]
    with pytest.raises(TopicsOwned):
        claim(slow, of_another(plan, name="other"), there(plan))
    require_active(ledger, plan, there(plan))


def test_released_topics_are_free_once_nobody_writes(ledger: MemoryLedger) -> None:
    """Killed anywhere on the way, and run again: what was given up is nobody's until the writing has ended."""
    plan = a_plan()
    first, *rest = ids(plan)
    other = of_another(plan, name="other")
    claim(ledger, plan, there(plan))

    def killed() -> None:
        for one in (plan, other):
            for refused in (require_active, claim):
                with pytest.raises(TopicsOwned, match="is giving it up"):
                    refused(ledger, one, there(plan))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(ledger, plan.mirror.name, killed)
    ended: list[bool] = []
    assert release(ledger, plan.mirror.name, lambda: ended.append(True)) == sorted([first, *rest])
    assert ended == [True] and ledger.values() == {}
    claim(ledger, other, there(plan))
    assert release(ledger, plan.mirror.name, lambda: ended.append(True)) == [] and ended == [True]


def test_release_frees_only_topics_whose_writing_it_ended(ledger: MemoryLedger) -> None:
    """Meanwhile the mirror is started again with another topic, and somebody gives that up as well."""
    plan = a_plan()
    first, second = (replace(plan, topics=(topic,)) for topic in plan.topics[:2])
    claim(ledger, first, there(plan))

    def meanwhile() -> None:
        claim(ledger, second, there(plan))
        with pytest.raises(KeyboardInterrupt):
            release(ledger, plan.mirror.name, interrupted)

    def interrupted() -> None:
        raise KeyboardInterrupt

    assert release(ledger, plan.mirror.name, meanwhile) == [plan.topics[0].target_topic]
    with pytest.raises(TopicsOwned, match="is giving it up"):
        claim(ledger, of_another(second, name="other"), there(plan))


def test_released_mirror_keeps_what_is_in_production(ledger: MemoryLedger) -> None:
    plan = a_plan()
    claim(ledger, plan, there(plan))
    mark_cut_over(ledger, replace(plan, topics=plan.topics[1:]), ids(plan), NOON)
    assert release(ledger, plan.mirror.name, lambda: None) == [plan.topics[0].target_topic]
    with pytest.raises(MirrorCutOver):
        require_active(ledger, plan, there(plan))


def test_what_a_newer_version_decided_is_no_permission(ledger: MemoryLedger) -> None:
    plan = a_plan()
    newer: dict[str, object] = {f"topic/{plan.topics[0].target_topic}": {"v": 3, "state": "?"}}
    ledger.decide(lambda _: newer)
    for refuse in (lambda: require_active(ledger, plan, there(plan)), lambda: require_opened(ledger, plan)):
        with pytest.raises(InputError, match="this version can't read"):
            refuse()
    assert ledger.values() == newer


def test_very_many_topics_are_a_few_decisions(ledger: MemoryLedger) -> None:
    """Each of a size that any broker takes. What opens them is one, or a kill would open a part of them."""
    one = a_plan().topics[0]
    plan = replace(a_plan(), topics=tuple(replace(one, target_topic=f"{'t' * 240}{n:05d}") for n in range(1001)))
    claim(ledger, plan, there(plan, "i" * 22))
    assert len(ledger.records) == 2 and max(map(len, ledger.records)) < 1_000_000
    mark_cut_over(ledger, plan, ids(plan, "i" * 22), NOON)
    assert len(ledger.records) == 3
    require_opened(ledger, plan)


def sharing(plan: Plan, name: str, source_id: str) -> Plan:
    fields = {"ownership": "shared", "delivery": "transactional", "sync_groups": False, "sync_configs": False}
    return replace(of_another(plan, name=name, **fields), source_cluster_id=source_id)


def test_mirrors_that_both_want_to_share_a_topic(ledger: MemoryLedger) -> None:
    """Each of them has it, and nobody else; a name stands for one source only."""
    plan = a_plan()
    one, two = sharing(plan, "one", "a"), sharing(plan, "two", "b")
    slow = MemoryLedger(ledger.records)
    appended = slow.append

    def at_the_same_time(value: bytes) -> int:
        slow.append = appended  # type: ignore[method-assign]
        claim(ledger, one, there(plan), lambda _: {"a", "z"})
        return appended(value)

    slow.append = at_the_same_time  # type: ignore[method-assign]
    claim(slow, two, there(plan))
    for mine in (one, two):
        claim(ledger, mine, there(plan))
        require_active(ledger, mine, there(plan))
        assert active_topics(ledger, mine, there(plan)) == set(ids(plan))
        assert topics_of(ledger, mine.mirror.name, mine.source_cluster_id, there(plan)) == list(ids(plan))
    (owned, *_) = owned_topics(ledger).values()
    assert [(s.mirror, s.source_id) for s in owned.sharers] == [("one", "a"), ("two", "b")]
    assert owned.feeds == {"a", "z", "b"}
    for other in (plan, of_another(plan, name="one"), sharing(plan, "one", "b")):
        with pytest.raises(TopicsOwned, match="shared by mirror 'one' of cluster a, mirror 'two' of cluster b"):
            claim(ledger, other, there(plan))
        assert active_topics(ledger, other, there(plan)) == set()


def test_a_topic_of_one_mirror_is_not_shared(ledger: MemoryLedger) -> None:
    plan = a_plan()
    claim(ledger, plan, there(plan))
    for other in (sharing(plan, "other", "a"), sharing(plan, plan.mirror.name, plan.source_cluster_id)):
        with pytest.raises(TopicsOwned, match=f"dc1.orders: mirror {plan.mirror.name!r} of cluster"):
            claim(ledger, other, there(plan))


def test_a_shared_topic_is_never_handed_over(ledger: MemoryLedger) -> None:
    one = sharing(a_plan(), "one", "a")
    claim(ledger, one, there(one))
    with pytest.raises(TopicsShared, match="mirror 'one' can't hand over topics"):
        mark_cut_over(ledger, one, ids(one), NOON)


def test_who_gives_up_a_shared_topic_leaves_it_to_the_others(ledger: MemoryLedger) -> None:
    """Killed anywhere on the way, and run again; the last one leaves nothing."""
    plan = a_plan()
    one, two = sharing(plan, "one", "a"), sharing(plan, "two", "b")
    for mine in (one, two):
        claim(ledger, mine, there(plan))

    def killed() -> None:
        with pytest.raises(TopicsOwned, match="mirror 'one' of cluster a, which is giving it up"):
            require_active(ledger, one, there(plan))
        assert active_topics(ledger, one, there(plan)) == set()
        require_active(ledger, two, there(plan))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        release(ledger, "one", killed)
    assert release(ledger, "one", lambda: None) == sorted(ids(plan))
    with pytest.raises(TopicsOwned, match="shared by mirror 'two' of cluster b"):
        claim(ledger, plan, there(plan))
    claim(ledger, one, there(plan))
    for name in ("two", "one"):
        release(ledger, name, lambda: None)
    assert ledger.values() == {}
    claim(ledger, plan, there(plan))


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["claim", "release", "interrupted"])), max_size=14))
def test_a_topic_has_one_mirror_or_only_sharing_ones(deeds: list[tuple[int, str]]) -> None:
    base, records = a_plan(), list[bytes]()
    plans = [of_another(base, name="m0"), of_another(base, name="m1"), sharing(base, "s2", "a"), sharing(base, "s3", "b")]

    def cut() -> None:
        raise KeyboardInterrupt

    for who, what in deeds:
        with suppress(TopicsOwned, KeyboardInterrupt):
            if what == "claim":
                claim(MemoryLedger(records), plans[who], there(base))
            else:
                release(MemoryLedger(records), plans[who].mirror.name, cut if what == "interrupted" else lambda: None)
        writing = {n for n, plan in enumerate(plans) if active_topics(MemoryLedger(records), plan, there(base))}
        assert len(writing) <= 1 or writing == {2, 3}


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["claim", "open", "release"])), max_size=12))
def test_a_topic_is_never_of_two_mirrors(deeds: list[tuple[int, str]]) -> None:
    """Whatever three mirrors do, one at a time: only the first one that got it may write, and nobody once it is open."""
    base, records = a_plan(), list[bytes]()
    plans = [of_another(base, name=f"m{n}") for n in range(3)]
    for who, what in deeds:
        ledger, plan = MemoryLedger(records), plans[who]
        try:
            if what == "claim":
                claim(ledger, plan, there(base))
            elif what == "open":
                mark_cut_over(ledger, plan, ids(base), NOON)
            else:
                release(ledger, plan.mirror.name, lambda: None)
        except (MirrorCutOver, TopicsOwned):
            pass
    free = []
    for plan in plans:
        try:
            require_active(MemoryLedger(records), plan, there(base))
            free.append(plan.mirror.name)
        except (MirrorCutOver, TopicsOwned):
            pass
    owned = MemoryLedger(records).values()
    assert len(free) == (3 if not owned else 0 if any("opened_by" in v for v in owned.values()) else 1)


@pytest.mark.parametrize(("there_is", "new"), [("a", "a.b"), ("a.b", "a"), ("a.b.c", "a.b")])
def test_new_mirror_is_not_named_like_the_beginning_of_another(ledger: MemoryLedger, there_is: str, new: str) -> None:
    """What is named after mirrors at the source could not be told apart. One that is there already goes on."""
    keep(of_another(a_plan(), name=there_is), MemoryState(), ledger)
    with pytest.raises(InputError, match=f"{new!r} can't be planned beside mirror {there_is!r}") as caught:
        keep(of_another(a_plan(), name=new), MemoryState(), ledger)
    assert str(caught.value).endswith(
        ", which the target's ledger knows: what is named after mirrors, such as a fence at the source, would be "
        "taken for "
        "the other one's. Nothing was changed. Give the new one a name without that beginning, such as "
        f"{new.replace('.', '-')!r}."
    )
    assert mirrors(ledger.values()) == {there_is}
    for other in ("ab", "a-b", there_is):
        require_own_name(ledger.values(), other)
    ledger.decide(lambda _: {f"active/{new}": {"v": 1}})
    keep(of_another(a_plan(), name=new), MemoryState(), ledger)
