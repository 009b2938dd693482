"""Waves: every topic in one, no group in two, and as many as there can be."""

from __future__ import annotations

from itertools import combinations

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_mirror.common.policy import is_internal
from airflow_mirror.extras.readiness.waves import Wave, waves
from tests.unit.plan.builders import a_mirror

TOPICS = st.text("ab.-_", min_size=1, max_size=4).filter(lambda name: not is_internal(name))
GROUPS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
READS = st.dictionaries(GROUPS, st.sets(TOPICS, max_size=4), max_size=6)


def wave(*topics: str, groups: tuple[str, ...] = (), **ties: tuple[str, ...]) -> Wave:
    return Wave(topics=topics, groups=groups, ties=ties)


def test_groups_tie_their_topics_and_chains_of_them() -> None:
    reads = {"billing": {"orders", "payments"}, "audit": {"payments", "refunds"}, "mail": {"users"}, "late": {"users"}}
    found = waves({"orders", "payments", "refunds", "users", "raw", "dump"}, reads)
    assert found == [
        wave("users", groups=("late", "mail")),
        wave(
            "orders", "payments", "refunds", groups=("audit", "billing"),
            audit=("payments", "refunds"), billing=("orders", "payments"),
        ),
        wave("dump", "raw"),
    ]  # fmt: skip


def test_topics_outside_the_mirror_tie_nothing() -> None:
    reads = {"both": {"orders", "theirs"}, "other": {"users", "theirs"}, "none": {"theirs"}}
    assert waves({"orders", "users"}, reads) == [
        wave("orders", groups=("both",)), wave("users", groups=("other",))
    ]  # fmt: skip


@given(st.sets(TOPICS, max_size=8), READS)
def test_each_topic_is_in_one_wave_and_no_group_in_two(topics: set[str], reads: dict[str, set[str]]) -> None:
    found = waves(topics, reads)
    assert sorted(t for one in found for t in one.topics) == sorted(topics)
    for group, its in reads.items():
        holding = [one for one in found if its & set(one.topics)]
        assert len(holding) == (1 if its & topics else 0)
        assert [one for one in found if group in one.groups] == holding


@given(st.sets(TOPICS, max_size=8), READS)
def test_no_wave_could_be_split(topics: set[str], reads: dict[str, set[str]]) -> None:
    """Any two parts of a wave that is read have a group, and one that is named, in common."""
    for one in waves(topics, reads):
        for size in range(1, len(one.topics) if one.groups else 0):
            for part in map(set, combinations(one.topics, size)):
                assert any(part & set(its) and set(its) - part for its in one.ties.values())


@given(st.sets(TOPICS, max_size=6), READS)
@example({"a.b", "aab"}, {"g.1": {"a.b"}, "g-1": {"aab"}, "a(b": {"aab"}})
def test_a_mirror_selects_its_wave_and_nothing_else(topics: set[str], reads: dict[str, set[str]]) -> None:
    for one in waves(topics, reads):
        mirror = a_mirror(**one.selection(), exclude_groups=())
        assert {t for t in topics if mirror.selects_topic(t)} == set(one.topics)
        assert {g for g in reads if mirror.selects_group(g)} == set(one.groups)
