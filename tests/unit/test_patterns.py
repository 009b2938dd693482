"""Selection takes the forms of other tools, and refuses by name what is an expression of Java's alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_mirror.common.patterns import exact, matches, name_of, parse
from airflow_mirror.errors import InvalidField
from airflow_mirror.mirror import Mirror


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("orders", ("orders",)),
        ("orders, pay.*,users", ("orders", "pay.*", "users")),  # MirrorMaker 2
        ("orders|users", ("orders|users",)),  # the first MirrorMaker
        ("orders | users", ("orders|users",)),
        (["orders,users", "pay.*"], ("orders", "users", "pay.*")),
        ("a{1,3},b", ("a{1,3}", "b")),
        ("a{,b", ("a{", "b")),
        ("[a,b]x,c", ("[a,b]x", "c")),
        ("[],]x,(a,b),c", ("[],]x", "(a,b)", "c")),
        (r"a\,b,[^],]", (r"a\,b", "[^],]")),
    ],
)
def test_topics_are_lists_in_any_form(value: Any, found: tuple[str, ...]) -> None:
    assert parse("topics", value, commas=True) == found


def test_a_group_in_a_list_may_have_a_comma() -> None:
    """Kafka allows any text; only a single text is a list of several."""
    assert parse("groups", ["a, b"], commas=False) == ("a, b",)
    assert parse("groups", "a, b", commas=False) == ("a", "b")


@pytest.mark.parametrize("value", ["", "a,,b", ",", [""], ["a", " "], [7]])
def test_an_empty_item_is_refused(value: Any) -> None:
    with pytest.raises(InvalidField, match="topics="):
        parse("topics", value, commas=True)


@pytest.mark.parametrize("group", ["a\nb", "\n", "a\n", "\r\n", "a\u2028b", "\0"], ids=ascii)
def test_all_groups_are_all_of_them_whatever_is_in_their_ids(group: str) -> None:
    """A broker takes any text for one."""
    assert Mirror(name="m", source="a", target="b", topics="t").selects_group(group)
    excluding = Mirror(name="m", source="a", target="b", topics="t", exclude_groups=[f"{group[:1]}.*"])
    assert not excluding.selects_group(group)


def test_an_expression_of_a_long_list_is_compiled_once_for_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own cache of 512 holds none of them by the time that the next name is looked at."""
    patterns = tuple(f"topic-{n}[.].*" for n in range(600))
    compiler: Any = vars(re).get("_compiler") or vars(re)["sre_compile"]  # before Python 3.11
    compiled, compile_ = [], compiler.compile
    monkeypatch.setattr(compiler, "compile", lambda *args: compiled.append(args) or compile_(*args))
    found = [name for name in ("topic-599.a", "topic-7.a", "topic-7") if matches(patterns, name)]
    assert found == ["topic-599.a", "topic-7.a"] and len(compiled) == len(patterns)


def test_what_is_selected_matches_the_whole_name() -> None:
    mirror = Mirror(name="m", source="s", target="t", topics="orders|pay.*, users", exclude_topics="pay[.]tmp, .*-dlq")
    names = ["orders", "orders2", "payments", "pay.tmp", "pay-dlq", "users", "my-users"]
    assert [name for name in names if mirror.selects_topic(name)] == ["orders", "payments", "users"]


@pytest.mark.parametrize(
    ("pattern", "named", "instead"),
    [
        (r"\p{Alpha}+", "the class \\p{...}", "[A-Za-z]"),
        (r"a\PLb", "the class \\p{...}", "[A-Za-z]"),
        (r"[\p{L}]", "the class \\p{...}", "[A-Za-z]"),
        (r"\Qa.b\E.*", "the quotation", "backslash"),
        (r"(?<team>[a-z]+)-.*", "the named group", "(?P<name>...)"),
        (r"(?P<t>a)\k<t>", "the back reference", "(?P=name)"),
        (r"[a-z&&[^x]]+", "the intersection of classes", "look-ahead"),
        (r"[a-c[x-z]]", "a class in a class", r"\["),
        (r"[[:alpha:]]+", "a class in a class", r"\["),
        (r"orders\z", "the end of input", "Leave it out"),
        (r"\x{6f}rders", "the character", r"\xhh"),
        (r"\b{g}orders", "the boundary", r"\b"),
        (r"orders\R", "an escape", "characters"),
        (r"orders(?i)x", "a flag in the middle", "(?i:...)"),
        (r"(?U)orders", "a flag that only Java knows", "(?i:...)"),
        (r"(?-i)orders", "a flag that only Java knows", "(?i:...)"),
    ],
)
def test_what_only_java_knows_is_refused_by_name(pattern: str, named: str, instead: str) -> None:
    with pytest.raises(InvalidField) as caught:
        parse("topics", ["fine", pattern], commas=True)
    assert caught.value.value == pattern
    assert f"{named}" in caught.value.cause and "is Java's" in caught.value.cause and instead in caught.value.remedy


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"(?i)ORDERS", "orders"),
        (r"(?i:ORDERS)-x", "orders-x"),
        (r"(?!tmp)[a-z]++", "orders"),
        (r"(?>or|o)ders", "orders"),
        (r"orders[.]\d{1,3}", "orders.12"),
        (r"\[\\Q\]", r"[\Q]"),  # escaped: no quotation, no class
        (r"[a\[&]+", "a[&"),
        (r"[(?<a>)]+", "<a>"),
        (r"(?<=)a(?<!b)", "a"),
    ],
)
def test_what_both_know_means_the_same(pattern: str, name: str) -> None:
    assert matches(parse("groups", [pattern], commas=False), name)


@pytest.mark.parametrize("pattern", ["[a||b]+", "[a--b]", "[0||"])
def test_what_a_later_python_may_read_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidField, match="Possible set|unterminated"):
        parse("groups", [pattern], commas=False)


def test_what_nobody_knows_is_an_error_with_its_cause() -> None:
    with pytest.raises(InvalidField, match="unterminated character set"):
        parse("topics", ["["], commas=True)


@given(st.text(min_size=1))
def test_a_pattern_that_was_made_of_a_name_is_one(name: str) -> None:
    assert name_of(exact(name)) == name and matches([exact(name)], name)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("team.orders", "team.orders"), (r"team\.orders", "team.orders"), (r"team-a\.orders", "team-a.orders"),
        (r"a\ b", "a b"), (r"a\\b", r"a\b"), (r"team\..*", None), (r"\d", None), (r"\w\.b", None), ("a|b", None),
        ("a\\", None),
    ],
)  # fmt: skip
def test_people_name_one_group_with_and_without_escapes(pattern: str, name: str | None) -> None:
    assert name_of(pattern) == name


@given(st.lists(st.from_regex(r"[a-z.|?+*()\[\]\\0-9^&-]{1,8}", fullmatch=True), min_size=1, max_size=3))
def test_names_of_topics_and_expressions_survive_a_comma_list(items: list[str]) -> None:
    """Whatever is no error alone is the same again in a list of text."""
    try:
        alone = [one for item in items for one in parse("topics", [item], commas=True)]
    except InvalidField:
        return
    assert parse("topics", ",".join(items), commas=True) == tuple(alone)
    for one in alone:
        re.compile(one)
