"""Patterns of a Mirror as resources of ACLs: never less than what they match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.plan.resources import ANY, LITERAL, PREFIXED, Resource, covering, includes
from tests.builders import rule


def topics(*patterns: str, **options: object) -> list[tuple[str, str]]:
    found, _ = covering("TOPIC", patterns, **options)
    return [(one.name, one.pattern_type) for one in found]


@pytest.mark.parametrize(
    ("pattern", "name", "kind"),
    [
        ("orders", "orders", LITERAL),
        ("orders.raw-2_x", "orders.raw-2_x", LITERAL),
        ("orders.*", "orders", PREFIXED),
        (r"orders\..*", "orders.", PREFIXED),
        ("orders[.]raw[.].+", "orders.raw.", PREFIXED),
        ("orders?", "order", PREFIXED),
        ("orders[.]?x", "orders", PREFIXED),
        ("orders{0,1}", "order", PREFIXED),
        ("ab+c", "ab", PREFIXED),
        ("orders[ab]", "orders", PREFIXED),
        (r"orders\d", "orders", PREFIXED),
        ("orders|payments", ANY, LITERAL),
        ("(orders|payments).*", ANY, LITERAL),
        ("(?i)orders.*", ANY, LITERAL),
        (".*", ANY, LITERAL),
        ("o*", ANY, LITERAL),
        ("[^a]rders", ANY, LITERAL),
    ],
)
def test_a_pattern_is_covered_by_its_literal_beginning(pattern: str, name: str, kind: str) -> None:
    assert topics(pattern) == [(name, kind)]


@given(st.from_regex(r"([a-c.]|\\\.|\[[.a]\]|[a-c][*+?]|\.\*|[a-c]\{0,2\}|\(a\|b\)){1,6}", fullmatch=True), st.data())
def test_every_name_that_a_pattern_matches_is_covered(pattern: str, data: st.DataObject) -> None:
    """A pattern without special characters is a name, by itself."""
    name = data.draw(st.from_regex(pattern, fullmatch=True))
    ((found, kind),) = topics(pattern)
    assert found == ANY or (name.startswith(found) if kind == PREFIXED else re.fullmatch(found, name))


def test_a_prefix_of_names_stands_before_each_resource() -> None:
    assert topics("orders", "pay.*", ".*", prefix="dc1.") == [
        ("dc1.orders", LITERAL), ("dc1.pay", PREFIXED), ("dc1.", PREFIXED),
    ]  # fmt: skip


def test_brokers_without_prefixed_patterns_get_every_name() -> None:
    assert topics("orders", "pay.*", prefixes=False) == [("orders", LITERAL), (ANY, LITERAL)]


def test_what_can_not_be_narrowed_is_said() -> None:
    found, notes = covering("TOPIC", ["orders", "pay.*", ".*", "a.b", "x|y"], ["tmp.*"])
    assert len(found) == 4
    assert [note[:60] for note in notes] == [
        "'pay.*' is a regular expression, and no pattern of ACLs: the",
        "'.*' is a regular expression, and no pattern of ACLs: the ri",
        "'a.b' is taken as the name of one topic. As a regular expres",
        "'x|y' is a regular expression, and no pattern of ACLs: the r",
    ]
    assert "each topic that begins with 'pay', also for what is excluded ('tmp.*')" in notes[0]
    assert "every topic, also" in notes[1]
    assert covering("TOPIC", ["orders"], ["tmp.*"]) == ([Resource("TOPIC", "orders")], [])


@pytest.mark.parametrize(
    ("wide", "narrow", "included"),
    [
        (rule("a", "READ"), rule("a", "READ"), True),
        (rule("a", "READ"), rule("a", "DESCRIBE"), True),
        (rule("a", "ALTER_CONFIGS"), rule("a", "DESCRIBE_CONFIGS"), True),
        (rule("a", "DESCRIBE"), rule("a", "READ"), False),
        (rule("a", "READ"), rule("a", "DESCRIBE_CONFIGS"), False),
        (rule("a", "READ"), rule("ab", "READ"), False),
        (rule("a", "READ", pattern=PREFIXED), rule("ab", "READ"), True),
        (rule("a", "READ", pattern=PREFIXED), rule("ab", "READ", pattern=PREFIXED), True),
        (rule("ab", "READ", pattern=PREFIXED), rule("a", "READ", pattern=PREFIXED), False),
        (rule("a", "READ"), rule("a", "READ", pattern=PREFIXED), False),
        (rule("*", "READ"), rule("a", "READ", pattern=PREFIXED), True),
        (rule("*", "READ", pattern=PREFIXED), rule("*", "READ"), False),
        (rule("*", "READ"), rule("*", "READ", kind="GROUP"), False),
        (rule("*", "READ"), rule("a", "READ", principal="User:b"), False),
    ],
)
def test_an_acl_includes_what_kafka_says_it_includes(wide: object, narrow: object, included: bool) -> None:
    assert includes(wide, narrow) is included
