"""The kernel of all checks: what they find, what can't be asked, and that one function is all of a check."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from airflow_mirror.cutover import preview
from airflow_mirror.cutover.limits import Limits
from airflow_mirror.errors import BrokerError, ClusterUnreachable, InputError, MirrorError, MissingRight
from airflow_mirror.extras.readiness import look
from airflow_mirror.jobs.health import judging
from airflow_mirror.plan import checks as plan_checks
from airflow_mirror.plan.build import decide
from airflow_mirror.plan.findings import BLOCK, PASS, WARN, Checks, Finding, Questions, Unknown, block, several, warn
from airflow_mirror.plan.markdown import render
from tests.unit.cutover import test_preview
from tests.unit.jobs import test_health
from tests.unit.plan.builders import a_cluster, a_mirror, a_topic
from tests.unit.plan.test_checks import NOW
from tests.unit.readiness import test_build

AWAY, SECRET = (
    BrokerError("ask x", 7, "REQUEST_TIMED_OUT"),
    MissingRight("ask x", "CLUSTER_AUTHORIZATION_FAILED", "User:m"),
)

ROOT = Path(__file__).parents[2]


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
        checks.check("fence", "it can be raised", level=WARN)(judge)
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


def of_a_plan() -> list[Finding]:
    made = decide(a_mirror(), a_cluster(a_topic()), a_cluster(cluster_id="c2"), (), NOW)
    assert "the moon is full" in render(made) and "moon" in made.to_json()
    return list(made.findings)


def of_health() -> list[Finding]:
    assert judging.Limits(warn_only=["moon"]), "it may be named"
    return judging.judge(test_health.WELL, judging.Limits())


@pytest.mark.parametrize(
    ("table", "pipeline"),
    [
        ("plan.checks", of_a_plan), ("jobs.health.judging", of_health),
        ("cutover.preview", lambda: preview.judge(test_preview.WELL, Limits())[0]),
        ("extras.readiness.findings", lambda: test_build.night().findings),
    ],
)  # fmt: skip
def test_one_function_below_its_line_is_all_of_a_check(
    monkeypatch: pytest.MonkeyPatch, table: str, pipeline: Callable[[], list[Finding]]
) -> None:
    """What else there is to do for a new check, as a list of ids or a text, would be forgotten."""
    checks: Checks[[Any]] = import_module(f"airflow_mirror.{table}").CHECKS
    monkeypatch.setattr(checks, "rows", dict(checks.rows))
    checks.check("moon", about="sky")(lambda *_: [block("the moon is full", "Wait two weeks.")])
    assert [str(f) for f in pipeline() if f.check == "moon"] == ["moon: sky: the moon is full. Wait two weeks."]


def test_example_in_the_contributors_guide_is_a_check_of_a_plan() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("How do I add a check?")[2]
    added = [line[1:] for line in guide.partition("```diff\n")[2].partition("```")[0].splitlines()]
    assert added and "\n".join(added) in Path(plan_checks.__file__).read_text(encoding="utf-8")


def test_contributors_guide_names_every_module_that_has_checks() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("How do I add a check?")[2]
    named = re.findall(r"`([\w/*]+\.py)`", guide.partition("```")[0])
    package = ROOT / "airflow_mirror"
    having = {path for path in package.rglob("*.py") if "@CHECKS.check(" in path.read_text(encoding="utf-8")}
    for name in named:
        assert having & set(package.glob(name)), f"{name} has no checks"
    assert not having - {path for name in named for path in package.glob(name)}


@pytest.mark.parametrize(
    "name", ["plan.checks", "cutover.check", "cutover.preview", "jobs.health.judging", "extras.readiness.findings"]
)
def test_what_a_check_needs_is_a_question_that_somebody_asks(name: str) -> None:
    """A name that nobody asks by would never be unknown, and the check would judge without its facts."""
    checks: Checks[[Any]] = import_module(f"airflow_mirror.{name}").CHECKS
    asked = {
        *checks.rows,
        look.COPY,
        look.GROUPS,
        look.COMMITTED,
        look.CONFIGS,
        look.STARTS,
        look.EXPIRES,
        look.PRODUCERS,
    }
    assert checks.rows and {one for row in checks.rows.values() for one in row.needs} <= {*checks.rows, *asked}
