"""The kernel of all checks: what they find, what can't be asked, and that one function is all of a check."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_mirror.checks import BLOCK, PASS, WARN, Check, Checks, Finding, Questions, Unknown, block, several, warn
from airflow_mirror.errors import BrokerError, ClusterUnreachable, InputError, MirrorError, MissingRight
from airflow_mirror.plan import checks as plan_checks
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.markdown import render
from airflow_mirror.plan.situation import Situation
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW

AWAY, SECRET = (
    BrokerError("ask x", 7, "REQUEST_TIMED_OUT"),
    MissingRight("ask x", "CLUSTER_AUTHORIZATION_FAILED", "User:m"),
)


def table() -> Checks[[int]]:
    return Checks[[int]](lambda number: f"{number} topics")


def found(checks: Checks[[int]], **unknown: MirrorError) -> list[tuple[str, str, str, str]]:
    return [(f.level, f.check, f.object, f.evidence) for f in checks.run(unknown, 7)]


def test_judge_that_finds_nothing_passes_and_says_so_if_it_has_words_for_it() -> None:
    checks = table()
    checks.check("silent")(lambda _: None)
    checks.check("small", "it is small")(lambda _: ())
    checks.check("number", lambda number: f"it is {number}")(lambda _: ())
    assert found(checks) == [(PASS, "small", "7 topics", "it is small"), (PASS, "number", "7 topics", "it is 7")]


def test_findings_get_the_id_and_the_object_of_their_row() -> None:
    checks = table()

    @checks.check("disk", "there is room", about="target")
    def _disk(number: int) -> Iterator[Finding | str]:
        yield warn("nearly full", "Free disk.")
        yield block("full", about="broker 1")
        yield "and a line"

    assert found(checks) == [
        (WARN, "disk", "target", "nearly full"), (BLOCK, "disk", "broker 1", "full"),
        (BLOCK, "disk", "target", "and a line"),
    ]  # fmt: skip


def test_error_of_a_judge_blocks_but_a_cluster_that_is_away_ends_the_look() -> None:
    def fails(error: MirrorError) -> Checks[[int]]:
        def judge(_: int) -> None:
            raise error

        checks = table()
        checks.check("fence", "it can be raised")(judge)
        return checks

    assert found(fails(InputError("no authorizer"))) == [(BLOCK, "fence", "7 topics", "no authorizer")]
    for away in (AWAY, ClusterUnreachable("source", "k:1", "refused")):
        with pytest.raises(type(away)):
            found(fails(away))


@pytest.mark.parametrize("question", ["lag", "ends"])
def test_check_whose_question_got_no_answer_is_neither_skipped_nor_passed(question: str) -> None:
    """What only a right would tell may do no more than warn."""
    checks = table()
    checks.check("lag", "none", needs=["ends"], hidden=WARN)(lambda _: [block("judged without facts")])
    for error, level in ((AWAY, BLOCK), (SECRET, WARN)):
        (one,) = checks.run({question: error}, 7)
        assert isinstance(one, Unknown) and (one.level, one.check, one.object) == (level, "lag", "7 topics")
        assert one.evidence == f"not known: {error}"


def test_others_are_not_run_once_the_first_blocks() -> None:
    checks = table()
    checks.check("first", "it is possible", first=True)(lambda number: ["impossible"] if number == 7 else None)
    checks.check("second", "it is well")(lambda _: None)
    assert [row[1] for row in found(checks)] == ["first"]
    assert [f.level for f in checks.run({}, 8)] == [PASS, PASS]


def test_two_checks_of_one_name_are_refused() -> None:
    checks = table()
    checks.check("lag")(lambda _: None)
    with pytest.raises(AssertionError, match="two checks 'lag'"):
        checks.check("lag")(lambda _: None)


def test_question_without_an_answer_keeps_no_other_from_being_asked() -> None:
    def fail(error: MirrorError) -> int:
        raise error

    to = Questions(ClusterUnreachable)
    assert to.ask("ends", lambda: fail(AWAY)) is None and to.ask("starts", lambda: 5) == 5
    assert to.unknown == {"ends": AWAY}
    with pytest.raises(ClusterUnreachable):
        to.ask("ends", lambda: fail(ClusterUnreachable("source", "k:1", "refused")))


def test_several_objects_are_one_finding_and_none_are_none() -> None:
    assert list(several(warn, [], "group", "they stay", "Move them.")) == []
    (one,) = several(warn, list("abcdefg"), "group", "they stay", "Move them.")
    assert (one.object, one.evidence, one.remedy) == ("7 groups", "they stay: a, b, c, d, e and 2 more", "Move them.")


def test_one_function_below_its_line_is_all_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else there is to do for a new check, as a table, a list of ids or a text, would be forgotten."""
    monkeypatch.setattr(plan_checks.CHECKS, "rows", dict[str, Check[[Situation]]](plan_checks.CHECKS.rows))

    @plan_checks.CHECKS.check("moon", "the moon is new", about="sky")
    def _moon(_: Situation) -> Iterator[Finding]:
        yield warn("the moon is full", "Wait two weeks.")

    made = decide(a_mirror(), a_cluster(a_topic()), a_cluster(cluster_id="c2"), (), NOW)
    assert [str(f) for f in made.findings if f.check == "moon"] == ["moon: sky: the moon is full. Wait two weeks."]
    assert "the moon is full" in render(made) and "moon" in made.to_json()
